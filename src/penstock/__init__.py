"""Penstock carries records between Amazon Kinesis Data Streams and Python.

What most programs need is named here; more is in `penstock.leases`, `penstock.checkpoints`, `penstock.dead_letters`,
`penstock.fences`, `penstock.errors`, `penstock.events`, `penstock.statistics`, `penstock.deserializers`,
`penstock.telemetry`, `penstock.testing`, and, for programs that bring a stream or a table of their own,
`penstock.ports`.
Names are loaded when first used, so that ``import penstock`` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.public import loaded_from

if TYPE_CHECKING:
    from penstock.core.feeding.allowance import PollingOptions
    from penstock.core.ledger.grouping import Part
    from penstock.core.ledger.policies import (
        AnyOrder,
        ByKey,
        DeadLetters,
        GiveUp,
        InOrder,
        Redeliver,
        Retry,
        SettlingOptions,
        Skip,
        Stop,
        Warn,
    )
    from penstock.core.shard.duplicates import Deduplicate
    from penstock.errors import (
        BufferFullError,
        CheckpointError,
        DataLossError,
        OptionError,
        PenstockError,
        PutError,
        ServiceError,
        ShardReadError,
        TransportError,
    )
    from penstock.model import OutRecord, OutsidePolicy, Position, PutResult, Record, StartingPosition
    from penstock.options import (
        BufferOptions,
        CheckpointOptions,
        FanOutOptions,
        HandoffOptions,
        LeaseOptions,
        ProducerOptions,
    )
    from penstock.runtime.consumer.consumer import Consumer
    from penstock.runtime.consumer.driving import Collection, OneByOne, Unordered, by_key, unordered
    from penstock.runtime.consumer.shards import AssignedShard, Shard
    from penstock.runtime.consumer.sync_consumer import SyncConsumer, SyncShard
    from penstock.runtime.feeds import Deliver, Unreadable
    from penstock.runtime.producer.handles import PutHandle, Puts, SyncPutHandle, SyncPuts, Unwritten
    from penstock.runtime.producer.producer import Producer
    from penstock.runtime.producer.sync_producer import SyncProducer
    from penstock.runtime.shard.batch import Batch, Delivered
    from penstock.telemetry.log import log_events
    from penstock.wiring import ConnectionOptions, Credentials

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
    "PenstockError",
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

__version__ = "0.2.0"

_HOMES = {
    "AnyOrder": "penstock.core.ledger.policies",
    "AssignedShard": "penstock.runtime.consumer.shards",
    "Batch": "penstock.runtime.shard.batch",
    "BufferFullError": "penstock.errors",
    "BufferOptions": "penstock.options",
    "ByKey": "penstock.core.ledger.policies",
    "CheckpointError": "penstock.errors",
    "CheckpointOptions": "penstock.options",
    "Collection": "penstock.runtime.consumer.driving",
    "ConnectionOptions": "penstock.wiring",
    "Consumer": "penstock.runtime.consumer.consumer",
    "Credentials": "penstock.wiring",
    "DataLossError": "penstock.errors",
    "DeadLetters": "penstock.core.ledger.policies",
    "Deduplicate": "penstock.core.shard.duplicates",
    "Deliver": "penstock.runtime.feeds",
    "Delivered": "penstock.runtime.shard.batch",
    "FanOutOptions": "penstock.options",
    "GiveUp": "penstock.core.ledger.policies",
    "HandoffOptions": "penstock.options",
    "InOrder": "penstock.core.ledger.policies",
    "LeaseOptions": "penstock.options",
    "OneByOne": "penstock.runtime.consumer.driving",
    "OptionError": "penstock.errors",
    "OutRecord": "penstock.model",
    "OutsidePolicy": "penstock.model",
    "Part": "penstock.core.ledger.grouping",
    "PenstockError": "penstock.errors",
    "PollingOptions": "penstock.core.feeding.allowance",
    "Position": "penstock.model",
    "Producer": "penstock.runtime.producer.producer",
    "ProducerOptions": "penstock.options",
    "PutError": "penstock.errors",
    "PutHandle": "penstock.runtime.producer.handles",
    "PutResult": "penstock.model",
    "Puts": "penstock.runtime.producer.handles",
    "Record": "penstock.model",
    "Redeliver": "penstock.core.ledger.policies",
    "Retry": "penstock.core.ledger.policies",
    "ServiceError": "penstock.errors",
    "SettlingOptions": "penstock.core.ledger.policies",
    "Shard": "penstock.runtime.consumer.shards",
    "ShardReadError": "penstock.errors",
    "Skip": "penstock.core.ledger.policies",
    "StartingPosition": "penstock.model",
    "Stop": "penstock.core.ledger.policies",
    "SyncConsumer": "penstock.runtime.consumer.sync_consumer",
    "SyncProducer": "penstock.runtime.producer.sync_producer",
    "SyncPutHandle": "penstock.runtime.producer.handles",
    "SyncPuts": "penstock.runtime.producer.handles",
    "SyncShard": "penstock.runtime.consumer.sync_consumer",
    "TransportError": "penstock.errors",
    "Unordered": "penstock.runtime.consumer.driving",
    "Unreadable": "penstock.runtime.feeds",
    "Unwritten": "penstock.runtime.producer.handles",
    "Warn": "penstock.core.ledger.policies",
    "by_key": "penstock.runtime.consumer.driving",
    "log_events": "penstock.telemetry.log",
    "unordered": "penstock.runtime.consumer.driving",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
