# Written by scripts/stubs.py from the list in __init__.py.

from shardway.options.consumer import BufferOptions as BufferOptions
from shardway.options.consumer import CheckpointOptions as CheckpointOptions
from shardway.options.consumer import ConsumerOptions as ConsumerOptions
from shardway.options.consumer import FanOutOptions as FanOutOptions
from shardway.options.consumer import HandoffOptions as HandoffOptions
from shardway.options.leases import LeaseOptions as LeaseOptions
from shardway.options.metrics import MetricsOptions as MetricsOptions
from shardway.options.producer import ProducerOptions as ProducerOptions

__all__ = [
    "BufferOptions",
    "CheckpointOptions",
    "ConsumerOptions",
    "FanOutOptions",
    "HandoffOptions",
    "LeaseOptions",
    "MetricsOptions",
    "ProducerOptions",
]
