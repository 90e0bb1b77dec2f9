"""What the driver knows of the unread part of one shard's log, and where a batch may end in it.

Any record that was seen is a good bound, whatever its arrival time says: all that lies before it in the log belongs
to the range. So nothing here assumes that arrival times grow along the log.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.spark.ranges import EndKind


class Seen(NamedTuple):
    """A Kinesis record that the driver saw; its payload is not kept."""

    sequence_number: int
    arrival_ms: int
    rows: int
    """User records in it: 1 for a plain record."""
    size: int
    """Bytes of its data."""


class Beyond(enum.Enum):
    """What lies behind the records that were seen."""

    UNKNOWN = 0
    TIP = 1
    """Nothing, when the service was last asked: the open shard's tip."""
    END = 2
    """Nothing, for ever: the shard is closed."""


class Bound(NamedTuple):
    """The end of a range, with the time of which is known that nothing before it stays unread."""

    kind: EndKind
    sequence_number: int | None
    witness_ms: int


@dataclass(slots=True)
class Lookahead:
    """The next records of a shard behind the query's position, as far as they were looked at."""

    records: list[Seen] = field(default_factory=list)
    beyond: Beyond = Beyond.UNKNOWN
    iterator: str | None = None
    """Continues behind the last record seen; None at the shard's end, or when one must be asked for."""
    asked_s: float = 0.0
    """When the service was last asked, by the driver's monotonic clock."""
    tip_seen_ms: int = 0
    """The service's time (at least) when the tip was last seen."""
    quiet: bool = False
    """The last answer was an empty page at the tip: nothing comes for now."""
    reached_ms: int = 0
    """Up to this time (of the service) nothing arrived behind the last record seen, or behind the position: so much
    silence the iterator has crossed. 0: none."""
    stands: bool = False
    """The last pages were empty and came no nearer to the tip."""

    @property
    def first(self) -> Seen | None:
        """The next record to read, if it was seen."""
        return self.records[0] if self.records else None

    @property
    def crossing(self) -> bool:
        """True when the iterator is somewhere in a silence: no record, no tip and no end was found yet."""
        return self.beyond is Beyond.UNKNOWN and not self.records

    @property
    def exhausted(self) -> bool:
        """True when the shard is closed and nothing in it is unread."""
        return self.beyond is Beyond.END and not self.records

    def bound(self, cut_ms: int) -> Bound | None:
        """Where a batch that is cut at this time ends; None when what was seen does not tell.

        Only for a lookahead whose first record arrived before the cut.
        """
        for seen in self.records[1:]:
            if seen.arrival_ms >= cut_ms:
                return Bound(EndKind.EXCLUSIVE, seen.sequence_number, seen.arrival_ms)
        if self.beyond is Beyond.TIP or (self.beyond is Beyond.UNKNOWN and self.reached_ms >= cut_ms):
            last = self.records[-1]
            return Bound(EndKind.INCLUSIVE, last.sequence_number, last.arrival_ms)
        if self.beyond is Beyond.END:
            return Bound(EndKind.SHARD_END, None, max(self.tip_seen_ms, self.records[-1].arrival_ms))
        return None

    def last_resort(self) -> Bound | None:
        """The last record seen as an exclusive bound: progress where the service does not tell more for now."""
        if len(self.records) < 2:
            return None
        last = self.records[-1]
        return Bound(EndKind.EXCLUSIVE, last.sequence_number, last.arrival_ms)

    def behind(self, bound: Bound) -> Lookahead:
        """What is left after a batch that ended at the bound."""
        if bound.kind is EndKind.SHARD_END:
            return Lookahead([], Beyond.END, None, self.asked_s, self.tip_seen_ms)
        assert bound.sequence_number is not None
        first_left = bound.sequence_number + (bound.kind is EndKind.INCLUSIVE)
        left = [seen for seen in self.records if seen.sequence_number >= first_left]
        return Lookahead(left, self.beyond, self.iterator, self.asked_s, self.tip_seen_ms, reached_ms=self.reached_ms)

    def rate(self) -> tuple[float, float] | None:
        """(rows, bytes) per millisecond as sampled; None when two records were not seen."""
        if len(self.records) < 2:
            return None
        times = [seen.arrival_ms for seen in self.records]
        span_ms = max(max(times) - min(times), 1)
        return sum(s.rows for s in self.records) / span_ms, sum(s.size for s in self.records) / span_ms
