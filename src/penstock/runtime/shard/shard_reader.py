"""One shard in one tenure: fetched into its ledger, handed out from there, and checkpointed."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.leases.tenure import Fenced, Lifted, Lost, PendingStored, Stored
from penstock.core.shard import checkpoints
from penstock.core.shard.checkpoints import Answer, Flush, Look, Prepare, Progress, SetBound
from penstock.errors import CheckpointError, ShardReadError
from penstock.events import HandoverWaits
from penstock.runtime.shard.admitting import Admission
from penstock.runtime.shard.batch import Batch
from penstock.runtime.shard.filling import Filling
from penstock.runtime.shard.ledgers import Ledgers
from penstock.runtime.shard.reader_hooks import ReaderHooks, stopped
from penstock.runtime.shard.two_phase import PendingCheckpoint, choose
from penstock.runtime.shard.values import StopReading
from penstock.runtime.telling import told
from penstock.runtime.waiting import Alarm, Breath, wait_set
from penstock.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
    from random import Random
    from typing import Any

    from penstock.core.feeding.buffer import Share
    from penstock.core.feeding.cursor import Taken
    from penstock.core.feeding.pages import ChildShard
    from penstock.core.leases.tenure import Command
    from penstock.core.ledger.endings import Ending
    from penstock.core.ledger.ledger import Ledger
    from penstock.core.ledger.settings import OrderPolicy
    from penstock.core.ledger.ticket import Delivery
    from penstock.core.shard.checkpoints import Pending
    from penstock.events import LedgerEvent
    from penstock.model import Position, Record
    from penstock.runtime.feeds import FanOutFeed, PollingFeed
    from penstock.runtime.shard.choices import ReaderChoices
    from penstock.runtime.shard.tenure_keeper import TenureKeeper
    from penstock.tasks import Heard

DRAIN_TOLD_AFTER_S = 1.0
"""What a drain waits for is told when it has taken so long."""
ALARM_S_MIN = 0.01  # what is due by time is looked after at most so often
GAPS_LOOK_S = 0.1
"""A handover that waits for callers to take the rest looks so often whether they are still there."""


class ShardReader(ReaderHooks):
    """Hands out the records of a shard while its lease is held, and no longer.

    `next_batch` may be asked by several tasks at once. `run` fetches; it ends when the tenure does.
    """

    def __init__(
        self,
        keeper: TenureKeeper,
        feed: PollingFeed | FanOutFeed,
        choices: ReaderChoices,
        *,
        stream: str,
        shard_id: str,
        rng: Random,
        on_event: Callable[[LedgerEvent], None],
        read_ahead: Iterable[Taken] = (),
        on_end: Callable[[tuple[ChildShard, ...]], Awaitable[None]] | None = None,
        on_ending: Callable[[Ending], None] | None = None,
        admission: Admission | None = None,
    ) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before the checkpoint. ``on_end``: awaited
        when the last record was fetched, before the shard may be checkpointed as ended. ``on_ending`` hears, once, that
        the ledger's policies want the shard given up, or stopped. ``admission``: what of a page is handed out.
        """
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._keeper = keeper
        self.stream = stream
        self.shard_id = shard_id
        self._batch_records_max = choices.batch_records_max
        self._on_ending = on_ending
        self._over = asyncio.Event()
        self._is_revoking = False
        self._drain_told: asyncio.TimerHandle | None = None
        self._is_touched = False
        self._stirred = asyncio.Event()
        self.breath = Breath()
        self._on_event = on_event
        self._alarm = Alarm(self._loop, self._alarmed)
        self._ending: asyncio.Task[None] | None = None
        self._ending_told: Ending | None = None  # of a ledger: after a seek there may be another one
        self._stop_raised: Ending | None = None
        self._asked: asyncio.Future[None] | None = None  # what a caller has asked of the checkpoints' machine
        begins = self._begin(choices, rng, on_event, None if feed.room is None else feed.room.share)
        self._filling = Filling(
            feed,
            read_ahead,
            begins.wanted,
            self._ledgers,
            admission or Admission(on_event=on_event),
            where=(stream, shard_id),
            may=self._may_fetch,
            pause=self._pause,
            on_new=self._stir,
            on_settled=self._on_settled,
            on_end=on_end,
        )
        if begins.settled > keeper.row.checkpoint:
            self._checkpoint(Flush(at_once=True))

    def _begin(
        self, choices: ReaderChoices, rng: Random, on_event: Callable[[LedgerEvent], None], share: Share | None
    ) -> checkpoints.Begun:
        """Begin a ledger behind the records that the former owner has settled."""
        stream, shard_id, keeper = self.stream, self.shard_id, self._keeper
        choice = choose(keeper.row, choices.on_pending, stream=stream, shard_id=shard_id, on_event=on_event)
        begins = checkpoints.begin(
            keeper.row,
            choice,
            where=f"{stream}, {shard_id}",
            cadence=choices.cadence,
            bound=keeper.row.checkpoint if choices.checkpoint_when_told else None,
            now_s=self._loop.time(),
        )
        self._checkpoints = begins.checkpoints
        self._ledgers = Ledgers(
            begins.settled,
            choices,
            stream=stream,
            shard_id=shard_id,
            rng=rng,
            on_event=on_event,
            worker=keeper.tenure.worker,
            token=keeper.token,
            on_written=self._on_settled,
            on_failed=self._fails("the writing of a dead letter"),
            share=share,
        )
        return begins

    # --- for the callers that read --------------------------------------------------------------

    def take(self, records_max: int | None = None) -> Batch[Record] | None:
        """The next records, if there are any to be had now; see ``on_stir`` for when to ask again. No more than
        ``records_max``, unless they failed as a larger batch.

        Raises, once, the error for which the policies have stopped the shard (`Stop`).
        """
        now_s = self._loop.time()
        with self._lock:
            if self.is_over or self.paused or not self._keeper.may_deliver():
                return None
            ledger = self._ledgers.current
            ledger.check(now_s)
            if (ending := ledger.ending) is not None:
                self.home.soon(lambda: self._ends(ending))
                if ending.stops and self._stop_raised is not ending:
                    self._stop_raised = ending
                    raise stopped(self.stream, self.shard_id, ending)
                return None
        delivery, values = self._next(
            ledger, now_s, min(records_max or self._batch_records_max, self._batch_records_max)
        )
        with self._lock:
            if delivery is None:
                if not ledger.draining:  # else what waits for its next try is due, and stays so
                    self._alarm_at(ledger.next_at_s())
                return None
            if not self._alarm.is_set:  # what is out may stall, though no caller asks for more
                self._alarm_at(ledger.next_check_at_s())
            self.records_delivered += len(delivery.records)
            self.batches_delivered += 1
        return Batch(
            ledger,
            delivery,
            values=values,
            stream=self.stream,
            shard_id=self.shard_id,
            token=self._keeper.token,
            millis_behind_latest=self._filling.millis_behind_latest,
            clock=self._loop.time,
            may_deliver=self._keeper.may_deliver,
            on_settled=self._touched,
            prepare=self.prepare,
            lock=self._lock,
        )

    async def next_batch(self) -> Batch[Record] | None:
        """The next records, waited for; None when there will be none in this tenure. Raises what ended the reading,
        and ShardStoppedError where the policies have stopped the shard (`Stop`).
        """
        with self._lock:
            self.asking.once()
        return await self._next_batch()

    async def _next_batch(self) -> Batch[Record] | None:
        await self.breath.take()
        while not self.is_over:
            seen = self._signal.count  # before the look, which may itself end the reading
            if (ending := self.ledger.ending) is not None and ending.stops:
                self._stop_raised = ending
                raise stopped(self.stream, self.shard_id, ending)
            batch = self.take()
            if batch is not None:
                return batch
            if self._checkpoints.bound is not None and self.ledger.safe.is_end:
                return None
            await self._signal.wait(seen)
            self.breath.rested()
        if self.failure is not None:
            raise self.failure
        return None

    async def __aiter__(self) -> AsyncGenerator[Batch[Record], None]:
        """Batches until the tenure ends. What a program that leaves early did not settle is handed out again."""
        self.is_iterated = True
        try:
            with self.asking.lasts() as asked:
                while (batch := await self._next_batch()) is not None:
                    yield batch
                    asked()
        finally:
            self.is_iterated = False
            self.take_back()
            if self.on_left is not None and not self.is_over:
                self.on_left(self)

    def take_back(self) -> None:
        """The program has left the iteration: what is out comes again, and what is settled is checkpointed at once."""
        with self._lock:
            if self.is_over:
                return
            self.ledger.take_back(self._loop.time())
        self.home.soon(self._taken_back)

    def _taken_back(self) -> None:
        if not self.is_over:
            self._checkpoint(Flush(at_once=True))
            self._stir()

    # --- two phases -----------------------------------------------------------------------------

    async def prepare(self, position: Position, state: bytes | None = None) -> PendingCheckpoint:
        """Store a pending checkpoint up to and with this position, with bytes of the application's for the next
        owner. Until it is committed or abandoned nothing else is checkpointed.

        Raises CheckpointError: for a position that is checkpointed already, or was not fetched yet, while another call
        is on its way, and when the shard is lost.
        """
        prepared = await self.ask(Prepare(Checkpoint.at(position), state))
        assert prepared is not None
        return PendingCheckpoint(self, prepared)

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint that is stored as pending: prepared in this tenure, or left by a former owner and kept."""
        found = self._checkpoints.pending
        return None if found is None else PendingCheckpoint(self, found)

    async def ask(self, given: checkpoints.Prepare | checkpoints.Commit | checkpoints.Abandon) -> Pending | None:
        """Ask for a step of a checkpoint in two phases, and wait until it is stored. Returns what was pending then.
        Raises CheckpointError.
        """
        return await self.home.run(lambda: self._ask(given))

    async def _ask(self, given: checkpoints.Input) -> Pending | None:
        self._checkpoint(given)
        pending, self._asked = self._checkpoints.pending, self._loop.create_future()
        self._asked.add_done_callback(_seen)
        # The write goes on where the caller does not: a prepare that is cancelled is found in `pending`.
        await asyncio.shield(self._asked)
        return pending

    # --- how far ----------------------------------------------------------------------------------

    def checkpoint_to(self, checkpoint: Checkpoint) -> None:
        """From now on checkpoints go so far, if all before is settled, and no further; a later call moves the bound."""
        with self._lock:
            self._checkpoint(SetBound(checkpoint))
        self._touched()

    async def until_stored(self, checkpoint: Checkpoint) -> bool:
        """Wait until the lease holds this checkpoint, or a later one. False when the tenure ended before."""
        while True:
            seen = self._signal.count
            if self.stored >= checkpoint or self.is_over:
                break
            await self._signal.wait(seen)
        return self.stored >= checkpoint

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint, order: OrderPolicy | None = None) -> None:
        """Go on with another feed, which reads what follows ``after``; and in another order, if one is given.

        What was fetched is dropped, and settling what is out counts for nothing any more. The stored checkpoint never
        goes back: it stands until what is settled passes it. Raises CheckpointError while a checkpoint is pending.
        """
        if self.is_over:
            return
        if not self._checkpoints.idle:
            raise CheckpointError(
                f"{self.stream}, {self.shard_id}: commit or abandon the pending checkpoint before a seek"
            )
        self._filling.forget()
        self._ledgers.begin_anew(after, order)
        self._on_settled()
        self._filling.seek(feed, after)

    def use_order(self, order: OrderPolicy) -> bool:
        """Hand out in this order. False when records came already: then only a `seek` changes it."""
        if self.ledger.came_to != self._filling.after:
            return self.ledger.settings.order == order
        self._ledgers.begin_anew(self._filling.after, order)
        self._on_settled()
        return True

    def pause(self, paused: bool = True) -> None:
        """Hand out nothing for now (False: again)."""
        self.paused = paused
        self.home.soon(self._stir)

    # --- for the worker -------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch, as far as there is room, until the tenure ends. Raises ShardReadError."""
        try:
            await self._filling.run()
        except ShardReadError as error:
            self.failure = error
            raise

    def heard(self, command: Command) -> None:
        """What the tenure says."""
        if isinstance(command, Stored | PendingStored):
            self._checkpoint(command)
        if isinstance(command, Stored):
            if command.checkpoint.is_end:
                self.has_ended = True
                self.stop("the shard has ended")
            else:
                self._on_settled()
        elif isinstance(command, Lost):
            self.lost = command.why
            self.stop(f"the lease was lost: {command.why.value}")
        elif isinstance(command, Fenced | Lifted):
            if self.on_fence is not None:
                self.on_fence(isinstance(command, Fenced))
            self._stir()

    def stop(self, reason: str, failure: BaseException | None = None) -> None:
        """Hand out nothing more. What is settled by now is the last checkpoint; what is not is told. ``failure`` is
        raised where records are asked for.
        """
        if not self.is_over:
            self.is_over = True
            self.over_because = reason
            self.failure = failure or self.failure
            if self._ending is not None:
                self._ending.cancel()
            self._ledgers.close(reason)
            self._checkpoint(checkpoints.Close(reason))
            self._filling.stop()
            self._alarm.cancel()
            self._over.set()
            if self.on_over is not None:
                self.on_over(self)
            self._stir()

    def _fails(self, work: str) -> Heard:
        """A handler for a task without which the shard would stand still: it is let go, and what ended the task is
        raised where records are asked for.
        """

        def then(error: BaseException) -> None:
            self.stop(f"{work} has failed: {type(error).__name__}", error)

        follows = "the shard is let go, and left to others for a while"
        return told(self._on_event, (self.stream, self.shard_id), work, follows, then)

    def tell_failed(self, work: str, what_follows: str) -> Heard:
        """A handler for a task after which reading goes on."""
        return told(self._on_event, (self.stream, self.shard_id), work, what_follows)

    async def over(self) -> None:
        """Wait until nothing more is handed out."""
        if asyncio.get_running_loop() is self._loop:
            await self._over.wait()
            return
        while True:  # asyncio's own events wake the tasks of one loop only
            seen = self._signal.count
            if self.is_over:
                return
            await self._signal.wait(seen)

    async def drain(self, deadline_s: float) -> bool:
        """Hand out no more, but for what lies before records that were handed out, while there is a caller that takes
        it: that would have them come again. Wait until what is out is settled, letters are written, and nothing is
        pending. False when the deadline came first.
        """
        self.ledger.draining = self.ledger.filling = True
        end_s = self._loop.time() + deadline_s
        self._tell_drain_in(DRAIN_TOLD_AFTER_S, end_s)
        try:
            if self.before_leaving is not None:
                self._is_revoking = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(deadline_s):
                        await self.before_leaving()
                self._is_revoking = False
            while not self._is_drained and (wait_s := end_s - self._loop.time()) > 0:
                # Nothing tells when a task or a thread ends that was expected to ask again.
                await self._pause(min(wait_s, GAPS_LOOK_S) if self.ledger.has_gaps else wait_s)
        finally:
            if self._drain_told is not None:
                self._drain_told.cancel()
        return self._is_drained

    def _tell_drain_in(self, seconds: float, end_s: float) -> None:
        self._drain_told = self._loop.call_later(seconds, self._tell_drain, end_s)

    def _tell_drain(self, end_s: float) -> None:
        """Say what a drain waits for, when it lasts."""
        ledger, left_s = self.ledger, end_s - self._loop.time()
        if self._is_revoking:
            waits_for, for_s = "on_shards_revoked", DRAIN_TOLD_AFTER_S
            if self.calling is not None:
                # A loop with a thousand shards to let go takes seconds to come to the call, and back from it. That is
                # not the program's.
                waits_for, for_s = self.calling() or (waits_for, 0.0)
            if for_s < DRAIN_TOLD_AFTER_S:
                self._tell_drain_in(DRAIN_TOLD_AFTER_S - for_s, end_s)
                return
        elif self._is_drained:
            return
        elif ledger.out:
            waits_for = "handlers"
        else:
            waits_for = "dead letters" if self._checkpoints.idle else "a pending checkpoint"
        waits = HandoverWaits(self.stream, self.shard_id, waits_for, ledger.out, ledger.oldest, left_s)
        self._on_event(waits)

    @property
    def _is_drained(self) -> bool:  # once it is over, what is out counts for nothing any more
        gaps = self.ledger.has_gaps and not self.paused and (self.asking or self.is_asked())
        return self.is_over or (self.ledger.drained and self._checkpoints.idle and not gaps)

    def resume(self) -> None:
        """Hand out again, after a drain that came to nothing."""
        self.ledger.draining = False
        if self.on_resume is not None:
            self.on_resume()
        self._stir()

    def hand_over(self) -> None:
        """The lease is about to go: tell the keeper the last checkpoint. Nothing more is handed out."""
        self.ledger.draining, self.ledger.filling = True, False
        self._checkpoint(Flush())

    # --- parts ----------------------------------------------------------------------------------

    def _next(
        self, ledger: Ledger[Record], now_s: float, records_max: int
    ) -> tuple[Delivery[Record] | None, Sequence[Any] | None]:
        """The next delivery, and its values where a deserializer makes them."""
        while True:
            with self._lock:
                delivery = ledger.deliver(now_s, records_max)
            if delivery is None:
                return None, None
            if self.values is None:
                return delivery, None
            try:
                delivery, values = self.values.of(ledger, delivery, now_s, self._lock)
            except StopReading as stopped:
                self.home.soon(partial(self.stop, "a record cannot be read", stopped.error))
                return None, None
            self._touched()
            if self.is_over:  # meanwhile
                return None, None
            if delivery.records:
                return delivery, values

    def _may_fetch(self) -> bool | None:
        return None if self.is_over else self._keeper.may_deliver()

    def _touched(self) -> None:
        """Something was settled, from outside maybe: thousands of records may be, before it is looked at."""
        if not self._is_touched:
            self._is_touched = True
            self.home.soon(self._look)

    def _look(self) -> None:
        self._is_touched = False
        self._on_settled()

    def _alarm_at(self, time_s: float) -> None:
        if not self._alarm.rings_by(time_s):
            self.home.soon(lambda: self._alarm.at(time_s))

    def _on_settled(self) -> None:
        """Something may be settled, or given up: see what follows from it."""
        ledgers = self._ledgers
        ledger = ledgers.current
        if ledgers.buries and not self.is_over:
            self._alarm.at(ledgers.write_letters())
        if ledger.ending is not None:
            self._ends(ledger.ending)
        if self.before_end is not None and self._ending is None and ledger.safe.is_end:
            self._ending = spawn(
                self._before_end(self.before_end), self._fails("what is done before its end is stored")
            )
        self._checkpoint(Look())
        self._stir()

    def _progress(self) -> Progress:
        ledger = self._ledgers.current
        safe = ledger.safe
        if safe.is_end and self.before_end is not None:
            safe = ledger.safe_record
        return Progress(safe, ledger.came_to, self._ledgers.settled_records)

    def _checkpoint(self, given: checkpoints.Input) -> None:
        """Give the checkpoints' machine an input, and do what it says. Raises CheckpointError."""
        progress = self._progress()
        self._checkpoints, outputs = checkpoints.step(self._checkpoints, given, progress, self._loop.time())
        if not outputs:
            return
        for output in outputs:
            if isinstance(output, Answer):
                self._answered(output)
            else:
                self._keeper.tell(output)
        self._alarm.at(self._checkpoints.wake_at_s(progress))

    def _answered(self, answer: Answer) -> None:
        asked = self._asked
        if asked is None or asked.done():
            return
        if answer.error is None:
            asked.set_result(None)
        else:
            asked.set_exception(answer.error)

    async def _before_end(self, told: Callable[[], Awaitable[None]]) -> None:
        await told()
        self.before_end = None
        self._on_settled()

    def _stir(self) -> None:
        self._stirred.set()
        self._signal.set()
        if self.on_stir is not None:
            self.on_stir(self)

    def _alarmed(self) -> None:
        self.ledger.check(self._loop.time())
        self._on_settled()
        if not self.is_over:
            next_s = min(
                self.ledger.next_check_at_s(),
                self._checkpoints.wake_at_s(self._progress()),
                self._ledgers.next_letter_at_s,
            )
            self._alarm.at(max(next_s, self._loop.time() + ALARM_S_MIN))

    def _ends(self, ending: Ending) -> None:
        """The policies have had enough of the shard."""
        if self._ending_told is not ending:
            self._ending_told = ending
            if self._on_ending is not None:
                self._on_ending(ending)

    async def _pause(self, seconds: float | None) -> None:
        """Wait until something has happened, at most so long."""
        self._stirred.clear()
        await wait_set(self._stirred, seconds)


def _seen(answer: asyncio.Future[None]) -> None:
    """Look at the error: where the caller was cancelled, no other part does, and asyncio would log it."""
    if not answer.cancelled():
        answer.exception()
