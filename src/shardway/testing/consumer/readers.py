"""Watch the readers of a tested consumer's shards."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from shardway.runtime.shard.batch import Batch

if TYPE_CHECKING:
    from shardway.runtime.shard.shard_reader import ShardReader


class Readers:
    """Keeps the newest reader of each shard, and what a handler of their batches raised last."""

    def __init__(self) -> None:
        self.newest: dict[str, ShardReader] = {}
        """The newest reader of each shard, by the shard's id."""
        self._errors: deque[BaseException] = deque(maxlen=1)
        self._batch_class = _heard_batches(self._errors)

    @property
    def error(self) -> BaseException | None:
        """What a handler raised last; None while none did."""
        return self._errors[-1] if self._errors else None

    def watch(self, reader: ShardReader) -> None:
        """Keep a reader, and hear of the errors that make its batches fail."""
        take = reader.delivery.take

        def take_batch(records_max: int | None = None) -> Batch[Any] | None:
            batch = take(records_max)
            if batch is not None:
                batch.__class__ = self._batch_class
            return batch

        reader.delivery.take = take_batch  # type: ignore[method-assign]
        self.newest[reader.shard_id] = reader


def _heard_batches(errors: deque[BaseException]) -> type[Batch[Any]]:
    """Return a class of batches that keep what their handler raised last."""

    class HeardBatch(Batch[Any]):
        __slots__ = ()

        def fail(self, error: BaseException, *indices: int) -> bool:
            errors.append(error)
            return super().fail(error, *indices)

    return HeardBatch
