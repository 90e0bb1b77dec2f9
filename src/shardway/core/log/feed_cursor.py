"""The cursor of a consumer's feed: what of a page is new, what is lost, and until when all is read.

Where the log is read, and that no record is left out, is the matter of the log's cursor (`shardway.core.log.cursor`):

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

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.log.cursor import LogCursor, Policy, latest_s
from shardway.core.log.pages import ChildShard, RawRecord, ReadPage
from shardway.core.log.transitions import NextStep, State
from shardway.core.log.user_records import OpenedPage, OpenedRecords, ShardView, UserRecords, opened
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.model import IteratorAt, Position

if TYPE_CHECKING:
    from collections.abc import Sequence


TRIM_MARGIN_S = 60.0
"""The reader stops counting on a record this long before the retention lets go of it."""
TO_COME_MAX_S = 300.0
"""A reader waits at most so many seconds for a starting time of the program's to come: the program's clock may be ahead
of the service's. The service refuses every signed request of a clock that is further off. For a time that the lease's
row has, however far ahead, a reader waits: an error would end the worker, and with it the reading of other shards, at
each start.
"""
FEEDING = Policy()
"""The policy of a consumer: an iterator goes on behind the last record, and what is trimmed is looked for from the
oldest on.
"""


class Trimmed(NamedTuple):
    """A stored position is older than the stream's retention."""

    position: Position
    resumes_at: Position | None
    """The position of the oldest record that is left; None while the shard has none."""
    surely_nothing_lost: bool
    """True when the shard was only silent: it was read to its tip at a time that the retention still covers."""


class PageMeaning(NamedTuple):
    """The meaning of a page for the reader of the shard."""

    records: UserRecords
    ends_at: Position | None
    """The last position of the page, also where its records were left out; None if it has none that is new."""
    millis_behind_latest: int | None
    ended: bool
    """True when the shard has no more records: ``children`` go on."""
    children: tuple[ChildShard, ...]
    outside: int
    """The number of aggregates that held records of another shard's range."""
    dropped: int
    """The number of user records that were left out because of that."""
    trimmed: Trimmed | None


class Refusal(Enum):
    """What it means that the service refused the place at which a cursor wanted to read."""

    TRIMMED = "trimmed"
    """The sequence number is not accepted, as it may be trimmed: `FeedCursor.start` names another place."""
    TO_COME = "to come"
    """The service's clock may not have reached the time that was named: the reader waits for it."""
    FINAL = "final"
    """The service will not accept the place later either."""


class FeedCursor:
    """The cursor of one shard. ``start`` says where to ask for an iterator (or a subscription) when there is none."""

    def __init__(
        self,
        shard: ShardView,
        checkpoint: Checkpoint,
        *,
        timestamp_s: float | None = None,
        read_until_s: float | None = None,
    ) -> None:
        """``checkpoint``: read what follows it. ``timestamp_s``: the application's start (epoch seconds), where the
        checkpoint is AT_TIMESTAMP and the lease does not know its time. ``read_until_s``: all that had arrived by then
        (epoch seconds) is settled: where the checkpoint is LATEST or AT_TIMESTAMP, reading goes on from there.
        """
        if checkpoint.is_end:
            raise ValueError(f"{shard.shard_id} is read to its end")
        if checkpoint == Checkpoint.AT_TIMESTAMP and timestamp_s is None and read_until_s is None:
            raise ValueError(f"{shard.shard_id} is to be read from a time on, and no time is given")
        self._shard = shard
        self._done_position: Position | None = checkpoint.position if checkpoint.is_position else None
        self._log = LogCursor(
            FEEDING,
            begin=_begin_at(checkpoint, timestamp_s, read_until_s),
            anchor=None if self._done_position is None else self._done_position.sequence_number,
        )
        self.read_until_s = read_until_s
        """The time (epoch seconds) up to which all that had arrived was handed on, or settled before. None: it is not
        known.
        """
        self.payload_bytes = 0
        """The bytes of payload that came so far. The feed counts them, and the worker computes the throughput from
        them.
        """
        self._latest_s = read_until_s if checkpoint == Checkpoint.LATEST else None  # It is that moment, once known.
        self._settled_until_s = read_until_s
        self._reached_s: float | None = None  # The last record came then, or a subscription was there (epoch seconds).
        self._end: Position | None = None  # All that was taken ends there.
        self._asked_for_s: float | None = None
        self._is_stored = True  # A loss is counted from a checkpoint, not from what was read since.
        self._gap_is_reported = False  # It stays so for as long as the reader is slower than the retention.

    @property
    def shard_id(self) -> str:
        """The shard that is read."""
        return self._shard.shard_id

    @property
    def state(self) -> State:
        """The state of the log's cursor: what is known of the place at which the log is read."""
        return self._log.state

    def continues_at(self, sequence_number: str | None, *, service_now_s: float | None = None) -> None:
        """Take a subscription's event: the next one goes on behind this number, which may be beyond the last record.
        ``service_now_s`` is the service's time (epoch seconds) when it came.
        """
        self._log.continues_at(None if sequence_number is None else int(sequence_number))
        if not self._log.has_last:
            self._reached_s = service_now_s

    def start(self, service_now_s: float, *, horizon_s: float | None = None) -> IteratorAt:
        """Return where to ask. ``service_now_s`` is the service's time, epoch seconds; ``horizon_s`` the oldest arrival
        time that the stream's retention covers, if it is known.
        """
        if horizon_s is not None and self._reached_s is not None and self._reached_s <= horizon_s + TRIM_MARGIN_S:
            self._begins_anew()
            self._log.passed()
        at = self._log.ask()
        if at == IteratorAt.latest():
            # Each later LATEST means this moment, however often it is asked for.
            self._latest_s = latest_s(service_now_s)
            self._log.begin = IteratorAt.at_timestamp(self._latest_s)
        self._asked_for_s = at.timestamp_s
        return at

    def take_refusal(self, service_now_s: float) -> Refusal:
        """Note that the service refused the place that `start` named, and return what that means. ``service_now_s`` is
        the service's time, epoch seconds.
        """
        if self._log.by_number:
            self._begins_anew()
            self._log.refused()
            return Refusal.TRIMMED
        at_s = self._asked_for_s
        if at_s is None or at_s <= service_now_s - SERVICE_CLOCK_S:
            return Refusal.FINAL
        is_awaited = at_s <= service_now_s + TO_COME_MAX_S or at_s == self._settled_until_s
        return Refusal.TO_COME if is_awaited else Refusal.FINAL

    @property
    def asked_for_s(self) -> float | None:
        """The time (epoch seconds) that `start` named last; None: it named another place."""
        return self._asked_for_s

    @property
    def view(self) -> ShardView:
        """The shard that is read, and how its records are to be opened."""
        return self._shard

    def take(
        self,
        page: ReadPage,
        *,
        horizon_s: float | None = None,
        asked_s: float | None = None,
        before: OpenedRecords | None = None,
    ) -> PageMeaning | None:
        """Judge a page. None: it is worth nothing, and a new iterator is needed, at `start`.

        ``horizon_s``: the oldest arrival time that the stream's retention covers (epoch seconds), if it is known.
        ``asked_s``: the service's time when the page was asked for, or before. ``before``: what `open_all` has made of
        the page's records; None: they are opened now.

        Raises AggregateError, where aggregates outside of the shard's range are to raise.
        """
        log, raws, was_met = self._log, page.records, self._log.is_met
        behind_ms = page.millis_behind_latest
        step = log.page(raws, behind_ms=behind_ms, is_last=page.is_last, asked_s=asked_s, horizon_s=horizon_s)
        if step.does is NextStep.ASK:
            self._begins_anew(was_met)
            return None
        missing = self._missing_position() if step.is_loss else None
        if not raws:
            found = OpenedPage(UserRecords(self._shard, ()))
            taken = self._meaning(found, None, page, self._trimmed_part(missing, found, horizon_s))
            self._note_reached(log.silence.reached_s)
            return taken
        done = None if was_met else self._done_position
        if step.start:
            raws, before = raws[step.start :], before and before[step.start :]
        found = opened(self._shard, raws, done=done, before=before)
        if was_met and self._is_a_gap(page, horizon_s):
            self._is_stored, self._settled_until_s = False, self.read_until_s
            missing = missing or self._end
        self._reached_s = page.records[-1].approximate_arrival_timestamp
        ends_at = _end_of(raws, found.records)
        self._end = ends_at or self._end
        if done is not None and ends_at is not None and ends_at <= done:
            ends_at = None
        taken = self._meaning(found, ends_at, page, self._trimmed_part(missing, found, horizon_s))
        self._note_reached(asked_s if behind_ms == 0 else None)
        return taken

    def gone(self, *, horizon_s: float | None = None) -> PageMeaning:
        """Return what a page means when the shard is in no listing any more: its last record is older than the
        retention, and it has ended.
        """
        self._begins_anew()
        step = self._log.gone()
        found = OpenedPage(UserRecords(self._shard, ()))
        trimmed = self._trimmed_part(self._missing_position() if step.is_loss else None, found, horizon_s)
        return PageMeaning(found.records, None, None, ended=True, children=(), outside=0, dropped=0, trimmed=trimmed)

    def _begins_anew(self, was_met: bool | None = None) -> None:
        """Look from the oldest record on for what was read last."""
        if self._log.is_met if was_met is None else was_met:  # The checkpoint counts no more: much was read since.
            self._is_stored, self._settled_until_s = False, self.read_until_s
            self._done_position = self._end or self._done_position
        self._reached_s = None

    def _missing_position(self) -> Position | None:
        """Return what the log's cursor has not found again."""
        number, done = self._log.missing, self._done_position
        if number is None:
            return None
        return done if done is not None and done.sequence_number == number else Position(number)

    def _trimmed_part(self, missing: Position | None, found: OpenedPage, horizon_s: float | None) -> Trimmed | None:
        is_covered = self._is_covered(horizon_s)
        if missing is None or (is_covered and not self._is_stored):  # A silent shard that is read is no news.
            return None
        return Trimmed(missing, found.records.position(0) if len(found.records) else None, is_covered)

    def _is_covered(self, horizon_s: float | None) -> bool:
        known_s = self._settled_until_s
        return known_s is not None and horizon_s is not None and known_s >= horizon_s

    def _is_a_gap(self, page: ReadPage, horizon_s: float | None) -> bool:
        """True when records before these may have been trimmed unread: the last one was older than the retention, these
        are not, and the shard was not silent. It is True once, for as long as it stays so: the iterator of a reader
        that is slower than the retention passes over what is gone, and no answer says so.
        """
        if self._reached_s is None or horizon_s is None or page.millis_behind_latest is None:
            return False
        is_read_s = max(self._reached_s, self.read_until_s or self._reached_s)
        if is_read_s > horizon_s:
            self._gap_is_reported = False
        elif not self._gap_is_reported and page.records[0].approximate_arrival_timestamp > horizon_s:
            self._gap_is_reported = True
            return True
        return False

    def _note_reached(self, reached_s: float | None) -> None:
        """Note until when all is read, if the page shows it: at the tip, and on the way there over a silence."""
        if reached_s is None or self._log.state in (State.SEEKING, State.OVERTAKEN):
            return
        until_s = reached_s - SERVICE_CLOCK_S
        if self._latest_s is not None:
            until_s = max(until_s, self._latest_s)
        self.read_until_s = until_s if self.read_until_s is None else max(until_s, self.read_until_s)

    def _meaning(
        self, found: OpenedPage, ends_at: Position | None, page: ReadPage, trimmed: Trimmed | None
    ) -> PageMeaning:
        return PageMeaning(
            found.records,
            ends_at,
            page.millis_behind_latest,
            page.is_last,
            page.children,
            found.outside,
            found.dropped,
            trimmed,
        )


def _begin_at(checkpoint: Checkpoint, timestamp_s: float | None, read_until_s: float | None) -> IteratorAt:
    """Return where a log is read from that has no stored position."""
    if checkpoint.is_timed and read_until_s is not None:
        return IteratorAt.at_timestamp(read_until_s)
    if checkpoint == Checkpoint.LATEST:
        return IteratorAt.latest()
    if checkpoint == Checkpoint.AT_TIMESTAMP and timestamp_s is not None:
        return IteratorAt.at_timestamp(timestamp_s)
    return IteratorAt.trim_horizon()


def _end_of(raws: Sequence[RawRecord], records: UserRecords) -> Position | None:
    """Return the last position of the Kinesis records that held these user records, which were handed on."""
    if not raws:
        return None
    last = int(raws[-1].sequence_number)
    if len(records) and (position := records.position(-1)).sequence_number == last:
        return position
    return Position(last)
