"""One record that was handed out, with the ways to settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.runtime.shard.batch import settle_on_leaving

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.model import Record
    from penstock.runtime.shard.batch import Batch


class Delivered:
    """A record out of a batch. Used with ``async with`` it is settled at its end; an exception of the block is a
    failure of this record alone.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch[Record], index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def record(self) -> Record:
        """The record: position, key, time, data."""
        return self._batch.records[self._index]

    @property
    def data(self) -> bytes:
        """Its bytes; of a part, those of the whole record."""
        return self.record.data

    @property
    def value(self) -> Any:
        """What the deserializer made of the record; without one, its bytes. For a part, what ``split`` made."""
        return self._batch.values[self._index]

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as it was given."""
        return self._batch.stream

    @property
    def shard_id(self) -> str:
        """The shard from which it was read."""
        return self._batch.shard_id

    @property
    def token(self) -> int:
        """See `Batch.token`."""
        return self._batch.token

    @property
    def attempt(self) -> int:
        """1 when it is handed out for the first time."""
        return self._batch.attempt

    def ack(self) -> bool:
        """It is done. False once the tenure is over: then it counts for nothing, as with the others."""
        return self._batch.ack(self._index)

    def settle_through(self) -> bool:
        """It is done, and so are all that were handed out of its shard before it."""
        return self._batch.settle_through(self._index)

    def nack(self, delay_s: float = 0.0) -> bool:
        """Hand it out again, after a while."""
        return self._batch.nack(self._index, delay_s=delay_s)

    def skip(self, reason: str = "skipped") -> bool:
        """It counts as settled without having been processed; an event says so."""
        return self._batch.skip(self._index, reason=reason)

    def dead_letter(self, error: BaseException | None = None) -> bool:
        """Give it up: it becomes a dead letter."""
        return self._batch.dead_letter(self._index, error=error)

    def fail(self, error: BaseException) -> bool:
        """It failed: the retry policy says what follows."""
        return self._batch.fail(error, self._index)

    def _may_go_on(self) -> bool:
        return self._batch._may_go_on(self._index)

    def _left(self) -> bool:
        return self._batch._left((self._index,))

    async def __aenter__(self) -> Delivered:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return settle_on_leaving(self, error)
