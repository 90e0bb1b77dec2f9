"""One shard in one tenure: fetched into its ledger, handed out from there, and checkpointed."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.leases.tenure import Fenced, Lifted, Lost, Stored
from penstock.core.ledger.checkpoints import Checkpoints, Riding
from penstock.core.ledger.ledger import Ledger
from penstock.errors import CheckpointError, PenstockError, ShardReadError
from penstock.runtime.dead_letters.burying import TIMEOUT_S, Burying
from penstock.runtime.shard.admitting import Admission
from penstock.runtime.shard.batch import Batch
from penstock.runtime.shard.fetching import Fetching
from penstock.runtime.shard.reader_hooks import ReaderHooks, stopped
from penstock.runtime.shard.two_phase import TwoPhase, resume
from penstock.runtime.shard.values import StopReading
from penstock.runtime.waiting import Alarm, wait_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from random import Random
    from typing import Any

    from penstock.core.feeding.cursor import Taken
    from penstock.core.feeding.pages import ChildShard
    from penstock.core.leases import LeaseRow
    from penstock.core.leases.tenure import Command
    from penstock.core.ledger.checkpoints import Cadence
    from penstock.core.ledger.endings import Ending
    from penstock.core.ledger.settings import LedgerSettings, OrderPolicy
    from penstock.core.ledger.ticket import Delivery
    from penstock.events import LedgerEvent
    from penstock.model import Position, Record
    from penstock.runtime.dead_letters.destinations import LetterSink
    from penstock.runtime.feeds import FanOutFeed, PollingFeed
    from penstock.runtime.shard.tenure_keeper import TenureKeeper
    from penstock.runtime.shard.two_phase import OnPending, PendingCheckpoint

BATCH_RECORDS_MAX = 10_000
ALARM_S_MIN = 0.01  # what is due by time is looked after at most so often


class ShardReader(ReaderHooks):
    """Hands out the records of a shard while its lease is held, and no longer.

    `next_batch` may be asked by several tasks at once. `run` fetches; it ends when the tenure does.
    """

    def __init__(
        self, keeper: TenureKeeper, feed: PollingFeed | FanOutFeed, *, stream: str, shard_id: str,
        settings: LedgerSettings, cadence: Cadence | None = None, rng: Random,
        on_event: Callable[[LedgerEvent], None], batch_records_max: int = BATCH_RECORDS_MAX,
        read_ahead: Iterable[Taken] = (),
        on_end: Callable[[tuple[ChildShard, ...]], Awaitable[None]] | None = None,
        checkpoint_when_told: bool = False, letters: LetterSink | None = None, letter_timeout_s: float = TIMEOUT_S,
        on_ending: Callable[[Ending], None] | None = None, on_pending: OnPending | None = None,
        admission: Admission | None = None,
    ) -> None:  # fmt: skip
        """``read_ahead``: pages that the feed has given before; some may lie before the checkpoint. ``on_end``: awaited
        when the last record was fetched, before the shard may be checkpointed as ended. ``checkpoint_when_told``: what
        is settled is checkpointed no further than `checkpoint_to` says. ``letters``: where dead letters go.
        ``on_ending`` hears, once, that the ledger's policies want the shard given up, or stopped. ``on_pending`` says
        what becomes of a checkpoint that the former owner left pending. ``admission``: what of a page is handed out.
        """
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._keeper = keeper
        self.stream = stream
        self.shard_id = shard_id
        checkpoint = keeper.row.checkpoint
        self._settings, self._rng, self._on_event = settings, rng, on_event
        self._checkpoints = Checkpoints(cadence or Riding(), checkpoint, self._loop.time())
        begins = resume(
            keeper.row, self._checkpoints, stream=stream, shard_id=shard_id, on_pending=on_pending, on_event=on_event
        )
        self.ledger = self._new_ledger(begins.settled, None)
        self._batch_records_max = batch_records_max
        self._fetching = Fetching(
            feed, read_ahead, begins.wanted, may=self._may_fetch, admit=self._admit, pause=self._pause,
            on_end=self._fetched,
        )  # fmt: skip
        self._admission = admission or Admission(on_event=on_event)
        self._admission.listen(self._window_known)
        self._on_end = on_end
        self._over = asyncio.Event()
        self._stirred = asyncio.Event()
        self._alarm = Alarm(self._loop, self._alarmed)
        self.checkpoint_max: Checkpoint | None = checkpoint if checkpoint_when_told else None
        """Nothing behind this is checkpointed, settled or not, nor is the shard stored as ended; see `checkpoint_to`.
        None: what is settled is checkpointed.
        """
        self._ending: asyncio.Task[None] | None = None
        self._order: OrderPolicy | None = None
        self._settled_before = 0  # records, by ledgers that a seek has closed
        self._letters, self._letter_timeout_s = letters, letter_timeout_s
        self._burying: Burying | None = None
        self._bury()
        self._on_ending = on_ending
        self._ending_told = self._stop_raised = False
        self._phases = TwoPhase(
            self._checkpoints, keeper, where=f"{stream}, {shard_id}", safe=lambda: self._checkpointable,
            came_to=lambda: self.ledger.came_to, told=lambda: self._told, on_free=self._on_settled,
        )  # fmt: skip
        self._told = checkpoint  # what the keeper knows to be safe
        self._writing: Checkpoint | None = None  # what it was told to write by itself
        if begins.settled > checkpoint:
            self._tell(self._checkpoints.riding(begins.settled), at_once=True)

    # --- for those who read ---------------------------------------------------------------------

    def take(self, records_max: int | None = None) -> Batch[Record] | None:
        """The next records, if there are any to be had now; see ``on_stir`` for when to ask again. No more than
        ``records_max``, unless they failed as a larger batch.

        Raises, once, the error for which the policies have stopped the shard (`Stop`).
        """
        now_s = self._loop.time()
        if self.is_over or self.paused or not self._keeper.may_deliver():
            return None
        ledger = self.ledger
        ledger.check(now_s)
        if ledger.ending is not None:
            self._ends(ledger.ending)
            if ledger.ending.stops and not self._stop_raised:
                self._stop_raised = True
                raise stopped(self.stream, self.shard_id, ledger.ending)
            return None
        delivery, values = self._next(now_s, min(records_max or self._batch_records_max, self._batch_records_max))
        if delivery is None:
            if not ledger.draining:  # else what waits for its next try is due, and stays so
                self._alarm.at(ledger.next_at_s())
            return None
        if not self._alarm.is_set:  # what is out may stall, though nobody asks for more
            self._alarm.at(ledger.next_check_at_s())
        self.records_delivered += len(delivery.records)
        self.batches_delivered += 1
        return Batch(
            self.ledger,
            delivery,
            values=values,
            stream=self.stream,
            shard_id=self.shard_id,
            token=self._keeper.token,
            millis_behind_latest=self.millis_behind_latest,
            clock=self._loop.time,
            on_settled=self._on_settled,
            prepare=self.prepare,
        )

    async def next_batch(self) -> Batch[Record] | None:
        """The next records, waited for; None when there will be none in this tenure. Raises what ended the reading,
        and ShardStoppedError where the policies have stopped the shard (`Stop`).
        """
        while not self.is_over:
            if (ending := self.ledger.ending) is not None and ending.stops:
                self._stop_raised = True
                raise stopped(self.stream, self.shard_id, ending)
            batch = self.take()
            if batch is not None:
                return batch
            if self.checkpoint_max is not None and self.ledger.safe.is_end:
                return None
            with self.asks():
                await self._pause(None)
        if self.failure is not None:
            raise self.failure
        return None

    async def __aiter__(self) -> AsyncIterator[Batch[Record]]:
        """Batches until the tenure ends. Who leaves early gives back what he did not settle: it is handed out again."""
        self.is_iterated = True
        try:
            while (batch := await self.next_batch()) is not None:
                yield batch
        finally:
            self.is_iterated = False
            self.take_back()
            if self.on_left is not None and not self.is_over:
                self.on_left(self)

    def take_back(self) -> None:
        """Whoever iterated has left: what is out is handed out again, and what is settled is checkpointed at once."""
        if self.is_over:
            return
        self.ledger.take_back(self._loop.time())
        self._tell(self._checkpoints.riding(self._checkpointable), at_once=True)
        self._stir()

    # --- two phases -----------------------------------------------------------------------------

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint that is stored as pending: prepared in this tenure, or left by a former owner and kept."""
        return self._phases.pending

    async def prepare(self, position: Position, state: bytes | None = None) -> PendingCheckpoint:
        """Store a pending checkpoint up to and with this position, with bytes of the application's for whoever comes
        next. Until it is committed or abandoned nothing else is checkpointed.

        Raises CheckpointError: for a position that is checkpointed already, or was not fetched yet, while another call
        is on its way, and when the shard is lost.
        """
        return await self._phases.prepare(Checkpoint.at(position), state)

    def checkpoint_to(self, checkpoint: Checkpoint) -> None:
        """From now on checkpoints go so far, if it is settled, and no further: say later what is to be remembered."""
        self.checkpoint_max = checkpoint
        self._on_settled()

    @property
    def stored(self) -> Checkpoint:
        """The checkpoint that the lease is known to hold."""
        return self._keeper.row.checkpoint

    async def until_stored(self, checkpoint: Checkpoint) -> bool:
        """Wait until the lease holds this checkpoint, or a later one. False when the tenure ended before."""
        while self.stored < checkpoint and not self.is_over:
            await self._pause(None)
        return self.stored >= checkpoint

    @property
    def settled(self) -> Checkpoint:
        """How far all is settled; once that is stored, a new owner goes on behind it."""
        return self.ledger.safe

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint, order: OrderPolicy | None = None) -> None:
        """Go on with another feed, which reads what follows ``after``; and in another order, if one is given.

        What was fetched is dropped, and settling what is out counts for nothing any more. The stored checkpoint never
        goes back: it stands until what is settled passes it. Raises CheckpointError while a checkpoint is pending.
        """
        if self.is_over:
            return
        if not self._phases.idle:
            raise CheckpointError(
                f"{self.stream}, {self.shard_id}: commit or abandon the pending checkpoint before a seek"
            )
        self._admission.forget()
        self._begin_anew(after, order)
        self._fetching.seek(feed, after)

    def use_order(self, order: OrderPolicy) -> bool:
        """Hand out in this order. False when records came already: then only a `seek` changes it."""
        if self.ledger.came_to != self._fetching.after:
            return self.ledger.settings.order == order
        self._begin_anew(self._fetching.after, order)
        return True

    @property
    def row(self) -> LeaseRow:
        """The lease as it was last confirmed."""
        return self._keeper.row

    def pause(self, paused: bool = True) -> None:
        """Hand out nothing for now (False: again)."""
        self.paused = paused
        self._stir()

    @property
    def token(self) -> int:
        """Grows with every owner of the shard."""
        return self._keeper.token

    # --- for the worker -------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch, as far as there is room, until the tenure ends. Raises ShardReadError."""
        try:
            await self._fetching.run()
        except Exception as error:
            told = error if isinstance(error, PenstockError) else type(error).__name__
            self.failure = ShardReadError(
                f"{self.stream}, {self.shard_id}: reading has ended: {told}", stream=self.stream, shard_id=self.shard_id
            )
            raise self.failure from error
        finally:
            await self._admission.close()

    def heard(self, command: Command) -> None:
        """What the tenure says."""
        self._phases.heard(command)
        if isinstance(command, Stored):
            if self._writing is not None and self._writing <= command.checkpoint:
                self._writing = None
                self._checkpoints.wrote(self._loop.time())
            elif self._keeper.row.pending is None:
                self._checkpoints.carried(command.checkpoint, self._loop.time())
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
            self.ledger.close(reason)
            self._phases.stop(reason)
            self._admission.stop()
            if self._burying is not None:
                self._burying.stop()
            self._alarm.cancel()
            self._over.set()
            if self.on_over is not None:
                self.on_over(self)
            self._stir()

    async def over(self) -> None:
        """Wait until nothing more is handed out."""
        await self._over.wait()

    async def drain(self, deadline_s: float) -> bool:
        """Hand out no more; wait until what is out is settled, letters are written, and nothing is pending. False when
        the deadline came first.
        """
        self.ledger.draining = self.ledger.filling = True
        end_s = self._loop.time() + deadline_s
        if self.before_leaving is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline_s):
                    await self.before_leaving()
        while not self._is_drained and (wait_s := end_s - self._loop.time()) > 0:
            await self._pause(wait_s)
        return self._is_drained

    @property
    def _is_drained(self) -> bool:  # once it is over, what is out counts for nothing any more
        gaps = self.ledger.has_gaps and not self.paused and (self.asking or self.is_asked())
        return self.is_over or (self.ledger.drained and self._phases.idle and not gaps)

    def resume(self) -> None:
        """Hand out again, after a drain that came to nothing."""
        self.ledger.draining = False
        if self.on_resume is not None:
            self.on_resume()
        self._stir()

    def hand_over(self) -> None:
        """The lease is about to go: tell the keeper the last checkpoint. Nothing more is handed out."""
        self.ledger.draining, self.ledger.filling = True, False
        self._tell(self._checkpoints.riding(self._checkpointable))

    def _begin_anew(self, after: Checkpoint, order: OrderPolicy | None) -> None:
        """With an empty ledger."""
        self._order = order or self._order
        former = self.ledger
        self._settled_before += former.settled_records
        former.close("the shard is read from another place on (seek)")
        self.ledger = self._new_ledger(after, self._order)
        self.ledger.draining, self.ledger.filling = former.draining, former.filling
        self._bury()
        self._on_settled()

    def _new_ledger(self, after: Checkpoint, order: OrderPolicy | None) -> Ledger[Record]:
        settings = self._settings if order is None else replace(self._settings, order=order)
        return Ledger(
            self.stream, self.shard_id, after, settings, rng=self._rng, on_event=self._on_event,
            size_of=lambda record: len(record.data),
        )  # fmt: skip

    def _bury(self) -> None:
        """Write the dead letters of the present ledger, if there is somewhere to write them."""
        if self._burying is not None:
            self._burying.stop()
        self.ledger.buries = self._letters is not None
        if self._letters is not None:
            self._burying = Burying(
                self.ledger, self._letters, stream=self.stream, shard_id=self.shard_id,
                worker=self._keeper.tenure.worker, token=self.token, timeout_s=self._letter_timeout_s,
                on_written=self._on_settled,
            )  # fmt: skip

    # --- parts ----------------------------------------------------------------------------------

    @property
    def _checkpointable(self) -> Checkpoint:
        safe = self.ledger.safe
        return safe if self.checkpoint_max is None else min(safe, self.checkpoint_max)

    def _next(self, now_s: float, records_max: int) -> tuple[Delivery[Record] | None, Sequence[Any] | None]:
        """The next delivery, and its values where there is somebody to make them."""
        while (delivery := self.ledger.deliver(now_s, records_max)) is not None:
            if self.values is None:
                return delivery, None
            try:
                delivery, values = self.values.of(self.ledger, delivery, now_s)
            except StopReading as stopped:
                self.stop("a record cannot be read", stopped.error)
                return None, None
            self._on_settled()
            if delivery.records:
                return delivery, values
        return None, None

    def _may_fetch(self) -> bool | None:
        """None: never again; False: not now."""
        may = self.ledger.has_room and self._keeper.may_deliver()
        return None if self.is_over else may and not self._admission.waits

    def _admit(self, taken: Taken, records: Sequence[Record], ends_at: Position | None) -> None:
        self.millis_behind_latest = taken.millis_behind_latest
        if self._admission.admit(self.ledger, taken, records, ends_at, self._loop.time()):
            self._on_settled() if self._admission.settles else self._stir()

    def _window_known(self) -> None:
        self._admission.go_on(self.ledger, self._loop.time())
        self._on_settled()

    async def _fetched(self, children: tuple[ChildShard, ...]) -> None:
        """To the shard's end."""
        self.children = children
        if self._on_end is not None:
            await self._on_end(children)
        await self._admission.over(self.ledger, self._loop.time)
        self.ledger.end()
        self._on_settled()

    def _on_settled(self) -> None:
        """Tell the keeper how far it is safe: to ride on the next renewal, or by a write of its own if that is due."""
        ledger, checkpoints = self.ledger, self._checkpoints
        if self._burying is not None and not self.is_over:
            self._burying.work()
            self._alarm.at(ledger.next_letter_at_s())
        if ledger.ending is not None:
            self._ends(ledger.ending)
        safe, records = self._checkpointable, self._settled_before + ledger.settled_records
        if safe.is_end and self.before_end is not None:
            if self._ending is None:
                self._ending = self._loop.create_task(self._before_end(self.before_end))
            return
        riding = checkpoints.riding(safe)
        if riding is not None:
            due = safe.is_end or checkpoints.due(safe, records, self._loop.time())
            if due and self._writing is None:
                checkpoints.writing(riding, records)
                self._writing = riding
            if due or riding != self._told:
                self._tell(riding, at_once=due)
                if checkpoints.timed and not due:
                    self._alarm.at(checkpoints.next_at_s(safe))
        self._stir()

    def _tell(self, riding: Checkpoint | None, *, at_once: bool = False) -> None:
        """Tell the keeper how far a write may go; nothing while a checkpoint is pending."""
        if riding is not None:
            self._told = riding
            self._keeper.settled(riding, at_once=at_once, commit=self._checkpoints.clears)

    async def _before_end(self, told: Callable[[], Awaitable[None]]) -> None:
        await told()
        self.before_end = None
        self._on_settled()

    def _stir(self) -> None:
        self._stirred.set()
        if self.on_stir is not None:
            self.on_stir(self)

    def _alarmed(self) -> None:
        self.ledger.check(self._loop.time())
        self._on_settled()
        if not self.is_over:
            self._alarm.at(max(self._next_s(), self._loop.time() + ALARM_S_MIN))

    def _next_s(self) -> float:
        """When something is to be done, though nobody asks for records, and nobody settles any."""
        at_s = min(self.ledger.next_check_at_s(), self._checkpoints.next_at_s(self._checkpointable))
        return at_s if self._burying is None else min(at_s, self.ledger.next_letter_at_s())

    def _ends(self, ending: Ending) -> None:
        """The policies have had enough of the shard."""
        if not self._ending_told:
            self._ending_told = True
            if self._on_ending is not None:
                self._on_ending(ending)

    async def _pause(self, seconds: float | None) -> None:
        """Until something has happened, or so long."""
        self._stirred.clear()
        await wait_set(self._stirred, seconds)
