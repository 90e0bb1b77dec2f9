"""The machine of one shard in one tenure decides whether its records are delivered, what is stored of it, and how it
ends.

The machine has the ledger of what was fetched, and the checkpoints. Its caller tells it what happens
(`ShardMachine.tell`: an input, and the time), and it answers with what is to be done, in this order. Records are
settled in `ShardMachine.ledger` itself, as that happens most; a `Look` follows. The events that the ledger makes while
the machine uses it come first in the answer, as `Emit`.

| stage | what is delivered | `Drain` | `Resume` | `HandOver` | `Stop`, `Lost`, the end is stored |
|---|---|---|---|---|---|
| `READING` | all | DRAINING | - | LEAVING | OVER |
| `DRAINING` | what lies before records that were delivered, until the drain is over | - | READING | LEAVING | OVER |
| `LEAVING` | nothing | - | - | - | OVER |
| `OVER` | nothing | - | - | - | - |

`HandOver` has the last checkpoint stored in each stage, also in the stage `OVER`: the tenure may outlive the reading,
where a record cannot be read. `Seek` begins another ledger in the same stage.

A drain is in one of the stages but the first. The drain is over, and `Drained` says so, when its deadline comes, or
when the listeners have had their last words and nothing is waited for any more (`ShardMachine.waits_for`):

| a drain | becomes | by |
|---|---|---|
| the listeners have their last words (`Revoking`) | what is in flight is waited for | `RevokingDone` |
| | over, not in time | `RevokingFailed` |
| what is in flight is waited for | over, in time | nothing is waited for |
| either | over, in time if nothing is waited for | the deadline |

A drain depends on two things that tell nothing when they change: which callers there are, and which function of the
program runs. Where they matter, `AskForCallers` asks for them, and `CallersSeen` has them.

| the end of a shard | becomes | by |
|---|---|---|
| `FREE`: it is stored when all is settled | HELD | `HoldEnd` |
| `HELD`: the program is told before that | TELLING | all is settled: `TellEnd` |
| `TELLING`: the program is being told | FREE | `EndTold` |

A dead letter that is due is given out (`WriteLetter`) while fewer than `LETTERS_AT_ONCE_MAX` are on their way, and
waits for its turn in the ledger otherwise. A drain makes all of them due. Its record counts as settled by
`LetterWritten`; by `LetterNotWritten` it is due again later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from shardway.core.leases.tenure import Fenced, Lifted, Lost, PendingStored, Prepared, Settled, Stored
from shardway.core.ledger.ledger import MayDeliver
from shardway.core.ledger.page import R
from shardway.core.shard import checkpoints as storing
from shardway.core.shard.checkpoints import Abandon, Answer, Close, Commit, Flush, Look, Prepare, Progress, SetBound
from shardway.core.shard.duplicates import Admit, PageRead
from shardway.errors import CheckpointError
from shardway.events import HandoffWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shardway.core.leases.tenure import Loss
    from shardway.core.ledger.failures import GiveUpReason
    from shardway.core.ledger.ledger import Ledger
    from shardway.core.ledger.letters import DeadLetter
    from shardway.core.ledger.ticket import Delivery, Ticket
    from shardway.core.shard.checkpoints import Checkpoints
    from shardway.core.shard.duplicates import Duplicates
    from shardway.events import LedgerEvent
    from shardway.model import Position
    from shardway.policies import OrderPolicy

ALARM_S_MIN = 0.01
"""The least time between two looks at what is due."""
DRAIN_TOLD_AFTER_S = 1.0
"""An event reports what a drain waits for when the drain has taken this long."""
GAPS_LOOK_S = 0.1
"""The interval at which a drain that waits for callers to take the rest looks whether these are still there."""
LETTERS_AT_ONCE_MAX = 16
"""The most dead letters of a shard that are written side by side: a failing dependency can make thousands."""


class Stage(StrEnum):
    """The stages of a shard in its tenure. See the module."""

    READING = "reading"
    DRAINING = "draining"
    LEAVING = "leaving"
    OVER = "over"


MAY_DELIVER = {
    Stage.READING: MayDeliver.ALL,
    Stage.DRAINING: MayDeliver.GAPS,
    Stage.LEAVING: MayDeliver.NOTHING,
}
"""The choice of what the ledger delivers, by the shard's stage. In the stage `OVER` the ledger is closed."""


class End(StrEnum):
    """The states of the shard's end: what the program knows of it. See the module."""

    FREE = "free"
    HELD = "held"
    TELLING = "telling"


# --- inputs: these, those of the checkpoints and duplicates, and what the lease's machine says ----


@dataclass(frozen=True, slots=True)
class PageCame:
    """Records follow all that came before; what the program's functions made of them is known."""

    records: Sequence[Any]
    ends_at: Position | None = None
    """The position where the page ends, if that is behind its last record."""
    held_bytes: int | None = None
    """The bytes that all the records take together, where that is known."""
    settled: Sequence[int] = ()
    """The numbers of the records that are not to be delivered: duplicates, and what was split into nothing."""
    unreadable: Mapping[int, BaseException] | None = None
    """The numbers of the records that become dead letters at once, with the reason."""

    def into(self, ledger: Ledger[Any], now_s: float) -> None:
        """Have the ledger take the records."""
        ledger.admit(
            self.records,
            now_s,
            ends_at=self.ends_at,
            held_bytes=self.held_bytes,
            settled=self.settled,
            unreadable=self.unreadable,
        )


@dataclass(frozen=True, slots=True)
class WindowKnown:
    """The window of duplicates is known, or will not be: what was kept back may go on."""


@dataclass(frozen=True, slots=True)
class CannotRead:
    """The program's deserializer cannot read some records of a delivery: they are not delivered."""

    ledger: Ledger[Any]
    """The ledger of the delivery, which may be a former ledger by then."""
    ticket: Ticket
    left_out: Sequence[tuple[int, BaseException]]
    """The places of the records, each with the error that was raised."""
    skips: bool
    """True: the records count as settled; False: they become dead letters."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of an `Alarm` has come."""


@dataclass(frozen=True, slots=True)
class Drain:
    """The shard is about to go: deliver what lies before records that were delivered, which would come again. Wait
    until what is in flight is settled, letters are written, and nothing is pending.
    """

    until_s: float
    """The time at which the drain ends, whatever it still waits for."""


@dataclass(frozen=True, slots=True)
class RevokingDone:
    """The listeners have had their last words."""


@dataclass(frozen=True, slots=True)
class RevokingFailed:
    """One of the listeners has raised an error in its last words."""


@dataclass(frozen=True, slots=True)
class CallersSeen:
    """The answer to `AskForCallers`: what goes on around the shard."""

    is_asked: bool
    """True: a caller may take what lies before records that were delivered."""
    calling: tuple[str, float] | None
    """The function of the program that a listener waits for before its last words, and for how many seconds; None: no
    function is called yet, or any more.
    """


@dataclass(frozen=True, slots=True)
class Resume:
    """The shard stays with this worker: the drain is called off."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The worker lets the lease go right after this."""


@dataclass(frozen=True, slots=True)
class Seek:
    """Go on with another ledger. The machine refuses that (CheckpointError) while a checkpoint is pending."""

    ledger: Ledger[Any]
    """The new ledger; it is empty, for what follows the place from which on the shard is read."""


@dataclass(frozen=True, slots=True)
class Reorder:
    """Deliver in another order: nothing is read again, and what is in flight stays as it is."""

    order: OrderPolicy | None


@dataclass(frozen=True, slots=True)
class Fetched:
    """The shard has no more records than those that came."""


@dataclass(frozen=True, slots=True)
class HoldEnd:
    """The program is to be told before the shard is stored as ended."""


@dataclass(frozen=True, slots=True)
class EndTold:
    """The program was told that all of the shard is settled."""


@dataclass(frozen=True, slots=True)
class LetterWritten:
    """A dead letter is known to be written."""

    ledger: Ledger[Any]
    """The ledger that `WriteLetter` named."""
    letter: DeadLetter[Any]


@dataclass(frozen=True, slots=True)
class LetterNotWritten:
    """A dead letter could not be written, or is not known to be written."""

    ledger: Ledger[Any]
    letter: DeadLetter[Any]
    error: BaseException


@dataclass(frozen=True, slots=True)
class Stop:
    """Deliver nothing more."""

    reason: str


Input: TypeAlias = (
    storing.Input | PageRead | WindowKnown | PageCame | CannotRead | TimerFired | Drain | RevokingDone | RevokingFailed
    | CallersSeen | Resume | HandOver | Seek | Reorder | Fetched | HoldEnd | EndTold | LetterWritten | LetterNotWritten
    | Stop | Fenced | Lifted | Lost
)  # fmt: skip

TENURE_SAYS = (Stored, PendingStored, Fenced, Lifted, Lost)
"""The outputs of the lease's machine that are inputs here."""

# --- outputs: these, `Answer`, `Admit`, and what the lease's machine is told ----------------------


@dataclass(frozen=True, slots=True)
class Alarm:
    """Tell `TimerFired` at this time."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Emit this event to the program."""

    event: LedgerEvent


@dataclass(frozen=True, slots=True)
class Wake:
    """There may be something to deliver, or to fetch; or what a drain waits for has come."""


@dataclass(frozen=True, slots=True)
class WriteLetter:
    """Write this dead letter, and tell `LetterWritten` or `LetterNotWritten`."""

    ledger: Ledger[Any]
    """The ledger of the letter, which may be closed by then: it has to hear of the letter all the same."""
    letter: DeadLetter[Any]


@dataclass(frozen=True, slots=True)
class DropLetters:
    """Write no more of the letters that are on their way: their records are delivered again. It also follows from
    `Over`.
    """


@dataclass(frozen=True, slots=True)
class Revoking:
    """Let the listeners have their last words, until the drain is over."""


@dataclass(frozen=True, slots=True)
class AskForCallers:
    """Tell `CallersSeen`, at once."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The drain is over. It comes once for each drain, unless `Resume` came before."""

    in_time: bool
    """True: nothing is waited for any more. False: the deadline came first, and what is in flight comes again."""


@dataclass(frozen=True, slots=True)
class TellEnd:
    """Tell the program that all is settled, and then tell `EndTold`."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The policies have had enough of the shard. It comes once for each ledger."""

    ending: GiveUpReason


@dataclass(frozen=True, slots=True)
class FenceMoved:
    """The lease's writes are not confirmed, and nothing is delivered for now; or they are, and it goes on."""

    fallen: bool


@dataclass(frozen=True, slots=True)
class Resumed:
    """A shard that was about to go stays with this worker."""


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing more is delivered. It comes once."""


Output: TypeAlias = (
    Settled | Prepared | Answer | Emit | Admit | Alarm | Wake | WriteLetter | DropLetters | Revoking | AskForCallers
    | Drained | TellEnd | GaveUp | FenceMoved | Resumed | Over
)  # fmt: skip

ASK_FOR_CALLERS = AskForCallers()
STIR = Wake()
OVER = Over()
LOOK = Look()


class Draining(NamedTuple):
    """A drain that is under way."""

    until_s: float
    tell_at_s: float
    """The time at which an event says what is waited for; infinity when that was emitted."""
    is_said: bool = False
    """True when the listeners have had their last words."""

    def next_at_s(self, now_s: float) -> float:
        """Return the next time at which time alone leads to something; infinity when there is none."""
        return min((at_s for at_s in (self.until_s, self.tell_at_s) if at_s > now_s), default=math.inf)


class ShardMachine(Generic[R]):
    """The machine of the module's docstring. What happened is in the attributes; only `tell` changes them."""

    def __init__(
        self,
        ledger: Ledger[R],
        checkpoints: Checkpoints,
        *,
        duplicates: Duplicates | None = None,
        letters_at_once_max: int = LETTERS_AT_ONCE_MAX,
    ) -> None:
        """``duplicates`` leaves duplicates out, where it is given. ``letters_at_once_max``: at most this many dead
        letters are on their way at the same time; 0: none is written, so no record should become one.
        """
        self.stage = Stage.READING
        self.ledger = ledger
        """The ledger that has what was delivered and settled. After each `Seek` it is another one."""
        self.checkpoints = checkpoints
        self.duplicates = duplicates
        self.drain: Draining | None = None
        self.end = End.FREE
        self.over_because = ""
        """The reason why nothing more is delivered, once the stage is `OVER`."""
        self.has_ended = False
        """True when the shard is done, and stored as ended."""
        self.lost: Loss | None = None
        """The reason why the tenure ended, where the lease was lost."""
        self._records_before = 0  # The records that were settled in former ledgers.
        self._gave_up: GiveUpReason | None = None  # This is of one ledger: after a seek there may be another ending.
        self._letters_at_once_max = letters_at_once_max
        self._letters_out: set[DeadLetter[R]] = set()  # The letters of this ledger that are on their way.

    @property
    def is_over(self) -> bool:
        """True when nothing more is delivered: the shard is done, or the lease is gone."""
        return self.stage is Stage.OVER

    @property
    def keeps_pages(self) -> bool:
        """True while pages are kept back, until it is known which of their records are duplicates."""
        return self.duplicates is not None and self.duplicates.keeps

    @property
    def is_kept_waiting(self) -> bool:
        """True while no more should be fetched, because pages are kept back."""
        return self.duplicates is not None and self.duplicates.waits

    @property
    def progress(self) -> Progress:
        """The progress of the ledger: up to where all is settled and may be stored."""
        ledger = self.ledger
        safe = ledger.safe
        if safe.is_end and self.end is not End.FREE:
            safe = ledger.safe_record
        return Progress(safe, self._records_before + ledger.settled_records if self.checkpoints.counts else 0)

    def waits_for(self, *, is_asked: bool) -> str | None:
        """Return what a drain waits for; None: nothing. ``is_asked``: a caller may take what lies before records that
        were delivered; a drain waits for these only where there is such a caller.
        """
        if self.stage is Stage.OVER:  # What is in flight counts for nothing any more.
            return None
        if self.ledger.out:
            return "handlers"
        if not self.ledger.drained:
            return "dead letters"
        if not self.checkpoints.idle:
            return "a pending checkpoint"
        return "callers" if is_asked and self.ledger.has_gaps else None

    def tell(self, given: Input, now_s: float) -> list[Output]:
        """Take an input, and return what follows from it. Raises CheckpointError for what a caller may not ask
        for now.
        """
        said: list[Output] = []
        ledger = self.ledger  # A `Seek` puts another ledger in its place, and this one says what was left unsettled.
        _RULES[type(given)](self, given, now_s, said)
        return [*map(Emit, ledger.take_events()), *said] if ledger.events else said

    def look(self, now_s: float) -> list[Output]:
        """Take a `Look`, which comes with each record that is settled alone, as `tell` does. The ledger makes no event
        by it.
        """
        said: list[Output] = []
        self._looked(LOOK, now_s, said)
        return said

    # --- in, and out ------------------------------------------------------------------------------

    def _page_read(self, given: PageRead, now_s: float, said: list[Output]) -> None:
        if self.duplicates is not None:
            admitted = self.duplicates.read(given, self.ledger.held)
            said += map(Emit, self.duplicates.take_events())
            said += admitted
        elif len(given.records) or given.ends_at is not None:
            said.append(Admit(given.records, given.ends_at, given.held_bytes))

    def _window_known(self, given: WindowKnown, now_s: float, said: list[Output]) -> None:
        if self.duplicates is not None:
            admitted = self.duplicates.go_on(self.ledger.held)
            said += map(Emit, self.duplicates.take_events())
            said += admitted
        self._looked(LOOK, now_s, said)

    def _page_came(self, given: PageCame, now_s: float, said: list[Output]) -> None:
        given.into(self.ledger, now_s)
        if given.settled or given.unreadable:
            self._looked(LOOK, now_s, said)
        elif given.records:
            said.append(STIR)

    def take(self, records_max: int, now_s: float) -> tuple[Delivery[R] | None, list[Output]]:
        """Return the next records for a caller, if there are any to be had now, and what is to be done. The latter has
        no `Wake`: that would have the caller ask again.
        """
        said: list[Output] = []
        if self.stage is Stage.OVER:
            return None, said
        ledger = self.ledger
        ledger.check(now_s)
        if ledger.events:
            said += map(Emit, ledger.take_events())
        if ledger.ending is not None:
            self._gives_up(ledger.ending, said)
            return None, said
        delivery = ledger.deliver(now_s, records_max)
        if delivery is not None:  # What is in flight may stall, though no caller asks for more.
            said.append(Alarm(ledger.next_check_at_s()))
        elif not ledger.draining:  # In a drain what waits for its retry is due, and stays so.
            said.append(Alarm(min(ledger.next_turn_at_s(), ledger.next_check_at_s(), self._next_letter_at_s)))
        return delivery, said

    def _cannot_read(self, given: CannotRead, now_s: float, said: list[Output]) -> None:
        ledger, ticket = given.ledger, given.ticket
        for place, error in given.left_out:
            if given.skips:
                ledger.skip(ticket, [place], reason=f"unreadable: {type(error).__name__}")
            else:
                ledger.dead_letter(ticket, now_s, [place], error=error, reason="unreadable")
        said += map(Emit, ledger.take_events())
        # No look follows: this may be another thread's call, and what follows is done on the reader's loop.

    # --- what is settled --------------------------------------------------------------------------

    def _looked(self, given: Look, now_s: float, said: list[Output]) -> None:
        if self.stage is not Stage.OVER:
            ledger = self.ledger
            if self._letters_at_once_max and ledger.next_letter_at_s() < math.inf:
                self._write_letters(now_s, said)
            if ledger.ending is not None:
                self._gives_up(ledger.ending, said)
            if self.end is End.HELD and ledger.safe.is_end:
                self.end = End.TELLING
                said.append(TellEnd())
            self._store(given, now_s, said)
        if self.drain is not None:
            self._look_at_drain(self.drain, now_s, said)
        said.append(STIR)

    def _write_letters(self, now_s: float, said: list[Output]) -> None:
        out = self._letters_out
        due = self.ledger.dead_letters(now_s, self._letters_at_once_max - len(out))
        out.update(due)
        said += [WriteLetter(self.ledger, letter) for letter in due]
        if (letter_s := self._next_letter_at_s) < math.inf:
            said.append(Alarm(letter_s))

    @property
    def _next_letter_at_s(self) -> float:
        """The time at which a letter is due that may be written then; infinity while one that is on its way has to come
        back before.
        """
        has_turn = len(self._letters_out) < self._letters_at_once_max
        return self.ledger.next_letter_at_s() if has_turn else math.inf

    def _letter_written(self, given: LetterWritten, now_s: float, said: list[Output]) -> None:
        given.ledger.letter_written(given.letter)
        self._letter_back(given, now_s, said)

    def _letter_not_written(self, given: LetterNotWritten, now_s: float, said: list[Output]) -> None:
        given.ledger.letter_not_written(given.letter, given.error, now_s)
        self._letter_back(given, now_s, said)

    def _letter_back(self, given: LetterWritten | LetterNotWritten, now_s: float, said: list[Output]) -> None:
        said += map(Emit, given.ledger.take_events())  # The ledger may be a former one.
        self._letters_out.discard(given.letter)
        self._looked(LOOK, now_s, said)

    def _gives_up(self, ending: GiveUpReason, said: list[Output]) -> None:
        if ending is not self._gave_up:
            self._gave_up = ending
            said.append(GaveUp(ending))

    def _rang(self, given: TimerFired, now_s: float, said: list[Output]) -> None:
        self.ledger.check(now_s)
        self._looked(LOOK, now_s, said)
        due_s = math.inf if self.drain is None else self.drain.next_at_s(now_s)
        if self.stage is not Stage.OVER:
            stores_s = self.checkpoints.wake_at_s(self.progress)
            due_s = min(due_s, self.ledger.next_check_at_s(), stores_s, self._next_letter_at_s)
        if due_s < math.inf:
            said.append(Alarm(max(due_s, now_s + ALARM_S_MIN)))

    def _store(self, given: storing.Input, now_s: float, said: list[Output]) -> None:
        progress = self.progress
        self.checkpoints, outputs = storing.step(self.checkpoints, given, progress, now_s)
        if outputs:
            said += outputs
            if (at_s := self.checkpoints.wake_at_s(progress)) < math.inf:
                said.append(Alarm(at_s))

    def _stored(self, given: Stored, now_s: float, said: list[Output]) -> None:
        self._store(given, now_s, said)
        if given.checkpoint.is_end:
            self.has_ended = True
            self._stop(Stop("the shard has ended"), now_s, said)
        else:
            self._looked(LOOK, now_s, said)
            # What was settled while the write was on its way got no alarm then: it is due by the time of this answer.
            if (at_s := self.checkpoints.wake_at_s(self.progress)) < math.inf:
                said.append(Alarm(at_s))

    # --- from stage to stage ----------------------------------------------------------------------

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        # Between the end of a drain and the `HandOver` that follows, the worker writes: what was delivered then would
        # come again to the next owner.
        is_drained = stage is Stage.DRAINING and self.drain is None
        self.ledger.may_deliver = MayDeliver.NOTHING if is_drained else MAY_DELIVER[stage]

    def _resume(self, given: Resume, now_s: float, said: list[Output]) -> None:
        self.drain = None
        if self.stage is Stage.DRAINING:
            self._enter(Stage.READING)
            said += (Resumed(), STIR)

    def _hand_over(self, given: HandOver, now_s: float, said: list[Output]) -> None:
        if self.stage is not Stage.OVER:
            self._enter(Stage.LEAVING)
        self._store(Flush(), now_s, said)

    def _stop(self, given: Stop, now_s: float, said: list[Output]) -> None:
        if self.stage is not Stage.OVER:
            self.stage, self.over_because = Stage.OVER, given.reason
            self.ledger.close(given.reason)
            self._store(Close(given.reason), now_s, said)
            said += (OVER, STIR)
            if self.drain is not None:
                self._look_at_drain(self.drain, now_s, said)
            if self.drain is not None:
                said.append(Alarm(self.drain.next_at_s(now_s)))  # `Over` has ended the alarm that was set.

    def _lost(self, given: Lost, now_s: float, said: list[Output]) -> None:
        if self.stage is not Stage.OVER:
            self.lost = given.why
        self._stop(Stop(f"the lease was lost: {given.why.value}"), now_s, said)

    def _fence(self, given: Fenced | Lifted, now_s: float, said: list[Output]) -> None:
        said += (FenceMoved(isinstance(given, Fenced)), STIR)

    # --- a drain ----------------------------------------------------------------------------------

    def _drain(self, given: Drain, now_s: float, said: list[Output]) -> None:
        self.drain = Draining(given.until_s, now_s + DRAIN_TOLD_AFTER_S)
        if self.stage in (Stage.READING, Stage.DRAINING):
            self._enter(Stage.DRAINING)
        said += (Revoking(), Alarm(self.drain.next_at_s(now_s)))
        if self._letters_at_once_max and self.stage is Stage.DRAINING:
            self.ledger.hurry_letters(now_s)
            self._write_letters(now_s, said)

    def _last_words_said(self, given: RevokingDone, now_s: float, said: list[Output]) -> None:
        if self.drain is not None:
            self.drain = self.drain._replace(is_said=True)
            self._look_at_drain(self.drain, now_s, said)

    def _last_words_failed(self, given: RevokingFailed, now_s: float, said: list[Output]) -> None:
        if self.drain is not None:
            self._drained(said, in_time=False)

    def _look_at_drain(self, drain: Draining, now_s: float, said: list[Output]) -> None:
        is_late = now_s >= drain.until_s
        if drain.is_said or is_late:
            waits_for = self.waits_for(is_asked=True)
            if waits_for is None or (is_late and waits_for != "callers"):
                self._drained(said, in_time=waits_for is None)
                return
            if waits_for == "callers":
                said.append(ASK_FOR_CALLERS)
                return
        if now_s >= drain.tell_at_s:
            said.append(ASK_FOR_CALLERS)

    def _looked_around(self, given: CallersSeen, now_s: float, said: list[Output]) -> None:
        drain = self.drain
        if drain is None:
            return
        waits_for, is_late = self.waits_for(is_asked=given.is_asked), now_s >= drain.until_s
        if is_late or (drain.is_said and waits_for is None):
            self._drained(said, in_time=waits_for is None)
            return
        if now_s >= drain.tell_at_s:
            if not drain.is_said:
                # A loop with a thousand shards to let go takes seconds to come to the call, and back from it. That is
                # not the program's.
                waits_for, for_s = given.calling or ("", 0.0)
                if for_s < DRAIN_TOLD_AFTER_S:
                    at_s = now_s + DRAIN_TOLD_AFTER_S - for_s
                    self.drain = drain._replace(tell_at_s=at_s)
                    said.append(Alarm(at_s))
                    return
            self.drain = drain._replace(tell_at_s=math.inf)
            said.append(Emit(self._handoff_waits(waits_for or "", drain.until_s - now_s)))
        if drain.is_said and waits_for == "callers":
            # Nothing tells when a task or a thread ends that was expected to ask again.
            said.append(Alarm(now_s + GAPS_LOOK_S))

    def _handoff_waits(self, waits_for: str, left_s: float) -> HandoffWaits:
        ledger = self.ledger
        return HandoffWaits(ledger.stream, ledger.shard_id, waits_for, ledger.out, ledger.oldest, left_s)

    def _drained(self, said: list[Output], *, in_time: bool) -> None:
        self.drain = None
        if self.stage is Stage.DRAINING:
            self._enter(self.stage)
        said.append(Drained(in_time))

    # --- another ledger, and the end --------------------------------------------------------------

    def _seek(self, given: Seek, now_s: float, said: list[Output]) -> None:
        if self.stage is not Stage.OVER and not self.checkpoints.idle:
            raise CheckpointError(f"{self.checkpoints.where}: commit or abandon the pending checkpoint before a seek")
        if self.stage is not Stage.OVER and self.duplicates is not None:
            self.duplicates.forget()  # Its records are delivered again, and those that came before are among them.
        if self.stage is Stage.OVER:
            return
        former, self.ledger = self.ledger, given.ledger
        self._records_before += former.settled_records
        former.close("the shard is read from another place on (seek)")
        if self._letters_out:
            self._letters_out.clear()
            said.append(DropLetters())
        self._enter(self.stage)
        self._looked(LOOK, now_s, said)

    def _reorder(self, given: Reorder, now_s: float, said: list[Output]) -> None:
        self.ledger.reorder(given.order)
        self._looked(LOOK, now_s, said)

    def _fetched(self, given: Fetched, now_s: float, said: list[Output]) -> None:
        self.ledger.end()
        self._looked(LOOK, now_s, said)

    def _hold_end(self, given: HoldEnd, now_s: float, said: list[Output]) -> None:
        if self.end is End.FREE:
            self.end = End.HELD

    def _end_told(self, given: EndTold, now_s: float, said: list[Output]) -> None:
        self.end = End.FREE
        self._looked(LOOK, now_s, said)


_RULES: Mapping[type[Any], Callable[[ShardMachine[Any], Any, float, list[Output]], None]] = {
    Look: ShardMachine._looked,
    TimerFired: ShardMachine._rang,
    PageRead: ShardMachine._page_read,
    WindowKnown: ShardMachine._window_known,
    PageCame: ShardMachine._page_came,
    CannotRead: ShardMachine._cannot_read,
    **dict.fromkeys((Flush, SetBound, Prepare, Commit, Abandon, Close, PendingStored), ShardMachine._store),
    Stored: ShardMachine._stored,
    Drain: ShardMachine._drain,
    RevokingDone: ShardMachine._last_words_said,
    RevokingFailed: ShardMachine._last_words_failed,
    CallersSeen: ShardMachine._looked_around,
    Resume: ShardMachine._resume,
    HandOver: ShardMachine._hand_over,
    Stop: ShardMachine._stop,
    Lost: ShardMachine._lost,
    Fenced: ShardMachine._fence,
    Lifted: ShardMachine._fence,
    Seek: ShardMachine._seek,
    Reorder: ShardMachine._reorder,
    Fetched: ShardMachine._fetched,
    HoldEnd: ShardMachine._hold_end,
    EndTold: ShardMachine._end_told,
    LetterWritten: ShardMachine._letter_written,
    LetterNotWritten: ShardMachine._letter_not_written,
}
"""The rules of the machine, which are complete: there is a rule for every input."""
