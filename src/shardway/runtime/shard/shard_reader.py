"""A reader drives one shard in one tenure: the shard is fetched into its ledger, delivered from there, and
checkpointed.

The machine of the shard (`shardway.core.shard.machine`) decides what follows from what. The reader tells it what
happens, and does what it says: timers, tasks, what the lease's machine is told, and what its listeners hear.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from shardway.core.leases.row import Checkpoint
from shardway.core.leases.tenure import Ended, HandoffAsked, Lost, Prepared, Settled, Stored
from shardway.core.ledger.ledger import Ledger
from shardway.core.ledger.ledger_events import raised_at
from shardway.core.ledger.page import payload_bytes_of, payload_bytes_of_all
from shardway.core.ledger.policy import LedgerPolicy
from shardway.core.log.user_records import PLAIN_BYTES, RECORD_BYTES
from shardway.core.shard import checkpoints, machine
from shardway.core.shard.checkpoints import Answer, Flush, Prepare, Riding, SetBound
from shardway.core.shard.duplicates import Admit
from shardway.core.shard.machine import STIR, CannotRead, LetterNotWritten, LetterWritten, ShardMachine, Stage
from shardway.errors import ShardReadError, ShardStoppedError, ShardwayError
from shardway.policies import Skip
from shardway.runtime.background import emits_failure
from shardway.runtime.clocks import Alarm, YieldBudget
from shardway.runtime.shard.batch import Batch
from shardway.runtime.shard.listener import Callers, Origin, ShardListener
from shardway.runtime.shard.pending import PendingCheckpoint, choose
from shardway.runtime.threads.host import SameLoop
from shardway.tasks import is_cancelled, spawn, wait_set

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from random import Random
    from typing import Any

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.tenure import Command, Loss
    from shardway.core.ledger.failures import GiveUpReason
    from shardway.core.ledger.ticket import Delivery
    from shardway.core.log.feed_cursor import FeedCursor, PageMeaning
    from shardway.core.log.pages import ChildShard
    from shardway.core.shard.checkpoints import Cadence, Pending
    from shardway.events import LedgerEvent
    from shardway.model import Position, Record
    from shardway.policies import OnPending, OrderPolicy
    from shardway.ports import Tracer
    from shardway.runtime.dead_letters.shard_letters import LetterWriter
    from shardway.runtime.feeds.deserializing import Deserializer
    from shardway.runtime.feeds.fan_out import FanOutFeed
    from shardway.runtime.feeds.pages import Pages
    from shardway.runtime.feeds.polling import PollingFeed
    from shardway.runtime.shard.tenure_keeper import TenureKeeper
    from shardway.runtime.shard.window_reading import WindowRead
    from shardway.runtime.threads.host import Host
    from shardway.tasks import Heard
    from shardway.telemetry.consumer_meter import ShardCounts

BATCH_RECORDS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class ReaderChoices:
    """The choices of a reader. They are checked where they come from: `ConsumerOptions`."""

    ledger: LedgerPolicy = field(default_factory=LedgerPolicy)
    cadence: Cadence = field(default_factory=Riding)
    batch_records_max: int = BATCH_RECORDS_MAX
    checkpoint_manually: bool = False
    """True: what is settled is checkpointed no further than `ShardReader.checkpoint_to` says."""
    letters_at_once_max: int = machine.LETTERS_AT_ONCE_MAX


class ShardReader:
    """Delivers the records of a shard while its lease is held, and no longer.

    `next_batch` may be asked by several tasks at once. `run` fetches; it ends when the tenure does.
    """

    counts: ShardCounts | None = None
    """The part that counts what is fetched, delivered and stored; None: nothing counts it."""
    tracer: Tracer | None = None
    """The tracer that makes spans of the blocks that process the shard's records; None: the program does not trace."""
    _settled_before = 0  # The records that were settled in former ledgers.
    _settled_bytes_before = 0

    def __init__(
        self,
        keeper: TenureKeeper,
        pages: Pages,
        choices: ReaderChoices,
        *,
        rng: Random,
        on_event: Callable[[LedgerEvent], None],
        letters: LetterWriter | None = None,
        on_pending: OnPending | None = None,
    ) -> None:
        """``letters`` writes dead letters; None: none are written. ``on_pending`` says what becomes of a checkpoint
        that the former owner left pending; None: it is abandoned.
        """
        self.stream, self.shard_id = pages.stream, pages.shard_id
        self.home: Host = SameLoop(asyncio.get_running_loop())
        """The home in which the reader runs; the callers that read may be on another loop."""
        self.origin = Origin.NEW
        """The way in which the shard came to this consumer."""
        self.failure: BaseException | None = None
        """The error that ended the reading: it is raised where records are asked for."""
        self.values: Deserializer[Record] | None = None
        """The part that makes values of the records' bytes; None: they stay bytes."""
        self.paused = False
        """True: nothing is delivered, and fetching goes on up to its bounds. See `pause`."""
        self.is_iterated = False
        """True while the program iterates the shard."""
        self.records_delivered = 0
        """The number of records that were delivered so far; those that came again are counted again."""
        self.batches_delivered = 0
        self.asking = Callers()
        """The callers that take records of this shard."""
        self.breath = YieldBudget()
        self.millis_behind_latest: int | None = None
        """The time by which the last read was behind the shard's tip, in milliseconds; 0 at the tip, None: it is not
        known yet.
        """
        self.children: tuple[ChildShard, ...] = ()
        """The children of a shard that has ended."""
        self._loop = asyncio.get_running_loop()
        self.read_at_s = self._loop.time()
        """The time at which the last page came (the loop's clock); before the first one, when reading began. A read
        that fails leaves it as it is, so the time since then shows a shard that cannot be read, which
        `millis_behind_latest` does not.
        """
        self._keeper = keeper
        self._choices = choices
        self._policy = choices.ledger
        self._rng = rng
        self._on_event = on_event
        self._set_listeners(())
        self._lock = self.home.lock
        self._signal = self.home.signal()  # It is for the callers that read.
        self._stirred = asyncio.Event()
        self._over = asyncio.Event()
        self._pages = pages
        self._window = pages.window
        self._letter_writer = letters
        self._begin(on_pending)

    def _begin(self, on_pending: OnPending | None) -> None:
        """Begin behind the records that the former owner has settled."""
        self._alarm = Alarm(self._loop, self._rang)
        self._is_touched = False
        self._revoking: ShardListener | None = None  # The listener that is telling the program that the shard goes.
        self._drained: asyncio.Future[bool] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._stop_raised: GiveUpReason | None = None
        self._asked: asyncio.Future[None] | None = None  # The answer to a caller's request for a checkpoint.
        row, choices = self._keeper.row, self._choices
        self._letters_out: set[asyncio.Task[None]] = set()  # The dead letters that are being written.
        choice = choose(row, on_pending, stream=self.stream, shard_id=self.shard_id, on_event=self._on_event)
        begins = checkpoints.begin(
            row,
            choice,
            where=f"{self.stream}, {self.shard_id}",
            cadence=choices.cadence,
            bound=row.checkpoint if choices.checkpoint_manually else None,
            now_s=self._loop.time(),
        )
        letters_max = 0 if self._letter_writer is None else choices.letters_at_once_max
        ledger = self._new_ledger(begins.settled)
        self._shard: ShardMachine[Record] = ShardMachine(
            ledger, begins.checkpoints, duplicates=self._pages.admission.duplicates, letters_at_once_max=letters_max
        )
        self._pages.begin(begins.wanted)
        if begins.settled > row.checkpoint:
            self._tell(Flush(at_once=True))

    def lives(self, home: Host) -> None:
        """Set the home in which the reader runs, before the program reads it."""
        self.home, self._lock, self._signal = home, home.lock, home.signal()

    def listen(self, listener: ShardListener) -> None:
        """Add a listener: it hears of the shard."""
        self._set_listeners((*self._listeners, listener))
        if listener.holds_end:
            self._tell(machine.HoldEnd())

    def unlisten(self, listener: ShardListener) -> None:
        """Remove a listener: it hears nothing more."""
        self._set_listeners(tuple(one for one in self._listeners if one is not listener))

    def _set_listeners(self, listeners: tuple[ShardListener, ...]) -> None:
        # A reader stirs with each record that is settled alone: those that do not want to hear of it are left out.
        self._stirring = tuple(one for one in listeners if type(one).stir is not ShardListener.stir)
        self._listeners = listeners

    # --- what is known ----------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger[Record]:
        """The ledger of what was delivered and settled. After each `seek` it is another one."""
        return self._shard.ledger

    @property
    def is_over(self) -> bool:
        """True when nothing more is delivered: the shard is done, or the lease is gone."""
        return self._shard.stage is Stage.OVER

    @property
    def over_because(self) -> str:
        """The reason why nothing more is delivered."""
        return self._shard.over_because

    @property
    def has_ended(self) -> bool:
        """True when the shard is done, and stored as ended."""
        return self._shard.has_ended

    @property
    def lost(self) -> Loss | None:
        """The reason why the tenure ended, where the lease was lost."""
        return self._shard.lost

    @property
    def checkpoint_max(self) -> Checkpoint | None:
        """The checkpoint behind which nothing is checkpointed, settled or not, nor is the shard stored as ended; see
        `checkpoint_to`. None: what is settled is checkpointed.
        """
        return self._shard.checkpoints.bound

    @property
    def stored(self) -> Checkpoint:
        """The checkpoint that the lease is known to hold."""
        return self._keeper.row.checkpoint

    @property
    def settled(self) -> Checkpoint:
        """The checkpoint up to which all is settled; once that is stored, a new owner goes on behind it."""
        with self._lock:
            return self.ledger.safe

    @property
    def cursor(self) -> FeedCursor:
        """The cursor that says how far the shard is fetched. After each `seek` it is another one."""
        return self._pages.cursor

    @property
    def records_settled(self) -> int:
        """The number of records that are settled in this tenure, wherever they lie."""
        return self._settled_before + self.ledger.done_records

    @property
    def bytes_settled(self) -> int:
        """The data bytes of the records that are settled in this tenure."""
        return self._settled_bytes_before + self.ledger.done_bytes

    @property
    def row(self) -> LeaseRow:
        """The lease as it was last confirmed."""
        return self._keeper.row

    @property
    def token(self) -> int:
        """A number that grows with every owner of the shard."""
        return self._keeper.token

    # --- for the callers that read --------------------------------------------------------------

    def take(self, records_max: int | None = None) -> Batch[Any] | None:
        """Return the next records, if there are any to be had now; a listener hears when to ask again (`stir`). It
        returns no more than ``records_max``, unless they failed as a larger batch.

        Raises, once, the error for which the policies have stopped the shard (`Stop`).
        """
        most = self._choices.batch_records_max
        found = self._next(min(records_max or most, most))
        if found is None:
            return None
        ledger, delivery, values = found
        with self._lock:
            self.records_delivered += len(delivery.records)
            self.batches_delivered += 1
            if self.counts is not None:
                self.counts.delivered(len(delivery.records), payload_bytes_of_all(delivery.records))
        return Batch(
            ledger,
            delivery,
            self,
            token=self._keeper.token,
            millis_behind_latest=self.millis_behind_latest,
            values=values,
        )

    async def next_batch(self) -> Batch[Any] | None:
        """Wait for the next records, and return them; None when there will be none in this tenure. Raises the error
        that ended the reading, and ShardStoppedError where the policies have stopped the shard (`Stop`).
        """
        with self._lock:
            self.asking.once()
        return await self._next_batch()

    async def _next_batch(self) -> Batch[Any] | None:
        await self.breath.take()
        while not self.is_over:
            seen = self._signal.count  # It is read before the look, which may itself end the reading.
            if (ending := self.ledger.ending) is not None and ending.stops:
                self._stop_raised = ending
                raise stopped(self.stream, self.shard_id, ending)
            batch = self.take()
            if batch is not None:
                return batch
            if self.checkpoint_max is not None and self.settled.is_end:
                return None
            await self._signal.wait(seen)
            self.breath.rested()
        if self.failure is not None:
            raise self.failure
        return None

    async def __aiter__(self) -> AsyncGenerator[Batch[Any], None]:
        """Iterate over batches until the tenure ends. What a program that leaves early did not settle is delivered
        again.
        """
        self.is_iterated = True
        try:
            with self.asking.lasts() as asked:
                while (batch := await self._next_batch()) is not None:
                    yield batch
                    asked()
        finally:
            self.is_iterated = False
            self.take_back()
            if not self.is_over:
                for listener in self._listeners:
                    listener.left(self)

    def take_back(self) -> None:
        """Deliver again what is in flight, and checkpoint at once what is settled: the program has left the
        iteration.
        """
        with self._lock:
            if self.is_over:
                return
            self.ledger.take_back(self._loop.time())
        self.home.soon(self._taken_back)

    def _taken_back(self) -> None:
        if not self.is_over:
            self._tell(Flush(at_once=True))
            self._stir()

    # --- two phases -----------------------------------------------------------------------------

    async def prepare(self, position: Position, state: bytes | None = None) -> PendingCheckpoint:
        """Store a pending checkpoint up to and with this position, with bytes of the application's for the next
        owner. Until it is committed or abandoned nothing else is checkpointed.

        Raises CheckpointError: for a position that is checkpointed already, or was not fetched yet, while another call
        is on its way, and when the shard is lost.
        """
        prepared = await self.home.run(lambda: self._prepare(Checkpoint.at(position), state))
        assert prepared is not None
        return PendingCheckpoint(self, prepared)

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint that is stored as pending: prepared in this tenure, or left by a former owner and kept."""
        found = self._shard.checkpoints.pending
        return None if found is None else PendingCheckpoint(self, found)

    async def commit(self, pending: PendingCheckpoint) -> None:
        """Make a pending checkpoint the checkpoint, and wait until that is stored. Raises CheckpointError."""
        await self.home.run(lambda: self._ask(checkpoints.Commit(pending._value)))

    async def abandon(self, pending: PendingCheckpoint) -> None:
        """Let a pending checkpoint go, and wait until that is stored. Raises CheckpointError."""
        await self.home.run(lambda: self._ask(checkpoints.Abandon(pending._value)))

    async def _prepare(self, to: Checkpoint, state: bytes | None) -> Pending | None:
        return await self._ask(Prepare(to, state, self.ledger.came_to))

    async def _ask(self, given: checkpoints.Input) -> Pending | None:
        self._tell(given)
        pending, self._asked = self._shard.checkpoints.pending, self._loop.create_future()
        self._asked.add_done_callback(_seen)
        # The write goes on where the caller does not: a prepare that is cancelled is found in `pending`.
        await asyncio.shield(self._asked)
        return pending

    # --- how far ----------------------------------------------------------------------------------

    def checkpoint_to(self, checkpoint: Checkpoint) -> None:
        """Let checkpoints go up to this one, if all before is settled, and no further; a later call moves the bound."""
        with self._lock:
            said = self._shard.tell(SetBound(checkpoint), self._loop.time())
        self._perform_soon(said)
        self.touched()

    async def until_stored(self, checkpoint: Checkpoint) -> bool:
        """Wait until the lease holds this checkpoint, or a later one. False when the tenure ended before."""
        while True:
            seen = self._signal.count
            if self.stored >= checkpoint or self.is_over:
                break
            await self._signal.wait(seen)
        return self.stored >= checkpoint

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``.

        What was fetched is dropped, and settling what is in flight counts for nothing any more. The stored checkpoint
        never goes back: it stands until what is settled passes it. Raises CheckpointError while a checkpoint is
        pending.
        """
        if self.is_over:
            return
        # A word says where reading begins, and not that anything is settled: the word that is before all checkpoints is
        # never stored. A lease that were to stand at LATEST by a seek would begin at the next owner's "now".
        settled_to = after if after.is_position else Checkpoint.AT_TIMESTAMP
        ledger, settled = self._new_ledger(settled_to), (self.records_settled, self.bytes_settled)
        self._tell(machine.Seek(ledger))
        self._settled_before, self._settled_bytes_before = settled
        if self._window is not None:
            self._window.forget()
        self._pages.seek(feed, after)

    def use_order(self, order: OrderPolicy | None) -> None:
        """Deliver in this order. What was fetched stays: a seek would pass over what came at LATEST, and forget the
        window of duplicates.
        """
        self._policy = replace(self._policy, order=order)
        self._tell(machine.Reorder(order))

    def pause(self, paused: bool = True) -> None:
        """Deliver nothing for now; with False, deliver again."""
        self.paused = paused
        self.home.soon(self._look)

    # --- for the worker -------------------------------------------------------------------------

    def let_go(self) -> None:
        """Free the shard for any worker."""
        self.home.soon(self._let_go)

    def _let_go(self) -> None:
        for listener in self._listeners:
            listener.let_go(self)

    def heard(self, command: Command) -> None:
        """Take what the tenure says, and pass it on to the machine and the listeners."""
        if isinstance(command, Stored) and self.counts is not None:
            self.counts.stored(command.checkpoint, self._loop.time())
        if isinstance(command, machine.TENURE_SAYS):
            self._tell(command)
        if isinstance(command, HandoffAsked | Ended | Lost):
            for listener in self._listeners:
                listener.lease_goes(self, command)

    def stop(self, reason: str, failure: BaseException | None = None) -> None:
        """Deliver nothing more. What is settled by now is the last checkpoint; an event names what is not. ``failure``
        is raised where records are asked for.
        """
        if not self.is_over:
            self.failure = failure or self.failure
            self._tell(machine.Stop(reason))

    def _fails(self, work: str) -> Heard:
        """Return a handler for a task without which the shard would stand still: it is let go, and the task's error is
        raised where records are asked for.
        """

        def then(error: BaseException) -> None:
            self.stop(f"{work} has failed: {type(error).__name__}", error)

        follows = "the shard is let go, and left to others for a while"
        return emits_failure(self._on_event, (self.stream, self.shard_id), work, follows, then)

    def tell_failed(self, work: str, what_follows: str) -> Heard:
        """Return a handler for a task after which reading goes on."""
        return emits_failure(self._on_event, (self.stream, self.shard_id), work, what_follows)

    async def over(self) -> None:
        """Wait until nothing more is delivered."""
        if asyncio.get_running_loop() is self._loop:
            await self._over.wait()
            return
        while True:  # Events of asyncio wake the tasks of one loop only.
            seen = self._signal.count
            if self.is_over:
                return
            await self._signal.wait(seen)

    def drain(self, deadline_s: float) -> asyncio.Future[bool]:
        """Deliver no more, but for what lies before records that were delivered, while there is a caller that takes it:
        otherwise those come again. The future waits until what is in flight is settled, letters are written, and
        nothing is pending. It is False when the deadline came first.
        """
        if self._drained is not None:
            self._drained.cancel()
        drained = self._drained = self._loop.create_future()
        self._tell(machine.Drain(self._loop.time() + deadline_s))
        return drained

    def resume(self) -> None:
        """Deliver again, after a drain that came to nothing."""
        if self._drained is not None:
            self._drained.cancel()
        self._tell(machine.Resume())

    def _begin_last_words(self) -> None:
        saying = spawn(self._say_last_words(), self._last_words_failed)
        if self._drained is not None:
            self._drained.add_done_callback(lambda _: saying.cancel())

    async def _say_last_words(self) -> None:
        try:
            for listener in self._listeners:
                self._revoking = listener
                await listener.leaving(self)
        finally:
            self._revoking = None
        self._tell(machine.RevokingDone())

    def _last_words_failed(self, error: BaseException) -> None:
        """Report the error, and go on: what is settled by now goes with the lease, as at the deadline."""
        self.tell_failed("the end of its delivery", "it is handed over with what is settled by now")(error)
        self._tell(machine.RevokingFailed())

    def _look_around(self) -> None:
        is_asked = not self.paused and (bool(self.asking) or any(one.is_asked for one in self._listeners))
        self._tell(machine.CallersSeen(is_asked, None if self._revoking is None else self._revoking.calling()))

    def _drain_over(self, given: machine.Drained) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(given.in_time)

    def hand_over(self) -> None:
        """Have the machine store the last checkpoint: the lease is about to go. Nothing more is delivered."""
        self._tell(machine.HandOver())

    # --- fetching ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch, as far as there is room, until the tenure ends. Raises ShardReadError."""
        try:
            await self._fetch_all()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            named = error if isinstance(error, ShardwayError) else type(error).__name__
            self.failure = ShardReadError(
                f"{self.stream}, {self.shard_id}: reading has ended: {named}",
                stream=self.stream,
                shard_id=self.shard_id,
            )
            raise self.failure from error
        finally:
            if self._window is not None:
                await self._window.stop()

    async def _fetch_all(self) -> None:
        """Fetch from one place after another, as the program seeks."""
        async with self._window_read(), self._pages.fetched_by_this_task() as pages:
            while self._may_fetch() is not None:
                with pages.until_sought():
                    await pages.go_on()
                    await self._fetch(pages)

    async def _fetch(self, pages: Pages) -> None:
        while not pages.is_sought and (may := self._may_fetch()) is not None:
            if pages.is_done:
                await self._pause(None)
            elif not may:
                await self._pause(1.0)
            else:
                taken = await pages.next()
                self._page_came(taken, *pages.new_of(taken))
                if taken.ended:
                    await self._all_fetched(taken.children)
                    await pages.done()

    def _may_fetch(self) -> bool | None:
        """True when the reader may fetch; False while nothing should be fetched, None: never again."""
        if self.is_over:
            return None
        with self._lock:
            has_room = self.ledger.has_room
        if not has_room or not self._keeper.may_deliver():
            return False
        if self._window is not None:
            self._window.check()
        return not self._shard.is_kept_waiting

    def _page_came(self, taken: PageMeaning, records: Sequence[Record], ends_at: Position | None) -> None:
        self.millis_behind_latest, self.read_at_s = taken.millis_behind_latest, self._loop.time()
        if self.counts is not None:
            self.counts.fetched(len(taken.records), payload_bytes_of_all(taken.records))
        self._tell(self._pages.admission.read(taken, records, ends_at))

    @contextlib.asynccontextmanager
    async def _window_read(self) -> AsyncIterator[None]:
        """Tell the machine, while the block runs, when the window of duplicates is known."""
        window = self._window
        if window is None or window.is_known:
            yield
            return
        knowing = spawn(self._until_known(window), self._fails("the reading of the window of duplicates"))
        try:
            yield
        finally:
            knowing.cancel()

    async def _until_known(self, window: WindowRead) -> None:
        await window.over()
        self._tell(machine.WindowKnown())  # Where it has failed, this wakes the task that fetches, which raises it.

    async def _all_fetched(self, children: tuple[ChildShard, ...]) -> None:
        self.children = children
        for listener in self._listeners:
            await listener.fetched(self, children)
        if self._window is not None and self._shard.keeps_pages:
            await self._window.over()
            self._window.check()
            self._tell(machine.WindowKnown())
        self._tell(machine.Fetched())

    # --- parts ----------------------------------------------------------------------------------

    def _next(self, records_max: int) -> tuple[Ledger[Record], Delivery[Record], Sequence[Any] | None] | None:
        """Return the next delivery with its ledger, and its values where a deserializer makes them; None: there is
        none.
        """
        while True:
            now_s = self._loop.time()
            with self._lock:
                if self.paused or not self._keeper.may_deliver():
                    return None
                ledger = self.ledger
                delivery, said = self._shard.take(records_max, now_s)
                said = self._worth_the_way(said)
            if said:
                self._perform_soon(said)
            if delivery is None:
                self._raise_stopped(ledger)
                return None
            if self.values is None:
                return ledger, delivery, None
            read = self.values.of(delivery)
            if read.stops is not None:
                self.home.soon(partial(self.stop, "a record cannot be read", read.stops))
                return None
            if read.left_out:
                skips = isinstance(self.values.policy, Skip)
                with self._lock:
                    said = self._shard.tell(CannotRead(ledger, delivery.ticket, read.left_out, skips), now_s)
                self._perform_soon(said)
            self.touched()
            if self.is_over:  # It is over meanwhile.
                return None
            if read.delivery.records:
                return ledger, read.delivery, read.values

    def _raise_stopped(self, ledger: Ledger[Record]) -> None:
        """Raise, once, the error for which the policies have stopped the shard."""
        ending = ledger.ending
        if ending is None or not ending.stops:
            return
        with self._lock:
            if self.is_over or self._stop_raised is ending:
                return
            self._stop_raised = ending
        raise stopped(self.stream, self.shard_id, ending)

    # --- for its batches --------------------------------------------------------------------------

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """See `Reader.lock` of the batches."""
        lock: AbstractContextManager[Any] = self._lock
        return lock

    @property
    def now_s(self) -> float:
        """See `Reader.now_s` of the batches."""
        return self._loop.time()

    def may_deliver(self) -> bool:
        """See `Reader.may_deliver` of the batches."""
        return self._keeper.may_deliver()

    def emit(self, events: Iterable[LedgerEvent]) -> None:
        """See `Reader.emit` of the batches."""
        for event in events:
            self._on_event(event)

    def handled(self, duration_s: float) -> None:
        """See `Reader.handled` of the batches."""
        if self.counts is not None:
            with self._lock:
                self.counts.handled(duration_s)

    @property
    def writes_letters(self) -> bool:
        """See `Reader.writes_letters` of the batches."""
        return self._letter_writer is not None

    def touched(self) -> bool:
        """Note that something was settled, by any thread: thousands of records may be, before it is looked at. False:
        the loop that would look is over, without a close, and stores nothing any more.
        """
        # The lock is not held: `_look` lowers the flag before it looks, so what was settled before the flag was seen up
        # is looked at.
        if not self._is_touched:
            self._is_touched = True
            if not self.home.soon(self._look):
                self._is_touched = False
                return False
        return True

    # --- the machine, driven ----------------------------------------------------------------------

    def _look(self) -> None:
        self._is_touched = False
        now_s = self._loop.time()
        with self._lock:  # Other threads settle meanwhile.
            said = self._shard.look(now_s)
        if said:
            self._perform(said)

    def _rang(self) -> None:
        self._tell(machine.TimerFired())

    def _tell(self, given: machine.Input) -> None:
        """Give the shard's machine an input, and do what it says. Raises CheckpointError."""
        now_s = self._loop.time()
        with self._lock:
            said = self._shard.tell(given, now_s)
        self._perform(said)

    def _perform(self, said: list[machine.Output]) -> None:
        for output in said:
            if output is STIR:
                self._stir()
            elif isinstance(output, (Settled, Prepared)):
                if self.counts is not None and isinstance(output, Settled):
                    self.counts.settled_to(output.checkpoint, self._loop.time())
                self._keeper.tell(output)
            else:
                self._do(output)

    def _worth_the_way(self, said: list[machine.Output]) -> list[machine.Output]:
        """Return all outputs but an alarm that is set already, as it is with nearly each batch. It is called with the
        lock.
        """
        return [one for one in said if not (isinstance(one, machine.Alarm) and self._alarm.rings_by(one.at_s))]

    def _perform_soon(self, said: list[machine.Output]) -> None:
        """Do what the machine says on the reader's loop, from any thread, without the lock. Events are emitted at once,
        on this thread, as those of a record that is settled are.
        """
        self.emit(one.event for one in said if isinstance(one, machine.Emit))
        left: list[machine.Output] = [one for one in said if not isinstance(one, machine.Emit)]
        if left:
            self.home.soon(partial(self._perform, left))

    def _do(self, output: machine.Output) -> None:
        match output:
            case machine.Emit(event=event):
                self._on_event(event)
            case Admit():
                self._tell(self._pages.admission.made_of(output))
            case machine.Alarm(at_s=at_s):
                self._alarm.at(at_s)
            case machine.WriteLetter():
                task = spawn(self._write_letter(output), self._fails("the writing of a dead letter"))
                self._letters_out.add(task)
                task.add_done_callback(self._letters_out.discard)
            case machine.DropLetters():
                self._drop_letters()
            case machine.Revoking():
                self._begin_last_words()
            case machine.AskForCallers():
                self._look_around()
            case machine.Drained():
                self._drain_over(output)
            case Answer():
                self._answered(output)
            case machine.TellEnd():
                self._ending = spawn(self._tell_end(), self._fails("what is done before its end is stored"))
            case machine.Over():
                self._is_now_over()
            case machine.GaveUp() | machine.FenceMoved() | machine.Resumed():
                self._say(output)

    def _say(self, output: machine.GaveUp | machine.FenceMoved | machine.Resumed) -> None:
        for listener in self._listeners:
            match output:
                case machine.GaveUp(ending=ending):
                    listener.gave_up(self, ending)
                case machine.FenceMoved(fallen=fallen):
                    listener.fence_moved(self, fallen)
                case machine.Resumed():
                    listener.resumed(self)

    def _is_now_over(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._drop_letters()
        if self._window is not None:
            self._window.cancel()
        if self._pages.room is not None:
            self._pages.room.share.leave()
        self._alarm.cancel()
        self._over.set()
        for listener in self._listeners:
            listener.over(self)

    def _answered(self, answer: Answer) -> None:
        asked = self._asked
        if asked is None or asked.done():
            return
        if answer.error is None:
            asked.set_result(None)
        else:
            asked.set_exception(answer.error)

    async def _tell_end(self) -> None:
        for listener in self._listeners:
            if listener.holds_end:
                await listener.ending(self)
        self._tell(machine.EndTold())

    def _stir(self) -> None:
        self._stirred.set()
        self._signal.set()
        for listener in self._stirring:
            listener.stir(self)

    def _new_ledger(self, after: Checkpoint) -> Ledger[Record]:
        """Return an empty ledger, for what follows ``after``."""
        return Ledger(
            self.stream,
            self.shard_id,
            after,
            self._policy,
            rng=self._rng,
            size_of=held_bytes_of,
            share=None if (room := self._pages.room) is None else room.share,
        )

    async def _write_letter(self, given: machine.WriteLetter) -> None:
        ledger, letter = given.ledger, given.letter
        assert self._letter_writer is not None, "no letter is due where none is written"
        error = await self._letter_writer.write(letter)
        self._tell(LetterWritten(ledger, letter) if error is None else LetterNotWritten(ledger, letter, error))

    def _drop_letters(self) -> None:
        """Stop the writing of letters: the next owner, or the next ledger, delivers their records again."""
        for task in self._letters_out:
            task.cancel()

    async def _pause(self, seconds: float | None) -> None:
        """Wait until something has happened, at most ``seconds`` seconds."""
        self._stirred.clear()
        await wait_set(self._stirred, seconds)


def _seen(answer: asyncio.Future[None]) -> None:
    """Look at the error: where the caller was cancelled, no other part does, and asyncio would log it."""
    if not answer.cancelled():
        answer.exception()


def stopped(stream: str, shard_id: str, ending: GiveUpReason) -> ShardStoppedError:
    """Return the error for a program that asks for records of a shard that the policies have stopped."""
    error_name = type(ending.error).__name__
    why = ending.reason if ending.error is None else f"{ending.reason}: {error_name}, at {raised_at(ending.error)}"
    error = ShardStoppedError(
        f"{stream}, {shard_id}: nothing more is delivered ({why}): mend the cause, and start the consumer anew; or "
        "choose Skip, DeadLetters or GiveUp in place of Stop"
    )
    error.__cause__ = ending.error
    return error


def held_bytes_of(record: Record) -> int:
    """Return the memory of a record, or of a part of one, that stays when those around it are settled."""
    return payload_bytes_of(record) + PLAIN_BYTES + RECORD_BYTES
