"""The pages of a shard as a source answers them, by a call (GetRecords) or by the events of a subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class RawRecord(Protocol):
    """A Kinesis record as it came: it may be an aggregate."""

    @property
    def data(self) -> bytes:
        """The data of the record, as it was put."""

    @property
    def sequence_number(self) -> str:
        """The sequence number in decimal."""

    @property
    def approximate_arrival_timestamp(self) -> float:
        """The arrival time in epoch seconds, of milliseconds' precision."""

    @property
    def partition_key(self) -> str | None:
        """The partition key; None where the stream has none (some emulators)."""


class ChildShard(NamedTuple):
    """A shard that goes on where a closed one has ended."""

    shard_id: str
    parents: tuple[str, ...]
    first_hash_key: int
    last_hash_key: int


class StreamFacts(NamedTuple):
    """The facts of a stream as a whole."""

    arn: str
    created_s: int
    """The time of creation in epoch seconds. It distinguishes a stream from another that had its name before."""
    retention_s: float
    ignores_keys: bool
    """True where the service spreads records as it likes (record distribution AUTO): no order by key can hold."""


class Retention:
    """How long a stream keeps its records, as all feeds of its shards know it: it may change while
    they read.
    """

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        """The retention in seconds; None: it is not known."""

    def horizon_s(self, service_now_s: float) -> float | None:
        """The oldest arrival time that is still kept, by the service's time (epoch seconds both); None: not known."""
        return None if self.seconds is None else service_now_s - self.seconds


class ReadPage(NamedTuple):
    """Some records of a shard that follow each other. A page may have no record, also where more records follow."""

    records: Sequence[RawRecord]
    millis_behind_latest: int | None
    """The time by which the page's end is behind the shard's tip, in milliseconds; 0 at the tip. None: it is
    not known.
    """
    next_iterator: str | None = None
    """The iterator for the next page, of GetRecords. None: the shard has ended."""
    continuation: str | None = None
    """The sequence number after which another subscription goes on, of SubscribeToShard. None: the shard has ended."""
    children: tuple[ChildShard, ...] = ()
    """The children of a closed shard, which come with its last page."""

    @property
    def is_last(self) -> bool:
        """True when the shard has no more records than those of this page."""
        return self.next_iterator is None and self.continuation is None
