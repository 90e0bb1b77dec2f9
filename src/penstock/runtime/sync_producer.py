"""`SyncProducer`: the producer for threads."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.errors import BufferFullError, ProducerClosedError
from penstock.runtime.handles import SyncPutHandle, SyncPuts
from penstock.runtime.loop_thread import LoopThread
from penstock.runtime.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from penstock.core.batching import Chunk
    from penstock.events import Event
    from penstock.model import OutRecord, PutResult
    from penstock.options import ProducerOptions
    from penstock.ports import RecordSink
    from penstock.runtime.producer_metrics import ProducerSnapshot
    from penstock.wiring import WireSettings

T = TypeVar("T")


class SyncProducer(Generic[T]):
    """`Producer` for any number of threads; requests are sent from an event loop in a thread of its own.

    ::

        with SyncProducer("orders") as producer:
            handle = producer.put_nowait(OutRecord(b"...", "customer-17"))
            result = handle.result()

    Arguments, errors and guarantees are those of `Producer`; ``on_event`` is called on the loop's thread. Not usable
    across ``fork``: make one after it.
    """

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
        self._producer: Producer[T] = Producer(
            stream, wire=wire, options=options, serializer=serializer, on_event=on_event, rng=rng
        )
        self.options = self._producer.options
        self._lock = threading.Lock()
        self._thread = LoopThread("penstock-producer")
        self._closed = False
        self._producer.serve_threads(self._lock, self._thread.loop, self)

    def put(
        self, record: T | OutRecord, *, timeout_s: float | None = None, time_to_live_s: float | None = None
    ) -> PutResult:
        """Put a record and wait until it is written.

        Raises as `Producer.put`, and TimeoutError when there is no outcome after ``timeout_s`` (the record is then
        withdrawn if it was not sent; else it goes on). An interrupt (Ctrl-C) does the same.
        """
        handle = self._put_waiting(record, time_to_live_s)
        try:
            return handle.result(timeout_s)
        except (TimeoutError, KeyboardInterrupt):
            handle.withdraw()
            raise

    def put_nowait(self, record: T | OutRecord, *, time_to_live_s: float | None = None) -> SyncPutHandle:
        """Put a record without waiting for anything. Raises as `Producer.put_nowait`."""
        with self._lock:
            handle: SyncPutHandle = self._producer.put_nowait(record, time_to_live_s=time_to_live_s)  # type: ignore[assignment]
        return handle

    def put_many(
        self, records: Iterable[T | OutRecord | tuple[str, bytes]], *, time_to_live_s: float | None = None
    ) -> SyncPuts:
        """Put many records; returns when all are taken. Raises as `Producer.put_many`; an interrupt withdraws them."""
        producer = self._producer
        taken: list[Chunk] = []
        puts = SyncPuts(taken)
        try:
            for portion in producer.checked(records):
                with self._lock:
                    chunk = producer.take_portion(portion, time_to_live_s)
                if chunk is None:
                    self._thread.run(producer.wait_for_room(portion.held_bytes))
                    with self._lock:
                        chunk = producer.take_portion(portion, time_to_live_s, reserved=True)
                assert chunk is not None
                taken.append(chunk)
        except (KeyboardInterrupt, BufferFullError, ProducerClosedError):
            puts.withdraw()
            raise
        return puts

    def flush(self, deadline_s: float | None = None) -> None:
        """Wait until every record that was put before has its outcome. Raises as `Producer.flush`."""
        self._thread.run(self._producer.flush(deadline_s))

    def metrics(self) -> ProducerSnapshot:
        """What the producer did since its start."""

        async def ask() -> ProducerSnapshot:
            return self._producer.metrics()

        return self._thread.run(ask())

    def start(self) -> None:
        """List the stream's shards; ``with`` does it. Raises as `Producer.start`."""
        self._thread.run(self._producer.start())

    def close(self, deadline_s: float | None = None) -> None:
        """Flush, then end. Raises as `Producer.close`. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.run(self._producer.close(deadline_s))
        finally:
            self._thread.close()

    def __enter__(self) -> SyncProducer[T]:
        try:
            self.start()
        except BaseException:
            self.close(0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """See PutHandle.withdraw."""

        async def ask() -> bool:
            return self._producer.withdraw(chunk, index)

        return self._thread.run(ask())

    def _put_waiting(self, record: T | OutRecord, time_to_live_s: float | None) -> SyncPutHandle:
        try:
            return self.put_nowait(record, time_to_live_s=time_to_live_s)
        except BufferFullError as full:
            if self.options.raise_when_full:
                raise
            held_bytes = full.bytes_wanted
        self._thread.run(self._producer.wait_for_room(held_bytes))
        with self._lock:
            handle: SyncPutHandle = self._producer.put_reserved(record, time_to_live_s)  # type: ignore[assignment]
        return handle
