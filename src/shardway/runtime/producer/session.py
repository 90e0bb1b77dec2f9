"""The session of a producer, from its first record to its end. `Producer` and `SyncProducer` are its two faces."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shardway.core.producer.batcher import Batcher
from shardway.core.producer.chunk import RECORD_OVERHEAD_BYTES
from shardway.errors import FlushTimeoutError, OptionError, ProducerClosedError
from shardway.model import OutRecord
from shardway.runtime.producer.driver import BatcherDriver
from shardway.runtime.producer.flushes import Flushes
from shardway.runtime.producer.handles import PutHandle, Unwritten
from shardway.runtime.producer.intake import CHUNK_RECORDS_MAX, Intake
from shardway.runtime.producer.processes import watch
from shardway.runtime.producer.reporter import Reporter
from shardway.runtime.producer.room import Claim
from shardway.runtime.producer.send_loop import SendLoop
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.core.producer.chunk import Chunk
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.runtime.producer.errands import Errands
    from shardway.runtime.producer.record_check import CheckedRecord, Portion
    from shardway.runtime.producer.room import AnyFuture
    from shardway.runtime.producer.spec import ProducerSpec

F = TypeVar("F", bound="AnyFuture")
H = TypeVar("H", bound=PutHandle)

log = logging.getLogger("shardway.producer")

CANCEL_S = 5.0
"""How long a close waits for requests that it cancelled, in seconds."""
_CHUNK_LAST = CHUNK_RECORDS_MAX - 1


class ProducerSession(Generic[H]):
    """One producer at work. The thread that puts calls the methods that put; all else is for the loop's own thread.

    Records go from the `Intake` through the `BatcherDriver` to the batcher, which decides what to send and when. The
    `SendLoop` does that on the event loop, and the `Reporter` counts it.
    """

    def __init__(self, spec: ProducerSpec, handle: type[H]) -> None:
        """``handle`` is the class of the handles."""
        self._spec = spec
        self._handle = handle
        self.stream = spec.stream
        self.batcher = Batcher(spec.batch_limits(), make_entry=spec.sink.entry, rng=spec.rng)
        self.batcher.settling.place = self.stream
        self._lanes = self.batcher.lanes
        self.intake = Intake(spec.options, self.batcher.lanes, owner=self, tracer=spec.tracer)
        self._reporter = Reporter(spec, self.intake.room)
        self._flushes = Flushes(self.batcher)
        self.driver = BatcherDriver(self.batcher, self.intake, self._reporter, self._flushes)
        self.send_loop = SendLoop(spec, self.driver, self._reporter)
        self.is_closed = False
        """True once nothing is taken any more."""
        self.is_finished = False
        """True once every record has its outcome."""
        self.is_forked = False
        self._errands: Errands | None = None
        self._release: asyncio.Task[None] | None = None
        watch(self)

    def __del__(self) -> None:
        self.warn_of_loss()

    # --- putting --------------------------------------------------------------------------------

    def put_nowait(self, record: OutRecord, record_ttl_s: float | None) -> H:
        """See `Producer.put_nowait`."""
        intake = self.intake
        chunk, room = intake.open, intake.room
        pairs = chunk.pairs
        # This is the usual case, unrolled, as producers live in it: a further small record of a chunk that was begun.
        if pairs and record_ttl_s is None and record.__class__ is OutRecord:
            data, key = record.data, record.partition_key
            if data.__class__ is bytes and key.__class__ is str and record.explicit_hash_key is None:
                held = len(data) + len(key) + RECORD_OVERHEAD_BYTES
                if (
                    held <= room.free
                    and held <= intake.small_bytes
                    and not room.waiting
                    and (index := len(pairs) >> 1) < _CHUNK_LAST
                    and (key in self._lanes.routes.same or (key.isascii() and self._lanes.routes[key] >= 0))
                ):
                    # No call stands between these: both are done, or none is, also if a signal handler raises.
                    room.free -= held
                    pairs += (key, data)  # type: ignore[operator]
                    return self._handle(chunk, index)
        return self._put_carefully(record, record_ttl_s)

    def _put_carefully(self, record: OutRecord, record_ttl_s: float | None) -> H:
        self.check_open()
        check_time_to_live(record_ttl_s)
        checked = self.intake.check.one(record)
        claim = self.intake.claim_for(checked, alone=record_ttl_s is not None)
        try:
            self.intake.take(claim, self.stream)
            return self.put_claimed(checked, record_ttl_s, claim)
        finally:
            self.intake.room.release(claim)

    def check_records(self, records: Iterable[Any], record_ttl_s: float | None) -> list[Portion]:
        """Return records in portions, all checked before the first portion is used. Raises InvalidRecordError."""
        check_time_to_live(record_ttl_s)
        return self.intake.check.many(records if isinstance(records, list) else list(records))

    def put_claimed(self, record: CheckedRecord, record_ttl_s: float | None, claim: Claim) -> H:
        """Put a checked record into the room of a claim. Raises ProducerClosedError."""
        self.wake()
        return self._handle(*self.intake.add(record, record_ttl_s, claim))

    def ask_for_room(self, claim: Claim, make_future: Callable[[], F]) -> F | None:
        """Take what the claim wants; return None if it is taken, else a future that is done when it was. See
        `Room.ask`.
        """
        self.wake()
        return self.intake.room.ask(claim, make_future)

    def take_portion(self, portion: Portion, record_ttl_s: float | None, claim: Claim) -> Chunk:
        """Take records into the room of a claim. Raises ProducerClosedError."""
        self.wake()
        return self.intake.add_chunk(portion, record_ttl_s, claim)

    def take_all(self, portions: Sequence[Portion], record_ttl_s: float | None) -> list[Chunk]:
        """Take records if there is room for all of them. Raises BufferFullError."""
        self.check_open()
        claim = Claim(sum([portion.held_bytes for portion in portions]))
        try:
            self.intake.take(claim, self.stream)
            self.wake()
            return [self.intake.add_chunk(portion, record_ttl_s, claim) for portion in portions]
        finally:
            self.intake.room.release(claim)

    def wake(self) -> None:
        """Have the loop look soon: something was put. Raises ProducerClosedError."""
        self.check_open()
        self.send_loop.wake()

    # --- threads and processes ------------------------------------------------------------------

    def serve_threads(self, errands: Errands) -> None:
        """Let threads put, each with the lock of the intake held; the loop runs in another thread, which ``errands``
        begins at the first use. Handles ask it.
        """
        self.intake.lock, self.intake.owner = threading.Lock(), errands
        self.intake.open.owner = errands
        self.send_loop.call_soon, self._errands = errands.call_soon, errands
        self.send_loop.has_own_thread = True

    def check_open(self) -> None:
        """Raise ProducerClosedError once the producer is closing."""
        self.check_process()
        if self.is_closed:
            raise ProducerClosedError(f"{self.stream}: the producer is closed and takes no more records")

    def check_process(self) -> None:
        """Raise ProducerClosedError in a process that was forked off since the producer was first used."""
        if self.is_forked:
            raise ProducerClosedError(
                f"{self.stream}: the producer was used before this process was forked, and what sends stayed in the "
                "other process: make a producer in each process"
            )

    def after_fork(self) -> None:
        """Close the producer in a process that was forked off: threads and loops did not come with it. What was put
        before is the other process's.
        """
        if self.send_loop.loop is None and (self._errands is None or not self._errands.has_begun):
            # It was not used yet, so it begins in this process. Another thread may have been about to use it.
            self.send_loop.start_over()
            self.intake.start_over()
            if self._errands is not None:
                self._errands.start_over()
            return
        self.is_forked = self.is_closed = self.send_loop.has_ended = self.is_finished = True
        self.intake.start_over()
        self._reporter.meter.start_over()

    def warn_of_loss(self) -> None:
        """Warn of the records that are lost, as the process ends, or the producer is let go of."""
        if getattr(self, "is_finished", True):  # It may not have been made to its end.
            return
        lost = self.intake.records() + sum([chunk.unsettled for chunk in self.batcher.settling.live.values()])
        self.is_finished = True
        if lost:
            log.warning(
                "%s: the producer was not closed: %d records that it had taken have no outcome, and are lost unless "
                "they are written already. Close it, or use it in a with statement",
                self.stream,
                lost,
            )

    # --- for both faces -------------------------------------------------------------------------

    async def start(self) -> None:
        """List the shards. Raises what the listing raises."""
        self.check_open()
        self.send_loop.begin()
        await self.send_loop.listing.first()

    async def flush(self, deadline_s: float | None) -> None:
        """See `Producer.flush`."""
        self.check_process()
        self.send_loop.begin()
        self.driver.take_in()
        if not self.batcher.settling.live:
            return
        newest = self.intake.number
        future = self._flushes.add(newest)
        self.send_loop.pump()
        try:
            async with asyncio.timeout(deadline_s):
                await future
        except TimeoutError:
            unwritten = await self._unwritten_records(newest)
            raise FlushTimeoutError(
                f"{self.stream}: {len(unwritten)} records have no outcome after {deadline_s} s; "
                + ("they are given up" if self.is_closed else "the producer goes on putting them"),
                unwritten,
            ) from None
        finally:
            self._flushes.remove(future)

    async def _unwritten_records(self, newest: int) -> list[Unwritten]:
        """Return the records without an outcome. Nothing is sent meanwhile: what was not sent is reported so."""
        self.send_loop.pauses += 1
        try:
            return await self._flushes.list_unwritten(newest)
        finally:
            self.send_loop.pauses -= 1
            if not self.is_closed:
                self.send_loop.pump()

    def metrics(self) -> ProducerSnapshot:
        """See `Producer.metrics`."""
        if self.send_loop.is_current:
            self.driver.take_in()
        return self._reporter.snapshot()

    def oldest_pending_s(self) -> float:
        """See `Producer.oldest_pending_s`."""
        if self.send_loop.is_current:
            self.driver.take_in()
        while True:
            try:
                oldest = next(iter(self.batcher.settling.live.values()), None)
            except RuntimeError:  # On another thread than the loop's, it has changed between two steps.
                continue
            return 0.0 if oldest is None else time.monotonic() - oldest.put_at_s

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take back a record if it was never sent."""
        return self.driver.withdraw(chunk, index)

    def withdraw_all(self, chunks: Sequence[Chunk]) -> int:
        """Take back the records of these chunks that were never sent; return how many they are."""
        return sum(self.driver.withdraw_in_steps(chunks))

    async def withdraw_in_steps(self, chunks: Sequence[Chunk]) -> int:
        """See `withdraw_all`: this does the same in steps, and the loop runs in between."""
        withdrawn = 0
        steps = self.driver.withdraw_in_steps(chunks)
        self.send_loop.pauses += 1
        try:
            for count in steps:
                withdrawn += count
                await asyncio.sleep(0)
        except BaseException:  # It was cancelled: do the rest at once.
            self.withdraw_all(chunks)
            raise
        finally:
            self.send_loop.pauses -= 1
            self.send_loop.pump()
        return withdrawn

    # --- the end --------------------------------------------------------------------------------

    async def close(self, deadline_s: float | None) -> None:
        """See `Producer.close`. A further call hurries the first one up, if its deadline is earlier."""
        if self.is_forked:
            return
        if not self.is_closed:
            self.is_closed = True
            with self.intake.lock:
                self.intake.room.fail_waiting(lambda: ProducerClosedError(f"{self.stream}: the producer was closed"))
        try:
            if self.send_loop.loop is not None and not self.send_loop.has_ended:
                await self.flush(deadline_s)
        finally:
            await self._end()
            if self._release is None:
                self._release = spawn(self._release_parts(), self._reporter.report_fault)
            # The task is shielded: a caller that is cancelled while it waits for this leaves nothing half done.
            await asyncio.shield(self._release)

    async def give_up(self) -> None:
        """End the producer at once, without a flush: every record gets its outcome."""
        self.is_closed = True
        await self._end()

    async def _end(self) -> None:
        """End the producer: nothing is sent after this call, and soon every record has its outcome. The loop runs in
        between.
        """
        try:
            while self._end_some():
                await asyncio.sleep(0)
        except BaseException:  # It was cancelled, or a signal handler raised: do the rest at once.
            while self._end_some():
                pass
            raise

    def _end_some(self) -> bool:
        """Make a step of the end. False when the end is through."""
        if self.is_finished:
            return False
        self.send_loop.end()
        if not self.driver.close_some():
            return True
        self._reporter.report_metrics(time.monotonic(), last=True)
        self.is_finished = True
        return False

    async def _release_parts(self) -> None:
        try:
            error = ProducerClosedError(f"{self.stream}: the producer was closed before it had started")
            self.send_loop.listing.finish_first(error)
            await self.send_loop.follower.end()
            if self.driver.tasks:
                await asyncio.wait(list(self.driver.tasks.values()), timeout=CANCEL_S)
        finally:
            await self._spec.sink.close()


def check_time_to_live(record_ttl_s: float | None) -> None:
    """Raise OptionError for a time to live that is not positive."""
    if record_ttl_s is not None and not record_ttl_s > 0:
        raise OptionError(f"record_ttl_s must be more than 0, not {record_ttl_s}")
