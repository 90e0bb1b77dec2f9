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
    from penstock.model import OutRecord, OutsidePolicy, Position, PutResult, Record, StartAt, StreamName
    from penstock.options import ProducerOptions
    from penstock.runtime.consumer.collecting import Collection
    from penstock.runtime.consumer.consumer import Consumer
    from penstock.runtime.consumer.driving import OneByOne, Unordered, by_key, unordered
    from penstock.runtime.consumer.lifecycle import AssignedShard
    from penstock.runtime.consumer.metering import MetricsOptions
    from penstock.runtime.consumer.shard import Shard
    from penstock.runtime.consumer.statistics import ConsumerStatistics, ShardStatistics
    from penstock.runtime.consumer.sync_consumer import SyncConsumer, SyncShard
    from penstock.runtime.dead_letters.destinations import DeadLettersTo, DeadLettersToFile, DeadLettersToStream
    from penstock.runtime.feeds.fan_out import FanOutTimes
    from penstock.runtime.producer.handles import PutHandle, Puts, SyncPutHandle, SyncPuts, Unwritten
    from penstock.runtime.producer.metrics import ProducerSnapshot
    from penstock.runtime.producer.producer import Producer
    from penstock.runtime.producer.sync_producer import SyncProducer
    from penstock.runtime.shard.batch import Batch, Delivered
    from penstock.runtime.shard.listener import Origin
    from penstock.runtime.shard.pages import HandOut, Unreadable
    from penstock.runtime.shard.two_phase import FoundPending, PendingCheckpoint
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
    "ShardStatistics",
    "ShardStoppedError",
    "Skip",
    "SqliteLeaseTable",
    "StalledError",
    "StartAt",
    "Stop",
    "StreamName",
    "SyncConsumer",
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
    "log_events",
    "unordered",
]

__version__ = "0.1.0"

_HOMES = {
    "AccessDeniedError": "penstock.errors",
    "AggregateError": "penstock.errors",
    "AnyOrder": "penstock.core.ledger.settings",
    "AssignedShard": "penstock.runtime.consumer.lifecycle",
    "Batch": "penstock.runtime.shard.batch",
    "BufferFullError": "penstock.errors",
    "ByKey": "penstock.core.ledger.settings",
    "ByThroughput": "penstock.core.assignment.strategies",
    "CheckpointError": "penstock.errors",
    "Collection": "penstock.runtime.consumer.collecting",
    "ConditionFailedError": "penstock.errors",
    "Consumer": "penstock.runtime.consumer.consumer",
    "ConsumerSnapshot": "penstock.telemetry.consumer_metrics",
    "ConsumerStatistics": "penstock.runtime.consumer.statistics",
    "Credentials": "penstock.wiring",
    "CredentialsError": "penstock.errors",
    "DataLossError": "penstock.errors",
    "DeadLetters": "penstock.core.ledger.settings",
    "DeadLettersTo": "penstock.runtime.dead_letters.destinations",
    "DeadLettersToFile": "penstock.runtime.dead_letters.destinations",
    "DeadLettersToStream": "penstock.runtime.dead_letters.destinations",
    "Deduplicate": "penstock.core.shard.duplicates",
    "Delivered": "penstock.runtime.shard.batch",
    "EqualCounts": "penstock.core.assignment.strategies",
    "Every": "penstock.core.shard.checkpoints",
    "ExpiredIteratorError": "penstock.errors",
    "FanOutTimes": "penstock.runtime.feeds.fan_out",
    "Fixed": "penstock.core.assignment.strategies",
    "FlushTimeoutError": "penstock.errors",
    "FoundPending": "penstock.runtime.shard.two_phase",
    "GiveUp": "penstock.core.ledger.settings",
    "HandOut": "penstock.runtime.shard.pages",
    "InOrder": "penstock.core.ledger.settings",
    "InvalidArgumentError": "penstock.errors",
    "InvalidRecordError": "penstock.errors",
    "LeaseTableOptions": "penstock.wiring",
    "LedgerSettings": "penstock.core.ledger.settings",
    "Letter": "penstock.core.ledger.letter",
    "MemoryLeaseTable": "penstock.stores.memory",
    "MetricsOptions": "penstock.runtime.consumer.metering",
    "NotFoundError": "penstock.errors",
    "OneByOne": "penstock.runtime.consumer.driving",
    "OptionError": "penstock.errors",
    "Origin": "penstock.runtime.shard.listener",
    "OutRecord": "penstock.model",
    "OutsidePolicy": "penstock.model",
    "Part": "penstock.core.ledger.parts",
    "PendingCheckpoint": "penstock.runtime.shard.two_phase",
    "PendingChoice": "penstock.core.shard.checkpoints",
    "PenstockError": "penstock.errors",
    "PollTimes": "penstock.core.feeding.allowance",
    "Position": "penstock.model",
    "PostgresLeaseTable": "penstock.stores.postgres",
    "Producer": "penstock.runtime.producer.producer",
    "ProducerClosedError": "penstock.errors",
    "ProducerOptions": "penstock.options",
    "ProducerSnapshot": "penstock.runtime.producer.metrics",
    "Prompt": "penstock.core.shard.checkpoints",
    "PutError": "penstock.errors",
    "PutHandle": "penstock.runtime.producer.handles",
    "PutResult": "penstock.model",
    "Puts": "penstock.runtime.producer.handles",
    "Record": "penstock.model",
    "RecordExpiredError": "penstock.errors",
    "RecordRefusedError": "penstock.errors",
    "RecordWithdrawnError": "penstock.errors",
    "Redeliver": "penstock.core.ledger.settings",
    "Retry": "penstock.core.ledger.settings",
    "Riding": "penstock.core.shard.checkpoints",
    "ServiceError": "penstock.errors",
    "Shard": "penstock.runtime.consumer.shard",
    "ShardReadError": "penstock.errors",
    "ShardStatistics": "penstock.runtime.consumer.statistics",
    "ShardStoppedError": "penstock.errors",
    "Skip": "penstock.core.ledger.settings",
    "SqliteLeaseTable": "penstock.stores.sqlite",
    "StalledError": "penstock.errors",
    "StartAt": "penstock.model",
    "Stop": "penstock.core.ledger.settings",
    "StreamName": "penstock.model",
    "SyncConsumer": "penstock.runtime.consumer.sync_consumer",
    "SyncProducer": "penstock.runtime.producer.sync_producer",
    "SyncPutHandle": "penstock.runtime.producer.handles",
    "SyncPuts": "penstock.runtime.producer.handles",
    "SyncShard": "penstock.runtime.consumer.sync_consumer",
    "ThrottledError": "penstock.errors",
    "TransportError": "penstock.errors",
    "UnavailableError": "penstock.errors",
    "Unordered": "penstock.runtime.consumer.driving",
    "Unreadable": "penstock.runtime.shard.pages",
    "UnreadableRecordError": "penstock.errors",
    "Unwritten": "penstock.runtime.producer.handles",
    "Warn": "penstock.core.ledger.settings",
    "WireSettings": "penstock.wiring",
    "WorkerSettings": "penstock.runtime.worker.settings",
    "by_key": "penstock.runtime.consumer.driving",
    "log_events": "penstock.telemetry.log",
    "unordered": "penstock.runtime.consumer.driving",
}
"""The module of each name: that one is loaded for it, and no other."""


def __getattr__(name: str) -> object:
    """Load a public name from its module at its first use (PEP 562)."""
    if name in _HOMES:
        return globals().setdefault(name, getattr(importlib.import_module(_HOMES[name]), name))
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
