"""The core that `Producer` and `SyncProducer` are faces of: it takes records, sends requests side by side, and follows
the stream's shards.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import random
import threading
import time
import weakref
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shardway.core.producer.batcher import Batcher
from shardway.core.producer.chunk import RECORD_OVERHEAD_BYTES
from shardway.core.producer.limits import RUN_WORK, STEP_RECORDS, BatchLimits, PaceLimits
from shardway.core.producer.mending import mend
from shardway.core.producer.outcome import THROTTLED
from shardway.core.producer.request import Failure
from shardway.errors import (
    AccessDeniedError,
    CredentialsError,
    FlushTimeoutError,
    InvalidArgumentError,
    InvalidRecordError,
    NotFoundError,
    OptionError,
    ProducerClosedError,
    ServiceError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.events import AggregationOff, PaceChanged, ProducerMetrics, PutRecordsDone
from shardway.model import OutRecord
from shardway.options import MetricsOptions, check_producer, metrics_for
from shardway.runtime.producer.handles import PutHandle, Unwritten
from shardway.runtime.producer.intake import CHUNK_RECORDS_MAX, Claim, Intake
from shardway.runtime.producer.listing import RETRY_BASE_S, ShardListing
from shardway.runtime.producer.metrics import ProducerMeter, event_of
from shardway.tasks import drop, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.request import Request
    from shardway.events import Event
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.model import Tags
    from shardway.options import ProducerArguments, ProducerOptions
    from shardway.ports import RecordSink, Tracer
    from shardway.runtime.producer.intake import AnyFuture, CheckedRecord, Portion
    from shardway.runtime.producer.sync_producer import Errands

F = TypeVar("F", bound="AnyFuture")
H = TypeVar("H", bound=PutHandle)

log = logging.getLogger("shardway.producer")

EXPIRY_CHECK_S = 0.1
"""The seconds by which a time to live may be kept too late."""
SHARE_STEP = 0.1
"""The change of a shard's pace that is reported: by this since the last event, or back to its limit."""
TAKEN_IN_RECORDS_MAX = 8_000
"""The most records that one turn of the event loop takes in: 10 to 20 ms where each has a key of its own."""
CANCEL_S = 5.0
"""The seconds for which a close waits for requests that it cancelled."""
_CHUNK_LAST = CHUNK_RECORDS_MAX - 1


class ProducerCore(Generic[H]):
    """The core of one producer. The thread that puts calls the methods that put; all else is for the loop's own thread.

    The batcher decides: it is given what was put, answered and listed, says what to send and when to ask again, and
    keeps facts in ``settling`` until `_hear` takes them.
    """

    _closing: Iterator[None] | None = None
    _pauses = 0  # Flushes that tell what is not written, and withdrawals in steps: nothing is sent meanwhile.
    _mended = 0  # This counts how often something was mended.

    def __init__(
        self,
        sink: RecordSink,
        options: ProducerOptions,
        handle: type[H],
        *,
        metrics: MetricsOptions,
        on_event: Callable[[Event], None] | None,
        rng: random.Random,
        tracer: Tracer | None = None,
    ) -> None:
        """``handle`` is the class of the handles."""
        self._sink = sink
        self._options = options
        self._on_event = on_event
        self._tracer = tracer
        self.stream = sink.stream
        self._metrics_interval_s, per_shard = metrics_for(metrics, on_event)
        self._meter = ProducerMeter(time.monotonic(), per_shard=per_shard)
        self.batcher = Batcher(_limits_of(options), make_entry=sink.entry, rng=rng)
        self.batcher.settling.place = self.stream
        self._lanes = self.batcher.lanes
        self.intake = Intake(options, self.batcher.lanes, owner=self, tracer=tracer)
        self._listing = ShardListing(sink, options, self.batcher, rng)
        self._following: asyncio.Task[None] | None = None
        self._handle = handle
        self._flushes: dict[asyncio.Future[None], int] = {}
        self._sending: dict[Request, asyncio.Task[None]] = {}
        self._next_expiry_s = inf
        self._next_metrics_s = time.monotonic() + self._metrics_interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._awake = False
        self._closed = self._ended = self._finished = False
        # They are True when nothing is taken any more, nothing is sent any more, and every record has its outcome.
        self._aggregating = options.aggregation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._call_soon: Callable[..., Any] | None = None
        self._errands: Errands | None = None
        self._ending: asyncio.Task[None] | None = None
        self._shares_told: dict[str, float] = {}
        self.is_forked = False
        _watched.add(self)

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

    def checked(self, records: Iterable[Any], record_ttl_s: float | None) -> list[Portion]:
        """Return records in portions, all checked before the first portion is given out. Raises InvalidRecordError."""
        check_time_to_live(record_ttl_s)
        return self.intake.check.many(records if isinstance(records, list) else list(records))

    def put_claimed(self, record: CheckedRecord, record_ttl_s: float | None, claim: Claim) -> H:
        """Put a checked record for which the claim has room. Raises ProducerClosedError."""
        self.wake()
        return self._handle(*self.intake.add(record, record_ttl_s, claim))

    def ask_for_room(self, claim: Claim, make_future: Callable[[], F]) -> F | None:
        """Take what the claim wants; return None if it is taken, else a future that is done when it was. See
        `Room.ask`.
        """
        self.wake()
        return self.intake.room.ask(claim, make_future)

    def take_portion(self, portion: Portion, record_ttl_s: float | None, claim: Claim) -> Chunk:
        """Take records for which the claim has room. Raises ProducerClosedError."""
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

    # --- for both faces -----------------------------------------------------------------------

    def wake(self) -> None:
        """Have the loop look soon: something was put. Raises ProducerClosedError."""
        self.check_open()
        if self._errands is None:
            self._begin()  # This raises on another loop.
        if self._awake:
            return
        assert self._call_soon is not None
        self._awake = True
        try:
            self._call_soon(self.pump)
        except BaseException:
            self._awake = False
            raise

    def serve_threads(self, errands: Errands) -> None:
        """Let threads put, each with the lock of the intake held; the loop runs in another thread, which ``errands``
        begins at the first use. Handles ask it.
        """
        self.intake.lock, self.intake.owner = threading.Lock(), errands
        self.intake.open.owner = errands
        self._call_soon, self._errands = errands.call_soon, errands

    def check_open(self) -> None:
        """Raise ProducerClosedError once the producer is closing."""
        self.check_process()
        if self._closed:
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
        if self._loop is None and (self._errands is None or not self._errands.has_begun):
            # It was not used yet, so it begins in this process. Another thread may have been about to use it.
            self._awake = False
            self.intake.start_over()
            if self._errands is not None:
                self._errands.start_over()
            return
        self.is_forked = self._closed = self._ended = self._finished = True
        self.intake.start_over()
        self._meter.start_over()

    def warn_of_loss(self) -> None:
        """Warn of the records that are lost, as the process ends, or the producer is let go of."""
        if getattr(self, "_finished", True):  # It may not have been made to its end.
            return
        lost = self.intake.records() + sum([chunk.unsettled for chunk in self.batcher.settling.live.values()])
        self._finished = True
        if lost:
            log.warning(
                "%s: the producer was not closed: %d records that it had taken have no outcome, and are lost unless "
                "they are written already. Close it, or use it in a with statement",
                self.stream,
                lost,
            )

    async def start(self) -> None:
        """List the shards. Raises what the listing raises."""
        self.check_open()
        self._begin()
        await self._listing.first()

    async def flush(self, deadline_s: float | None) -> None:
        """See `Producer.flush`."""
        self.check_process()
        self._begin()
        self._take_in()
        if not self.batcher.settling.live:
            return
        newest = self.intake.number
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes[future] = newest
        self.batcher.urgent = True
        self.pump()
        try:
            async with asyncio.timeout(deadline_s):
                await future
        except TimeoutError:
            unwritten = await self._unwritten(newest)
            raise FlushTimeoutError(
                f"{self.stream}: {len(unwritten)} records have no outcome after {deadline_s} s; "
                + ("they are given up" if self._closed else "they go on"),
                unwritten,
            ) from None
        finally:
            self._flushes.pop(future, None)
            self.batcher.urgent = bool(self._flushes)

    async def close(self, deadline_s: float | None) -> None:
        """See `Producer.close`. A further call hurries the first one up, if its deadline is earlier."""
        if self.is_forked:
            return
        if not self._closed:
            self._closed = True
            with self.intake.lock:
                self.intake.room.fail_waiting(lambda: ProducerClosedError(f"{self.stream}: the producer was closed"))
        try:
            if self._loop is not None and not self._ended:
                await self.flush(deadline_s)
        finally:
            await self._end()
            if self._ending is None:
                self._ending = spawn(self._leave(), self._broke)
            # The task is shielded: a caller that is cancelled while it waits for this leaves nothing half done.
            await asyncio.shield(self._ending)

    async def give_up(self) -> None:
        """End the producer at once, without a flush: every record gets its outcome."""
        self._closed = True
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
        if self._finished:
            return False
        if not self._ended:
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()
            if self._following is not None:
                drop(self._following)
        self._take_in()  # What was broken is mended, and its end begins anew.
        if is_first := self._closing is None:
            self._closing = self.batcher.close_in_steps(time.monotonic())
        with self._whole():
            is_through = next(self._closing, self) is self
        if is_first:
            for task in self._sending.values():
                task.cancel()
        self._hear()
        if not is_through:
            return True
        self._emit_metrics(time.monotonic(), last=True)
        self._finished = True
        return False

    async def _leave(self) -> None:
        try:
            error = ProducerClosedError(f"{self.stream}: the producer was closed before it had started")
            self._listing.tell_first(error)
            if self._following is not None:
                drop(self._following)
                await asyncio.wait((self._following,))
            if self._sending:
                await asyncio.wait(list(self._sending.values()), timeout=CANCEL_S)
        finally:
            await self._sink.close()

    def metrics(self) -> ProducerSnapshot:
        """See `Producer.metrics`."""
        if self._is_here:
            self._take_in()
        self._note_level()
        return self._meter.snapshot(time.monotonic())

    def oldest_pending_s(self) -> float:
        """See `Producer.oldest_pending_s`."""
        if self._is_here:
            self._take_in()
        while True:
            try:
                oldest = next(iter(self.batcher.settling.live.values()), None)
            except RuntimeError:  # On another thread than the loop's, it has changed between two steps.
                continue
            return 0.0 if oldest is None else time.monotonic() - oldest.put_at_s

    @property
    def _is_here(self) -> bool:
        """True on the loop's own thread, which alone takes in what was put."""
        try:
            return self._loop in (None, asyncio.get_running_loop())
        except RuntimeError:
            return False

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take back a record if it was never sent."""
        self._take_in()
        with self._whole():
            withdrawn = self.batcher.withdraw(chunk, index)
        self._hear()
        return withdrawn

    def withdraw_all(self, chunks: Sequence[Chunk]) -> int:
        """Take back the records of these chunks that were never sent; return how many they are."""
        return sum(self._withdrawing(chunks))

    async def withdraw_in_steps(self, chunks: Sequence[Chunk]) -> int:
        """See `withdraw_all`: this does the same in steps, and the loop runs in between."""
        withdrawn = 0
        steps = self._withdrawing(chunks)
        self._pauses += 1
        try:
            for count in steps:
                withdrawn += count
                await asyncio.sleep(0)
        except BaseException:  # It was cancelled: do the rest at once.
            self.withdraw_all(chunks)
            raise
        finally:
            self._pauses -= 1
            self.pump()
        return withdrawn

    def _withdrawing(self, chunks: Sequence[Chunk]) -> Iterator[int]:
        steps: Iterator[int] | None = None
        mended = 0
        while True:
            self._take_in()
            if steps is None or mended != self._mended:
                steps, mended = self.batcher.withdraw_in_steps(chunks), self._mended
            with self._whole():
                withdrawn = next(steps, None)
            if withdrawn is None:
                return
            self._hear()
            yield withdrawn

    def emit(self, event: Event) -> None:
        """Call ``on_event`` with an event. A listener that raises must not keep records from being sent."""
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:
            context = {"message": f"{self.stream}: on_event raised", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    # --- the loop -------------------------------------------------------------------------------

    def pump(self) -> None:
        """Take in what was put, send what may go, and arrange that this is called again in time."""
        self._awake = False
        if self._loop is None:
            self._begin()
        assert self._loop is not None
        if self._ended:
            return
        try:
            self._pump(self._loop)
        except BaseException:
            # A signal handler raised in the middle, or there is a fault in here. The loop reports it.
            self.batcher.broken = True
            self._timer = self._loop.call_later(EXPIRY_CHECK_S, self.pump)
            raise

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        has_more = self._take_in(TAKEN_IN_RECORDS_MAX)
        now_s = time.monotonic()  # The clock is read after what came in, or that would lie in the future.
        self._go_on_following(loop)
        if self._listing.refusal is not None:
            self.batcher.give_up_waiting(self._listing.refusal, now_s)
        if now_s >= self._next_expiry_s:
            self.batcher.expire(now_s)
            self._next_expiry_s = now_s + EXPIRY_CHECK_S if self.batcher.settling.live else inf
        if now_s >= self._next_metrics_s:
            self._emit_metrics(now_s)
        request = None if self._pauses else self.batcher.next_request(now_s)
        if request is not None:
            task = spawn(self._send(request), self._broke, loop=loop)
            self._sending[request] = task
            task.add_done_callback(lambda _: self._was_sent(request))
        self._hear()
        if self.batcher.stale:
            self._listing.refresh()
        self._plan(now_s, more=has_more or request is not None)

    async def _send(self, request: Request) -> None:
        began_s = time.monotonic()
        self._count_buffering(request, began_s)
        error_code: str | None = None
        refused = failed = 0
        took_s: float | None = None
        span = None if self._tracer is None else self._tracer.sending(*self._of_request(request))
        try:
            async with asyncio.timeout(self._options.request_timeout_s):
                results = await self._sink.put(request.entries)
            if len(results) != len(request.entries):
                raise TransportError(f"{len(results)} results came for {len(request.entries)} entries")
        except (ShardwayError, TimeoutError) as error:
            failure, error_code = classify(error)
            self._listing.note_place(error)
            with self._whole():
                self.batcher.handle_failure(request, failure, error_code, time.monotonic())
            self._hear()
        except BaseException as error:
            # There is a fault in the sink, a signal handler raised, or a program cancels all tasks that it finds: the
            # records must not hang because of it.
            error_code = type(error).__name__
            with self._whole():
                self.batcher.handle_failure(request, Failure.UNKNOWN, error_code, time.monotonic())
            self._hear()
            raise
        else:
            took_s = time.monotonic() - began_s
            codes = [result.error_code for result in results if result.error_code]
            refused = codes.count(THROTTLED)
            failed = len(codes) - refused
            with self._whole():
                self.batcher.handle_answer(request, results, time.monotonic())
            self._hear()
            if self._on_event is not None:
                self._tell_pace(request)
            self._tell_strays()
        finally:
            if span is not None:
                span.sent(error_code)
        if took_s is None:
            took_s = time.monotonic() - began_s
        self._meter.request(len(request.entries), request.user_records, request.payload_bytes, took_s, error_code)
        if self._on_event is not None:
            self.emit(
                PutRecordsDone(
                    self.stream,
                    len(request.entries),
                    request.user_records,
                    request.payload_bytes,
                    refused,
                    failed,
                    took_s,
                    error_code,
                    len(self.batcher.in_flight),
                )
            )
        self.pump()

    def _of_request(self, request: Request) -> tuple[str, int, int, set[Tags]]:
        contexts = {run.chunk.tags for load in request.loads for run in load.runs if run.chunk.tags}
        return self.stream, request.user_records, request.payload_bytes, contexts

    def _tell_strays(self) -> None:
        before, self._aggregating = self._aggregating, self.batcher.builder.aggregating
        if before and not self._aggregating:
            reason = "the stream answers other shard ids than its list of shards has for the same keys"
            self.emit(AggregationOff(self.stream, reason))

    def _broke(self, error: BaseException) -> None:
        """Report an error of the sink that is none of a service, or a fault in here. The records have outcomes."""
        context = {"message": f"{self.stream}: sending, or closing, has failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def _was_sent(self, request: Request) -> None:
        """Note that the task of a request has ended."""
        self._sending.pop(request, None)
        if request in self.batcher.in_flight and not self._ended:  # It was broken off before it could tell.
            self.batcher.broken = True
            self.pump()

    def _plan(self, now_s: float, *, more: bool) -> None:
        assert self._loop is not None
        if more:
            # The timer stays: a signal handler that raises in the loop may cost the other call.
            if not self._awake:
                self._awake = True
                self._loop.call_soon(self.pump)
            return
        if self._timer is not None:
            self._timer.cancel()
        at_s = min(self._next_expiry_s, self._next_metrics_s)
        if not self._pauses:
            at_s = min(at_s, self.batcher.wake_at_s)
        self._timer = self._loop.call_later(max(0.0, at_s - now_s), self.pump)

    def _take_in(self, records_max: float = inf) -> bool:
        """Take in what was put, up to the chunk in which ``records_max`` records are reached. True where more is left.
        What was broken off before is mended first.
        """
        with self.intake.lock:
            self.intake.close_chunk()
        if self.batcher.broken:
            self._mend()
        queue = self.intake.queue
        if not queue:
            return False
        with self._whole():
            while queue and records_max > 0:
                chunk = queue[0]
                records_max -= chunk.records
                self.batcher.add(chunk, chunk.keys, chunk.datas)
                self._let_in(chunk)
        if self._next_expiry_s == inf:
            self._next_expiry_s = time.monotonic() + EXPIRY_CHECK_S
        return bool(queue)

    def _let_in(self, chunk: Chunk) -> None:
        """Take a chunk off the queue: lanes have its records now."""
        self._meter.accepted(chunk.records)
        # No call stands between these: all are done, or none is.
        del self.intake.queue[0]
        chunk.keys = chunk.datas = ()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Make a step that leaves nothing half done; if it is broken off, the next one mends that."""
        try:
            yield
        except BaseException:
            self.batcher.broken = True
            raise

    def _mend(self) -> None:
        """Put together what a broken step has left: every record is in one place again, or has its outcome."""
        queue, settling = self.intake.queue, self.batcher.settling
        self._closing = None
        self._mended += 1
        mend(self.batcher, {request for request, task in self._sending.items() if not task.done()})
        for chunk in list(settling.live.values()):
            if queue and queue[0] is chunk:
                self._let_in(chunk)
        self.batcher.recount()
        with self.intake.lock:
            held = sum([chunk.held_bytes for chunk in queue])
            held += sum([chunk.bytes_left for chunk in settling.live.values()])
            room = self.intake.room
            settling.freed_bytes = 0
            room.free = room.bytes_max - room.claimed - held
            room.give_back(0)
        self._tell_flushes()
        self.batcher.broken = False
        if settling.live:
            self._next_expiry_s = min(self._next_expiry_s, time.monotonic() + EXPIRY_CHECK_S)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            if self._call_soon is None:
                self._call_soon = loop.call_soon
            self._timer = loop.call_later(EXPIRY_CHECK_S, self.pump)
            self._go_on_following(loop)
            self._loop = loop  # It is set last: where a signal handler raises before, all of this is done again.
        elif self._loop is not loop:
            raise RuntimeError("a producer belongs to the event loop of its first use: make one per loop")

    def _go_on_following(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the shards, or begin to again: the program may have cancelled this with all tasks that it found, or a
        signal handler may have raised.
        """
        if self._following is None or self._following.done():
            self._following = spawn(self._follow(), self._following_broke, loop=loop)

    async def _follow(self) -> None:
        while self._following is asyncio.current_task():  # Otherwise a signal handler raised before it was noted.
            for event in await self._listing.renew():
                self.emit(event)
            self.pump()
            await self._listing.rest()

    def _following_broke(self, error: BaseException) -> None:
        self.emit(self._listing.broke(error))
        asyncio.get_running_loop().call_later(RETRY_BASE_S, self._follow_again)

    def _follow_again(self) -> None:
        if not self._ended:
            self._go_on_following(asyncio.get_running_loop())

    # --- bookkeeping ----------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take what the batcher has noted: the bytes that became free, the facts to count and to emit, the chunks that
        are done.
        """
        settling = self.batcher.settling
        if settling.freed_bytes:
            room = self.intake.room
            with self.intake.lock:
                # No call stands between these: both are done, or none is.
                room.free += settling.freed_bytes
                settling.freed_bytes = 0
                room.give_back(0)
        told = settling.facts_made
        while told:
            fact = told.popleft()
            self._meter.note(fact)
            if self._on_event is not None and (event := event_of(self.stream, fact)) is not None:
                self.emit(event)
        self._tell_flushes()

    def _tell_flushes(self) -> None:
        if self._flushes:
            oldest = next(iter(self.batcher.settling.live), inf)
            for future, newest in self._flushes.items():
                if oldest > newest and not future.done():
                    future.set_result(None)

    async def _unwritten(self, newest: int) -> list[Unwritten]:
        """Return the records without an outcome. The loop runs in between, and nothing is sent meanwhile: what was not
        sent is reported so.
        """
        self._pauses += 1
        try:
            return await self._tell_unwritten(newest)
        finally:
            self._pauses -= 1
            if not self._closed:
                self.pump()

    async def _tell_unwritten(self, newest: int) -> list[Unwritten]:
        found = []
        work = 0
        runs = [
            # The columns are taken as they are now: a run that moves on gets others.
            (run.chunk, run.at, run.keys, run.datas, run.indices, sent)
            for run, sent in self.batcher.unsettled_runs()
            if run.chunk.number <= newest
        ]
        for chunk, at, keys, datas, indices, sent in runs:
            explicit = chunk.hash_keys or {}
            outcomes = chunk.outcomes
            found += [
                Unwritten(OutRecord(datas[place], keys[place], explicit.get(indices[place])), sent)
                for place in range(at, len(keys))
                if outcomes[indices[place]] is None
            ]
            work += RUN_WORK + len(keys)
            if work >= STEP_RECORDS:
                work = 0
                await asyncio.sleep(0)
        return found

    def _count_buffering(self, request: Request, now_s: float) -> None:
        for load in request.loads:
            if load.attempts == 1:
                for run in load.runs:
                    if not run.attempts:
                        self._meter.sent_first(now_s - run.chunk.put_at_s, len(run.keys))

    def _tell_pace(self, request: Request) -> None:
        told = self._shares_told
        for load in request.loads:
            shard_id, pace = load.lane.shard_id, load.lane.pace
            if shard_id is None or pace is None:
                continue
            share, before = pace.share, told.get(shard_id, 1.0)
            if not before - SHARE_STEP < share < before + SHARE_STEP or (share == 1.0) > (before == 1.0):
                told[shard_id] = share
                self.emit(PaceChanged(self.stream, shard_id, share))

    def _emit_metrics(self, now_s: float, *, last: bool = False) -> None:
        self._next_metrics_s = now_s + self._metrics_interval_s
        if self._on_event is not None:
            self._note_level()
            self.emit(ProducerMetrics(self.stream, self._meter.interval(now_s), last))

    def _note_level(self) -> None:
        self._meter.buffer_bytes = self.intake.room.bytes_max - self.intake.room.free


def core_of(
    stream: str | RecordSink, options: ProducerOptions, handle: type[H], arguments: ProducerArguments
) -> ProducerCore[H]:
    """Return the core of a producer, made from its arguments. Raises OptionError."""
    from shardway.wiring import sink_for

    check_producer(arguments, options)
    return ProducerCore(
        sink_for(stream, arguments.get("connection")),
        options,
        handle,
        metrics=arguments.get("metrics") or MetricsOptions(),
        on_event=arguments.get("on_event"),
        rng=arguments.get("rng") or random.Random(),
        tracer=arguments.get("tracing"),
    )


def _limits_of(options: ProducerOptions) -> BatchLimits:
    return BatchLimits(
        aggregate=options.aggregation,
        ordered_by_key=options.ordered_by_key,
        linger_s=options.linger_s,
        requests_in_flight_max=options.requests_in_flight_max,
        in_flight_bytes_max=options.in_flight_bytes_max,
        request_records_max=options.request_records_max,
        request_bytes_max=options.request_bytes_max,
        aggregate_bytes_max=options.aggregate_bytes_max,
        retry_base_s=options.retry_base_s,
        retry_cap_s=options.retry_cap_s,
        pace=PaceLimits(options.shard_records_per_s, options.shard_bytes_per_s) if options.pacing else None,
    )


def check_time_to_live(record_ttl_s: float | None) -> None:
    """Raise OptionError for what is no time to live."""
    if record_ttl_s is not None and not record_ttl_s > 0:
        raise OptionError(f"record_ttl_s must be more than 0, not {record_ttl_s}")


def classify(error: Exception) -> tuple[Failure, str]:
    """Return what a failed request means, and the reason in a word."""
    reason = error.code if isinstance(error, ServiceError) else type(error).__name__
    if isinstance(error, ThrottledError):
        return Failure.THROTTLED, reason
    if isinstance(error, UnavailableError | TimeoutError):
        return Failure.UNKNOWN, reason
    if isinstance(error, TransportError):
        return Failure.UNKNOWN if error.sent else Failure.NOT_SENT, reason
    if isinstance(error, InvalidArgumentError | InvalidRecordError):
        return Failure.INVALID, reason
    if isinstance(error, AccessDeniedError | NotFoundError | CredentialsError | OptionError):
        return Failure.DENIED, reason
    return Failure.NOT_SENT if isinstance(error, ServiceError) else Failure.UNKNOWN, reason


# --- forks, and the end of the process ------------------------------------------------------------

_watched: weakref.WeakSet[ProducerCore[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_watched):
        one.after_fork()


def _at_exit() -> None:
    for one in list(_watched):
        one.warn_of_loss()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
