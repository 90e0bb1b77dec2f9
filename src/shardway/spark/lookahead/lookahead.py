"""A lookahead has the next records of one shard, as far as the driver has seen them: a batch may end at any of these.

Any record that was seen is a good bound, whatever its arrival time says: all that lies before it in the log belongs to
the range. So nothing here assumes that arrival times grow along the log.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from shardway.aws.kinesis.shapes import WireRecord
from shardway.spark.ranges import EndKind


class KnownRecord(NamedTuple):
    """A Kinesis record that the driver saw."""

    sequence_number: int
    arrival_ms: int
    rows: int
    """The number of user records in it: 1 for a plain record."""
    size: int
    """Bytes of the record's data."""
    entry: WireRecord | None = None
    """The record as it came, where a task may be given it; None where it would take too much memory."""


class Tail(enum.Enum):
    """Says what lies behind the records that were seen."""

    UNKNOWN = 0
    TIP = 1
    """Nothing lay there when the service was last asked: this is the open shard's tip."""
    END = 2
    """Nothing comes there any more: the shard is closed."""


class Bound(NamedTuple):
    """The end of a range. Nothing stays unread that arrived before the witness, a time in epoch milliseconds."""

    kind: EndKind
    sequence_number: int | None
    witness_ms: int


@dataclass(slots=True)
class Lookahead:
    """The next records of a shard behind the query's position, as far as they were looked at."""

    records: list[KnownRecord] = field(default_factory=list)
    beyond: Tail = Tail.UNKNOWN
    iterator: str | None = None
    """The iterator behind the last record seen; None at the shard's end, or when one must be asked for."""
    asked_s: float = 0.0
    """The time at which the service was last asked, by the driver's monotonic clock."""
    asked_ms: int = 0
    """The service's time (at least) when it was last asked; 0 where that is not known."""
    tip_seen_ms: int = 0
    """The service's time (at least) when the tip was last seen."""
    quiet: bool = False
    """True where the last answer was an empty page at the tip: nothing comes for now."""
    reached_ms: int = 0
    """The time (of the service) up to which nothing arrived behind the last record seen, or behind the position: the
    iterator has crossed this silence. 0 where it has crossed none."""
    stands: bool = False
    """True where the last pages were empty and came no nearer to the tip."""

    @property
    def first(self) -> KnownRecord | None:
        """The next record to read, if it was seen."""
        return self.records[0] if self.records else None

    @property
    def crossing(self) -> bool:
        """True when the iterator is somewhere in a silence: no record, no tip and no end was found yet."""
        return self.beyond is Tail.UNKNOWN and not self.records

    @property
    def exhausted(self) -> bool:
        """True when the shard is closed and nothing in it is unread."""
        return self.beyond is Tail.END and not self.records

    def bound(self, cut_ms: int) -> Bound | None:
        """Return where a batch that is cut at this time ends; None when what was seen does not tell.

        The first record of the lookahead has to have arrived before the cut.
        """
        for seen in self.records[1:]:
            if seen.arrival_ms >= cut_ms:
                return Bound(EndKind.EXCLUSIVE, seen.sequence_number, seen.arrival_ms)
        if self.beyond is Tail.TIP or (self.beyond is Tail.UNKNOWN and self.reached_ms >= cut_ms):
            last = self.records[-1]
            return Bound(EndKind.INCLUSIVE, last.sequence_number, last.arrival_ms)
        if self.beyond is Tail.END:
            return Bound(EndKind.SHARD_END, None, max(self.tip_seen_ms, self.records[-1].arrival_ms))
        return None

    def last_resort(self) -> Bound | None:
        """Return the last record seen as an exclusive bound: it is progress where the service does not tell more for
        now. None where fewer than two records were seen.
        """
        if len(self.records) < 2:
            return None
        last = self.records[-1]
        return Bound(EndKind.EXCLUSIVE, last.sequence_number, last.arrival_ms)

    def behind(self, bound: Bound) -> Lookahead:
        """Return what is left after a batch that ended at the bound."""
        if bound.kind is EndKind.SHARD_END:
            return Lookahead([], Tail.END, None, self.asked_s, tip_seen_ms=self.tip_seen_ms)
        assert bound.sequence_number is not None
        first_left = bound.sequence_number + (bound.kind is EndKind.INCLUSIVE)
        left = [seen for seen in self.records if seen.sequence_number >= first_left]
        seen_ms, reached_ms = self.tip_seen_ms, self.reached_ms
        return Lookahead(left, self.beyond, self.iterator, self.asked_s, tip_seen_ms=seen_ms, reached_ms=reached_ms)

    def entries(self, bound: Bound) -> tuple[WireRecord, ...] | None:
        """Return the records up to the bound as they came; None where the bound is none of the records that were seen,
        or where a record before it was not kept.
        """
        entries: list[WireRecord] = []
        for seen in self.records:
            is_end = seen.sequence_number == bound.sequence_number
            if is_end and bound.kind is EndKind.EXCLUSIVE:
                return tuple(entries)
            if seen.entry is None:
                return None
            entries.append(seen.entry)
            if is_end:
                return tuple(entries)
        return None

    def rate(self) -> tuple[float, float] | None:
        """Return the (rows, bytes) per millisecond as sampled; None when fewer than two records were seen."""
        if len(self.records) < 2:
            return None
        times = [seen.arrival_ms for seen in self.records]
        span_ms = max(max(times) - min(times), 1)
        return sum(s.rows for s in self.records) / span_ms, sum(s.size for s in self.records) / span_ms


ENTRY_COST_BYTES = 200
"""The cost of a record that is kept, beside its data and key, in bytes: its number, its time, and what Python adds."""


def entry_bytes(entry: WireRecord) -> int:
    """Return about how many bytes a record takes that is kept as it came."""
    return len(entry.data) + len(entry.partition_key or "") + ENTRY_COST_BYTES
