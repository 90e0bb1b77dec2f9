# Written by scripts/stubs.py from the list in statistics.py.

from shardway.events.consumer_snapshot import ConsumerSnapshot as ConsumerSnapshot
from shardway.events.producer_snapshot import ProducerSnapshot as ProducerSnapshot
from shardway.events.query_snapshot import QuerySnapshot as QuerySnapshot
from shardway.options.metrics import MetricsOptions as MetricsOptions
from shardway.runtime.consumer.statistics import ConsumerStatistics as ConsumerStatistics
from shardway.runtime.consumer.statistics import ShardStatistics as ShardStatistics

__all__ = [
    "ConsumerSnapshot",
    "ConsumerStatistics",
    "MetricsOptions",
    "ProducerSnapshot",
    "QuerySnapshot",
    "ShardStatistics",
]
