"""Shardway carries records between Amazon Kinesis Data Streams and Python.

What most programs need is named here; more is in `shardway.leases`, `shardway.checkpoints`, `shardway.dead_letters`,
`shardway.fences`, `shardway.errors`, `shardway.events`, `shardway.statistics`, `shardway.deserializers`,
`shardway.telemetry`, `shardway.testing`, and, for programs that bring a stream or a table of their own,
`shardway.ports`.
Names are loaded when first used, so that ``import shardway`` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.public import loaded_from

if TYPE_CHECKING:
    from shardway.core.ledger.parts import Part
    from shardway.core.log.pace import PollingOptions
    from shardway.core.shard.duplicates import Deduplicate
    from shardway.errors import (
        BufferFullError,
        CheckpointError,
        DataLossError,
        OptionError,
        PutError,
        ServiceError,
        ShardReadError,
        ShardwayError,
        TransportError,
    )
    from shardway.model import OutRecord, OutsidePolicy, Position, PutResult, Record, StartingPosition
    from shardway.options.consumer import BufferOptions, CheckpointOptions, FanOutOptions, HandoffOptions
    from shardway.options.leases import LeaseOptions
    from shardway.options.producer import ProducerOptions
    from shardway.policies import (
        AnyOrder,
        ByKey,
        DeadLetters,
        Deliver,
        GiveUp,
        InOrder,
        Redeliver,
        Retry,
        SettlingOptions,
        Skip,
        Stop,
        Warn,
    )
    from shardway.runtime.consumer.collection import Collection
    from shardway.runtime.consumer.concurrency import OneByOne, Unordered, by_key, unordered
    from shardway.runtime.consumer.consumer import Consumer
    from shardway.runtime.consumer.lifecycle import AssignedShard
    from shardway.runtime.consumer.shards import Shard
    from shardway.runtime.consumer.sync_consumer import SyncConsumer, SyncShard
    from shardway.runtime.feeds.deserializing import Unreadable
    from shardway.runtime.producer.handles import PutHandle, Puts, SyncPutHandle, SyncPuts, Unwritten
    from shardway.runtime.producer.producer import Producer
    from shardway.runtime.producer.sync_producer import SyncProducer
    from shardway.runtime.shard.batch import Batch, Delivered
    from shardway.telemetry.log import log_events
    from shardway.wiring import ConnectionOptions, Credentials

__all__ = [
    "AnyOrder",
    "AssignedShard",
    "Batch",
    "BufferFullError",
    "BufferOptions",
    "ByKey",
    "CheckpointError",
    "CheckpointOptions",
    "Collection",
    "ConnectionOptions",
    "Consumer",
    "Credentials",
    "DataLossError",
    "DeadLetters",
    "Deduplicate",
    "Deliver",
    "Delivered",
    "FanOutOptions",
    "GiveUp",
    "HandoffOptions",
    "InOrder",
    "LeaseOptions",
    "OneByOne",
    "OptionError",
    "OutRecord",
    "OutsidePolicy",
    "Part",
    "PollingOptions",
    "Position",
    "Producer",
    "ProducerOptions",
    "PutError",
    "PutHandle",
    "PutResult",
    "Puts",
    "Record",
    "Redeliver",
    "Retry",
    "ServiceError",
    "SettlingOptions",
    "Shard",
    "ShardReadError",
    "ShardwayError",
    "Skip",
    "StartingPosition",
    "Stop",
    "SyncConsumer",
    "SyncProducer",
    "SyncPutHandle",
    "SyncPuts",
    "SyncShard",
    "TransportError",
    "Unordered",
    "Unreadable",
    "Unwritten",
    "Warn",
    "__version__",
    "by_key",
    "log_events",
    "unordered",
]

__version__ = "0.3.0"

_HOMES = {
    "AnyOrder": "shardway.policies",
    "AssignedShard": "shardway.runtime.consumer.lifecycle",
    "Batch": "shardway.runtime.shard.batch",
    "BufferFullError": "shardway.errors",
    "BufferOptions": "shardway.options.consumer",
    "ByKey": "shardway.policies",
    "CheckpointError": "shardway.errors",
    "CheckpointOptions": "shardway.options.consumer",
    "Collection": "shardway.runtime.consumer.collection",
    "ConnectionOptions": "shardway.wiring",
    "Consumer": "shardway.runtime.consumer.consumer",
    "Credentials": "shardway.wiring",
    "DataLossError": "shardway.errors",
    "DeadLetters": "shardway.policies",
    "Deduplicate": "shardway.core.shard.duplicates",
    "Deliver": "shardway.policies",
    "Delivered": "shardway.runtime.shard.batch",
    "FanOutOptions": "shardway.options.consumer",
    "GiveUp": "shardway.policies",
    "HandoffOptions": "shardway.options.consumer",
    "InOrder": "shardway.policies",
    "LeaseOptions": "shardway.options.leases",
    "OneByOne": "shardway.runtime.consumer.concurrency",
    "OptionError": "shardway.errors",
    "OutRecord": "shardway.model",
    "OutsidePolicy": "shardway.model",
    "Part": "shardway.core.ledger.parts",
    "PollingOptions": "shardway.core.log.pace",
    "Position": "shardway.model",
    "Producer": "shardway.runtime.producer.producer",
    "ProducerOptions": "shardway.options.producer",
    "PutError": "shardway.errors",
    "PutHandle": "shardway.runtime.producer.handles",
    "PutResult": "shardway.model",
    "Puts": "shardway.runtime.producer.handles",
    "Record": "shardway.model",
    "Redeliver": "shardway.policies",
    "Retry": "shardway.policies",
    "ServiceError": "shardway.errors",
    "SettlingOptions": "shardway.policies",
    "Shard": "shardway.runtime.consumer.shards",
    "ShardReadError": "shardway.errors",
    "ShardwayError": "shardway.errors",
    "Skip": "shardway.policies",
    "StartingPosition": "shardway.model",
    "Stop": "shardway.policies",
    "SyncConsumer": "shardway.runtime.consumer.sync_consumer",
    "SyncProducer": "shardway.runtime.producer.sync_producer",
    "SyncPutHandle": "shardway.runtime.producer.handles",
    "SyncPuts": "shardway.runtime.producer.handles",
    "SyncShard": "shardway.runtime.consumer.sync_consumer",
    "TransportError": "shardway.errors",
    "Unordered": "shardway.runtime.consumer.concurrency",
    "Unreadable": "shardway.runtime.feeds.deserializing",
    "Unwritten": "shardway.runtime.producer.handles",
    "Warn": "shardway.policies",
    "by_key": "shardway.runtime.consumer.concurrency",
    "log_events": "shardway.telemetry.log",
    "unordered": "shardway.runtime.consumer.concurrency",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
