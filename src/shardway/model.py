"""The values that every part of Shardway shares: records, shards, positions, starts, streams.

Sequence numbers are ``int`` in here (AWS writes them as decimal strings of up to 56 digits): they compare as numbers.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

HASH_KEY_MAX = 2**128 - 1
"""The largest hash key: shards divide the range 0 … 2¹²⁸−1 (AWS API reference, HashKeyRange)."""


Tags: TypeAlias = tuple[tuple[str, str], ...]
"""The tags of one user record: keys and values, in the order of its aggregate."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A user record as a reader sees it: a plain record, or one out of a KPL aggregate."""

    stream: str
    shard_id: str
    partition_key: str | None
    data: bytes
    sequence_number: int
    sub_sequence_number: int = 0
    """The 0-based index inside an aggregate; 0 for a plain record."""
    approximate_arrival_timestamp: dt.datetime
    explicit_hash_key: int | None = None
    """The explicit hash key of a record out of an aggregate that carries one; None otherwise: GetRecords does not
    return it.
    """
    aggregated: bool = False
    tags: Tags = ()
    """Keys and values that its producer wrote beside the data into the aggregate. Shardway's producer writes the
    context of a trace there, if it is asked to; the KPL writes none.
    """


class OutRecord(msgspec.Struct, frozen=True, gc=False):
    """A user record to be put."""

    data: bytes
    """The data: up to 10 MiB together with the partition key; the stream may take less (its MaxRecordSizeInKiB)."""
    partition_key: str
    """The partition key, 1 to 256 characters. Records of one key go to one shard."""
    explicit_hash_key: int | None = None
    """A hash key, 0 … 2¹²⁸-1; it takes the place of the partition key's MD5 when the shard is chosen."""


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a user record that was written."""

    shard_id: str
    sequence_number: int
    sub_sequence_number: int | None
    """The 0-based index inside of its aggregate; None for a record that was put on its own."""
    attempts: int
    """The number of requests that carried the record, the last one included."""
    duplicates_possible: bool
    """True if the record may be in the stream twice: the outcome of an earlier attempt is unknown (a lost reply, a
    5xx), or its aggregate landed across a reshard and was put again by shard.
    """


class ListedShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard as ListShards describes it."""

    shard_id: str
    parents: tuple[str, ...] = ()
    """The ids of the shard's parents: none, one (split) or two (merge). A parent may be trimmed and unknown by now."""
    first_hash_key: int
    last_hash_key: int
    """The largest hash key of the shard, which belongs to it."""
    first_sequence_number: int
    last_sequence_number: int | None = None
    """The sequence number at which the shard ended; None while the shard is open."""

    @property
    def closed(self) -> bool:
        """True when the shard takes no more records."""
        return self.last_sequence_number is not None

    def holds(self, hash_key: int) -> bool:
        """True when records with this hash key go to this shard."""
        return self.first_hash_key <= hash_key <= self.last_hash_key


class Position(NamedTuple):
    """(sequence number, sub-sequence number): a user record's place in its shard. Positions of one shard compare."""

    sequence_number: int
    sub_sequence_number: int = 0


class OutsidePolicy(enum.Enum):
    """The choices for user records whose hash key is outside their shard's range (written with an old shard map)."""

    DELIVER = "deliver"
    """The records are delivered and counted."""
    DROP = "drop"
    """An aggregate with such a record is dropped as a whole: this is the KCL's rule."""
    RAISE = "raise"
    """Reading fails with an error."""


class IteratorAt(NamedTuple):
    """The place at which a shard iterator begins (ShardIteratorType and its argument)."""

    type: str
    sequence_number: int | None = None
    timestamp_s: float | None = None
    """The time in epoch seconds; the service keeps milliseconds."""

    @classmethod
    def trim_horizon(cls) -> IteratorAt:
        """Begin at the oldest record that is still kept."""
        return cls("TRIM_HORIZON")

    @classmethod
    def latest(cls) -> IteratorAt:
        """Begin after the newest record at the time of the call."""
        return cls("LATEST")

    @classmethod
    def at_sequence(cls, sequence_number: int) -> IteratorAt:
        """Begin at the record with this sequence number, or the next one."""
        return cls("AT_SEQUENCE_NUMBER", sequence_number)

    @classmethod
    def after_sequence(cls, sequence_number: int) -> IteratorAt:
        """Begin at the first record after this sequence number."""
        return cls("AFTER_SEQUENCE_NUMBER", sequence_number)

    @classmethod
    def at_timestamp(cls, epoch_s: float) -> IteratorAt:
        """Begin at the first record that arrived at or after this time (epoch seconds)."""
        return cls("AT_TIMESTAMP", None, epoch_s)


class StreamName(msgspec.Struct, frozen=True):
    """A stream addressed by its name (in the caller's account and region) or by its ARN (any account)."""

    name: str | None = None
    arn: str | None = None

    def __post_init__(self) -> None:
        if (self.name is None) == (self.arn is None):
            raise ValueError("a stream is addressed by its name or by its ARN: give exactly one of the two")

    def __str__(self) -> str:
        return self.arn or self.name or ""

    @property
    def short(self) -> str:
        """The stream's name, also when it is addressed by ARN."""
        return self.name or (self.arn or "").rpartition("/")[2]


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def epoch_ms(moment: dt.datetime) -> int:
    """Return an aware time in whole epoch milliseconds. What is finer is cut off, as the service cuts off the arrival
    times of records: rounded up, a start would lie behind records that came after the moment.
    """
    return (moment - _EPOCH) // _MILLISECOND


class StartingPosition(msgspec.Struct, frozen=True):
    """The place at which to begin in a stream that was never read before."""

    kind: str
    """The kind: ``TRIM_HORIZON``, ``LATEST`` or ``AT_TIMESTAMP``."""
    timestamp: dt.datetime | None = None
    """The time for AT_TIMESTAMP: an aware datetime."""

    TRIM_HORIZON: ClassVar[StartingPosition]
    LATEST: ClassVar[StartingPosition]

    @classmethod
    def at_timestamp(cls, timestamp: dt.datetime) -> StartingPosition:
        """Begin with the first record that arrived at or after ``timestamp`` (aware)."""
        if timestamp.tzinfo is None:
            raise ValueError("a start timestamp needs a time zone")
        return cls("AT_TIMESTAMP", timestamp)


StartingPosition.TRIM_HORIZON = StartingPosition("TRIM_HORIZON")
StartingPosition.LATEST = StartingPosition("LATEST")
