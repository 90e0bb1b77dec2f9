"""The machine of one shard in one tenure decides whether its records are delivered, what is stored of it, and how it
ends.

The machine has the ledger of what was fetched, and the checkpoints. Its caller tells it what happens
(`ShardMachine.handle`: an event of the module `events`, and the time), and it answers with what is to be done: commands
of the module `commands`, in this order. Records are settled in `ShardMachine.ledger` itself, as that happens most; a
`Look` follows. The events for the program that the ledger makes while the machine uses it come first in the answer, as
`Emit`.

| stage | what is delivered | `Drain` | `Resume` | `HandOver` | `Stop`, `LeaseLost`, the end is stored |
|---|---|---|---|---|---|
| `READING` | all | DRAINING | - | LEAVING | OVER |
| `DRAINING` | what lies before records that were delivered, until the drain is over | - | READING | LEAVING | OVER |
| `LEAVING` | nothing | - | - | - | OVER |
| `OVER` | nothing | - | - | - | - |

`HandOver` has the last checkpoint stored in each stage, also in the stage `OVER`: the tenure may outlive the reading,
where a record cannot be read. `Seek` begins another ledger in the same stage.

| the end of a shard | becomes | by |
|---|---|---|
| `FREE`: it is stored when all is settled | HELD | `HoldEnd` |
| `HELD`: the program is told before that | TELLING | all is settled: `TellEnd` |
| `TELLING`: the program is being told | FREE | `EndTold` |

A drain (`shardway.core.shard.drain`) is in one of the stages but the first.

A dead letter that is due is given out (`WriteLetter`) while fewer than `LETTERS_AT_ONCE_MAX` are on their way, and
waits for its turn in the ledger otherwise. A drain makes all of them due. Its record counts as settled by
`LetterWritten`; by `LetterNotWritten` it is due again later.

A rule yields the commands that follow from its event, and changes the machine as it goes, so only `handle` runs it: at
once, and to its end. What follows a `Look` is made as a list: a look comes with each record that is settled alone, and
a generator adds 3 % to what such a record costs.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic

from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.ledger.ledger import MayDeliver
from shardway.core.ledger.page import R
from shardway.core.shard import commands, events
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.core.shard.checkpoints.machine import step
from shardway.core.shard.checkpoints.state import Progress
from shardway.core.shard.drain import GAPS_LOOK_S, Drain, DrainObstacle
from shardway.core.shard.duplicates import Admit, PageRead
from shardway.errors import CheckpointError
from shardway.events import HandoffWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from shardway.core.leases.tenure.state import Loss
    from shardway.core.ledger.failures import GiveUpReason
    from shardway.core.ledger.ledger import Ledger
    from shardway.core.ledger.letters import DeadLetter
    from shardway.core.ledger.ticket import Delivery
    from shardway.core.shard.checkpoints.state import Checkpoints
    from shardway.core.shard.commands import Command
    from shardway.core.shard.duplicates import Duplicates
    from shardway.core.shard.events import Event

ALARM_S_MIN = 0.01
"""The least time between two looks at what is due."""
PENDING_S = 0.02
"""The time after which a delivery is tried again that waits for what is on its way."""
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


LOOK = checkpoint_events.Look()


class ShardMachine(Generic[R]):
    """The machine of the module's docstring. What happened is in the attributes; only `handle` changes them."""

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
        self.drain: Drain | None = None
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
        reached = self.ledger.progress
        safe = reached.safe
        if safe.is_end and self.end is not End.FREE:
            safe = reached.safe_record
        return Progress(safe, self._records_before + reached.settled_records if self.checkpoints.counts else 0)

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Handle an event, and return what is to be done. Raises CheckpointError for what a caller may not ask
        for now.
        """
        ledger = self.ledger  # A `Seek` puts another ledger in its place, and this one says what was left unsettled.
        follows = list(_RULES[type(event)](self, event, now_s))
        return [*map(commands.Emit, ledger.take_events()), *follows] if ledger.events else follows

    def look(self, now_s: float, progress: Progress | None = None) -> list[Command]:
        """Handle a `Look`, which comes with each record that is settled alone, as `handle` does. The ledger makes no
        event by it. ``progress``: the ledger's progress, where the step has it already.
        """
        follows: list[Command] = []
        if self.stage is not Stage.OVER:
            ledger = self.ledger
            if self._letters_at_once_max and ledger.letters.next_at_s() < math.inf:
                follows += self._write_letters(now_s)
            if ledger.ending is not None:
                follows += self._give_up(ledger.ending)
            if self.end is End.HELD and ledger.progress.safe.is_end:
                self.end = End.TELLING
                follows.append(commands.TellEnd())
            follows += self._store(LOOK, now_s, progress or self.progress)
        if self.drain is not None:
            follows += self._look_at_drain(self.drain, now_s)
        follows.append(commands.WAKE)
        return follows

    def take(self, records_max: int, now_s: float) -> tuple[Delivery[R] | None, list[Command]]:
        """Return the next records for a caller, if there are any to be had now, and what is to be done. The latter has
        no `Wake`: that would have the caller ask again.
        """
        follows: list[Command] = []
        if self.stage is Stage.OVER:
            return None, follows
        ledger = self.ledger
        ledger.check(now_s)
        if ledger.events:
            follows += map(commands.Emit, ledger.take_events())
        if ledger.ending is not None:
            follows += self._give_up(ledger.ending)
            return None, follows
        delivery = ledger.deliver(now_s, records_max)
        if delivery is not None:  # What is in flight may stall, though no caller asks for more.
            follows.append(commands.Alarm(ledger.next_check_at_s()))
        elif not ledger.draining:  # In a drain what waits for its retry is due, and stays so.
            follows.append(
                commands.Alarm(min(ledger.next_turn_at_s(), ledger.next_check_at_s(), self._next_letter_at_s))
            )
        return delivery, follows

    # --- pages ------------------------------------------------------------------------------------

    def _read_page(self, event: PageRead, now_s: float) -> Iterator[Command]:
        if self.duplicates is not None:
            admitted = self.duplicates.read(event, self.ledger.held)
            yield from map(commands.Emit, self.duplicates.take_events())
            yield from admitted
        elif len(event.records) or event.ends_at is not None:
            yield Admit(event.records, event.ends_at, event.held_bytes)

    def _go_on_with_pages(self, event: events.WindowKnown, now_s: float) -> Iterator[Command]:
        if self.duplicates is not None:
            admitted = self.duplicates.go_on(self.ledger.held)
            yield from map(commands.Emit, self.duplicates.take_events())
            yield from admitted
        yield from self.look(now_s)

    def _admit_page(self, event: events.PageCame, now_s: float) -> Iterator[Command]:
        event.into(self.ledger, now_s)
        if event.settled or event.unreadable:
            yield from self.look(now_s)
        elif event.records:
            yield commands.WAKE

    def _leave_out_unreadable(self, event: events.CannotRead, now_s: float) -> Iterator[Command]:
        ledger, ticket = event.ledger, event.ticket
        for place, error in event.left_out:
            if event.skips:
                ledger.skip(ticket, [place], reason=f"unreadable: {type(error).__name__}")
            else:
                ledger.dead_letter(ticket, now_s, [place], error=error, reason="unreadable")
        yield from map(commands.Emit, ledger.take_events())
        # No look follows: this may be another thread's call, and what follows is done on the reader's loop.

    def _put_off(self, event: events.MustWait, now_s: float) -> Iterator[Command]:
        if event.error.pending:  # Nothing failed, so nothing is told, and the pause does not grow.
            event.ledger.nack(event.ticket, now_s, delay_s=PENDING_S)
        else:
            event.ledger.fail(event.ticket, event.error, now_s)
        yield from map(commands.Emit, event.ledger.take_events())
        # No look follows, as with what cannot be read.

    # --- what is settled --------------------------------------------------------------------------

    def _look(self, event: checkpoint_events.Look, now_s: float) -> list[Command]:
        return self.look(now_s)

    def _write_letters(self, now_s: float) -> Iterator[Command]:
        out = self._letters_out
        due = self.ledger.letters.take(now_s, self._letters_at_once_max - len(out))
        out.update(due)
        for letter in due:
            yield commands.WriteLetter(self.ledger, letter)
        if (letter_s := self._next_letter_at_s) < math.inf:
            yield commands.Alarm(letter_s)

    @property
    def _next_letter_at_s(self) -> float:
        """The time at which a letter is due that may be written then; infinity while one that is on its way has to come
        back before.
        """
        has_turn = len(self._letters_out) < self._letters_at_once_max
        return self.ledger.letters.next_at_s() if has_turn else math.inf

    def _settle_letter(self, event: events.LetterWritten, now_s: float) -> Iterator[Command]:
        event.ledger.letters.written(event.letter)
        yield from self._take_letter_back(event, now_s)

    def _put_letter_off(self, event: events.LetterNotWritten, now_s: float) -> Iterator[Command]:
        ledger = event.ledger
        ledger.letters.not_written(event.letter, event.error, now_s, hurries=ledger.draining)
        yield from self._take_letter_back(event, now_s)

    def _take_letter_back(
        self, event: events.LetterWritten | events.LetterNotWritten, now_s: float
    ) -> Iterator[Command]:
        yield from map(commands.Emit, event.ledger.take_events())  # The ledger may be a former one.
        self._letters_out.discard(event.letter)
        yield from self.look(now_s)

    def _give_up(self, ending: GiveUpReason) -> Iterator[Command]:
        if ending is not self._gave_up:
            self._gave_up = ending
            yield commands.GaveUp(ending)

    def _look_at_time(self, event: events.TimerFired, now_s: float) -> Iterator[Command]:
        self.ledger.check(now_s)
        progress = self.progress
        yield from self.look(now_s, progress)
        due_s = math.inf if self.drain is None else self.drain.next_at_s(now_s)
        if self.stage is not Stage.OVER:
            stores_s = self.checkpoints.wake_at_s(progress)
            due_s = min(due_s, self.ledger.next_check_at_s(), stores_s, self._next_letter_at_s)
        if due_s < math.inf:
            yield commands.Alarm(max(due_s, now_s + ALARM_S_MIN))

    def _step_checkpoints(self, event: checkpoint_events.Event, now_s: float) -> Sequence[Command]:
        return self._store(event, now_s, self.progress)

    def _store(self, event: checkpoint_events.Event, now_s: float, progress: Progress) -> Sequence[Command]:
        self.checkpoints, follows = step(self.checkpoints, event, progress, now_s)
        if follows and (at_s := self.checkpoints.wake_at_s(progress)) < math.inf:
            return *follows, commands.Alarm(at_s)
        return follows

    def _note_stored(self, event: tenure_commands.CheckpointStored, now_s: float) -> Iterator[Command]:
        progress = self.progress  # It is the same in the whole step: an answer settles no record.
        yield from self._store(event, now_s, progress)
        if event.checkpoint.is_end:
            self.has_ended = True
            yield from self._stop(events.Stop("the shard has ended"), now_s)
        else:
            yield from self.look(now_s, progress)
            # What was settled while the write was on its way got no alarm then: it is due by the time of this answer.
            if (at_s := self.checkpoints.wake_at_s(progress)) < math.inf:
                yield commands.Alarm(at_s)

    # --- from stage to stage ----------------------------------------------------------------------

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        # Between the end of a drain and the `HandOver` that follows, the worker writes: what was delivered then would
        # come again to the next owner.
        is_drained = stage is Stage.DRAINING and self.drain is None
        self.ledger.may_deliver = MayDeliver.NOTHING if is_drained else MAY_DELIVER[stage]

    def _resume(self, event: events.Resume, now_s: float) -> Iterator[Command]:
        self.drain = None
        if self.stage is Stage.DRAINING:
            self._enter(Stage.READING)
            yield commands.Resumed()
            yield commands.WAKE

    def _hand_over(self, event: events.HandOver, now_s: float) -> Sequence[Command]:
        if self.stage is not Stage.OVER:
            self._enter(Stage.LEAVING)
        return self._step_checkpoints(checkpoint_events.Flush(), now_s)

    def _stop(self, event: events.Stop, now_s: float) -> Iterator[Command]:
        if self.stage is Stage.OVER:
            return
        self.stage, self.over_because = Stage.OVER, event.reason
        self.ledger.close(event.reason)
        yield from self._step_checkpoints(checkpoint_events.Close(event.reason), now_s)
        yield commands.OVER
        yield commands.WAKE
        if self.drain is not None:
            yield from self._look_at_drain(self.drain, now_s)
        if self.drain is not None:
            yield commands.Alarm(self.drain.next_at_s(now_s))  # `Over` has ended the alarm that was set.

    def _lose(self, event: tenure_commands.LeaseLost, now_s: float) -> Iterator[Command]:
        if self.stage is not Stage.OVER:
            self.lost = event.why
        yield from self._stop(events.Stop(f"the lease was lost: {event.why.value}"), now_s)

    def _move_fence(
        self, event: tenure_commands.FenceFell | tenure_commands.FenceLifted, now_s: float
    ) -> Iterator[Command]:
        yield commands.FenceMoved(isinstance(event, tenure_commands.FenceFell))
        yield commands.WAKE

    # --- a drain ----------------------------------------------------------------------------------

    def waits_for(self, *, is_asked: bool) -> DrainObstacle | None:
        """Return what a drain waits for; None: nothing. ``is_asked``: a caller may take what lies before records that
        were delivered; a drain waits for these only where there is such a caller.
        """
        if self.stage is Stage.OVER:  # What is in flight counts for nothing any more.
            return None
        if self.ledger.out:
            return DrainObstacle.HANDLERS
        if not self.ledger.drained:
            return DrainObstacle.LETTERS
        if not self.checkpoints.idle:
            return DrainObstacle.CHECKPOINT
        return DrainObstacle.CALLERS if is_asked and self.ledger.has_gaps else None

    def _begin_drain(self, event: events.Drain, now_s: float) -> Iterator[Command]:
        self.drain = Drain.begun(event.until_s, now_s)
        if self.stage in (Stage.READING, Stage.DRAINING):
            self._enter(Stage.DRAINING)
        yield commands.Revoking()
        yield commands.Alarm(self.drain.next_at_s(now_s))
        if self._letters_at_once_max and self.stage is Stage.DRAINING:
            self.ledger.letters.hurry(now_s)
            yield from self._write_letters(now_s)

    def _note_last_words(self, event: events.RevokingDone, now_s: float) -> Iterator[Command]:
        if self.drain is not None:
            self.drain = self.drain._replace(is_said=True)
            yield from self._look_at_drain(self.drain, now_s)

    def _end_without_last_words(self, event: events.RevokingFailed, now_s: float) -> Iterator[Command]:
        if self.drain is not None:
            yield self._end_drain(in_time=False)

    def _look_at_drain(self, drain: Drain, now_s: float) -> Iterator[Command]:
        if drain.may_be_over(now_s):
            waits_for = self.waits_for(is_asked=True)
            if waits_for is None or (now_s >= drain.until_s and waits_for is not DrainObstacle.CALLERS):
                yield self._end_drain(in_time=waits_for is None)
                return
            if waits_for is DrainObstacle.CALLERS:
                yield commands.ASK_FOR_CALLERS
                return
        if now_s >= drain.tell_at_s:
            yield commands.ASK_FOR_CALLERS

    def _see_callers(self, event: events.CallersSeen, now_s: float) -> Iterator[Command]:
        drain = self.drain
        if drain is None:
            return
        waits_for = self.waits_for(is_asked=event.is_asked)
        if now_s >= drain.until_s or (drain.is_said and waits_for is None):
            yield self._end_drain(in_time=waits_for is None)
            return
        if now_s >= drain.tell_at_s:
            what = "" if waits_for is None else waits_for.value
            if not drain.is_said:
                # A loop with a thousand shards to let go takes seconds to come to the call, and back from it. That is
                # not the program's.
                what, for_s = event.calling or ("", 0.0)
                drain = self.drain = drain.told_when_program_took(for_s, now_s)
                if drain.tell_at_s > now_s:
                    yield commands.Alarm(drain.tell_at_s)
                    return
            self.drain = drain._replace(tell_at_s=math.inf)
            yield commands.Emit(self._handoff_waits(what, drain.until_s - now_s))
        if drain.is_said and waits_for is DrainObstacle.CALLERS:
            # Nothing tells when a task or a thread ends that was expected to ask again.
            yield commands.Alarm(now_s + GAPS_LOOK_S)

    def _handoff_waits(self, waits_for: str, left_s: float) -> HandoffWaits:
        ledger = self.ledger
        return HandoffWaits(ledger.stream, ledger.shard_id, waits_for, ledger.out, ledger.progress.oldest, left_s)

    def _end_drain(self, *, in_time: bool) -> Command:
        self.drain = None
        if self.stage is Stage.DRAINING:
            self._enter(self.stage)
        return commands.Drained(in_time)

    # --- another ledger, and the end --------------------------------------------------------------

    def _seek(self, event: events.Seek, now_s: float) -> Iterator[Command]:
        if self.stage is Stage.OVER:
            return
        if not self.checkpoints.idle:
            raise CheckpointError(f"{self.checkpoints.where}: commit or abandon the pending checkpoint before a seek")
        if self.duplicates is not None:
            self.duplicates.forget()  # Its records are delivered again, and those that came before are among them.
        former, self.ledger = self.ledger, event.ledger
        self._records_before += former.progress.settled_records
        former.close("the shard is read from another place on (seek)")
        if self._letters_out:
            self._letters_out.clear()
            yield commands.DropLetters()
        self._enter(self.stage)
        yield from self.look(now_s)

    def _reorder(self, event: events.Reorder, now_s: float) -> list[Command]:
        self.ledger.reorder(event.order)
        return self.look(now_s)

    def _end_pages(self, event: events.Fetched, now_s: float) -> list[Command]:
        self.ledger.end()
        return self.look(now_s)

    def _hold_end(self, event: events.HoldEnd, now_s: float) -> Sequence[Command]:
        if self.end is End.FREE:
            self.end = End.HELD
        return ()

    def _free_end(self, event: events.EndTold, now_s: float) -> list[Command]:
        self.end = End.FREE
        return self.look(now_s)


_RULES: Mapping[type[Any], Callable[[ShardMachine[Any], Any, float], Iterable[Command]]] = {
    checkpoint_events.Look: ShardMachine._look,
    events.TimerFired: ShardMachine._look_at_time,
    PageRead: ShardMachine._read_page,
    events.WindowKnown: ShardMachine._go_on_with_pages,
    events.PageCame: ShardMachine._admit_page,
    events.CannotRead: ShardMachine._leave_out_unreadable,
    events.MustWait: ShardMachine._put_off,
    **dict.fromkeys(
        (
            checkpoint_events.Flush,
            checkpoint_events.SetBound,
            checkpoint_events.Prepare,
            checkpoint_events.Commit,
            checkpoint_events.Abandon,
            checkpoint_events.Close,
            tenure_commands.PendingStored,
        ),
        ShardMachine._step_checkpoints,
    ),
    tenure_commands.CheckpointStored: ShardMachine._note_stored,
    events.Drain: ShardMachine._begin_drain,
    events.RevokingDone: ShardMachine._note_last_words,
    events.RevokingFailed: ShardMachine._end_without_last_words,
    events.CallersSeen: ShardMachine._see_callers,
    events.Resume: ShardMachine._resume,
    events.HandOver: ShardMachine._hand_over,
    events.Stop: ShardMachine._stop,
    tenure_commands.LeaseLost: ShardMachine._lose,
    tenure_commands.FenceFell: ShardMachine._move_fence,
    tenure_commands.FenceLifted: ShardMachine._move_fence,
    events.Seek: ShardMachine._seek,
    events.Reorder: ShardMachine._reorder,
    events.Fetched: ShardMachine._end_pages,
    events.HoldEnd: ShardMachine._hold_end,
    events.EndTold: ShardMachine._free_end,
    events.LetterWritten: ShardMachine._settle_letter,
    events.LetterNotWritten: ShardMachine._put_letter_off,
}
"""The rules of the machine, which are complete: there is a rule for every event."""
