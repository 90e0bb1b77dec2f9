"""Batches by a key of the user's, for threads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from penstock.runtime.consumer.collecting import collect
from penstock.runtime.consumer.sync_batch import tell
from penstock.runtime.consumer.sync_iterating import each
from penstock.runtime.shard.batch import settle_on_leaving

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Generator, Hashable, Sequence
    from types import TracebackType
    from typing import Protocol

    from penstock.runtime.consumer.collecting import Collection
    from penstock.runtime.loop_thread import LoopThread

    class Face(Protocol):
        """A `SyncConsumer` or a `SyncShard`."""

        @property
        def _asynchronous(self) -> AsyncIterable[Any]: ...

        @property
        def _thread(self) -> LoopThread: ...


class SyncCollection:
    """A `Collection` for threads: the same names. ``with collection:`` settles it at its end."""

    __slots__ = ("_collection", "_thread", "key")

    def __init__(self, collection: Collection[Any], thread: LoopThread) -> None:
        self._collection = collection
        self._thread = thread
        self.key = collection.key

    @property
    def records(self) -> Sequence[Any]:
        """As `Collection.records`."""
        return self._collection.records

    def __len__(self) -> int:
        return len(self._collection)

    def ack(self) -> bool:
        """As `Collection.ack`."""
        return tell(self._thread, self._collection.ack)

    def nack(self, *, delay_s: float = 0.0) -> bool:
        """As `Collection.nack`."""
        return tell(self._thread, lambda: self._collection.nack(delay_s=delay_s))

    def skip(self, *, reason: str = "skipped") -> bool:
        """As `Collection.skip`."""
        return tell(self._thread, lambda: self._collection.skip(reason=reason))

    def dead_letter(self, *, error: BaseException | None = None) -> bool:
        """As `Collection.dead_letter`."""
        return tell(self._thread, lambda: self._collection.dead_letter(error=error))

    def fail(self, error: BaseException) -> bool:
        """As `Collection.fail`."""
        return tell(self._thread, lambda: self._collection.fail(error))

    def _left(self) -> bool:
        return tell(self._thread, self._collection._left)

    def __enter__(self) -> SyncCollection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return settle_on_leaving(self, error)


def sync_collect(
    batches: Face, key: Callable[[Any], Hashable], *, records: int, age_s: float = math.inf
) -> Generator[SyncCollection, None, None]:
    """`collect` for threads: collections out of a `SyncConsumer` or a `SyncShard`, for one thread.

    ``key`` is called on the consumer's own thread, so it returns at once. What waits when the iteration is left is
    handed out again: where the program goes on behind it, leave it with `contextlib.closing`.
    """
    for collection in each(batches._thread, lambda: collect(batches._asynchronous, key, records=records, age_s=age_s)):
        yield SyncCollection(collection, batches._thread)
