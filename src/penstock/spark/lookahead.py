"""What the driver knows of the unread part of one shard's log, where a batch may end in it, and what was lost.

Any record that was seen is a good bound, whatever its arrival time says: all that lies before it in the log belongs
to the range. So nothing here assumes that arrival times grow along the log.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import DataLossError
from penstock.model import StreamName
from penstock.spark.offsets import Kind, ShardPosition
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


# --- what was lost --------------------------------------------------------------------------------
# Deciding, before anything is read, whether records between a stored position and the next record were lost.
#
# AWS does not say so: an iterator at a trimmed sequence number answers with empty pages for ever, one at a trimmed
# time starts at the oldest record. So a position near or past the retention is opened by its time, and the first
# record that comes is compared with the one that should.

log = logging.getLogger("penstock.spark")

RISK_MARGIN_MS = 10 * 60 * 1000
"""Positions younger than the retention by less than this are opened by time: trimming is not exact."""


class Loss(NamedTuple):
    """Records that were lost, or may have been."""

    shard_id: str | None
    certain: bool
    what: str


class LossPolicy:
    """What becomes of losses: an error (``failOnDataLoss=true``), or a warning each and their number."""

    def __init__(self, stream: StreamName, *, fail: bool) -> None:
        self._stream = stream
        self._fail = fail
        self.count = 0
        """Losses that were passed over, those in the offset that the query began with among them."""

    def report(self, loss: Loss) -> None:
        """Raises DataLossError, or warns and counts."""
        where = f"stream {self._stream}" + (f", shard {loss.shard_id}" if loss.shard_id else "")
        surely = "records were lost" if loss.certain else "records may have been lost"
        message = f"{where}: {surely}: {loss.what}"
        if self._fail:
            raise DataLossError(
                f"{message}. To go on with what is left, set failOnDataLoss to false for one start; to begin anew, use "
                "a new checkpoint directory; a longer retention of the stream gives the query more time"
            )
        self.count += 1
        log.warning("%s; going on with what is left (failOnDataLoss is false)", message)


def at_risk(position: ShardPosition, horizon_ms: int) -> bool:
    """True when the position's record may be trimmed: it is to be opened by its time."""
    return position.kind in (Kind.NEXT, Kind.AFTER) and position.witness_ms < horizon_ms + RISK_MARGIN_MS


def loss_at(shard_id: str, position: ShardPosition, look: Lookahead, horizon_ms: int, *, by_time: bool) -> Loss | None:
    """What was lost between a stored position and the records that were found behind it.

    With ``by_time``, ``look`` begins at the position's time, and for ``AFTER`` with its very record if that is there.
    A witness of 0 says that the query wants whatever is left. ``horizon_ms`` is the oldest arrival time that the
    stream's retention still covers.
    """
    first = look.first.sequence_number if look.first else None
    if position.kind is Kind.NEXT:
        if first == position.sequence_number:
            return None
        found = f"the next record there is {first}" if first is not None else "nothing is left behind it"
        if look.crossing:
            found = "a long silence follows it"
        return Loss(shard_id, True, f"{position.sequence_number} is the next to read, but it is trimmed; {found}")
    if position.kind is Kind.AFTER:
        if not by_time or first == position.sequence_number:
            return None
        what = f"all up to {position.sequence_number} is read, which is trimmed, and what followed it may be too"
        return Loss(shard_id, False, what)
    if position.kind in (Kind.SINCE, Kind.BEGINNING) and 0 < position.witness_ms < horizon_ms:
        hours = (horizon_ms - position.witness_ms) / 3_600_000
        what = f"the shard was last looked at {hours:.1f} h before the oldest time that the retention covers"
        return Loss(shard_id, False, what)
    return None
