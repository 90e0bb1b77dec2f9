"""One cursor over a shard's log: where to ask for an iterator, what each answer means, and that no record is left out.

All that reads a shard has such a cursor: polling and fan-out (`core/log/feed_cursor.py`), the ranges of Spark's tasks
(`spark/task/range_cursor.py`), the looks of Spark's driver, the replay of dead letters, the window of duplicates. What
they want differently is their `Policy`. The cursor takes what happened: an answer, no iterator, a refusal, a number
that is too old. That is a `Sign`, and `TABLE` says what follows from each in each `State`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.log.silence import Meaning, Silence
from shardway.core.log.transitions import ANEW, TABLE, UNMET, NextStep, Sign, State, Transition
from shardway.core.sequence import just_before
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.model import IteratorAt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeVar

    from shardway.core.log.pages import RawRecord

    T = TypeVar("T")


def latest_s(service_now_s: float) -> float:
    """Return the time (epoch seconds) that stands for LATEST from now on, for each reader of the shard.

    It may lie two seconds too early, and never too late: a record that arrives after this call must not lie before it.
    """
    return service_now_s - SERVICE_CLOCK_S


class Policy(NamedTuple):
    """The choices in which the readers of a log differ."""

    by_time: bool = False
    """The place where a record is looked for anew. True: from the time on at which it arrived. False: from the oldest
    record on.
    """
    returns: bool = False
    """The place where another iterator is asked for while the log is read. True: at the last record that came, which
    has to come again: so what is trimmed behind it is noticed. False: behind it; the reader says when its number is too
    old (`LogCursor.passed`).
    """
    expects: bool = False
    """True: it is known that more has to come, or is to be known whether the iterator leads anywhere: so barren pages
    are counted wherever it is. False: only while a record is sought.
    """
    doubts_end: bool = True
    """True: a shard that ends where a record is sought is looked at anew, from the oldest on. False: it has ended."""


class Step(NamedTuple):
    """The step that an input has led to."""

    sign: Sign
    does: NextStep
    is_loss: bool = False
    """True when what was sought (`LogCursor.missing`) is not there: the reader reports it with this answer."""
    start: int = 0
    """The index of the first record of the page that does not lie before what is sought; that one is among them, if it
    is there.
    """


class LogCursor:
    """The cursor of one shard's log. It takes what happens to the reader, which does what the `Step` says."""

    __slots__ = (
        "_continuation", "_last_number", "_last_s", "_policy", "_request", "anchor", "anchor_s", "begin", "missing",
        "silence", "state",
    )  # fmt: skip

    def __init__(
        self,
        policy: Policy,
        *,
        begin: IteratorAt | None = None,
        anchor: int | None = None,
        anchor_s: float = 0.0,
        is_doubted: bool = False,
    ) -> None:
        """``anchor``: the number of a record that has to come; without one, the log is read from ``begin`` on.
        ``anchor_s``: when it arrived (epoch seconds), where the policy looks for it by that. ``is_doubted``: its number
        may be trimmed, so it is not asked for by it.
        """
        self._policy = policy
        self.begin = IteratorAt.trim_horizon() if begin is None else begin
        """The place where reading begins while nothing is known to lie before."""
        self.anchor = anchor
        """The number of the record that is sought, or was sought last."""
        self.anchor_s = anchor_s
        """The arrival time of the record that is sought, in epoch seconds."""
        self.state = State.FRESH if anchor is None else State.OVERTAKEN if is_doubted else State.SEEKING
        self.missing: int | None = anchor if is_doubted else None
        """The thing that was sought and did not come: the number of a record, or how far a subscription had come."""
        self.silence = Silence()
        """The pages since the last record."""
        self._last_number: int | None = None  # The last record that came since the log began, or began again.
        self._last_s = 0.0
        self._continuation: int | None = None
        self._request: IteratorAt | None = None

    @property
    def is_met(self) -> bool:
        """True when all that comes is new: no record is sought."""
        return self.state not in UNMET

    @property
    def by_number(self) -> bool:
        """True when the iterator was asked for at a number, or behind one."""
        return self._request is not None and self._request.sequence_number is not None

    @property
    def has_last(self) -> bool:
        """True when a record came since the log was begun, or begun anew."""
        return self._last_number is not None

    @property
    def known(self) -> int | None:
        """The newest record that is known to have been in the log: the last that came, or the one that is sought."""
        return self._last_number if self.is_met and self._last_number is not None else self.anchor

    def ask(self) -> IteratorAt:
        """Return where to ask for an iterator, or for a subscription: there is none."""
        self._go(Sign.LOST)
        if self._policy.returns:
            self._return()
        at = self._place()
        # An iterator that is asked for at the same place again goes on: one that expires with each page would otherwise
        # count none.
        if at != self._request or self._policy.returns:
            self.silence.moved()
        self._request = at
        return at

    def page(
        self,
        records: Sequence[RawRecord],
        *,
        behind_ms: int | None,
        is_last: bool,
        asked_s: float | None = None,
        horizon_s: float | None = None,
        tip_counts: bool = True,
    ) -> Step:
        """Take an answer. ``behind_ms``: its MillisBehindLatest, if it is known. ``is_last``: the shard has no more.

        ``asked_s``: the service's time (epoch seconds) when it was asked for, or before. ``horizon_s``: the oldest
        arrival time that the retention covers, if that is known. ``tip_counts``: False: it proves nothing yet that the
        tip is reached.
        """
        if not records:
            meaning = self.silence.empty(behind_ms, is_last=is_last, asked_s=asked_s)
            if self._is_passed(behind_ms, is_last=is_last, asked_s=asked_s, horizon_s=horizon_s):
                return self._step(Sign.PASSED)
            return self._step(self._empty(meaning, tip_counts=tip_counts))
        self.silence.records(behind_ms)
        start, sign = 0, Sign.NEXT
        if not self.is_met:
            start, sign = self._find(records)
        step = self._step(sign, start)
        last = records[-1]
        self._last_number, self._last_s = int(last.sequence_number), last.approximate_arrival_timestamp
        if is_last:
            end = self._step(Sign.END)
            return step._replace(does=end.does, is_loss=step.is_loss or end.is_loss)
        return step

    def unread(self, records: Sequence[T], step: Step) -> Sequence[T]:
        """Return a page's records that did not come before: not what was sought, nor what lies before it."""
        found = records[step.start :]
        return found[1:] if step.sign is Sign.MET and found and _number(found[0]) == self.anchor else found

    def continues_at(self, number: int | None) -> None:
        """Take a subscription's event: another one goes on behind this number, which may be beyond the last record."""
        self._continuation = number

    def refused(self) -> Step:
        """Note that the service took no iterator at the number that it was asked for by (`by_number`)."""
        return self._step(Sign.REFUSED)

    def passed(self) -> Step:
        """Note that the last record that came is so old that its number will be trimmed before it is asked for."""
        return self._step(Sign.PASSED)

    def gone(self) -> Step:
        """Note that the service does not know the shard any more."""
        return self._step(Sign.GONE)

    def _go(self, sign: Sign) -> Transition:
        found = TABLE[self.state].get(sign)
        if found is None:
            raise RuntimeError(f"a log's cursor that is {self.state} cannot be shown {sign}")
        if found is ANEW or sign is Sign.GONE:
            self._begin_anew()
        elif sign is Sign.MET or sign is Sign.OLDER:
            self.missing = None
        elif found.is_loss and self.missing is None:
            self.missing = self.anchor
        self.state = found.state
        return found

    def _step(self, sign: Sign, start: int = 0) -> Step:
        found = self._go(sign)
        return Step(sign, found.does, found.is_loss and self.missing is not None, start)

    def _begin_anew(self) -> None:
        """Begin anew: what came last is to come again. If it is there after all, what lies before it is passed over."""
        if self.is_met and self._last_number is not None:
            self.anchor, self.anchor_s = self._last_number, self._last_s
        # Where nothing was read yet there is only the place up to which a subscription found nothing.
        self.missing = self._continuation if self.anchor is None else self.anchor
        self._last_number = self._continuation = self._request = None
        self.silence.begin()

    def _return(self) -> None:
        """Let the record that came last come again; a record that is sought is looked for as if none had come yet."""
        if self.is_met and self._last_number is not None:
            self.anchor, self.anchor_s, self._last_number, self.state = (
                self._last_number,
                self._last_s,
                None,
                State.SEEKING,
            )
        elif self.state is State.PASSING:
            # Meanwhile all of it may have been trimmed, with what was passed over: then the tip is a loss.
            self.missing, self.state = self.anchor, State.OVERTAKEN

    def _place(self) -> IteratorAt:
        if self.state is State.SEEKING and self.anchor is not None:
            return IteratorAt.at_sequence(self.anchor)
        if self._policy.returns and not self.is_met:
            return self._first_place()
        behind = max(
            -1 if self._last_number is None else self._last_number,
            -1 if self._continuation is None else self._continuation,
        )
        return self._first_place() if behind < 0 else IteratorAt.after_sequence(behind)

    def _first_place(self) -> IteratorAt:
        if self.anchor is None:
            return self.begin
        if self._policy.by_time:
            return IteratorAt.at_timestamp(math.floor(self.anchor_s))
        return IteratorAt.trim_horizon()

    def _find(self, records: Sequence[RawRecord]) -> tuple[int, Sign]:
        """Return where in a page the sought record is, or the first record behind it."""
        if self.anchor is None:
            return 0, Sign.BEYOND
        start = bisect_left(records, self.anchor, key=_number)
        if start == len(records):
            return start, Sign.OLDER
        number = _number(records[start])
        # A bound may have been stored that stands just before the next record; no record carries its number.
        is_there = number == self.anchor or just_before(number) == self.anchor
        return start, Sign.MET if is_there else Sign.BEYOND

    def _empty(self, meaning: Meaning, *, tip_counts: bool) -> Sign:
        expects = self.state is State.SEEKING or (self._policy.expects and self.is_met)
        if meaning is Meaning.END:
            return Sign.NOWHERE if self.state is State.SEEKING and self._policy.doubts_end else Sign.END
        if meaning is Meaning.CROSSING:
            return Sign.CROSSING
        if expects and self.silence.leads_nowhere:
            return Sign.NOWHERE
        return Sign.TIP if meaning is Meaning.TIP and tip_counts else Sign.STANDING

    def _is_passed(
        self, behind_ms: int | None, *, is_last: bool, asked_s: float | None, horizon_s: float | None
    ) -> bool:
        """True when an empty page is from before the retention: its number is trimmed, and nothing will ever come."""
        if is_last or not behind_ms or not self.by_number or horizon_s is None or asked_s is None:
            return False
        return asked_s - behind_ms / 1000 <= horizon_s + SERVICE_CLOCK_S


def _number(record: Any) -> int:
    return int(record.sequence_number)
