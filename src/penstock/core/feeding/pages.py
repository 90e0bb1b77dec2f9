"""What a source of records answers: by a call (GetRecords) or as an event of a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class RawRecord(Protocol):
    """A Kinesis record as it came: it may be an aggregate."""

    @property
    def data(self) -> bytes:
        """As it was put."""

    @property
    def sequence_number(self) -> str:
        """In decimal."""

    @property
    def approximate_arrival_timestamp(self) -> float:
        """Epoch seconds, of milliseconds' precision."""

    @property
    def partition_key(self) -> str | None:
        """None where the stream has none (some emulators)."""


class ChildShard(NamedTuple):
    """A shard that goes on where a closed one has ended."""

    shard_id: str
    parents: tuple[str, ...]
    first_hash_key: int
    last_hash_key: int


class StreamFacts(NamedTuple):
    """A stream as a whole."""

    arn: str
    created_s: int
    """Epoch seconds: tells a stream from another that had its name before."""
    retention_s: float
    ignores_keys: bool
    """True where the service spreads records as it likes (record distribution AUTO): no order by key can hold."""


class ReadPage(NamedTuple):
    """Some records of a shard that follow each other. A page may have no record, also where more records follow."""

    records: Sequence[RawRecord]
    millis_behind_latest: int | None
    """How old the shard's newest record is at the page's end; 0 at the tip. None: not told."""
    next_iterator: str | None = None
    """GetRecords: the iterator for the next page. None: the shard has ended."""
    continuation: str | None = None
    """SubscribeToShard: the sequence number after which another subscription goes on. None: the shard has ended."""
    children: tuple[ChildShard, ...] = ()
    """Told with the last page of a closed shard."""

    @property
    def is_last(self) -> bool:
        """True when the shard has no more records than those."""
        return self.next_iterator is None and self.continuation is None
