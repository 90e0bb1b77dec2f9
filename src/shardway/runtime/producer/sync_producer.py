"""`SyncProducer` is the producer for threads."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from shardway.errors import BufferFullError, FlushTimeoutError, ProducerClosedError, PutError
from shardway.reply import Reply
from shardway.runtime.arguments import takes_arguments
from shardway.runtime.producer.arguments import ProducerArguments
from shardway.runtime.producer.errands import Errands
from shardway.runtime.producer.handles import SyncPutHandle, SyncPuts
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


class SyncProducer(Generic[T]):
    """`Producer` for any number of threads; requests are sent from an event loop in a thread of its own.

    ::

        with SyncProducer("orders") as producer:
            handle = producer.put_nowait(OutRecord(b"...", "customer-17"))
            result = handle.result()

    Arguments, errors and guarantees are those of `Producer`; ``on_event`` is called on the loop's thread. The thread
    begins at the first use: a producer that was made before a fork, and not used, is good in each process (``preload``
    of gunicorn, Celery's prefork). In a process that was forked off since, it raises ProducerClosedError: make one
    there.
    """

    @overload
    def __init__(
        self: SyncProducer[OutRecord],
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
        self._session = ProducerSession(spec, SyncPutHandle)
        self._intake = self._session.intake
        self._errands = Errands(self._session)

    def put(
        self, record: T | OutRecord, *, timeout_s: float | None = None, record_ttl_s: float | None = None
    ) -> PutResult:
        """Put a record and wait until it is written.

        Raises what `Producer.put` raises, and TimeoutError when there is no outcome after ``timeout_s`` (the record is
        then withdrawn if it was not sent; else it goes on). An error of a signal handler (Ctrl-C) has the same effect.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        handle = self._put_waiting(self._serialize(record), record_ttl_s, end_s)
        try:
            return handle.result(_left_s(end_s))
        except PutError:
            raise
        except BaseException:  # It may be whatever a signal handler raises.
            handle.withdraw()
            raise

    def put_nowait(self, record: T | OutRecord, *, record_ttl_s: float | None = None) -> SyncPutHandle:
        """Put a record without waiting for anything. Raises what `Producer.put_nowait` raises."""
        record = self._serialize(record)
        # No return stands in here: a signal handler that raises just then would leave the lock taken.
        with self._intake.lock:
            handle: SyncPutHandle = self._session.put_nowait(record, record_ttl_s)
        return handle

    def put_many(
        self, records: Iterable[T | OutRecord | tuple[str, bytes]], *, record_ttl_s: float | None = None
    ) -> SyncPuts:
        """Put many records; return when all are taken. Raises what `Producer.put_many` raises. An error of a signal
        handler (Ctrl-C) withdraws those that were not sent.
        """
        session, serializer = self._session, self._serializer
        portions = session.check_records(records if serializer is None else map(serializer, records), record_ttl_s)  # type: ignore[arg-type]
        if self.options.raise_when_full:
            with self._intake.lock:
                chunks = session.take_all(portions, record_ttl_s)
            return SyncPuts(chunks)
        taken: list[Chunk] = []
        puts = SyncPuts(taken)
        try:
            for portion in portions:
                claim = Claim(portion.held_bytes)
                try:
                    self._wait_for_room(claim, None)
                    with self._intake.lock:
                        taken.append(session.take_portion(portion, record_ttl_s, claim))
                finally:
                    self._release(claim)
        except BaseException:  # It is ProducerClosedError, or whatever a signal handler raises.
            puts.withdraw()
            raise
        return puts

    def flush(self, deadline_s: float | None = None) -> None:
        """Wait until every record that was put before has its outcome. Raises what `Producer.flush` raises."""
        self._errands.run(lambda: self._session.flush(deadline_s), _do_nothing)

    def metrics(self) -> ProducerSnapshot:
        """Return what the producer did since its start. Any thread may ask, also ``on_event``."""
        return self._errands.look(self._session.metrics, self._session.metrics)

    def oldest_pending_s(self) -> float:
        """Return the age of the oldest record without an outcome, in seconds; 0.0 if there is none."""
        return self._errands.look(self._session.oldest_pending_s, lambda: 0.0)

    def start(self) -> None:
        """List the stream's shards; ``with`` does it. Raises what `Producer.start` raises."""

        def is_closed() -> None:
            raise ProducerClosedError("the producer is closed and does not start again")

        self._errands.run(self._session.start, is_closed)

    def close(self, deadline_s: float | None = None) -> None:
        """Flush, then end. Raises what `Producer.close` raises. It may be called again."""
        self._errands.close(deadline_s)

    def __enter__(self) -> SyncProducer[T]:
        try:
            self.start()
        except BaseException:
            with contextlib.suppress(FlushTimeoutError):  # What was put before has its outcome: withdrawn.
                self.close(0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- parts ----------------------------------------------------------------------------------

    def _serialize(self, record: T | OutRecord) -> OutRecord:
        return record if self._serializer is None else self._serializer(record)  # type: ignore[return-value, arg-type]

    def _put_waiting(self, record: OutRecord, record_ttl_s: float | None, end_s: float | None) -> SyncPutHandle:
        session = self._session
        try:
            with self._intake.lock:
                handle: SyncPutHandle = session.put_nowait(record, record_ttl_s)
            return handle
        except BufferFullError:
            if self.options.raise_when_full:
                raise
        checked = session.intake.check.one(record)
        claim = session.intake.claim_for(checked, alone=True)
        try:
            self._wait_for_room(claim, end_s)
            with self._intake.lock:
                late: SyncPutHandle = session.put_claimed(checked, record_ttl_s, claim)
            return late
        finally:
            self._release(claim)

    def _wait_for_room(self, claim: Claim, end_s: float | None) -> None:
        """Take what the claim wants as soon as it is there. Raises TimeoutError."""
        with self._intake.lock:
            future = self._session.ask_for_room(claim, lambda: Reply[None]())
        if future is None:
            return
        begun_s = time.monotonic()
        try:
            future.result(_left_s(end_s))
        except TimeoutError:
            room, waited_s = self._session.intake.room, time.monotonic() - begun_s
            raise TimeoutError(
                f"{self._session.stream}: no room for {claim.wanted} bytes within {waited_s:.1f} s: "
                f"{room.bytes_max - room.free} of {room.bytes_max} (buffer_bytes_max) are taken by records that are "
                "not written yet; the record was not taken"
            ) from None

    def _release(self, claim: Claim) -> None:
        if claim.held or claim.future is not None:  # Otherwise there is nothing to give back.
            with self._intake.lock:
                self._session.intake.room.release(claim)


def _left_s(end_s: float | None) -> float | None:
    return None if end_s is None else max(0.0, end_s - time.monotonic())


def _do_nothing() -> None:
    """Do nothing: once the producer has ended, there is nothing to wait for."""
