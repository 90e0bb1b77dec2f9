"""The facts that a producer emits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from shardway.events.base import Event

if TYPE_CHECKING:
    from shardway.events.producer_snapshot import ProducerSnapshot


class PutRecordsDone(Event, frozen=True, gc=False):
    """One PutRecords request ended: answered, or not."""

    stream: str
    records: int
    """The number of Kinesis records in the request."""
    user_records: int
    """The number of user records inside of those records."""
    payload_bytes: int
    """The bytes of data and partition keys, as the service counts a request's size."""
    refused: int
    """The number of records that the service refused for their shard's limits; they will be put again."""
    failed: int
    """The number of records that failed for another reason."""
    duration_s: float
    """Seconds from sending to the answer's last byte, or to the error."""
    error_code: str | None
    """The reason why the whole request failed: AWS's code, or the error's class when no answer came. None: it was
    answered.
    """
    in_flight: int
    """The number of requests that are still under way."""


class RecordsRefused(Event, frozen=True, gc=False):
    """A request was answered, and these records of it were not taken. They wait and are put again.

    ``error_code`` says why: ProvisionedThroughputExceededException when the shard took no more for now.
    """

    stream: str
    shard_id: str | None
    """The shard that was predicted; None when no shard could be predicted for the records."""
    records: int
    error_code: str


class RecordsExpired(Event, frozen=True, gc=False):
    """User records were not written within their time to live; their callers got an error."""

    stream: str
    shard_id: str | None
    """The shard that was predicted; None when no shard could be predicted for the records."""
    user_records: int
    may_be_written: bool
    """True when an attempt had an unknown outcome: the stream may hold them all the same."""


class RecordsFailed(Event, frozen=True, gc=False):
    """User records were given up: putting them again would not help, or the producer was closed (``ProducerClosed``).

    Their callers got an error.
    """

    stream: str
    shard_id: str | None
    user_records: int
    error_code: str


class AggregatesRepeated(Event, frozen=True, gc=False):
    """Aggregates landed on a shard whose hash range does not hold all their user records (the stream was resharded).

    Readers drop from an aggregate what does not belong to its shard, so the user records were put again, by shard.
    """

    stream: str
    shard_id: str
    aggregates: int
    user_records: int


class UnknownOutcome(Event, frozen=True, gc=False):
    """A request got no answer: its records may have been written. They are put again, which may write them twice."""

    stream: str
    records: int
    reason: str


class ShardMapChanged(Event, frozen=True):
    """The stream's open shards were listed for the first time, or are others than before."""

    stream: str
    open_shards: int
    added: tuple[str, ...]
    closed: tuple[str, ...]


class ShardMapFailed(Event, frozen=True, gc=False):
    """The stream's shards could not be listed. What is known of them is used until it succeeds."""

    stream: str
    reason: str
    retry_in_s: float


class PaceChanged(Event, frozen=True, gc=False):
    """The part of a shard's limit that this producer uses has changed: down after a refusal, up while all is taken."""

    stream: str
    shard_id: str
    share: float
    """The part of the shard's limit: 1.0 is all of it."""


class AggregationOff(Event, frozen=True, gc=False):
    """The producer begins to put each user record as a record of its own, because aggregates cannot be placed."""

    stream: str
    reason: str


class ProducerMetrics(Event, frozen=True):
    """A producer reports what it did since the event of this kind before."""

    stream: str
    snapshot: ProducerSnapshot
    last: bool = False
    """True once the producer is closed: no further event follows."""


ProducerEvent: TypeAlias = (
    PutRecordsDone
    | RecordsRefused
    | RecordsExpired
    | RecordsFailed
    | AggregatesRepeated
    | UnknownOutcome
    | ShardMapChanged
    | ShardMapFailed
    | PaceChanged
    | AggregationOff
    | ProducerMetrics
)
"""The facts that a producer emits: ``match`` over them is complete."""
