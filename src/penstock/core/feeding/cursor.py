"""How far a shard is read for its consumer, and what a page is for it: what of it is new, what is lost, until when all
is read. Where the log is read, and that no record is left out, is the cursor's (`core/feeding/log_cursor.py`).

- A stored position is opened *at* its record, which then comes again and is left out (of an aggregate, the user records
  up to the position are left out). So the reader sees whether the record is still there.
- Retention can also overtake a reader that was cut off for long, or that reads a silent shard. So the reader asks for a
  number again only while its record is younger than the retention. Otherwise reading goes on at the oldest record, and
  what was read before is left out. When a reader is that far behind, its iterator goes on at the oldest record by
  itself, and AWS does not say so.
- LATEST, asked for again because an iterator expired before any record came, would pass over what came meanwhile: it is
  asked for by the time of the first call then.
- TRIM_HORIZON, asked for again, gives what was read before again: from the first record on, the last one read counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.feeding.log_cursor import SERVICE_CLOCK_S, Does, LogCursor, Policy, State
from penstock.core.feeding.user_records import Opened, UserRecords, opened
from penstock.core.leases.checkpoint import Checkpoint
from penstock.model import IteratorAt, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.feeding.pages import ChildShard, RawRecord, ReadPage
    from penstock.core.feeding.user_records import ShardView

TRIM_MARGIN_S = 60.0
"""The reader stops counting on a record this long before the retention lets go of it."""

FEEDING = Policy()
"""A consumer's: an iterator goes on behind the last record, and what is trimmed is looked for from the oldest on."""


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
        self._log = LogCursor(
            FEEDING,
            begin=_beginning(checkpoint, timestamp_s, read_until_s),
            anchor=None if self._done is None else self._done.sequence_number,
        )
        self.read_until_s = read_until_s
        """All that had arrived by then (epoch seconds) was handed on, or settled before. None: it is not known."""
        self.payload_bytes = 0
        """How much came so far. The feed counts it, and the worker computes the throughput from it."""
        self._latest_s = read_until_s if checkpoint == Checkpoint.LATEST else None  # that moment, once it is known
        self._settled_until_s = read_until_s
        self._reached_s: float | None = None  # when the last record came, or how far a subscription was (epoch seconds)
        self._end: Position | None = None  # all that was taken ends there
        self._is_stored = True  # what a loss is counted from is a checkpoint, not what was read since
        self._gap_is_told = False  # for as long as the reader is slower than the retention

    @property
    def shard_id(self) -> str:
        """The shard that is read."""
        return self._shard.shard_id

    @property
    def state(self) -> State:
        """What is known of the place at which the log is read."""
        return self._log.state

    def continues_at(self, sequence_number: str | None, *, service_now_s: float | None = None) -> None:
        """A subscription's event: the next one goes on behind this number, which may be beyond the last record.
        ``service_now_s`` is the service's time (epoch seconds) when it came.
        """
        self._log.continues_at(None if sequence_number is None else int(sequence_number))
        if not self._log.has_last:
            self._reached_s = service_now_s

    def start(self, service_now_s: float, *, horizon_s: float | None = None) -> IteratorAt:
        """Where to ask. ``service_now_s`` is the service's time, epoch seconds; ``horizon_s`` the oldest arrival time
        that the stream's retention covers, if it is known.
        """
        if horizon_s is not None and self._reached_s is not None and self._reached_s <= horizon_s + TRIM_MARGIN_S:
            self._begins_anew()
            self._log.passed()
        at = self._log.ask()
        if at == IteratorAt.latest():
            # From now on LATEST means this moment, however often it is asked for.
            self._latest_s = service_now_s
            self._log.begin = IteratorAt.at_timestamp(service_now_s)
        return at

    def refused(self) -> bool:
        """The service refused the sequence number (some do when it is trimmed). True: `start` names another place."""
        if not self._log.by_number:
            return False
        self._begins_anew()
        self._log.refused()
        return True

    def take(self, page: ReadPage, *, horizon_s: float | None = None, asked_s: float | None = None) -> Taken | None:
        """Judge a page. None: it is worth nothing, and a new iterator is needed, at `start`.

        ``horizon_s``: the oldest arrival time that the stream's retention covers (epoch seconds), if it is known.
        ``asked_s``: the service's time when the page was asked for, or before.

        Raises AggregateError, where aggregates outside of the shard's range are to raise.
        """
        log, raws, was_met = self._log, page.records, self._log.is_met
        behind_ms = page.millis_behind_latest
        step = log.page(raws, behind_ms=behind_ms, is_last=page.is_last, asked_s=asked_s, horizon_s=horizon_s)
        if step.does is Does.ASK:
            self._begins_anew(was_met)
            return None
        missing = self._missing() if step.is_loss else None
        if not raws:
            found = Opened(UserRecords(self._shard, ()))
            taken = self._taken(found, None, page, self._trimmed(missing, found, horizon_s))
            self._note_reached(log.silence.reached_s)
            return taken
        done = None if was_met else self._done
        if step.start:
            raws = raws[step.start :]
        found = opened(self._shard, raws, done=done)
        if was_met and self._is_a_gap(page, horizon_s):
            self._is_stored, self._settled_until_s = False, self.read_until_s
            missing = missing or self._end
        self._reached_s = page.records[-1].approximate_arrival_timestamp
        ends_at = _end_of(raws, found.records)
        self._end = ends_at or self._end
        if done is not None and ends_at is not None and ends_at <= done:
            ends_at = None
        taken = self._taken(found, ends_at, page, self._trimmed(missing, found, horizon_s))
        self._note_reached(asked_s if behind_ms == 0 else None)
        return taken

    def gone(self, *, horizon_s: float | None = None) -> Taken:
        """The shard is in no listing any more: its last record is older than the retention. So it has ended."""
        self._begins_anew()
        step = self._log.gone()
        found = Opened(UserRecords(self._shard, ()))
        trimmed = self._trimmed(self._missing() if step.is_loss else None, found, horizon_s)
        return Taken(found.records, None, None, ended=True, children=(), outside=0, dropped=0, trimmed=trimmed)

    # --- what is lost ---------------------------------------------------------------------------

    def _begins_anew(self, was_met: bool | None = None) -> None:
        """What was read last is looked for from the oldest record on."""
        if self._log.is_met if was_met is None else was_met:  # the checkpoint counts no more: much was read since
            self._is_stored, self._settled_until_s = False, self.read_until_s
            self._done = self._end or self._done
        self._reached_s = None

    def _missing(self) -> Position | None:
        """What the log's cursor has not found again."""
        number, done = self._log.missing, self._done
        if number is None:
            return None
        return done if done is not None and done.sequence_number == number else Position(number)

    def _trimmed(self, missing: Position | None, found: Opened, horizon_s: float | None) -> Trimmed | None:
        is_covered = self._is_covered(horizon_s)
        if missing is None or (is_covered and not self._is_stored):  # a shard that is silent while it is read: no news
            return None
        return Trimmed(missing, found.records.position(0) if len(found.records) else None, is_covered)

    def _is_covered(self, horizon_s: float | None) -> bool:
        known_s = self._settled_until_s
        return known_s is not None and horizon_s is not None and known_s >= horizon_s

    def _is_a_gap(self, page: ReadPage, horizon_s: float | None) -> bool:
        """True when records before these may have been trimmed unread: the last one was older than the retention, these
        are not, and the shard was not silent. Once, for as long as it stays so: the iterator of a reader that is slower
        than the retention passes over what is gone, and no answer says so.
        """
        if self._reached_s is None or horizon_s is None or page.millis_behind_latest is None:
            return False
        is_read_s = max(self._reached_s, self.read_until_s or self._reached_s)
        if is_read_s > horizon_s:
            self._gap_is_told = False
        elif not self._gap_is_told and page.records[0].approximate_arrival_timestamp > horizon_s:
            self._gap_is_told = True
            return True
        return False

    # --- until when all is read -----------------------------------------------------------------

    def _note_reached(self, reached_s: float | None) -> None:
        """Note until when all is read, if the page tells: at the tip, and on the way there over a silence."""
        if reached_s is None or self._log.state in (State.SEEKING, State.OVERTAKEN):
            return
        until_s = reached_s - SERVICE_CLOCK_S
        if self._latest_s is not None:
            until_s = max(until_s, self._latest_s)
        self.read_until_s = until_s if self.read_until_s is None else max(until_s, self.read_until_s)

    def _taken(self, found: Opened, ends_at: Position | None, page: ReadPage, trimmed: Trimmed | None) -> Taken:
        return Taken(
            found.records,
            ends_at,
            page.millis_behind_latest,
            page.is_last,
            page.children,
            found.outside,
            found.dropped,
            trimmed,
        )


def _beginning(checkpoint: Checkpoint, timestamp_s: float | None, read_until_s: float | None) -> IteratorAt:
    """Where a log is read from that has no stored position."""
    if checkpoint == Checkpoint.LATEST:
        return IteratorAt.latest() if read_until_s is None else IteratorAt.at_timestamp(read_until_s)
    if checkpoint == Checkpoint.AT_TIMESTAMP and timestamp_s is not None:
        return IteratorAt.at_timestamp(timestamp_s)
    return IteratorAt.trim_horizon()


def _end_of(raws: Sequence[RawRecord], records: UserRecords) -> Position | None:
    """The last position of Kinesis records of which these user records were handed on."""
    if not raws:
        return None
    last = int(raws[-1].sequence_number)
    if len(records) and (position := records.position(-1)).sequence_number == last:
        return position
    return Position(last)
