"""Penstock carries records between Amazon Kinesis Data Streams and Python.

What is named here is public. Names are loaded when first used, so that ``import penstock`` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.assignment.strategies import ByThroughput, EqualCounts, Fixed
    from penstock.core.feeding.allowance import PollTimes
    from penstock.core.ledger.letter import Letter
    from penstock.core.ledger.parts import Part
    from penstock.core.ledger.settings import (
        AnyOrder,
        ByKey,
        DeadLetters,
        GiveUp,
        InOrder,
        LedgerSettings,
        Redeliver,
        Retry,
        Skip,
        Stop,
        Warn,
    )
    from penstock.core.shard.checkpoints import Every, PendingChoice, Prompt, Riding
    from penstock.core.shard.duplicates import Deduplicate
    from penstock.errors import (
        AccessDeniedError,
        AggregateError,
        BufferFullError,
        CheckpointError,
        ConditionFailedError,
        CredentialsError,
        DataLossError,
        ExpiredIteratorError,
        FlushTimeoutError,
        InvalidArgumentError,
        InvalidRecordError,
        NotFoundError,
        OptionError,
        PenstockError,
        ProducerClosedError,
        PutError,
        RecordExpiredError,
        RecordRefusedError,
        RecordWithdrawnError,
        ServiceError,
        ShardReadError,
        ShardStoppedError,
        StalledError,
        ThrottledError,
        TransportError,
        UnavailableError,
        UnreadableRecordError,
    )
    from penstock.model import OutRecord, OutsidePolicy, Position, PutResult, Record, Shard, StartAt, StreamName
    from penstock.options import ProducerOptions
    from penstock.runtime.consumer.collecting import Collection, collect
    from penstock.runtime.consumer.consumer import Consumer
    from penstock.runtime.consumer.delivered import Delivered
    from penstock.runtime.consumer.driving import OneByOne, Unordered, by_key, unordered
    from penstock.runtime.consumer.lifecycle import AssignedShard
    from penstock.runtime.consumer.metering import MetricsOptions
    from penstock.runtime.consumer.statistics import ConsumerStatistics, ShardStatistics
    from penstock.runtime.consumer.sync_batch import SyncBatch, SyncDelivered, SyncPendingCheckpoint
    from penstock.runtime.consumer.sync_collecting import SyncCollection, sync_collect
    from penstock.runtime.consumer.sync_shard import SyncShard
    from penstock.runtime.dead_letters.destinations import DeadLettersTo, DeadLettersToFile, DeadLettersToStream
    from penstock.runtime.feeds.fan_out import FanOutTimes
    from penstock.runtime.producer.handles import PutHandle, Puts, SyncPutHandle, SyncPuts, Unwritten
    from penstock.runtime.producer.metrics import ProducerSnapshot
    from penstock.runtime.producer.producer import Producer
    from penstock.runtime.producer.sync_producer import SyncProducer
    from penstock.runtime.shard.batch import Batch
    from penstock.runtime.shard.listener import Origin
    from penstock.runtime.shard.pages import HandOut, Unreadable
    from penstock.runtime.shard.shard_reader import ShardReader
    from penstock.runtime.shard.two_phase import FoundPending, PendingCheckpoint
    from penstock.runtime.sync_consumer import SyncConsumer
    from penstock.runtime.worker.settings import WorkerSettings
    from penstock.stores.memory import MemoryLeaseTable
    from penstock.stores.postgres import PostgresLeaseTable
    from penstock.stores.sqlite import SqliteLeaseTable
    from penstock.telemetry.consumer_metrics import ConsumerSnapshot
    from penstock.telemetry.log import log_events
    from penstock.wiring import Credentials, LeaseTableOptions, WireSettings

__all__ = [
    "AccessDeniedError",
    "AggregateError",
    "AnyOrder",
    "AssignedShard",
    "Batch",
    "BufferFullError",
    "ByKey",
    "ByThroughput",
    "CheckpointError",
    "Collection",
    "ConditionFailedError",
    "Consumer",
    "ConsumerSnapshot",
    "ConsumerStatistics",
    "Credentials",
    "CredentialsError",
    "DataLossError",
    "DeadLetters",
    "DeadLettersTo",
    "DeadLettersToFile",
    "DeadLettersToStream",
    "Deduplicate",
    "Delivered",
    "EqualCounts",
    "Every",
    "ExpiredIteratorError",
    "FanOutTimes",
    "Fixed",
    "FlushTimeoutError",
    "FoundPending",
    "GiveUp",
    "HandOut",
    "InOrder",
    "InvalidArgumentError",
    "InvalidRecordError",
    "LeaseTableOptions",
    "LedgerSettings",
    "Letter",
    "MemoryLeaseTable",
    "MetricsOptions",
    "NotFoundError",
    "OneByOne",
    "OptionError",
    "Origin",
    "OutRecord",
    "OutsidePolicy",
    "Part",
    "PendingCheckpoint",
    "PendingChoice",
    "PenstockError",
    "PollTimes",
    "Position",
    "PostgresLeaseTable",
    "Producer",
    "ProducerClosedError",
    "ProducerOptions",
    "ProducerSnapshot",
    "Prompt",
    "PutError",
    "PutHandle",
    "PutResult",
    "Puts",
    "Record",
    "RecordExpiredError",
    "RecordRefusedError",
    "RecordWithdrawnError",
    "Redeliver",
    "Retry",
    "Riding",
    "ServiceError",
    "Shard",
    "ShardReadError",
    "ShardReader",
    "ShardStatistics",
    "ShardStoppedError",
    "Skip",
    "SqliteLeaseTable",
    "StalledError",
    "StartAt",
    "Stop",
    "StreamName",
    "SyncBatch",
    "SyncCollection",
    "SyncConsumer",
    "SyncDelivered",
    "SyncPendingCheckpoint",
    "SyncProducer",
    "SyncPutHandle",
    "SyncPuts",
    "SyncShard",
    "ThrottledError",
    "TransportError",
    "UnavailableError",
    "Unordered",
    "Unreadable",
    "UnreadableRecordError",
    "Unwritten",
    "Warn",
    "WireSettings",
    "WorkerSettings",
    "__version__",
    "by_key",
    "collect",
    "log_events",
    "sync_collect",
    "unordered",
]

__version__ = "0.1.0"

_HOMES = (
    "penstock.errors",
    "penstock.model",
    "penstock.options",
    "penstock.wiring",
    "penstock.runtime.producer.metrics",
    "penstock.runtime.producer.handles",
    "penstock.runtime.producer.producer",
    "penstock.runtime.producer.sync_producer",
    "penstock.core.ledger.settings",
    "penstock.core.shard.checkpoints",
    "penstock.core.shard.duplicates",
    "penstock.core.ledger.letter",
    "penstock.core.ledger.parts",
    "penstock.core.feeding.allowance",
    "penstock.core.assignment.strategies",
    "penstock.runtime.feeds.fan_out",
    "penstock.runtime.worker.settings",
    "penstock.runtime.shard.pages",
    "penstock.runtime.shard.listener",
    "penstock.runtime.consumer.lifecycle",
    "penstock.telemetry.consumer_metrics",
    "penstock.runtime.consumer.metering",
    "penstock.runtime.consumer.statistics",
    "penstock.runtime.shard.batch",
    "penstock.runtime.consumer.delivered",
    "penstock.runtime.consumer.driving",
    "penstock.runtime.dead_letters.destinations",
    "penstock.runtime.shard.two_phase",
    "penstock.runtime.consumer.collecting",
    "penstock.runtime.shard.shard_reader",
    "penstock.runtime.consumer.consumer",
    "penstock.runtime.sync_consumer",
    "penstock.runtime.consumer.sync_batch",
    "penstock.runtime.consumer.sync_shard",
    "penstock.runtime.consumer.sync_collecting",
    "penstock.telemetry.log",
    "penstock.stores.memory",
    "penstock.stores.sqlite",
    "penstock.stores.postgres",
)
"""Modules in the order of what they cost to load: a name is looked for in each in turn."""


def __getattr__(name: str) -> object:
    """Load a public name from its module at its first use (PEP 562)."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(home)
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
