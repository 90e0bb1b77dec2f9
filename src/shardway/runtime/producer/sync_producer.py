"""`SyncProducer` is the producer for threads."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from shardway.core.given import shows_arguments
from shardway.errors import BufferFullError, FlushTimeoutError, ProducerClosedError, PutError
from shardway.options import ProducerArguments, ProducerOptions
from shardway.runtime.producer.core import core_of
from shardway.runtime.producer.handles import SyncPutHandle, SyncPuts
from shardway.runtime.producer.intake import Claim
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.tasks import Reply, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from types import TracebackType
    from typing import Unpack

    from shardway.core.producer.chunk import Chunk
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.model import OutRecord, PutResult
    from shardway.ports import RecordSink
    from shardway.runtime.producer.core import ProducerCore

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar  # Python has its own from 3.13 on (PEP 696).

    T = DefaultedTypeVar("T", default=OutRecord)
else:
    T = TypeVar("T")
R = TypeVar("R")


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

    @shows_arguments(ProducerArguments, {})
    def __init__(
        self,
        stream: str | RecordSink,
        *,
        serializer: Callable[[T], OutRecord] | None = None,
        **arguments: Unpack[ProducerArguments],
    ) -> None:
        self.options = arguments.get("options") or ProducerOptions()
        self._serializer = serializer
        self._core = core_of(stream, self.options, SyncPutHandle, arguments)
        self._intake = self._core.intake
        self._errands = Errands(self._core)

    def put(
        self, record: T | OutRecord, *, timeout_s: float | None = None, record_ttl_s: float | None = None
    ) -> PutResult:
        """Put a record and wait until it is written.

        Raises what `Producer.put` raises, and TimeoutError when there is no outcome after ``timeout_s`` (the record is
        then withdrawn if it was not sent; else it goes on). An error of a signal handler (Ctrl-C) has the same effect.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        handle = self._put_waiting(self._serialized(record), record_ttl_s, end_s)
        try:
            return handle.result(_left_s(end_s))
        except PutError:
            raise
        except BaseException:  # It may be whatever a signal handler raises.
            handle.withdraw()
            raise

    def put_nowait(self, record: T | OutRecord, *, record_ttl_s: float | None = None) -> SyncPutHandle:
        """Put a record without waiting for anything. Raises what `Producer.put_nowait` raises."""
        record = self._serialized(record)
        # No return stands in here: a signal handler that raises just then would leave the lock taken.
        with self._intake.lock:
            handle: SyncPutHandle = self._core.put_nowait(record, record_ttl_s)
        return handle

    def put_many(
        self, records: Iterable[T | OutRecord | tuple[str, bytes]], *, record_ttl_s: float | None = None
    ) -> SyncPuts:
        """Put many records; return when all are taken. Raises what `Producer.put_many` raises. An error of a signal
        handler (Ctrl-C) withdraws those that were not sent.
        """
        core, serializer = self._core, self._serializer
        portions = core.checked(records if serializer is None else map(serializer, records), record_ttl_s)  # type: ignore[arg-type]
        if self.options.raise_when_full:
            with self._intake.lock:
                chunks = core.take_all(portions, record_ttl_s)
            return SyncPuts(chunks)
        taken: list[Chunk] = []
        puts = SyncPuts(taken)
        try:
            for portion in portions:
                claim = Claim(portion.held_bytes)
                try:
                    self._wait_for_room(claim, None)
                    with self._intake.lock:
                        taken.append(core.take_portion(portion, record_ttl_s, claim))
                finally:
                    self._release(claim)
        except BaseException:  # It is ProducerClosedError, or whatever a signal handler raises.
            puts.withdraw()
            raise
        return puts

    def flush(self, deadline_s: float | None = None) -> None:
        """Wait until every record that was put before has its outcome. Raises what `Producer.flush` raises."""
        self._errands.run(lambda: self._core.flush(deadline_s), _nothing)

    def metrics(self) -> ProducerSnapshot:
        """Return what the producer did since its start. Any thread may ask, also ``on_event``."""
        return self._errands.look(self._core.metrics, self._core.metrics)

    def oldest_pending_s(self) -> float:
        """Return the age of the oldest record without an outcome, in seconds; 0.0 if there is none."""
        return self._errands.look(self._core.oldest_pending_s, lambda: 0.0)

    def start(self) -> None:
        """List the stream's shards; ``with`` does it. Raises what `Producer.start` raises."""

        def is_closed() -> None:
            raise ProducerClosedError("the producer is closed and does not start again")

        self._errands.run(self._core.start, is_closed)

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

    def _serialized(self, record: T | OutRecord) -> OutRecord:
        return record if self._serializer is None else self._serializer(record)  # type: ignore[return-value, arg-type]

    def _put_waiting(self, record: OutRecord, record_ttl_s: float | None, end_s: float | None) -> SyncPutHandle:
        core = self._core
        try:
            with self._intake.lock:
                handle: SyncPutHandle = core.put_nowait(record, record_ttl_s)
            return handle
        except BufferFullError:
            if self.options.raise_when_full:
                raise
        checked = core.intake.check.one(record)
        claim = core.intake.claim_for(checked, alone=True)
        try:
            self._wait_for_room(claim, end_s)
            with self._intake.lock:
                late: SyncPutHandle = core.put_claimed(checked, record_ttl_s, claim)
            return late
        finally:
            self._release(claim)

    def _wait_for_room(self, claim: Claim, end_s: float | None) -> None:
        """Take what the claim wants as soon as it is there. Raises TimeoutError."""
        with self._intake.lock:
            future = self._core.ask_for_room(claim, lambda: Reply[None]())
        if future is None:
            return
        try:
            future.result(_left_s(end_s))
        except TimeoutError:
            raise TimeoutError("no room for the record in time; it was not taken") from None

    def _release(self, claim: Claim) -> None:
        if claim.held or claim.future is not None:  # Otherwise there is nothing to give back.
            with self._intake.lock:
                self._core.intake.room.release(claim)


class Errands:
    """Does what other threads ask of a core, whose loop runs in a thread of its own. The handles of the records
    ask it.
    """

    def __init__(self, core: ProducerCore[SyncPutHandle]) -> None:
        self._core = core
        self._begun: LoopThread | None = None
        self._beginning = threading.Lock()
        self._closed = False
        self._ended = False
        core.serve_threads(self)

    @property
    def has_begun(self) -> bool:
        """True once the loop's thread is there."""
        return self._begun is not None

    @property
    def thread(self) -> LoopThread:
        """The loop's thread, which the first use begins: a thread would not come with a process that is forked off."""
        if self._begun is None:
            # A signal handler that raised here would leave a loop without its thread, or a thread that nothing knows.
            return uninterrupted(self._begin)
        return self._begun

    def _begin(self) -> LoopThread:
        with self._beginning:
            if self._begun is None:
                self._begun = LoopThread("shardway-producer")
            return self._begun

    def call_soon(self, call: Callable[[], object]) -> None:
        """Have the loop call something soon. Any thread may ask."""
        self.thread.loop.call_soon_threadsafe(call)

    def start_over(self) -> None:
        """Take another lock in a process that was forked off: a thread that is not here may hold it."""
        self._beginning = threading.Lock()

    def run(self, work: Callable[[], Coroutine[Any, Any, R]], ended: Callable[[], R]) -> R:
        """Run the work on the loop; once that has ended, return what ``ended`` returns."""
        self._core.check_process()
        thread = self.thread
        try:
            if not self._ended:
                return thread.run(work())
        except RuntimeError:
            if not self._closed or thread.is_current():
                raise
            thread.join()
        return ended()

    def look(self, work: Callable[[], R], ended: Callable[[], R]) -> R:
        """Run work that takes no time, and that ``on_event`` may ask for, which runs on the loop's thread."""

        async def ask() -> R:
            return work()

        self._core.check_process()
        if self._begun is None or self._begun.is_current():
            return work()
        return self.run(ask, ended)

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """See `PutHandle.withdraw`."""

        async def ask() -> bool:
            return self._core.withdraw(chunk, index)

        return self.run(ask, lambda: False)

    def withdraw_all(self, chunks: Sequence[Chunk]) -> int:
        """See `Puts.withdraw`."""
        return self.run(lambda: self._core.withdraw_in_steps(chunks), lambda: 0)

    def check_process(self) -> None:
        """Raise ProducerClosedError in a process that was forked off since the producer was made."""
        self._core.check_process()

    def close(self, deadline_s: float | None) -> None:
        """Close the core, and end the thread."""
        if self._closed or self._core.is_forked:
            return
        thread = self.thread  # A signal handler may raise here: then the producer is not closed yet.
        self._closed = True
        try:
            thread.run(self._core.close(deadline_s))
        except FlushTimeoutError:
            raise
        except BaseException:
            # Perhaps the close never began: a signal handler raised. What was put has its outcome all the same.
            thread.run(self._core.give_up())
            raise
        finally:
            thread.close()
            self._ended = True


def _left_s(end_s: float | None) -> float | None:
    return None if end_s is None else max(0.0, end_s - time.monotonic())


def _nothing() -> None:
    """Do nothing: once the producer has ended, there is nothing to wait for."""
