"""What handlers get in plain threads: batches and single records, settled on the loop's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import CheckpointError
from penstock.runtime.consumer.sync_iterating import on_loop
from penstock.runtime.shard.batch import settle_on_leaving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from types import TracebackType

    from penstock.model import Position, Record
    from penstock.runtime.consumer.delivered import Delivered
    from penstock.runtime.loop_thread import LoopThread
    from penstock.runtime.shard.batch import Batch
    from penstock.runtime.shard.two_phase import PendingCheckpoint

R = TypeVar("R")


class SyncBatch:
    """A `Batch` for threads: the same names. ``with batch:`` settles it at its end; what the block raises is a failure
    of the batch, which the retry policy takes from there.
    """

    __slots__ = ("_batch", "_thread")

    def __init__(self, batch: Batch[Record], thread: LoopThread) -> None:
        self._batch = batch
        self._thread = thread

    @property
    def stream(self) -> str:
        """As `Batch.stream`."""
        return self._batch.stream

    @property
    def shard_id(self) -> str:
        """As `Batch.shard_id`."""
        return self._batch.shard_id

    @property
    def token(self) -> int:
        """As `Batch.token`."""
        return self._batch.token

    @property
    def millis_behind_latest(self) -> int | None:
        """As `Batch.millis_behind_latest`."""
        return self._batch.millis_behind_latest

    @property
    def attempt(self) -> int:
        """As `Batch.attempt`."""
        return self._batch.attempt

    @property
    def records(self) -> Sequence[Record]:
        """As `Batch.records`."""
        return self._batch.records

    @property
    def values(self) -> Sequence[Any]:
        """As `Batch.values`."""
        return self._batch.values

    def __len__(self) -> int:
        return len(self._batch)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._batch)

    def ack(self, *indices: int) -> bool:
        """As `Batch.ack`."""
        return self._tell(lambda: self._batch.ack(*indices))

    @property
    def counts(self) -> bool:
        """As `Batch.counts`."""
        return self._batch.counts

    @property
    def leaving(self) -> bool:
        """As `Batch.leaving`."""
        return self._batch.leaving

    def unsettled(self) -> list[Position]:
        """As `Batch.unsettled`."""
        if self._thread.is_closed:
            return self._batch.unsettled()
        return on_loop(self._thread, self._batch.unsettled)

    def prepare(self, state: bytes | None = None, *, index: int = -1) -> SyncPendingCheckpoint:
        """As `Batch.prepare`."""
        pending = asked(self._thread, lambda: self._batch.prepare(state, index=index))
        return SyncPendingCheckpoint(pending, self._thread)

    def settle_through(self, record: int | Record) -> bool:
        """As `Batch.settle_through`."""
        return self._tell(lambda: self._batch.settle_through(record))

    def nack(self, *indices: int, delay_s: float = 0.0) -> bool:
        """As `Batch.nack`."""
        return self._tell(lambda: self._batch.nack(*indices, delay_s=delay_s))

    def skip(self, *indices: int, reason: str = "skipped") -> bool:
        """As `Batch.skip`."""
        return self._tell(lambda: self._batch.skip(*indices, reason=reason))

    def dead_letter(self, *indices: int, error: BaseException | None = None) -> bool:
        """As `Batch.dead_letter`."""
        return self._tell(lambda: self._batch.dead_letter(*indices, error=error))

    def fail(self, error: BaseException, *indices: int) -> bool:
        """As `Batch.fail`."""
        return self._tell(lambda: self._batch.fail(error, *indices))

    def _left(self) -> bool:
        return tell(self._thread, self._batch._left)

    def __enter__(self) -> SyncBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return settle_on_leaving(self, error)

    def _tell(self, work: Callable[[], bool]) -> bool:
        return tell(self._thread, work)


class SyncDelivered:
    """A `Delivered` record for threads: the same names. ``with record:`` settles it at its end."""

    __slots__ = ("_delivered", "_thread")

    def __init__(self, delivered: Delivered, thread: LoopThread) -> None:
        self._delivered = delivered
        self._thread = thread

    @property
    def record(self) -> Record:
        """As `Delivered.record`."""
        return self._delivered.record

    @property
    def data(self) -> bytes:
        """As `Delivered.data`."""
        return self._delivered.data

    @property
    def value(self) -> Any:
        """As `Delivered.value`."""
        return self._delivered.value

    @property
    def stream(self) -> str:
        """As `Delivered.stream`."""
        return self._delivered.stream

    @property
    def shard_id(self) -> str:
        """As `Delivered.shard_id`."""
        return self._delivered.shard_id

    @property
    def token(self) -> int:
        """As `Delivered.token`."""
        return self._delivered.token

    @property
    def attempt(self) -> int:
        """As `Delivered.attempt`."""
        return self._delivered.attempt

    def ack(self) -> bool:
        """As `Delivered.ack`."""
        return tell(self._thread, self._delivered.ack)

    def settle_through(self) -> bool:
        """As `Delivered.settle_through`."""
        return tell(self._thread, self._delivered.settle_through)

    def nack(self, delay_s: float = 0.0) -> bool:
        """As `Delivered.nack`."""
        return tell(self._thread, lambda: self._delivered.nack(delay_s))

    def skip(self, reason: str = "skipped") -> bool:
        """As `Delivered.skip`."""
        return tell(self._thread, lambda: self._delivered.skip(reason))

    def dead_letter(self, error: BaseException | None = None) -> bool:
        """As `Delivered.dead_letter`."""
        return tell(self._thread, lambda: self._delivered.dead_letter(error))

    def fail(self, error: BaseException) -> bool:
        """As `Delivered.fail`."""
        return tell(self._thread, lambda: self._delivered.fail(error))

    def _left(self) -> bool:
        return tell(self._thread, self._delivered._left)

    def __enter__(self) -> SyncDelivered:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return settle_on_leaving(self, error)


class SyncPendingCheckpoint:
    """A `PendingCheckpoint` for threads."""

    def __init__(self, pending: PendingCheckpoint, thread: LoopThread) -> None:
        self._pending = pending
        self._thread = thread
        self.position = pending.position
        self.state = pending.state

    def commit(self) -> None:
        """As `PendingCheckpoint.commit`."""
        asked(self._thread, self._pending.commit)

    def abandon(self) -> None:
        """As `PendingCheckpoint.abandon`."""
        asked(self._thread, self._pending.abandon)


def asked(thread: LoopThread, ask: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Ask for a checkpoint, and wait. Raises CheckpointError as that does, and once the consumer is closed."""
    try:
        return thread.run(ask())
    except RuntimeError as error:
        if not thread.is_closed:
            raise
        raise CheckpointError("the consumer is closed: no checkpoint can be stored any more") from error


def tell(thread: LoopThread, work: Callable[[], bool]) -> bool:
    """Settle something on the loop's thread; once that has ended, it counts for nothing."""
    try:
        return on_loop(thread, work)
    except RuntimeError:
        if not thread.is_closed:
            raise
        return False
