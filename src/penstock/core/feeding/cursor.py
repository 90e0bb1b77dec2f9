"""How far a shard is read, and where to ask again: the rules by which no record is left out and none comes twice.

- A stored position is opened *at* its record, which then comes again and is left out (of an aggregate, the user records
  up to the position are left out). So the reader sees whether the record is still there. AWS does not say that a
  position is trimmed: an iterator there gives empty pages for ever, as far behind as the retention is long. Where
  nothing comes, reading starts anew at the oldest record that is left.
- Retention can also overtake a reader that was cut off for long, or that reads a silent shard. So the reader asks for a
  number again only while its record is younger than the retention. Otherwise reading goes on at the oldest record too,
  and what was read before is left out. When a reader is that far behind, its iterator goes on at the oldest record by
  itself, and AWS does not say so.
- LATEST, asked for again because an iterator expired before any record came, would pass over what came meanwhile: it is
  asked for by the time of the first call then.
- TRIM_HORIZON, asked for again, gives what was read before again: from the first record on, the last one read counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.feeding.silence import Silence
from penstock.core.feeding.user_records import Opened, UserRecords, opened
from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.sequence import just_before
from penstock.model import IteratorAt, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.feeding.pages import ChildShard, RawRecord, ReadPage
    from penstock.core.feeding.user_records import ShardView

SERVICE_CLOCK_S = 2.0
"""How far the service's time, as its answers tell it, may be ahead of what it is."""

TRIM_MARGIN_S = 60.0
"""A record is not counted on any more so long before the retention lets go of it."""


class Trimmed(NamedTuple):
    """A stored position is older than the stream's retention."""

    position: Position
    resumes_at: Position | None
    """The oldest record that is left; None while the shard has none."""
    surely_nothing_lost: bool
    """True when the shard was only silent: it was read to its tip at a time that the retention still covers."""


class Taken(NamedTuple):
    """What a page means for the reader of the shard."""

    records: UserRecords
    ends_at: Position | None
    """The last position of the page, also where its records were left out; None if it has none that is new."""
    millis_behind_latest: int | None
    ended: bool
    """The shard has no more records: ``children`` go on."""
    children: tuple[ChildShard, ...]
    outside: int
    """Aggregates that held records of another shard's range."""
    dropped: int
    """User records that were left out because of that."""
    trimmed: Trimmed | None


class FeedCursor:
    """Where one shard is read. ``start`` says where to ask for an iterator (or a subscription) when there is none."""

    def __init__(
        self,
        shard: ShardView,
        checkpoint: Checkpoint,
        *,
        timestamp_s: float | None = None,
        read_until_s: float | None = None,
    ) -> None:
        """``checkpoint``: read what follows it. ``timestamp_s``: the application's start (epoch seconds), where the
        checkpoint is AT_TIMESTAMP. ``read_until_s``: all that had arrived by then (epoch seconds) is settled: where
        the checkpoint is LATEST, reading goes on from there.
        """
        if checkpoint.is_end:
            raise ValueError(f"{shard.shard_id} is read to its end")
        if checkpoint == Checkpoint.AT_TIMESTAMP and timestamp_s is None:
            raise ValueError(f"{shard.shard_id} is to be read from a time on, and no time is given")
        self._shard = shard
        self._done: Position | None = checkpoint.position if checkpoint.is_position else None
        self._digits = checkpoint.digits
        self._word = checkpoint
        self._timestamp_s = timestamp_s
        self._settled_until_s = read_until_s
        self.read_until_s = read_until_s
        """All that had arrived by then (epoch seconds) was handed on, or settled before. None: it is not known."""
        self.payload_bytes = 0
        """How much came so far. The feed counts it, and the worker computes the throughput from it."""
        if checkpoint == Checkpoint.LATEST:
            self._timestamp_s = read_until_s
        self._last: int | None = None  # the last Kinesis record that came
        self._continuation: int | None = None
        self._reached_s: float | None = None  # when those arrived (epoch seconds)
        self._end: Position | None = None  # all that was taken ends there
        self._by_number = False  # it was asked for at a number, or behind one
        self._awaits_done = self._done is not None  # it is asked for the stored record, which has not come again yet
        self._is_past = self._done is None  # what comes is behind the stored record
        self._silence = Silence()  # of the pages since the last record
        self._was_trimmed: Position | None = None  # it was noticed, and is told with what comes next
        self._was_stored = True  # that is a checkpoint, not what was read since
        self._is_overtaken = False  # what followed the last record may have been trimmed, and that was told

    @property
    def shard_id(self) -> str:
        """The shard that is read."""
        return self._shard.shard_id

    def continues_at(self, sequence_number: str | None, *, service_now_s: float | None = None) -> None:
        """A subscription's event: the next one goes on behind this number, which may be beyond the last record.
        ``service_now_s`` is the service's time (epoch seconds) when it came.
        """
        self._continuation = None if sequence_number is None else int(sequence_number)
        if self._last is None:
            self._reached_s = service_now_s

    def start(self, service_now_s: float, *, horizon_s: float | None = None) -> IteratorAt:
        """Where to ask. ``service_now_s`` is the service's time, epoch seconds; ``horizon_s`` the oldest arrival time
        that the stream's retention covers, if it is known.
        """
        if horizon_s is not None and self._reached_s is not None and self._reached_s <= horizon_s + TRIM_MARGIN_S:
            self._begin_anew()
        at = self._start(service_now_s)
        self._by_number = at.sequence_number is not None
        return at

    def _start(self, service_now_s: float) -> IteratorAt:
        if self._continuation is not None and not self._awaits_done:
            return IteratorAt.after_sequence(max(self._continuation, self._last or 0))
        if self._last is not None:
            return IteratorAt.after_sequence(self._last)
        if self._awaits_done and self._done is not None:
            return IteratorAt.at_sequence(self._done.sequence_number)
        if self._word == Checkpoint.LATEST:
            # From now on LATEST means this moment, however often it is asked for.
            if self._timestamp_s is None:
                self._timestamp_s = service_now_s
                return IteratorAt.latest()
            return IteratorAt.at_timestamp(self._timestamp_s)
        if self._word == Checkpoint.AT_TIMESTAMP:
            assert self._timestamp_s is not None
            return IteratorAt.at_timestamp(self._timestamp_s)
        return IteratorAt.trim_horizon()

    def refused(self) -> bool:
        """The service refused the sequence number (some do when it is trimmed). True: `start` names another place."""
        if not self._by_number:
            return False
        self._begin_anew()
        return True

    def take(self, page: ReadPage, *, horizon_s: float | None = None, asked_s: float | None = None) -> Taken | None:
        """Judge a page. None: it is worth nothing, and a new iterator is needed, at `start`.

        ``horizon_s``: the oldest arrival time that the stream's retention covers (epoch seconds), if it is known.
        ``asked_s``: the service's time when the page was asked for, or before.

        Raises AggregateError, where aggregates outside of the shard's range are to raise.
        """
        raws = page.records
        if not raws:
            self._silence.empty(page.millis_behind_latest, is_last=page.is_last, asked_s=asked_s)
            if self._gone(page) or self._leads_nowhere(page, horizon_s, asked_s):
                self._begin_anew()
                return None
            taken = self._taken(Opened(UserRecords(self._shard, ())), None, page, horizon_s)
            self._note_reached(self._silence.reached_s)
            return taken
        self._silence.records(page.millis_behind_latest)
        done = None if self._is_past else self._done
        if done is not None:
            raws = self._from(done, raws)
        found = opened(self._shard, raws, done=done)
        self._awaits_done = False
        self._look_for_a_gap(page, horizon_s)
        self._is_past = self._is_past or bool(raws)
        self._last = int(page.records[-1].sequence_number)
        self._reached_s = page.records[-1].approximate_arrival_timestamp
        ends_at = _end_of(raws, found.records)
        self._end = ends_at or self._end
        if done is not None and ends_at is not None and ends_at <= done:
            ends_at = None
        taken = self._taken(found, ends_at, page, horizon_s)
        self._note_reached(asked_s if page.millis_behind_latest == 0 else None)
        return taken

    def gone(self, *, horizon_s: float | None = None) -> Taken:
        """The shard is in no listing any more: its last record is older than the retention. So it has ended."""
        trimmed = None
        self._begin_anew()
        if self._was_trimmed is not None and (self._was_stored or not self._is_covered(horizon_s)):
            trimmed = Trimmed(self._was_trimmed, None, self._is_covered(horizon_s))
        nothing = UserRecords(self._shard, ())
        return Taken(nothing, None, None, ended=True, children=(), outside=0, dropped=0, trimmed=trimmed)

    def _is_covered(self, horizon_s: float | None) -> bool:
        known_s = self._settled_until_s
        return known_s is not None and horizon_s is not None and known_s >= horizon_s

    def _note_reached(self, reached_s: float | None) -> None:
        """Note until when all is read, if the page tells: at the tip, and on the way there over a silence."""
        if reached_s is None or self._awaits_done or self._was_trimmed is not None:
            return
        until_s = reached_s - SERVICE_CLOCK_S
        if self._word == Checkpoint.LATEST and self._timestamp_s is not None:
            until_s = max(until_s, self._timestamp_s)
        self.read_until_s = until_s if self.read_until_s is None else max(until_s, self.read_until_s)

    def _from(self, done: Position, raws: Sequence[RawRecord]) -> Sequence[RawRecord]:
        """Kinesis records from the stored one on; notes whether it is there."""
        first = int(raws[0].sequence_number)
        if just_before(first) == done.sequence_number:  # it was stored as a bound just before the next record
            self._was_trimmed = None
            return raws
        if first > done.sequence_number:
            # The service starts at the next one where one is missing. In a search from the oldest on, that one is next.
            self._was_trimmed = self._was_trimmed or done
            return raws
        self._was_trimmed = None
        return [raw for raw in raws if int(raw.sequence_number) >= done.sequence_number]

    def _gone(self, page: ReadPage) -> bool:
        """True when the stored record should have come by now."""
        if not self._awaits_done:
            return False
        return page.is_last or self._silence.leads_nowhere

    def _leads_nowhere(self, page: ReadPage, horizon_s: float | None, asked_s: float | None) -> bool:
        """True when an empty page is from before the retention: its number is trimmed, and nothing will ever come."""
        behind_ms = page.millis_behind_latest
        if not self._by_number or not behind_ms or horizon_s is None or asked_s is None:
            return False
        return not page.is_last and asked_s - behind_ms / 1000 <= horizon_s + SERVICE_CLOCK_S

    def _look_for_a_gap(self, page: ReadPage, horizon_s: float | None) -> None:
        """Notice records before these that may have been trimmed unread: the last one was older than the retention,
        these are not, and the shard was not silent. Told once for as long as it stays so.
        """
        if not self._is_past or self._reached_s is None or horizon_s is None or page.millis_behind_latest is None:
            return
        is_read_s = max(self._reached_s, self.read_until_s or self._reached_s)
        if is_read_s > horizon_s:
            self._is_overtaken = False
        elif not self._is_overtaken and page.records[0].approximate_arrival_timestamp > horizon_s:
            self._is_overtaken = True
            self._was_stored, self._settled_until_s = False, self.read_until_s
            self._was_trimmed = self._was_trimmed or self._end

    def _begin_anew(self) -> None:
        """Search from the oldest record on. Should the last one be there after all, what is up to it is left out."""
        if self._is_past:  # the checkpoint counts no more: much was read since
            self._was_stored, self._settled_until_s = False, self.read_until_s
            if self._end is not None:
                self._done, self._is_past = self._end, False
        # Where nothing was read yet there is only the place up to which a subscription found nothing.
        place = None if self._continuation is None else Position(self._continuation)
        self._was_trimmed = place if self._done is None else self._done
        if self._done is not None:
            self._word = Checkpoint.TRIM_HORIZON
        self._awaits_done = self._by_number = False
        self._continuation = self._last = self._reached_s = None
        self._silence.begin()

    def _taken(self, found: Opened, ends_at: Position | None, page: ReadPage, horizon_s: float | None) -> Taken:
        trimmed, records = None, found.records
        if self._was_trimmed is not None and (page.records or page.is_last or page.millis_behind_latest == 0):
            resumes_at = records.position(0) if len(records) else None
            is_covered = self._is_covered(horizon_s)
            if self._was_stored or not is_covered:  # that a shard is silent while it is read is no news
                trimmed = Trimmed(self._was_trimmed, resumes_at, is_covered)
            self._was_trimmed = None
            self._is_past = self._is_past or not page.records  # the shard is empty: whatever comes is new
        return Taken(
            records,
            ends_at,
            page.millis_behind_latest,
            page.is_last,
            page.children,
            found.outside,
            found.dropped,
            trimmed,
        )


def _end_of(raws: Sequence[RawRecord], records: UserRecords) -> Position | None:
    """The last position of Kinesis records of which these user records were handed on."""
    if not raws:
        return None
    last = int(raws[-1].sequence_number)
    if len(records) and (position := records.position(-1)).sequence_number == last:
        return position
    return Position(last)
