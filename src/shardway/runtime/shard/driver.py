"""The driver of one shard in one tenure gives the shard's machine (`shardway.core.shard.machine`) what happens, and
performs what that commands: timers, tasks, what the lease's machine is told, and what the listeners hear.

The machine decides what follows from what, and the other parts of the shard reach it through the driver: the fetcher
with pages, the delivery for the program, the handle for the worker. A settlement comes from any thread: a batch changes
the ledger under `ShardDriver.lock`, and then touches the driver, which looks on its own loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.shard import commands, events
from shardway.core.shard.checkpoints import commands as checkpoint_commands
from shardway.core.shard.commands import WAKE
from shardway.core.shard.duplicates import Admit
from shardway.core.shard.machine import Stage
from shardway.runtime.background import emits_failure
from shardway.runtime.clocks import Alarm
from shardway.runtime.shard.letter_tasks import LetterTasks
from shardway.runtime.shard.listener import Callers
from shardway.runtime.shard.revocation import Revocation
from shardway.tasks import spawn
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.ledger.ledger import Ledger
    from shardway.core.shard.checkpoints import events as checkpoint_events
    from shardway.core.shard.checkpoints.state import Pending
    from shardway.core.shard.machine import ShardMachine
    from shardway.events import LedgerEvent
    from shardway.model import Record
    from shardway.runtime.dead_letters.shard_letters import LetterWriter
    from shardway.runtime.feeds.pages import Pages
    from shardway.runtime.shard.listeners import Listeners
    from shardway.runtime.shard.reader_context import ReaderContext
    from shardway.runtime.shard.tenure_keeper import TenureKeeper
    from shardway.tasks import Heard


class ShardDriver:
    """Drives the machine of one shard. It is also the `Reader` of the shard's batches."""

    def __init__(
        self,
        shard: ShardMachine[Record],
        pages: Pages,
        keeper: TenureKeeper,
        listeners: Listeners,
        context: ReaderContext,
        *,
        letters: LetterWriter | None,
        on_event: Callable[[LedgerEvent], None],
    ) -> None:
        """``letters`` writes dead letters; None: none are written."""
        self.stream, self.shard_id = pages.stream, pages.shard_id
        self.machine = shard
        self.keeper = keeper
        self.listeners = listeners
        self.pages = pages
        self.loop = asyncio.get_running_loop()
        """The loop on which the driver runs: only its tasks may wait for events of asyncio here."""
        self.host = host = context.host
        """The host in which the driver runs; the callers that read may be on another loop."""
        self.lock: Any = host.lock
        """The lock that is held while the ledger or the machine is asked or told."""
        self.signal = host.signal()
        """The signal for the callers that read: there may be something to take, or it is over."""
        self.counts = context.counts
        """See `ReaderContext.counts`."""
        self.tracer = context.tracer
        """See `Reader.tracer` of the batches."""
        self.failure: BaseException | None = None
        """The error that ended the reading: it is raised where records are asked for."""
        self.paused = False
        """True: nothing is delivered, and fetching goes on up to its bounds."""
        self.asking = Callers()
        """The callers that take records of this shard."""
        self.writes_letters = letters is not None
        """See `Reader.writes_letters` of the batches."""
        self.over = asyncio.Event()
        """It is set once nothing more is delivered. It wakes tasks of the driver's loop only."""
        self.revocation = Revocation(listeners, self.handle, self.report_failure)
        self._on_event = on_event
        self._wake_event = asyncio.Event()
        self._alarm = Alarm(self.loop, self._fire_timer)
        self._is_touched = False
        self._letters = LetterTasks(letters, self.handle, self.stops_by_failure("the writing of a dead letter"))
        self._end_task: asyncio.Task[None] | None = None
        self._checkpoint_answer: asyncio.Future[None] | None = (
            None  # The answer to a caller's request for a checkpoint.
        )

    @property
    def ledger(self) -> Ledger[Record]:
        """The ledger of what was delivered and settled. After each seek it is another one."""
        return self.machine.ledger

    @property
    def is_over(self) -> bool:
        """True when nothing more is delivered: the shard is done, or the lease is gone."""
        return self.machine.stage is Stage.OVER

    @property
    def settled(self) -> Checkpoint:
        """The checkpoint up to which all is settled; once that is stored, a new owner goes on behind it."""
        with self.lock:
            return self.ledger.progress.safe

    @property
    def stored(self) -> Checkpoint:
        """The checkpoint that the lease is known to hold."""
        return self.keeper.row.checkpoint

    # --- for its batches: see `Reader` -------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """See `Reader.now_s` of the batches."""
        return self.loop.time()

    def may_deliver(self) -> bool:
        """See `Reader.may_deliver` of the batches."""
        return self.keeper.may_deliver()

    def emit(self, events: Iterable[LedgerEvent]) -> None:
        """See `Reader.emit` of the batches."""
        for event in events:
            self._on_event(event)

    def handled(self, duration_s: float) -> None:
        """See `Reader.handled` of the batches."""
        if self.counts is not None:
            with self.lock:
                self.counts.handled(duration_s)

    def touched(self) -> bool:
        """Note that something was settled, by any thread: thousands of records may be, before it is looked at. False:
        the loop that would look is over, without a close, and stores nothing any more.
        """
        # The lock is not held: `look` lowers the flag before it looks, so what was settled before the flag was seen up
        # is looked at.
        if not self._is_touched:
            self._is_touched = True
            if not self.host.soon(self.look):
                self._is_touched = False
                return False
        return True

    # --- what happens -----------------------------------------------------------------------------

    def look(self) -> None:
        """Have the machine look at what was settled."""
        self._is_touched = False
        now_s = self.loop.time()
        with self.lock:  # Other threads settle meanwhile.
            results = self.machine.look(now_s)
        if results:
            self._perform(results)

    def handle(self, event: events.Event) -> None:
        """Give the machine an event, and perform what it commands. Raises CheckpointError."""
        now_s = self.loop.time()
        with self.lock:
            results = self.machine.handle(event, now_s)
        self._perform(results)

    def hear(self, command: tenure_commands.Command) -> None:
        """Take what the tenure says, and pass it on to the machine and the listeners."""
        if isinstance(command, tenure_commands.CheckpointStored) and self.counts is not None:
            self.counts.stored(command.checkpoint, self.loop.time())
        if isinstance(command, events.TENURE_SAYS):
            self.handle(command)
        if isinstance(command, tenure_commands.Departure):
            self.listeners.lease_goes(command)

    async def ask(self, event: checkpoint_events.Event) -> Pending | None:
        """Ask for a checkpoint in two phases, and wait until it is stored. Returns the checkpoint that is pending, or
        was until now. Raises CheckpointError.
        """
        self.handle(event)
        pending, self._checkpoint_answer = self.machine.checkpoints.pending, self.loop.create_future()
        self._checkpoint_answer.add_done_callback(_look_at_error)
        # The write goes on where the caller does not: a prepare that is cancelled is found in `pending`.
        await asyncio.shield(self._checkpoint_answer)
        return pending

    def stop(self, reason: str, failure: BaseException | None = None) -> None:
        """Deliver nothing more. What is settled by now is the last checkpoint; an event names what is not. ``failure``
        is raised where records are asked for.
        """
        if not self.is_over:
            self.failure = failure or self.failure
            self.handle(events.Stop(reason))

    def stops_by_failure(self, work: str) -> Heard:
        """Return a handler for a task without which the shard would stand still: it is let go, and the task's error is
        raised where records are asked for.
        """

        def stop_delivery(error: BaseException) -> None:
            self.stop(f"{work} has failed: {type(error).__name__}", error)

        follows = "the shard is let go, and left to others for a while"
        return emits_failure(self._on_event, (self.stream, self.shard_id), work, follows, stop_delivery)

    def report_failure(self, work: str, what_follows: str, error: BaseException) -> None:
        """Emit the error of a task after which reading goes on."""
        emits_failure(self._on_event, (self.stream, self.shard_id), work, what_follows)(error)

    async def until_stirred(self, seconds: float | None) -> None:
        """Wait until something has happened, at most ``seconds`` seconds."""
        self._wake_event.clear()
        await wait_set(self._wake_event, seconds)

    # --- what the machine commands ----------------------------------------------------------------

    def stir(self) -> None:
        """Wake all that waits for the shard."""
        self._wake_event.set()
        self.signal.set()
        self.listeners.stir()

    def worth_the_way(self, results: list[commands.Command]) -> list[commands.Command]:
        """Return all commands but an alarm that is set already, as it is with nearly each batch. It is called with the
        lock.
        """
        return [one for one in results if not (isinstance(one, commands.Alarm) and self._alarm.rings_by(one.at_s))]

    def perform_soon(self, results: list[commands.Command]) -> None:
        """Perform what the machine commands on the driver's loop, from any thread, without the lock. Events are emitted
        at once, on this thread, as those of a record that is settled are.
        """
        self.emit(one.event for one in results if isinstance(one, commands.Emit))
        left: list[commands.Command] = [one for one in results if not isinstance(one, commands.Emit)]
        if left:
            self.host.soon(partial(self._perform, left))

    def _perform(self, results: list[commands.Command]) -> None:
        for command in results:
            if command is WAKE:
                self.stir()
            elif isinstance(command, (tenure_events.StoreCheckpoint, tenure_events.StorePending)):
                if self.counts is not None and isinstance(command, tenure_events.StoreCheckpoint):
                    self.counts.settled_to(command.checkpoint, self.loop.time())
                self.keeper.handle(command)
            else:
                self._do(command)

    def _do(self, command: commands.Command) -> None:
        match command:
            case commands.Emit(event=event):
                self._on_event(event)
            case Admit():
                self.handle(self.pages.admission.made_of(command))
            case commands.Alarm(at_s=at_s):
                self._alarm.at(at_s)
            case commands.WriteLetter():
                self._letters.begin(command)
            case commands.DropLetters():
                self._letters.drop()
            case commands.Revoking():
                self.revocation.tell_listeners()
            case commands.AskForCallers():
                self._ask_for_callers()
            case commands.Drained():
                self.revocation.drained(command)
            case checkpoint_commands.Answer():
                self._answer(command)
            case commands.TellEnd():
                self._end_task = spawn(self._tell_end(), self.stops_by_failure("what is done before its end is stored"))
            case commands.Over():
                self._finish()
            case commands.GaveUp() | commands.FenceMoved() | commands.Resumed():
                self.listeners.changed(command)

    def _fire_timer(self) -> None:
        self.handle(events.TimerFired())

    def _ask_for_callers(self) -> None:
        is_asked = not self.paused and (bool(self.asking) or self.listeners.are_asked)
        self.handle(events.CallersSeen(is_asked, self.listeners.calling()))

    def _answer(self, answer: checkpoint_commands.Answer) -> None:
        asked = self._checkpoint_answer
        if asked is None or asked.done():
            return
        if answer.error is None:
            asked.set_result(None)
        else:
            asked.set_exception(answer.error)

    async def _tell_end(self) -> None:
        await self.listeners.ending()
        self.handle(events.EndTold())

    def _finish(self) -> None:
        if self._end_task is not None:
            self._end_task.cancel()
        self._letters.drop()
        if self.pages.window is not None:
            self.pages.window.cancel()
        if self.pages.room is not None:
            self.pages.room.share.leave()
        self._alarm.cancel()
        self.over.set()
        self.listeners.over()


def _look_at_error(answer: asyncio.Future[None]) -> None:
    """Look at the error: where the caller was cancelled, no other part does, and asyncio would log it."""
    if not answer.cancelled():
        answer.exception()
