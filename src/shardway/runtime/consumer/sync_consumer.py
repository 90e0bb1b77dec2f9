"""`SyncConsumer` is the consumer for threads. It reads on an event loop in a thread of its own.

A record is settled by the thread that says so (`shardway.runtime.shard.batch`). A call that waits, waits for the loop.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from shardway.errors import CheckpointError
from shardway.options.consumer import ConsumerOptions
from shardway.runtime.arguments import takes_arguments
from shardway.runtime.consumer.arguments import SyncConsumerArguments
from shardway.runtime.consumer.collection import collect
from shardway.runtime.consumer.iterations import closed_error
from shardway.runtime.consumer.session import ConsumerSession
from shardway.runtime.consumer.shards import ShardFace
from shardway.runtime.consumer.spec import consumer_spec
from shardway.runtime.shard.batch import Delivered
from shardway.runtime.threads.calls import ThreadExitError, each, in_thread, on_loop, unless_closed
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.tasks import logged, thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Iterable, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from typing_extensions import TypeVar as DefaultedTypeVar  # Python has its own from 3.13 on (PEP 696).

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.events.consumer_snapshot import ConsumerSnapshot
    from shardway.model import Position, Record, StartingPosition
    from shardway.ports import RecordSource
    from shardway.runtime.consumer.collection import Collection
    from shardway.runtime.consumer.concurrency import Concurrency
    from shardway.runtime.consumer.lifecycle import AssignedShard
    from shardway.runtime.consumer.shards import Located
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.statistics import ConsumerStatistics
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.pending import PendingCheckpoint
    from shardway.runtime.shard.shard_reader import ShardReader

    Callback = Callable[[Sequence[AssignedShard]], object]
    T = DefaultedTypeVar("T", default=bytes)
else:
    T = TypeVar("T")
R = TypeVar("R")

HANDLERS_MAX = 32
"""The most threads for handlers, unless the program asks for more."""


class SyncConsumer(Generic[T]):
    """`Consumer` for plain threads; it reads on an event loop in a thread of its own.

    ::

        with SyncConsumer("orders", application="billing") as consumer:
            for batch in consumer:
                with batch:
                    handle(batch.records)

    Arguments, errors and guarantees are those of `Consumer`. Callbacks are plain functions, called in a thread of their
    own; ``on_event`` is called on the loop's thread. Any number of threads may use it. A call that waits raises
    RuntimeError on the loop's own thread (in ``on_event``, ``split``, a key), since it would wait for itself, and in a
    process that was forked off.
    """

    @overload
    def __init__(
        self: SyncConsumer[bytes],
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: None = ...,
        split: None = ...,
        **arguments: Unpack[SyncConsumerArguments],
    ) -> None: ...

    @overload
    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: None = ...,
        split: Callable[[Record], Iterable[T]],
        **arguments: Unpack[SyncConsumerArguments],
    ) -> None: ...

    @overload
    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: Callable[[bytes], T],
        split: None = ...,
        **arguments: Unpack[SyncConsumerArguments],
    ) -> None: ...

    @takes_arguments(SyncConsumerArguments, ConsumerOptions().arguments())
    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: Callable[[bytes], T] | None = None,
        split: Callable[[Record], Iterable[T]] | None = None,
        **arguments: Unpack[SyncConsumerArguments],
    ) -> None:
        spec = consumer_spec(stream, application, deserializer, split, arguments)
        self._callbacks = ThreadPoolExecutor(1, thread_name_prefix="shardway-callbacks")
        callbacks = {change: self._in_thread(callback) for change, callback in spec.hooks.callbacks.items()}
        self._session = self._session_of(replace(spec, hooks=replace(spec.hooks, callbacks=callbacks)))
        self.application = application
        self.options = self._session.spec.options
        self._thread = LoopThread("shardway-consumer")
        self._close_lock = threading.Lock()
        self._last_statistics: ConsumerStatistics | None = None

    def _session_of(self, spec: ConsumerSpec) -> ConsumerSession:
        """See `Consumer`: this does the same for threads."""
        return ConsumerSession(spec)

    @property
    def worker_id(self) -> str:
        """See `Consumer.worker_id`: it is the same."""
        return self._session.run.worker_id

    def start(self) -> None:
        """Begin; ``with`` does it. Raises what `Consumer.start` raises."""
        self._thread.run(self._session.start())

    def close(self) -> None:
        """Hand over all shards, and end. Iterations in other threads end, too. It may be called again."""
        self._close(self._session.close)

    def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._close_lock:
            if self._last_statistics is not None:
                return
            try:
                self._thread.run(close())
            finally:
                self._last_statistics = self._thread.run(self._statistics())
                self._thread.close()
                self._callbacks.shutdown(wait=False)

    @property
    def closed(self) -> bool:
        """See `Consumer.closed`."""
        return self._session.closing.is_done or self._thread.is_closed

    def deregister(self) -> None:
        """See `Consumer.deregister`: this does the same for threads."""
        self._thread.run(self._session.streams.deregister())

    def close_on_signals(self, *numbers: int) -> None:
        """See `Consumer.close_on_signals`: this does the same for threads. The main thread has to call it."""
        awaited = numbers or (signal.SIGTERM, signal.SIGINT)

        def close(received: int, _: object) -> None:
            for number in awaited:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

            async def close_by_signal() -> None:
                self._session.close_by_signal(signal.Signals(received).name)
                await self._session.close()

            # A thread closes it: the main one may wait for the very loop that closes.
            begin = partial(self._close, close_by_signal)
            thread(begin, "shardway-close", logged("closing the consumer has failed"), daemon=False)

        for number in awaited:
            signal.signal(number, close)

    def __enter__(self) -> Self:
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

    def __iter__(self) -> Generator[Batch[T], None, None]:
        """See `Consumer.__aiter__`: this does the same for threads."""
        return each(self._thread, self._session.iterations.batches)

    def records(self) -> Generator[Delivered[T], None, None]:
        """See `Consumer.records`: this does the same for threads."""
        with contextlib.closing(iter(self)) as batches:
            for batch in batches:
                for index in range(len(batch)):
                    if not batch._may_go_on(index):
                        break
                    yield Delivered(batch, index)

    def getmany(self, records_max: int = 10_000, wait_s: float | None = None) -> list[Batch[T]]:
        """See `Consumer.getmany`: this does the same for threads."""
        if wait_s is not None and self.closed:
            raise closed_error(self.application)
        return (
            self._unless_closed(lambda: self._thread.run(self._session.iterations.getmany(records_max, wait_s))) or []
        )

    def shards(self) -> Generator[SyncShard[T], None, None]:
        """See `Consumer.shards`: this does the same for threads. Iterate each shard in a thread of its own."""
        with contextlib.closing(each(self._thread, self._session.iterations.readers)) as readers:
            for reader in readers:
                yield SyncShard(reader, self._thread)

    def collect(
        self, key: Callable[[Record], Hashable], *, records: int, age_s: float = math.inf
    ) -> Generator[Collection[T], None, None]:
        """See `Consumer.collect`: this does the same for one thread. ``key`` is called on the loop's thread, so it
        returns at once. What waits when the iteration is left is delivered again: where the program goes on behind it,
        leave it with `contextlib.closing`.
        """
        return each(
            self._thread, lambda: collect(self._session.iterations.batches(), key, records=records, age_s=age_s)
        )

    def run_batches(
        self,
        handler: Callable[[Batch[T]], object],
        *,
        concurrency: Concurrency | None = None,
        handlers_max: int = HANDLERS_MAX,
    ) -> None:
        """See `Consumer.run_batches`: this does the same with a plain function, which is called in at most
        ``handlers_max`` threads. It returns when the consumer is closed, by another thread or by the handler.
        """
        self._run(handler, concurrency, handlers_max, each_record=False)

    def run_records(
        self,
        handler: Callable[[Delivered[T]], object],
        *,
        concurrency: Concurrency | None = None,
        handlers_max: int = HANDLERS_MAX,
    ) -> None:
        """See `Consumer.run_records`: this does the same with a plain function, which threads call as for
        `run_batches`.
        """
        self._run(handler, concurrency, handlers_max, each_record=True)

    def _run(
        self, handler: Callable[[Any], object], concurrency: Concurrency | None, handlers_max: int, *, each_record: bool
    ) -> None:
        if handlers_max < 1:
            raise ValueError("handlers_max must be at least 1")
        pool = ThreadPoolExecutor(handlers_max, thread_name_prefix="shardway-handler")

        async def call(given: Any) -> None:
            await in_thread(pool, handler, given)

        try:
            driving = self._session.iterations.run(call, concurrency, handlers_max, each_record=each_record)
            self._unless_closed(lambda: self._thread.run(driving))
        except ThreadExitError as left:
            raise left.error from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def prepare(self, batch: Batch[Any], state: bytes | None = None, *, index: int = -1) -> PendingCheckpoint:
        """See `Consumer.prepare`: this does the same for threads."""
        return self._store(lambda: self._session.checkpoints.prepare(batch, state, index=index))

    def commit(self, pending: PendingCheckpoint) -> None:
        """See `Consumer.commit`: this does the same for threads."""
        self._store(lambda: self._session.checkpoints.commit(pending))

    def abandon(self, pending: PendingCheckpoint) -> None:
        """See `Consumer.abandon`: this does the same for threads."""
        self._store(lambda: self._session.checkpoints.abandon(pending))

    def pending(self, shard: str | Located) -> PendingCheckpoint | None:
        """See `Consumer.pending`: this does the same for threads."""
        return self._call(lambda: self._session.checkpoints.pending(shard))

    def _store(self, ask: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Ask the loop for a write and wait for it. Raises CheckpointError also once the consumer is closed."""
        try:
            return self._thread.run(ask())
        except RuntimeError as error:
            if not self._thread.is_closed:
                raise
            raise CheckpointError("the consumer is closed: no checkpoint can be stored any more") from error

    def pause(self, *shards: str | Located) -> None:
        """See `Consumer.pause`: this does the same for threads."""
        self._call(lambda: self._session.shards.pause(*shards))

    def resume(self, *shards: str | Located) -> None:
        """See `Consumer.resume`: this does the same for threads."""
        self._call(lambda: self._session.shards.resume(*shards))

    def seek(self, shard: str | Located, to: Position | StartingPosition) -> None:
        """See `Consumer.seek`: this does the same for threads."""
        self._call(lambda: self._session.seeks.seek(shard, to))

    def position(self, shard: str | Located) -> Position | None:
        """See `Consumer.position`: this does the same for threads."""
        return self._call(lambda: self._session.shards.position(shard))

    def statistics(self) -> ConsumerStatistics:
        """See `Consumer.statistics`: this does the same for threads. Once the consumer is closed, they are as they were
        then.
        """
        if self._thread.is_current():  # A subscriber asks.
            return self._session.figures.statistics()
        with self._close_lock:
            return self._last_statistics or self._thread.run(self._statistics())

    def metrics(self) -> ConsumerSnapshot:
        """See `Consumer.metrics`: this does the same for threads."""
        return self._session.figures.metrics()

    async def _statistics(self) -> ConsumerStatistics:
        return self._session.figures.statistics()

    def _call(self, work: Callable[[], R]) -> R:
        return on_loop(self._thread, work)

    def _unless_closed(self, work: Callable[[], R]) -> R | None:
        return unless_closed(self._thread, work)

    def _in_thread(self, callback: Callback) -> Callable[[Sequence[AssignedShard]], Awaitable[object]]:
        async def call(shards: Sequence[AssignedShard]) -> None:
            try:
                await in_thread(self._callbacks, callback, shards)
            except ThreadExitError as left:
                raise RuntimeError(f"a callback ended with {type(left.error).__name__}") from left.error

        return call


class SyncShard(ShardFace[T]):
    """A shard while a `SyncConsumer` holds it: iterate it for its batches, in a thread of its own. It ends when the
    tenure does.
    """

    __slots__ = ("_thread",)

    def __init__(self, reader: ShardReader, thread: LoopThread) -> None:
        super().__init__(reader)
        self._thread = thread

    def __iter__(self) -> Generator[Batch[T], None, None]:
        """See `Shard.__aiter__`: this does the same for threads."""
        return each(self._thread, lambda: aiter(self._reader.delivery))

    def next_batch(self) -> Batch[T] | None:
        """See `Shard.next_batch`: this does the same for threads."""
        return unless_closed(self._thread, lambda: self._thread.run(self._reader.delivery.next_batch()))

    def until_stored(self, checkpoint: Checkpoint) -> bool:
        """See `Shard.until_stored`: this does the same for threads."""
        checkpointing = self._reader.checkpointing
        waited = unless_closed(self._thread, lambda: self._thread.run(checkpointing.until_stored(checkpoint)))
        return self.stored >= checkpoint if waited is None else waited

    def collect(
        self, key: Callable[[Record], Hashable], *, records: int, age_s: float = math.inf
    ) -> Generator[Collection[T], None, None]:
        """See `SyncConsumer.collect`: this does the same for the records of this shard."""
        return each(self._thread, lambda: collect(self._reader.delivery, key, records=records, age_s=age_s))
