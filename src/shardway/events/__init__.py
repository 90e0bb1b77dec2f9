"""Events are what happened, as facts: the one source of metrics, logs and tests.

A part that runs calls one function with each fact: ``on_event``, which the user gives it. The part calls it on its own
event loop, so the function must return at once and raise nothing. `shardway.telemetry.log.log_events` makes one that
writes log lines.

Events carry counts, shard ids, error codes; never a payload or a partition key. ``stream`` is its name or ARN, as it
was given. "Records" are records of Kinesis; "user records" are what was put: an aggregate is one record and holds many.

`base` has the class of all of them. There is a module for each part that emits: `producer`, `feed`, `ledger`,
`consumer`, `fleet` (what a consumer does beside other workers) and `query`. The events of metrics carry snapshots:
`snapshots` has what those of all parts share, and `producer_snapshot`, `consumer_snapshot` and `query_snapshot` are one
each.
"""

from __future__ import annotations

from typing import TypeAlias

from shardway.events.base import Event
from shardway.events.consumer import ConsumerEvent, ConsumerMetrics, KeysIgnored, ShardBegun, ShardLeft
from shardway.events.feed import (
    AggregatesOutsideRange,
    CheckpointTrimmed,
    FanOutLeft,
    FanOutReturned,
    FeedEvent,
    ReadFailed,
    ReadRefused,
)
from shardway.events.fleet import (
    FleetChanged,
    LeasesBegunAnew,
    LeaseTableFailed,
    LeaseUnreadable,
    LeaseUpkeepFailed,
    LoopBlocked,
    StopBegun,
    StopWaits,
    WorkerEvent,
    WorkerIdShared,
)
from shardway.events.ledger import (
    BatchFailed,
    DeadLetterFailed,
    DedupeKeyFailed,
    DedupeWindowCut,
    DedupeWindowRebuilding,
    DedupeWindowRebuilt,
    DuplicatesLeftOut,
    FetchingHeld,
    HandoffWaits,
    LateSettlement,
    LedgerEvent,
    PendingCheckpointFound,
    RecordDeadLettered,
    RecordsSkipped,
    RecordsStalled,
    RecordsUnsettled,
    ShardGivenUp,
    TaskFailed,
)
from shardway.events.producer import (
    AggregatesRepeated,
    AggregationOff,
    PaceChanged,
    ProducerEvent,
    ProducerMetrics,
    PutRecordsDone,
    RecordsExpired,
    RecordsFailed,
    RecordsRefused,
    ShardMapChanged,
    ShardMapFailed,
    UnknownOutcome,
)
from shardway.events.query import QueryEvent, QueryMetrics

__all__ = [
    "AggregatesOutsideRange",
    "AggregatesRepeated",
    "AggregationOff",
    "AnyEvent",
    "BatchFailed",
    "CheckpointTrimmed",
    "ConsumerEvent",
    "ConsumerMetrics",
    "DeadLetterFailed",
    "DedupeKeyFailed",
    "DedupeWindowCut",
    "DedupeWindowRebuilding",
    "DedupeWindowRebuilt",
    "DuplicatesLeftOut",
    "Event",
    "FanOutLeft",
    "FanOutReturned",
    "FeedEvent",
    "FetchingHeld",
    "FleetChanged",
    "HandoffWaits",
    "KeysIgnored",
    "LateSettlement",
    "LeaseTableFailed",
    "LeaseUnreadable",
    "LeaseUpkeepFailed",
    "LeasesBegunAnew",
    "LedgerEvent",
    "LoopBlocked",
    "PaceChanged",
    "PendingCheckpointFound",
    "ProducerEvent",
    "ProducerMetrics",
    "PutRecordsDone",
    "QueryEvent",
    "QueryMetrics",
    "ReadFailed",
    "ReadRefused",
    "RecordDeadLettered",
    "RecordsExpired",
    "RecordsFailed",
    "RecordsRefused",
    "RecordsSkipped",
    "RecordsStalled",
    "RecordsUnsettled",
    "ShardBegun",
    "ShardGivenUp",
    "ShardLeft",
    "ShardMapChanged",
    "ShardMapFailed",
    "StopBegun",
    "StopWaits",
    "TaskFailed",
    "UnknownOutcome",
    "WorkerEvent",
    "WorkerIdShared",
]

AnyEvent: TypeAlias = ProducerEvent | LedgerEvent | FeedEvent | ConsumerEvent | WorkerEvent | QueryEvent
"""All facts that any part emits."""
