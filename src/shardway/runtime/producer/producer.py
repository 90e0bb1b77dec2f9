"""`Producer` puts records into a stream, on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from shardway.errors import BufferFullError, FlushTimeoutError, ProducerClosedError
from shardway.runtime.arguments import takes_arguments
from shardway.runtime.producer.arguments import ProducerArguments
from shardway.runtime.producer.handles import PutHandle, Puts
from shardway.runtime.producer.room import Claim
from shardway.runtime.producer.session import ProducerSession
from shardway.runtime.producer.spec import producer_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Unpack

    from shardway.core.producer.chunk import Chunk
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.model import OutRecord, PutResult
    from shardway.ports import RecordSink

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar  # Python has its own from 3.13 on (PEP 696).

    T = DefaultedTypeVar("T", default=OutRecord)
else:
    T = TypeVar("T")


class Producer(Generic[T]):
    """Puts records into a stream: batched and paced; aggregated and in order where the options say so.

    ::

        async with Producer("orders") as producer:
            result = await producer.put(OutRecord(b"...", "customer-17"))

    ``stream`` is the name or ARN of a stream, or any RecordSink. ``region``, ``endpoint_url`` and ``profile`` say how
    AWS is reached, and ``connection`` has the rest (`ConnectionOptions`); what is not given is looked up as the AWS SDK
    does. ``options`` has how records are packed, sent and repeated (`ProducerOptions`). With a ``serializer`` its own
    values are put, and it makes an OutRecord of each. ``on_event`` hears what happens (`shardway.events`), on the loop;
    ``tracing`` makes spans (`shardway.telemetry.OpenTelemetryTracing`). A producer belongs to the event loop that it is
    first used on; `SyncProducer` is the producer for threads.

    Delivery is at least once: what has an unknown outcome (a lost reply) is put again, and its PutResult says so.
    """

    @overload
    def __init__(
        self: Producer[OutRecord],
        stream: str | RecordSink,
        *,
        serializer: None = None,
        **arguments: Unpack[ProducerArguments],
    ) -> None: ...

    @overload
    def __init__(
        self,
        stream: str | RecordSink,
        *,
        serializer: Callable[[T], OutRecord] | None = None,
        **arguments: Unpack[ProducerArguments],
    ) -> None: ...

    @takes_arguments(ProducerArguments, {})
    def __init__(
        self,
        stream: str | RecordSink,
        *,
        serializer: Callable[[T], OutRecord] | None = None,
        **arguments: Unpack[ProducerArguments],
    ) -> None:
        spec = producer_spec(stream, arguments)
        self.options = spec.options
        self._serializer = serializer
        self._session = ProducerSession(spec, PutHandle)
        self._put = self._session.put_nowait if serializer is None else self._put_serialized

    # --- putting --------------------------------------------------------------------------------

    async def put(self, record: T | OutRecord, *, record_ttl_s: float | None = None) -> PutResult:
        """Put a record and wait until it is written.

        Raises InvalidRecordError, BufferFullError (with ``raise_when_full``; else it waits for room),
        ProducerClosedError; PutError when it was not written. If it is cancelled, the record is withdrawn; one that
        was sent by then is not, it goes on to its end as if nothing had happened, and ``flush`` waits for it.
        """
        handle = await self._put_waiting(record, record_ttl_s)
        try:
            return await handle
        except asyncio.CancelledError:
            handle.withdraw()
            raise

    def put_nowait(self, record: T | OutRecord, *, record_ttl_s: float | None = None) -> PutHandle:
        """Put a record without waiting for anything. Raises what ``put`` raises, and BufferFullError when there is no
        room.
        """
        return self._put(record, record_ttl_s)  # type: ignore[arg-type]

    async def put_many(
        self, records: Iterable[T | OutRecord | tuple[str, bytes]], *, record_ttl_s: float | None = None
    ) -> Puts:
        """Put many records; returns when all are taken, which may be before they are written.

        ``records`` are OutRecords, or pairs of partition key and data, which are faster (with a serializer: its
        values). All are checked first. Raises for one of them what ``put`` raises; with InvalidRecordError and
        BufferFullError none was taken. If it is cancelled, or the producer closed, what was not sent is withdrawn.
        """
        session, serializer = self._session, self._serializer
        portions = session.check_records(records if serializer is None else map(serializer, records), record_ttl_s)  # type: ignore[arg-type]
        if self.options.raise_when_full:
            return Puts(session.take_all(portions, record_ttl_s))
        taken: list[Chunk] = []
        puts = Puts(taken)
        try:
            for portion in portions:
                if taken:
                    # What was taken is sent before more comes, while it is in the processor's cache.
                    await asyncio.sleep(0)
                session.check_open()
                claim = Claim(portion.held_bytes)
                try:
                    await self._wait_for_room(claim)
                    taken.append(session.take_portion(portion, record_ttl_s, claim))
                finally:
                    session.intake.room.release(claim)
        except (asyncio.CancelledError, ProducerClosedError):
            await session.withdraw_in_steps(taken)
            raise
        return puts

    # --- waiting --------------------------------------------------------------------------------

    async def flush(self, deadline_s: float | None = None) -> None:
        """Wait until every record that was put before has its outcome. Nothing lingers meanwhile.

        Raises FlushTimeoutError after ``deadline_s`` seconds; it has each record without an outcome.
        """
        await self._session.flush(deadline_s)

    def metrics(self) -> ProducerSnapshot:
        """Return what the producer did since its start. Any thread may ask; on another than the loop's, what was put in
        the last moment may not be in it yet.
        """
        return self._session.metrics()

    def oldest_pending_s(self) -> float:
        """Return the age of the oldest record without an outcome, in seconds; 0.0 if there is none. Any thread
        may ask.
        """
        return self._session.oldest_pending_s()

    async def start(self) -> None:
        """List the stream's shards, so that the first put need not wait for that; ``async with`` does it.

        Raises what the listing raises: NotFoundError, AccessDeniedError, CredentialsError, TransportError, OptionError.
        """
        await self._session.start()

    async def close(self, deadline_s: float | None = None) -> None:
        """Flush, then end. Raises FlushTimeoutError after ``deadline_s``; what had no outcome then is given up.

        Without a deadline it ends when the last record is written or its time to live has passed.
        """
        await self._session.close(deadline_s)

    async def __aenter__(self) -> Producer[T]:
        try:
            await self.start()
        except BaseException:
            with contextlib.suppress(FlushTimeoutError):  # What was put before has its outcome: withdrawn.
                await self.close(0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- parts ----------------------------------------------------------------------------------

    def _put_serialized(self, record: Any, record_ttl_s: float | None) -> PutHandle:
        assert self._serializer is not None
        return self._session.put_nowait(self._serializer(record), record_ttl_s)

    async def _put_waiting(self, record: T | OutRecord, record_ttl_s: float | None) -> PutHandle:
        session = self._session
        if self._serializer is not None:
            record = self._serializer(record)  # type: ignore[arg-type]
        try:
            return session.put_nowait(record, record_ttl_s)  # type: ignore[arg-type]
        except BufferFullError:
            if self.options.raise_when_full:
                raise
        checked = session.intake.check.one(record)  # type: ignore[arg-type]
        claim = session.intake.claim_for(checked, alone=True)
        try:
            await self._wait_for_room(claim)
            return session.put_claimed(checked, record_ttl_s, claim)
        finally:
            session.intake.room.release(claim)

    async def _wait_for_room(self, claim: Claim) -> None:
        """Take what the claim wants as soon as it is there."""
        future = self._session.ask_for_room(claim, asyncio.get_running_loop().create_future)
        if future is not None:
            await future
