"""One cursor over a shard's log: where to ask for an iterator, what each answer means, and that no record is left out.

All that reads a shard has such a cursor: polling and fan-out (`core/feeding/pages.py`), the ranges of Spark's tasks
(`spark/reading.py`), the looks of Spark's driver, the replay of dead letters, the window of duplicates. What they want
differently is their `Policy`. The cursor is told what happened: an answer, no iterator, a refusal, a number that is too
old. That is a `Sign`, and `TABLE` says what follows from each in each `State`.

What the service does not say, and what is the reason for the states:

- A record is asked for *at* its number, and has to come again (`SEEKING`). An iterator at a number that is trimmed
  gives no error: it gives empty pages for ever, as far behind as the retention is long. So does one that the retention
  has overtaken. What has to come and does not is looked for anew (`OVERTAKEN`): from the oldest record on, or from the
  time at which it arrived.
- If the log begins behind that record, it is trimmed, and so may be what followed it: that is told, once. If older ones
  come, they are passed over (`PASSING`).
- A shard that is silent answers with empty pages, too; see `Silence`.

Numbers grow along the log. Arrival times need not, so no decision about a record follows from its time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.sequence import just_before
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.model import IteratorAt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeVar

    from shardway.core.feeding.pages import RawRecord

    T = TypeVar("T")

BARREN_PAGES_MAX = 4
"""After this many pages in a row that brought nothing, a record that should have come is not there."""
FALL_MIN_MS = 1_000
"""A MillisBehindLatest that falls by less than this says nothing far from the tip: it is measured at different
moments.
"""
NEAR_TIP_MS = 60_000
"""An iterator that is no further behind than this is not at a trimmed number: a retention is a day or more."""


def latest_s(service_now_s: float) -> float:
    """Return the time (epoch seconds) that stands for LATEST from now on, for each reader of the shard.

    It may lie two seconds too early, and never too late: a record that arrives after this call must not lie before it.
    """
    return service_now_s - SERVICE_CLOCK_S


# --- pages without records ------------------------------------------------------------------------


class Meaning(StrEnum):
    """The meanings of a page without records."""

    END = "end"
    """The iterator is gone: the shard has no more records."""
    TIP = "tip"
    """Nothing is behind (``MillisBehindLatest`` 0): nothing more has arrived yet."""
    CROSSING = "crossing"
    """The iterator has come nearer to the tip over a stretch of the log without records: it is to be followed. A page
    crosses only a limited span of the log, so a night's silence may be hundreds of pages.
    """
    STANDING = "standing"
    """The iterator has come no further. So it is at a trimmed sequence number, where AWS gives empty pages for ever, as
    far behind as the retention is long, and no error.
    """


class Silence:
    """The pages of one iterator (and of those that follow it) since the last record: the only place that says what an
    empty page means.

    Silence is progress: how far behind the tip the iterator is says up to which time there is nothing, and reading may
    go on there. What is counted is only what brings nothing: pages at which the iterator stands, or that repeat the tip
    where a record should come. So a shard may be silent for as long as it likes, and a number that is trimmed is found
    out after `BARREN_PAGES_MAX` pages.
    """

    __slots__ = ("_mark_ms", "barren", "reached_s")

    def __init__(self) -> None:
        self.barren = 0
        """The number of pages in a row that brought nothing: no record, and no stretch of the log."""
        self.reached_s: float | None = None
        """The service's time (epoch seconds) up to which the log is crossed: no record before it is unread. None: no
        page said so since the last record.
        """
        self._mark_ms: int | None = None

    @property
    def leads_nowhere(self) -> bool:
        """True when a record that should have come by now is not there."""
        return self.barren >= BARREN_PAGES_MAX

    def empty(self, behind_ms: int | None, *, is_last: bool, asked_s: float | None) -> Meaning:
        """Return the meaning of a page without records. ``behind_ms``: its MillisBehindLatest, if it is known.
        ``asked_s``: the service's time when the page was asked for, or before.

        A single page, far from the tip, may be that of a trimmed number: the next one shows whether the iterator moves.
        """
        if is_last:
            return Meaning.END
        if behind_ms is None:
            self.barren += 1
            return Meaning.STANDING
        is_near, fell = behind_ms <= NEAR_TIP_MS, self._has_fallen(behind_ms)
        if asked_s is not None and (is_near or fell):
            self.reached_s = max(self.reached_s or 0.0, asked_s - behind_ms / 1000)
        if self._mark_ms is None or fell:
            self._mark_ms = behind_ms
        if behind_ms == 0 or not fell:
            self.barren += 1
            return Meaning.STANDING if behind_ms else Meaning.TIP
        self.barren = 0
        return Meaning.CROSSING

    def records(self, behind_ms: int | None) -> None:
        """Note that a page with records came; ``behind_ms`` is its MillisBehindLatest, if it is known."""
        self.barren = 0
        self.reached_s, self._mark_ms = None, behind_ms

    def begin(self) -> None:
        """Begin anew: another iterator begins elsewhere."""
        self.records(None)

    def moved(self) -> None:
        """Go on: another iterator begins within the silence, or before it. Its pages are compared with its own first
        one.
        """
        self.barren, self._mark_ms = 0, None

    def _has_fallen(self, behind_ms: int) -> bool:
        mark_ms = self._mark_ms
        return mark_ms is not None and behind_ms <= mark_ms - (1 if behind_ms <= NEAR_TIP_MS else FALL_MIN_MS)


# --- the table ------------------------------------------------------------------------------------


class State(StrEnum):
    """The states of a cursor: what is known of the place at which the log is read."""

    FRESH = "fresh"
    """Nothing has come yet, and no record is known that has to come: the log is read from its oldest record, from a
    time or from its tip on.
    """
    SEEKING = "seeking"
    """A record that was in the log is asked for at its number, and has not come again yet. Until it does, nothing is
    known of what is behind it.
    """
    OVERTAKEN = "overtaken"
    """The record that is sought did not come, or its number was refused, or the retention may have passed it. The log
    is read from its oldest record on (or from the record's time), and nothing has come yet.
    """
    PASSING = "passing"
    """Older records than the one that is sought have come: so it is not lost by trimming, and they are passed over
    until it comes.
    """
    READING = "reading"
    """All that comes is new."""
    TIP = "at the tip"
    """All that comes is new, and the last answer said that nothing more has arrived yet."""
    ENDED = "ended"
    """The shard has no more records, or is gone."""


class Sign(StrEnum):
    """The inputs of a cursor: what an answer of the service is for it, or what became of the iterator."""

    NEXT = "next records"
    """Records came, and nothing is sought."""
    OLDER = "older records"
    """Records came, and all lie before the one that is sought."""
    MET = "the record"
    """Records came, and the one that is sought is among them; or they begin behind a bound that lies just before the
    first of them.
    """
    BEYOND = "later records"
    """Records came; those before the one that is sought may be among them, and it is not: it is trimmed."""
    CROSSING = "crossing"
    """An empty page that came nearer to the tip."""
    STANDING = "standing"
    """An empty page that brought nothing."""
    NOWHERE = "nowhere"
    """Empty pages brought nothing so often that a record that has to come is not there; or the shard ended where it has
    to come.
    """
    TIP = "the tip"
    """An empty page, and nothing is behind."""
    END = "the end"
    """The shard has no more records."""
    PASSED = "passed"
    """The retention has passed the number at which the iterator was asked for, or is about to."""
    LOST = "no iterator"
    """There is no iterator: none was asked for yet, it has expired, or it was thrown away."""
    REFUSED = "refused"
    """The service takes no iterator at a number: some do so when it is trimmed, or of another stream."""
    GONE = "gone"
    """The service does not know the shard any more: its last record is older than the retention."""


class NextStep(StrEnum):
    """The things that a reader may have to do next."""

    READ = "read"
    """Go on with the iterator that the page has brought."""
    ASK = "ask"
    """The iterator is worth nothing: ask for another one (`LogCursor.ask`)."""
    STOP = "stop"
    """Stop: nothing more comes."""


class Transition(NamedTuple):
    """An entry of the table."""

    state: State
    does: NextStep = NextStep.READ
    is_loss: bool = False
    """True when what was sought is gone, and so may be what followed it: the reader reports that."""


_ANEW = Transition(State.OVERTAKEN, NextStep.ASK)
_READING = Transition(State.READING)
_TIP = Transition(State.TIP)
_ENDED = Transition(State.ENDED, NextStep.STOP)
_ENDED_LOSS = Transition(State.ENDED, NextStep.STOP, is_loss=True)


def _unmet(state: State, **others: Transition) -> dict[Sign, Transition]:
    """Return the entries of a state in which a record is sought: an empty page changes nothing."""
    stays = Transition(state)
    return {
        Sign.OLDER: stays,
        Sign.MET: _READING,
        Sign.BEYOND: Transition(State.READING, is_loss=True),
        Sign.CROSSING: stays,
        Sign.STANDING: stays,
        Sign.TIP: stays,
        Sign.NOWHERE: _ANEW,
        Sign.END: _ENDED_LOSS,
        Sign.PASSED: _ANEW,
        Sign.LOST: Transition(state, NextStep.ASK),
        Sign.REFUSED: _ANEW,
        Sign.GONE: _ENDED_LOSS,
    } | {Sign[name]: entry for name, entry in others.items()}


def _met(state: State, **others: Transition) -> dict[Sign, Transition]:
    """Return the entries of a state in which all that comes is new."""
    return {
        Sign.NEXT: _READING,
        Sign.CROSSING: _READING,
        Sign.STANDING: Transition(state),
        Sign.TIP: _TIP,
        Sign.NOWHERE: _ANEW,
        Sign.END: _ENDED,
        Sign.PASSED: _ANEW,
        Sign.LOST: Transition(state, NextStep.ASK),
        Sign.REFUSED: _ANEW,
        Sign.GONE: _ENDED_LOSS,
    } | {Sign[name]: entry for name, entry in others.items()}


TABLE: Mapping[State, Mapping[Sign, Transition]] = {
    State.FRESH: _met(State.FRESH),
    State.SEEKING: _unmet(State.SEEKING),
    State.OVERTAKEN: _unmet(
        State.OVERTAKEN,
        OLDER=Transition(State.PASSING),
        # Nothing is left at all: whatever comes after this is new.
        TIP=Transition(State.TIP, is_loss=True),
    ),
    State.PASSING: _unmet(State.PASSING),
    State.READING: _met(State.READING),
    State.TIP: _met(State.TIP),
    State.ENDED: {Sign.LOST: _ENDED, Sign.GONE: _ENDED},
}
"""The table of what follows in each state. A sign that is not there cannot come in that state."""

UNMET = frozenset({State.SEEKING, State.OVERTAKEN, State.PASSING})
"""The states in which a record is sought."""


# --- the machine ----------------------------------------------------------------------------------


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
    """The cursor of one shard's log. The reader tells it what happens, and does what the `Step` says."""

    __slots__ = (
        "_asked", "_continuation", "_last", "_last_s", "_policy", "anchor", "anchor_s", "begin", "missing", "silence",
        "state",
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
        self._last: int | None = None  # The last record that came since the log was begun, or begun anew.
        self._last_s = 0.0
        self._continuation: int | None = None
        self._asked: IteratorAt | None = None

    @property
    def is_met(self) -> bool:
        """True when all that comes is new: no record is sought."""
        return self.state not in UNMET

    @property
    def by_number(self) -> bool:
        """True when the iterator was asked for at a number, or behind one."""
        return self._asked is not None and self._asked.sequence_number is not None

    @property
    def has_last(self) -> bool:
        """True when a record came since the log was begun, or begun anew."""
        return self._last is not None

    @property
    def known(self) -> int | None:
        """The newest record that is known to have been in the log: the last that came, or the one that is sought."""
        return self._last if self.is_met and self._last is not None else self.anchor

    # --- inputs ---------------------------------------------------------------------------------

    def ask(self) -> IteratorAt:
        """Return where to ask for an iterator, or for a subscription: there is none."""
        self._go(Sign.LOST)
        if self._policy.returns:
            self._return()
        at = self._place()
        # An iterator that is asked for at the same place again goes on: one that expires with each page would otherwise
        # count none.
        if at != self._asked or self._policy.returns:
            self.silence.moved()
        self._asked = at
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
            start, sign = self._sought(records)
        step = self._step(sign, start)
        last = records[-1]
        self._last, self._last_s = int(last.sequence_number), last.approximate_arrival_timestamp
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

    # --- parts ----------------------------------------------------------------------------------

    def _go(self, sign: Sign) -> Transition:
        found = TABLE[self.state].get(sign)
        if found is None:
            raise RuntimeError(f"a log's cursor that is {self.state} cannot be shown {sign}")
        if found is _ANEW or sign is Sign.GONE:
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
        if self.is_met and self._last is not None:
            self.anchor, self.anchor_s = self._last, self._last_s
        # Where nothing was read yet there is only the place up to which a subscription found nothing.
        self.missing = self._continuation if self.anchor is None else self.anchor
        self._last = self._continuation = self._asked = None
        self.silence.begin()

    def _return(self) -> None:
        """Let the record that came last come again; a record that is sought is looked for as if none had come yet."""
        if self.is_met and self._last is not None:
            self.anchor, self.anchor_s, self._last, self.state = self._last, self._last_s, None, State.SEEKING
        elif self.state is State.PASSING:
            # Meanwhile all of it may have been trimmed, with what was passed over: then the tip is a loss.
            self.missing, self.state = self.anchor, State.OVERTAKEN

    def _place(self) -> IteratorAt:
        if self.state is State.SEEKING and self.anchor is not None:
            return IteratorAt.at_sequence(self.anchor)
        if self._policy.returns and not self.is_met:
            return self._anew()
        behind = max(-1 if self._last is None else self._last, -1 if self._continuation is None else self._continuation)
        return self._anew() if behind < 0 else IteratorAt.after_sequence(behind)

    def _anew(self) -> IteratorAt:
        if self.anchor is None:
            return self.begin
        if self._policy.by_time:
            return IteratorAt.at_timestamp(math.floor(self.anchor_s))
        return IteratorAt.trim_horizon()

    def _sought(self, records: Sequence[RawRecord]) -> tuple[int, Sign]:
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
