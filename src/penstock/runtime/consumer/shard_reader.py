"""One shard in one tenure: fetched into its ledger, handed out from there, and checkpointed."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from typing import TYPE_CHECKING

from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.leases.tenure import Fenced, Lifted, Lost, Stored
from penstock.core.ledger.checkpoints import Checkpoints, Riding
from penstock.core.ledger.ledger import Ledger
from penstock.core.ledger.resuming import behind
from penstock.errors import PenstockError, ShardReadError, ShardStoppedError
from penstock.runtime.consumer.batch import Batch
from penstock.runtime.consumer.burying import TIMEOUT_S, Burying
from penstock.runtime.consumer.lifecycle import Origin
from penstock.runtime.consumer.two_phase import TwoPhase
from penstock.runtime.consumer.values import StopReading
from penstock.runtime.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from random import Random
    from typing import Any

    from penstock.core.feeding.cursor import Taken
    from penstock.core.feeding.pages import ChildShard
    from penstock.core.leases.tenure import Command, Loss
    from penstock.core.ledger.checkpoints import Cadence
    from penstock.core.ledger.ledger import Ending
    from penstock.core.ledger.settings import LedgerSettings
    from penstock.core.ledger.ticket import Delivery
    from penstock.events import LedgerEvent
    from penstock.model import Position, Record
    from penstock.runtime.consumer.dead_letters import LetterSink
    from penstock.runtime.consumer.tenure_keeper import TenureKeeper
    from penstock.runtime.consumer.two_phase import PendingCheckpoint
    from penstock.runtime.consumer.values import Values
    from penstock.runtime.feeds import FanOutFeed, PollingFeed

BATCH_RECORDS_MAX = 10_000
ALARM_S_MIN = 0.01
"""What is due by time is looked after at most so often."""


class ShardReader:
    """Hands out the records of a shard while its lease is held, and no longer.

    `next_batch` may be asked by several tasks at once. `run` fetches; it ends when the tenure does.
    """

    def __init__(
        self,
        keeper: TenureKeeper,
        feed: PollingFeed | FanOutFeed,
        *,
        stream: str,
        shard_id: str,
        settings: LedgerSettings,
        cadence: Cadence | None = None,
        rng: Random,
        on_event: Callable[[LedgerEvent], None],
        batch_records_max: int = BATCH_RECORDS_MAX,
        read_ahead: Iterable[Taken] = (),
        on_end: Callable[[tuple[ChildShard, ...]], Awaitable[None]] | None = None,
        checkpoint_when_told: bool = False,
        letters: LetterSink | None = None,
        letter_timeout_s: float = TIMEOUT_S,
        on_ending: Callable[[Ending], None] | None = None,
    ) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before the checkpoint. ``on_end``: awaited
        when the last record was fetched, before the shard may be checkpointed as ended. ``checkpoint_when_told``: what
        is settled is checkpointed no further than `checkpoint_to` says. ``letters``: where dead letters go.
        ``on_ending`` hears, once, that the ledger's policies want the shard given up, or stopped.
        """
        self._loop = asyncio.get_running_loop()
        self._keeper = keeper
        self._feed = feed
        self.stream = stream
        self.shard_id = shard_id
        checkpoint = keeper.row.checkpoint
        self.ledger: Ledger[Record] = Ledger(
            stream, shard_id, checkpoint, settings, rng=rng, on_event=on_event, size_of=lambda record: len(record.data)
        )
        self._checkpoints = Checkpoints(cadence or Riding(), checkpoint, self._loop.time())
        self._batch_records_max = batch_records_max
        self._behind_ms: int | None = None
        self._read_ahead = deque(read_ahead)
        self._after = checkpoint
        self._on_end = on_end
        self.children: tuple[ChildShard, ...] = ()
        """Of a shard that has ended."""
        self.is_over = False
        """Nothing more is handed out: the shard is done, or the lease is gone."""
        self._over = asyncio.Event()
        self._stirred = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self.on_stir: Callable[[ShardReader], None] | None = None
        """Called when there may be something to `take`, or the reader is over."""
        self.checkpoint_max: Checkpoint | None = checkpoint if checkpoint_when_told else None
        """Nothing behind this is checkpointed, settled or not, nor is the shard stored as ended; see `checkpoint_to`.
        None: what is settled is checkpointed.
        """
        self.before_leaving: Callable[[], Awaitable[object]] | None = None
        """Awaited before the shard is handed over, within the drain's deadline: checkpoints may still be put then."""
        self.let_go: Callable[[], None] | None = None
        """Gives the shard back, to whoever comes for it; set by whoever holds it."""
        self.lost: Loss | None = None
        """Why the tenure ended, if it did against its will."""
        self.failure: BaseException | None = None
        """What ended the reading: raised where records are asked for."""
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """Awaited when all records of a shard that has ended are settled, before it is stored as ended."""
        self.on_fence: Callable[[bool], None] | None = None
        """Hears True when nothing is handed out for now, as writes to the lease are not confirmed; False: again."""
        self.values: Values[Record] | None = None
        """Makes values of the records' bytes; None: they stay bytes."""
        self.paused = False
        """True: nothing is handed out, and fetching goes on up to its bounds. See `pause`."""
        self.records_delivered = 0
        """Handed out so far; those that came again are counted again."""
        self.batches_delivered = 0
        self.origin = Origin.NEW
        """How the shard came to this consumer."""
        self.has_ended = False
        """The shard is done, and stored as ended."""
        self.on_left: Callable[[ShardReader], None] | None = None
        """Called when whoever iterated has left, while the shard is still held."""
        self.on_resume: Callable[[], None] | None = None
        """Called when a shard that was about to go stays."""
        self.on_over: Callable[[ShardReader], None] | None = None
        """Called once, when nothing more is handed out."""
        self._ending: asyncio.Task[None] | None = None
        self._burying: Burying | None = None
        self.ledger.buries = letters is not None
        if letters is not None:
            self._burying = Burying(
                self.ledger, letters, stream=stream, shard_id=shard_id, worker=keeper.tenure.worker,
                token=keeper.token, timeout_s=letter_timeout_s,
            )  # fmt: skip
            self._burying.on_written = self._on_settled
        self._on_ending = on_ending
        self._ending_told = self._stop_raised = False
        self._phases = TwoPhase(
            self._checkpoints, keeper, where=f"{stream}, {shard_id}", safe=lambda: self._checkpointable,
            came_to=lambda: self.ledger.came_to, told=lambda: self._told, on_free=self._on_settled,
        )  # fmt: skip
        self._told = checkpoint  # what the keeper knows to be safe
        self._writing: Checkpoint | None = None  # what it was told to write by itself

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
                raise self._stopped(ledger.ending)
            return None
        delivery, values = self._next(now_s, min(records_max or self._batch_records_max, self._batch_records_max))
        if delivery is None:
            if not ledger.draining:  # else what waits for its next try is due, and stays so
                self._wake_at(ledger.next_at_s())
            return None
        if self._alarm is None:  # what is out may stall, though nobody asks for more
            self._wake_at(ledger.next_check_at_s())
        self.records_delivered += len(delivery.records)
        self.batches_delivered += 1
        return Batch(
            self.ledger,
            delivery,
            values=values,
            stream=self.stream,
            shard_id=self.shard_id,
            token=self._keeper.token,
            millis_behind_latest=self._behind_ms,
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
                raise self._stopped(ending)
            batch = self.take()
            if batch is not None:
                return batch
            if self.checkpoint_max is not None and self.ledger.safe.is_end:
                return None
            await self._pause(None)
        if self.failure is not None:
            raise self.failure
        return None

    async def __aiter__(self) -> AsyncIterator[Batch[Record]]:
        """Batches until the tenure ends. Who leaves early gives back what he did not settle: it is handed out again."""
        try:
            while (batch := await self.next_batch()) is not None:
                yield batch
        finally:
            self.take_back()
            if self.on_left is not None and not self.is_over:
                self.on_left(self)

    def take_back(self) -> None:
        """Whoever iterated has left: what is out is handed out again, and what is settled is checkpointed at once."""
        if self.is_over:
            return
        self.ledger.take_back(self._loop.time())
        self._tell(self._checkpointable, at_once=True)
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
        """From now on checkpoints go so far, as far as it is settled, and no further: for those who settle records
        first, and say later what of it is to be remembered.
        """
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

    def pause(self, paused: bool = True) -> None:
        """Hand out nothing for now (False: again)."""
        self.paused = paused
        self._stir()

    @property
    def token(self) -> int:
        """Grows with every owner of the shard."""
        return self._keeper.token

    @property
    def millis_behind_latest(self) -> int | None:
        """How old the shard's newest record was when it was read last; 0 at the tip, None: not told yet."""
        return self._behind_ms

    # --- for the worker -------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch, as far as there is room, until the shard ends or the tenure does. Raises ShardReadError."""
        try:
            while not self.is_over:
                if not self.ledger.has_room or not self._keeper.may_deliver():
                    await self._pause(1.0)
                    continue
                taken = self._read_ahead.popleft() if self._read_ahead else await self._feed.next()
                self._admit(taken)
                if taken.ended:
                    self.children = taken.children
                    if self._on_end is not None:
                        await self._on_end(taken.children)
                    self.ledger.end()
                    self._on_settled()
                    return
                if len(taken.records):
                    self._stir()
        except Exception as error:
            told = error if isinstance(error, PenstockError) else type(error).__name__
            self.failure = ShardReadError(
                f"{self.stream}, {self.shard_id}: reading has ended: {told}", stream=self.stream, shard_id=self.shard_id
            )
            raise self.failure from error
        finally:
            await self._feed.close()

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
            self.failure = failure or self.failure
            if self._ending is not None:
                self._ending.cancel()
            self.ledger.close(reason)
            self._phases.stop(reason)
            if self._burying is not None:
                self._burying.stop()
            if self._alarm is not None:
                self._alarm.cancel()
            self._over.set()
            if self.on_over is not None:
                self.on_over(self)
            self._stir()

    async def over(self) -> None:
        """Wait until nothing more is handed out."""
        await self._over.wait()

    async def drain(self, deadline_s: float) -> bool:
        """Hand out nothing more, and wait until all that is out is settled, dead letters are written, and no checkpoint
        is pending. False when the deadline came first.
        """
        self.ledger.draining = True
        end_s = self._loop.time() + deadline_s
        if self.before_leaving is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline_s):
                    await self.before_leaving()
        while not (is_done := self.ledger.drained and self._phases.idle) and self._loop.time() < end_s:
            await self._pause(end_s - self._loop.time())
        return is_done

    def resume(self) -> None:
        """Hand out again, after a drain that came to nothing."""
        self.ledger.draining = False
        if self.on_resume is not None:
            self.on_resume()
        self._stir()

    def hand_over(self) -> None:
        """The lease is about to go: tell the keeper the last checkpoint. Nothing more is handed out."""
        self.ledger.draining = True
        self._tell(self._checkpointable)

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

    def _admit(self, taken: Taken) -> None:
        self._behind_ms = taken.millis_behind_latest
        records = behind(taken.records, self._after)
        ends_at = taken.ends_at
        if ends_at is not None and self._after.is_position and ends_at <= self._after.position:
            ends_at = None  # read ahead, and settled by the former owner
        if len(records) or ends_at is not None:
            payload_bytes = taken.records.payload_bytes if len(records) == len(taken.records) else None
            self.ledger.admit(records, self._loop.time(), ends_at=ends_at, payload_bytes=payload_bytes)

    def _on_settled(self) -> None:
        """Tell the keeper how far it is safe: to ride on the next renewal, or by a write of its own if that is due."""
        ledger, checkpoints = self.ledger, self._checkpoints
        if self._burying is not None and not self.is_over:
            self._burying.work()
            self._wake_at(ledger.next_letter_at_s())
        if ledger.ending is not None:
            self._ends(ledger.ending)
        safe, records = self._checkpointable, ledger.settled_records
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
                self._tell(safe, at_once=due)
        self._stir()

    def _tell(self, safe: Checkpoint, *, at_once: bool = False) -> None:
        """Tell the keeper how far a write may go; nothing while a checkpoint is pending."""
        riding = self._checkpoints.riding(safe)
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

    def _wake_at(self, at_s: float) -> None:
        """Stir then, for what is due by time alone: a retry, a deadline."""
        if math.isinf(at_s):
            return
        if self._alarm is not None:
            if self._alarm.when() <= at_s and not self._alarm.cancelled():
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at_s, self._alarmed)

    def _alarmed(self) -> None:
        self._alarm = None
        self.ledger.check(self._loop.time())
        self._on_settled()
        if not self.is_over:
            self._wake_at(max(self._next_s(), self._loop.time() + ALARM_S_MIN))

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

    def _stopped(self, ending: Ending) -> ShardStoppedError:
        why = ending.reason if ending.error is None else f"{ending.reason}: {type(ending.error).__name__}"
        error = ShardStoppedError(
            f"{self.stream}, {self.shard_id}: nothing more is handed out ({why}): mend the cause, and start the "
            "consumer anew; or choose Skip, DeadLetters or GiveUp in place of Stop"
        )
        error.__cause__ = ending.error
        return error

    async def _pause(self, seconds: float | None) -> None:
        """Until something has happened, or so long."""
        self._stirred.clear()
        await wait_set(self._stirred, seconds)
