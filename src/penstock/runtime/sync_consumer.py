"""`SyncConsumer`: the consumer for threads."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.given import not_callable
from penstock.errors import OptionError
from penstock.runtime.consumer.consumer import FUNCTIONS, Consumer
from penstock.runtime.consumer.sync_batch import SyncBatch, SyncDelivered
from penstock.runtime.consumer.sync_iterating import ThreadExitError, each, in_thread, on_loop, unless_closed
from penstock.runtime.consumer.sync_shard import SyncShard
from penstock.runtime.loop_thread import LoopThread
from penstock.tasks import logged, thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
    from types import TracebackType

    from penstock.model import Position, StartAt
    from penstock.ports import LeaseTable, RecordSource
    from penstock.runtime.consumer.driving import Concurrency
    from penstock.runtime.consumer.lifecycle import AssignedShard, Located
    from penstock.runtime.consumer.metering import MetricsOptions
    from penstock.runtime.consumer.statistics import ConsumerStatistics
    from penstock.runtime.worker.settings import WorkerSettings
    from penstock.telemetry.consumer_metrics import ConsumerSnapshot
    from penstock.wiring import LeaseTableOptions, WireSettings

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - an item

HANDLERS_MAX = 32
"""The most threads for handlers, unless more are asked for."""


class SyncConsumer:
    """`Consumer` for plain threads; it reads on an event loop in a thread of its own.

    ::

        with SyncConsumer("orders", application="billing") as consumer:
            for batch in consumer:
                with batch:
                    handle(batch.records)

    Arguments, errors and guarantees are those of `Consumer`. Callbacks are plain functions, called in a thread of their
    own; ``on_event`` is called on the loop's thread. Any number of threads may use it. Not usable across ``fork``.
    """

    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        worker_id: str | None = None,
        leases: LeaseTable | LeaseTableOptions | None = None,
        settings: WorkerSettings | None = None,
        wire: WireSettings | None = None,
        deserializer: Callable[[bytes], Any] | None = None,
        on_shards_assigned: Callable[[Sequence[AssignedShard]], object] | None = None,
        on_shards_ended: Callable[[Sequence[AssignedShard]], object] | None = None,
        on_shards_revoked: Callable[[Sequence[AssignedShard]], object] | None = None,
        on_shards_lost: Callable[[Sequence[AssignedShard]], object] | None = None,
        on_event: Callable[[Any], None] | None = None,
        metrics: MetricsOptions | None = None,
    ) -> None:
        if faults := not_callable(locals(), FUNCTIONS):
            raise OptionError(faults)
        self._callbacks = ThreadPoolExecutor(1, thread_name_prefix="penstock-callbacks")
        self._consumer = Consumer(
            stream,
            application=application,
            worker_id=worker_id,
            leases=leases,
            settings=settings,
            wire=wire,
            deserializer=deserializer,
            on_shards_assigned=self._in_thread(on_shards_assigned),
            on_shards_ended=self._in_thread(on_shards_ended),
            on_shards_revoked=self._in_thread(on_shards_revoked),
            on_shards_lost=self._in_thread(on_shards_lost),
            on_event=on_event,
            metrics=metrics,
        )
        self._consumer._may_be_apart = False  # it has a loop of its own already
        self.application = application
        self.settings = self._consumer.settings
        self._thread = LoopThread("penstock-consumer")
        self._closing = threading.Lock()
        self._last: ConsumerStatistics | None = None

    @property
    def worker_id(self) -> str:
        """As `Consumer.worker_id`."""
        return self._consumer.worker_id

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; ``with`` does it. Raises as `Consumer.start`."""
        self._thread.run(self._consumer.start())

    def close(self) -> None:
        """Hand over all shards, and end. Iterations in other threads end, too. May be called again."""
        with self._closing:
            if self._last is not None:
                return
            try:
                self._thread.run(self._consumer.close())
            finally:
                self._last = self._thread.run(self._statistics())
                self._thread.close()
                self._callbacks.shutdown(wait=False)

    def deregister(self) -> None:
        """As `Consumer.deregister`."""
        self._thread.run(self._consumer.deregister())

    def close_on_signals(self, *numbers: int) -> None:
        """As `Consumer.close_on_signals`. To be called by the main thread."""
        awaited = numbers or (signal.SIGTERM, signal.SIGINT)

        def close(*_: object) -> None:
            for number in awaited:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            # In a thread: the main one may wait for the very loop that closes.
            thread(self.close, "penstock-close", logged("closing the consumer has failed"), daemon=False)

        for number in awaited:
            signal.signal(number, close)

    def __enter__(self) -> SyncConsumer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading --------------------------------------------------------------------------------

    def __iter__(self) -> Generator[SyncBatch, None, None]:
        """As ``async for`` over a `Consumer`."""
        for batch in self._each(lambda: aiter(self._consumer)):
            yield SyncBatch(batch, self._thread)

    def records(self) -> Generator[SyncDelivered, None, None]:
        """As `Consumer.records`."""
        for record in self._each(self._consumer.records):
            yield SyncDelivered(record, self._thread)

    def getmany(self, records_max: int = 10_000, wait_s: float | None = None) -> list[SyncBatch]:
        """As `Consumer.getmany`."""
        found = self._unless_closed(lambda: self._thread.run(self._consumer.getmany(records_max, wait_s)))
        return [SyncBatch(batch, self._thread) for batch in found or ()]

    def shards(self) -> Generator[SyncShard, None, None]:
        """As `Consumer.shards`: iterate each in a thread of its own."""
        for reader in self._each(self._consumer.shards):
            yield SyncShard(reader, self._thread)

    def run(
        self,
        handler: Callable[[Any], object],
        *,
        concurrency: Concurrency | None = None,
        each_record: bool = False,
        handlers_max: int = HANDLERS_MAX,
    ) -> None:
        """As `Consumer.run`, with a plain function, which is called in at most ``handlers_max`` threads. Returns when
        the consumer is closed, by another thread or by the handler.
        """
        if handlers_max < 1:
            raise ValueError("handlers_max must be at least 1")
        pool = ThreadPoolExecutor(handlers_max, thread_name_prefix="penstock-handler")

        async def call(given: Any) -> None:
            wrapped = SyncDelivered(given, self._thread) if each_record else SyncBatch(given, self._thread)
            await in_thread(pool, handler, wrapped)

        try:
            driving = self._consumer.run(
                call, concurrency=concurrency, each_record=each_record, handlers_max=handlers_max
            )
            self._unless_closed(lambda: self._thread.run(driving))
        except ThreadExitError as left:
            raise left.error from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    # --- steering -------------------------------------------------------------------------------

    def pause(self, *shards: str | Located) -> None:
        """As `Consumer.pause`."""
        self._call(lambda: self._consumer.pause(*shards))

    def resume(self, *shards: str | Located) -> None:
        """As `Consumer.resume`."""
        self._call(lambda: self._consumer.resume(*shards))

    def seek(self, shard: str | Located, to: Position | StartAt) -> None:
        """As `Consumer.seek`."""
        self._call(lambda: self._consumer.seek(shard, to))

    def position(self, shard: str | Located) -> Position | None:
        """As `Consumer.position`."""
        return self._call(lambda: self._consumer.position(shard))

    def statistics(self) -> ConsumerStatistics:
        """As `Consumer.statistics`; once it is closed, as it was then."""
        with self._closing:
            return self._last or self._thread.run(self._statistics())

    def metrics(self) -> ConsumerSnapshot:
        """As `Consumer.metrics`."""
        return self._consumer.metrics()

    # --- parts ----------------------------------------------------------------------------------

    async def _statistics(self) -> ConsumerStatistics:
        return self._consumer.statistics()

    @property
    def _asynchronous(self) -> Consumer:
        return self._consumer

    def _call(self, work: Callable[[], R]) -> R:
        return on_loop(self._thread, work)

    def _each(self, iterate: Callable[[], AsyncIterator[I]]) -> Generator[I, None, None]:
        return each(self._thread, iterate)

    def _unless_closed(self, work: Callable[[], R]) -> R | None:
        return unless_closed(self._thread, work)

    def _in_thread(
        self, callback: Callable[[Sequence[AssignedShard]], object] | None
    ) -> Callable[[Sequence[AssignedShard]], Awaitable[object]] | None:
        if callback is None:
            return None
        called = callback

        async def call(shards: Sequence[AssignedShard]) -> None:
            try:
                await in_thread(self._callbacks, called, shards)
            except ThreadExitError as left:
                raise RuntimeError(f"a callback ended with {type(left.error).__name__}") from left.error

        return call
