"""`Producer`: records into a stream, on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.core.batching.chunk import CHUNK_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from penstock.core.batching.routes import KEY_BYTES_MAX
from penstock.errors import BufferFullError, FlushTimeoutError, OptionError, ProducerClosedError
from penstock.model import OutRecord, PutResult
from penstock.options import ProducerOptions
from penstock.runtime.producer.core import SendLoop
from penstock.runtime.producer.handles import PutHandle, Puts, SyncPutHandle
from penstock.runtime.producer.intake import CHUNK_RECORDS_MAX, Claim, RecordCheck

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from penstock.core.batching import Chunk
    from penstock.events import Event
    from penstock.ports import RecordSink
    from penstock.runtime.producer.intake import AnyFuture, Checked, Portion
    from penstock.runtime.producer.metrics import ProducerSnapshot
    from penstock.wiring import WireSettings

T = TypeVar("T")
F = TypeVar("F", bound="AnyFuture")

_CHUNK_LAST = CHUNK_RECORDS_MAX - 1


class Producer(Generic[T]):
    """Puts records into a stream, batched, paced, and if asked for, aggregated and in order.

    ::

        async with Producer("orders") as producer:
            result = await producer.put(OutRecord(b"...", "customer-17"))

    ``stream`` is the name or ARN of a stream, which ``wire`` says how to reach (by default as the AWS SDK would), or
    any RecordSink. With a ``serializer`` its own values are put, and it makes an OutRecord of each. ``on_event``
    hears what happens (`penstock.events`), on the loop. A producer belongs to the event loop that it is first used
    on; `SyncProducer` is the one for threads.

    Delivery is at least once: what has an unknown outcome (a lost reply) is put again, and its PutResult says so.
    """

    @overload
    def __init__(
        self: Producer[OutRecord],
        stream: str | RecordSink,
        *,
        wire: WireSettings | None = None,
        options: ProducerOptions | None = None,
        serializer: None = None,
        on_event: Callable[[Event], None] | None = None,
        rng: random.Random | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        stream: str | RecordSink,
        *,
        wire: WireSettings | None = None,
        options: ProducerOptions | None = None,
        serializer: Callable[[T], OutRecord] | None = None,
        on_event: Callable[[Event], None] | None = None,
        rng: random.Random | None = None,
    ) -> None: ...

    def __init__(
        self,
        stream: str | RecordSink,
        *,
        wire: WireSettings | None = None,
        options: ProducerOptions | None = None,
        serializer: Callable[[T], OutRecord] | None = None,
        on_event: Callable[[Event], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        from penstock.wiring import sink_for

        self.options = options or ProducerOptions()
        sink = sink_for(stream, wire)
        self._serializer = serializer
        self._sends = SendLoop(sink, self.options, on_event=on_event, rng=rng or random.Random(), owner=self)
        self._lanes = self._sends.batcher.lanes
        self._intake = self._sends.intake
        self._room = self._intake.room
        self._check = RecordCheck(
            self._lanes, record_bytes_max=self.options.record_bytes_max, buffer_bytes_max=self.options.buffer_bytes_max
        )
        self._small_bytes = self.options.record_bytes_max - KEY_BYTES_MAX  # not too large, whatever its key
        self._handle: type[PutHandle] = PutHandle

    # --- putting --------------------------------------------------------------------------------

    async def put(self, record: T | OutRecord, *, time_to_live_s: float | None = None) -> PutResult:
        """Put a record and wait until it is written.

        Raises InvalidRecordError, BufferFullError (with ``raise_when_full``; else it waits for room),
        ProducerClosedError; PutError when it was not written. If it is cancelled, the record is withdrawn; one that
        was sent by then is not, it goes on to its end as if nothing had happened, and ``flush`` waits for it.
        """
        handle = await self._put_waiting(record, time_to_live_s)
        try:
            return await handle
        except asyncio.CancelledError:
            handle.withdraw()
            raise

    def put_nowait(self, record: T | OutRecord, *, time_to_live_s: float | None = None) -> PutHandle:
        """Put a record without waiting for anything. Raises as ``put``, and BufferFullError when there is no room."""
        chunk, room = self._intake.open, self._room
        pairs = chunk.pairs
        # The usual case, unrolled, as producers live in it: a further small record of a chunk that was begun.
        if (index := len(pairs) >> 1) and record.__class__ is OutRecord and self._serializer is None:
            data, key = record.data, record.partition_key
            if data.__class__ is bytes and key.__class__ is str and record.explicit_hash_key is None:
                held = len(data) + len(key) + RECORD_OVERHEAD_BYTES
                if (
                    held <= self._small_bytes
                    and held <= room.free
                    and index < _CHUNK_LAST
                    and time_to_live_s is None
                    and not room.waiting
                    and (key in self._lanes.routes.same or (key.isascii() and self._lanes.routes[key] >= 0))
                ):
                    # No call stands between these: both are done, or none is, also if a signal handler raises.
                    room.free -= held
                    pairs += (key, data)  # type: ignore[operator]
                    return self._handle(chunk, index)
        return self._put_carefully(self._serialized(record), time_to_live_s)

    async def put_many(
        self, records: Iterable[T | OutRecord | tuple[str, bytes]], *, time_to_live_s: float | None = None
    ) -> Puts:
        """Put many records; returns when all are taken, which may be before they are written.

        ``records`` are OutRecords, or pairs of partition key and data, which are faster (with a serializer: its
        values). All are checked first. Raises as ``put`` does for one; with InvalidRecordError and BufferFullError
        none was taken. If it is cancelled, or the producer closed, what was not sent is withdrawn.
        """
        portions = self.checked(records, time_to_live_s)
        if self.options.raise_when_full:
            return Puts(self.take_all(portions, time_to_live_s))
        taken: list[Chunk] = []
        puts = Puts(taken)
        try:
            for portion in portions:
                if taken:
                    # What was taken is sent before more comes, while it is in the processor's cache.
                    await asyncio.sleep(0)
                self._sends.check_open()
                claim = Claim(portion.held_bytes)
                try:
                    await self._wait_for_room(claim)
                    self.take_portion(portion, time_to_live_s, claim, taken)
                finally:
                    self._room.release(claim)
        except (asyncio.CancelledError, ProducerClosedError):
            await self._sends.withdraw_in_steps(taken)
            raise
        return puts

    # --- waiting --------------------------------------------------------------------------------

    async def flush(self, deadline_s: float | None = None) -> None:
        """Wait until every record that was put before has its outcome. Nothing lingers meanwhile.

        Raises FlushTimeoutError after ``deadline_s`` seconds; it tells each record that has none.
        """
        await self._sends.flush(deadline_s)

    def metrics(self) -> ProducerSnapshot:
        """What the producer did since its start."""
        return self._sends.metrics()

    def oldest_pending_s(self) -> float:
        """How long ago the oldest record was put that has no outcome yet; 0.0 if there is none."""
        return self._sends.oldest_pending_s()

    async def start(self) -> None:
        """List the stream's shards, so that the first put need not wait for that; ``async with`` does it.

        Raises what that raises: NotFoundError, AccessDeniedError, CredentialsError, TransportError, OptionError.
        """
        await self._sends.start()

    async def close(self, deadline_s: float | None = None) -> None:
        """Flush, then end. Raises FlushTimeoutError after ``deadline_s``; what had no outcome then is given up.

        Without a deadline it ends when the last record is written or its time-to-live has passed.
        """
        await self._sends.close(deadline_s)

    async def give_up(self) -> None:
        """End at once: what has no outcome is given up. For `SyncProducer`, whose close was broken off."""
        await self._sends.give_up()

    async def __aenter__(self) -> Producer[T]:
        try:
            await self.start()
        except BaseException:
            with contextlib.suppress(FlushTimeoutError):  # what was put before has its outcome: withdrawn
                await self.close(0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- for handles, and for SyncProducer ------------------------------------------------------

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """See PutHandle.withdraw."""
        return self._sends.withdraw(chunk, index)

    def withdraw_all(self, chunks: Sequence[Chunk]) -> int:
        """See Puts.withdraw."""
        return self._sends.withdraw_all(chunks)

    async def withdraw_in_steps(self, chunks: Sequence[Chunk]) -> int:
        """As ``withdraw_all``; the loop runs in between, and nothing is sent meanwhile."""
        return await self._sends.withdraw_in_steps(chunks)

    def check_process(self) -> None:
        """Raises ProducerClosedError in a process that was forked off since the producer was first used."""
        self._sends.check_process()

    def serve_threads(self, lock: threading.Lock, loop: asyncio.AbstractEventLoop, owner: Any) -> None:
        """Puts come from threads from now on, each with ``lock`` held; the loop runs in another one."""
        self._handle = SyncPutHandle
        self._intake.lock, self._intake.owner = lock, owner
        self._intake.open.owner = owner
        self._sends.serve_threads(loop.call_soon_threadsafe)

    def checked(self, records: Iterable[Any], time_to_live_s: float | None) -> list[Portion]:
        """Records in portions, all checked before the first one is given out. Raises InvalidRecordError."""
        check_time_to_live(time_to_live_s)
        if self._serializer is not None:
            records = map(self._serializer, records)
        return self._check.many(records if isinstance(records, list) else list(records))

    def ask_for_room(self, claim: Claim, make_future: Callable[[], F]) -> F | None:
        """Take what the claim wants; None if it is taken, else what is done when it was. See Room."""
        self._sends.wake()
        return self._room.ask(claim, make_future)

    def release_room(self, claim: Claim) -> None:
        """Give back what a claim holds, or wait for it no longer."""
        self._room.release(claim)

    def take_portion(self, portion: Portion, time_to_live_s: float | None, claim: Claim, taken: list[Chunk]) -> None:
        """Take records for which the claim has room, and add their chunk to ``taken``. Raises ProducerClosedError."""
        self._sends.wake()
        taken.append(self._intake.add_chunk(portion, time_to_live_s, claim))

    def take_all(self, portions: Iterable[Portion], time_to_live_s: float | None) -> list[Chunk]:
        """Take records if there is room for all of them. Raises BufferFullError."""
        self._sends.check_open()
        portions = list(portions)
        claim = Claim(sum([portion.held_bytes for portion in portions]))
        try:
            if not self._room.take(claim):
                raise self._full(claim.wanted)
            self._sends.wake()
            return [self._intake.add_chunk(portion, time_to_live_s, claim) for portion in portions]
        finally:
            self._room.release(claim)

    def check(self, record: OutRecord) -> Checked:
        """The record as it is put. Raises InvalidRecordError."""
        return self._check.one(record)

    def claim_for(self, record: Checked) -> Claim:
        """A claim to room for one record, and for a chunk of its own if it comes to that."""
        return Claim(min(record.held_bytes + CHUNK_OVERHEAD_BYTES, self._room.bytes_max))

    def put_claimed(self, record: Checked, time_to_live_s: float | None, claim: Claim) -> PutHandle:
        """Put a checked record for which the claim has room. Raises ProducerClosedError."""
        self._sends.wake()
        if time_to_live_s is None:
            return self._handle(*self._intake.add(record, claim))
        return self._handle(self._intake.add_chunk(self._check.portion_of(record), time_to_live_s, claim), 0)

    # --- parts ----------------------------------------------------------------------------------

    def _serialized(self, record: T | OutRecord) -> OutRecord:
        return record if self._serializer is None else self._serializer(record)  # type: ignore[return-value,arg-type]

    async def _put_waiting(self, record: T | OutRecord, time_to_live_s: float | None) -> PutHandle:
        try:
            if self._serializer is None:
                return self.put_nowait(record, time_to_live_s=time_to_live_s)
            record = self._serializer(record)  # type: ignore[arg-type]
            return self._put_carefully(record, time_to_live_s)
        except BufferFullError:
            if self.options.raise_when_full:
                raise
        checked = self.check(record)  # type: ignore[arg-type]
        claim = self.claim_for(checked)
        try:
            await self._wait_for_room(claim)
            return self.put_claimed(checked, time_to_live_s, claim)
        finally:
            self._room.release(claim)

    async def _wait_for_room(self, claim: Claim) -> None:
        """Take what the claim wants as soon as it is there."""
        future = self.ask_for_room(claim, asyncio.get_running_loop().create_future)
        if future is not None:
            await future

    def _put_carefully(self, record: OutRecord, time_to_live_s: float | None) -> PutHandle:
        self._sends.check_open()
        check_time_to_live(time_to_live_s)
        checked = self.check(record)
        if time_to_live_s is None and self._intake.open.pairs:
            claim = Claim(checked.held_bytes)
        else:
            claim = self.claim_for(checked)
        try:
            if not self._room.take(claim):
                raise self._full(claim.wanted)
            return self.put_claimed(checked, time_to_live_s, claim)
        finally:
            self._room.release(claim)

    def _full(self, wanted: int) -> BufferFullError:
        room = self._room
        return BufferFullError(
            f"{self._sends.stream}: no room for {wanted} bytes: {room.bytes_max - room.free} of "
            f"{room.bytes_max} (buffer_bytes_max) are taken by records that are not written yet",
            bytes_wanted=wanted,
        )


def check_time_to_live(time_to_live_s: float | None) -> None:
    """Raises OptionError for what is none."""
    if time_to_live_s is not None and not time_to_live_s > 0:
        raise OptionError(f"time_to_live_s must be more than 0, not {time_to_live_s}")
