"""The shards of a consumer as the program sees them: it iterates them, and settles their records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from shardway.runtime.consumer.collection import collect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.model import Record
    from shardway.runtime.consumer.collection import Collection
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.listener import Origin
    from shardway.runtime.shard.shard_reader import ShardReader


T = TypeVar("T")


class ShardFace(Generic[T]):
    """The part of a shard that programs on a loop and programs in threads see alike. Any thread may call it."""

    __slots__ = ("_reader", "origin", "shard_id", "stream", "token")

    def __init__(self, reader: ShardReader) -> None:
        self._reader = reader
        self.stream = reader.stream
        """The stream's name or ARN, as it was given."""
        self.shard_id = reader.shard_id
        """The shard's id."""
        self.token = reader.token
        """The fencing token of its batches: it grows with every owner of the shard."""
        self.origin: Origin = reader.origin
        """The way in which the shard came to this consumer."""

    @property
    def is_over(self) -> bool:
        """True once nothing more is delivered: the shard is done, or the lease is gone."""
        return self._reader.is_over

    @property
    def has_ended(self) -> bool:
        """True once the shard is done, and stored as ended."""
        return self._reader.has_ended

    @property
    def settled(self) -> Checkpoint:
        """The checkpoint up to which all is settled; once that is stored, a new owner goes on behind it."""
        return self._reader.settled

    @property
    def stored(self) -> Checkpoint:
        """The checkpoint that the lease is known to hold."""
        return self._reader.stored

    def checkpoint_to(self, checkpoint: Checkpoint) -> None:
        """Let checkpoints go up to this one, if all before is settled, and no further; a later call moves the bound. It
        is meant for ``CheckpointOptions(manual=True)``.
        """
        self._reader.checkpointing.checkpoint_to(checkpoint)

    def let_go(self) -> None:
        """Free the shard for any worker. What is with handlers may be settled until the drain's deadline."""
        self._reader.let_go()


class Shard(ShardFace[T]):
    """A shard while a `Consumer` holds it: iterate it for its batches, in a task of its own. The iteration ends when
    the tenure does. `Consumer.pause`, `Consumer.seek` and the like take it as they take a batch.
    """

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[Batch[T]]:
        """Iterate over batches until the tenure ends. What a program that leaves early did not settle is delivered
        again.
        """
        return aiter(self._reader.delivery)

    async def next_batch(self) -> Batch[T] | None:
        """Wait for the next records, and return them; None when there will be none in this tenure. Raises the error
        that ended the reading, and ShardStoppedError where the policies have stopped the shard (`Stop`).
        """
        return await self._reader.delivery.next_batch()

    async def until_stored(self, checkpoint: Checkpoint) -> bool:
        """Wait until the lease holds this checkpoint, or a later one. False when the tenure ended before."""
        return await self._reader.checkpointing.until_stored(checkpoint)

    def collect(
        self, key: Callable[[Record], Hashable], *, records: int, age_s: float = math.inf
    ) -> AsyncGenerator[Collection[T], None]:
        """See `Consumer.collect`: this does the same for the records of this shard."""
        return collect(self, key, records=records, age_s=age_s)


def reader_of(shard: ShardFace[Any]) -> ShardReader:
    """Return the reader that stands behind a shard: for parts of the package that drive a shard themselves."""
    return shard._reader


class Located(Protocol):
    """Anything that says which shard it belongs to: a batch, a record, an `AssignedShard`."""

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as it was given."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""
