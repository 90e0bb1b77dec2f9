"""Checkpoints in two phases: a program prepares one, puts out its own results, and commits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shardway.errors import CheckpointError
from shardway.model import Position
from shardway.runtime.shard.checkpointing import Checkpointing

if TYPE_CHECKING:
    from shardway.runtime.consumer.held_shards import HeldShards
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.shards import Located
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.driver import ShardDriver
    from shardway.runtime.shard.pending import PendingCheckpoint


class PendingCheckpoints:
    """The checkpoints in two phases of one consumer."""

    def __init__(self, placement: Placement, shards: HeldShards) -> None:
        self._placement = placement
        self._shards = shards

    async def prepare(self, batch: Batch[Any], state: bytes | None = None, *, index: int = -1) -> PendingCheckpoint:
        """See `Consumer.prepare`."""
        record = batch.records[index]
        at = Position(record.sequence_number, record.sub_sequence_number)
        return await self._checkpointing_of(batch).prepare(at, state)

    async def commit(self, pending: PendingCheckpoint) -> None:
        """See `Consumer.commit`."""
        await self._checkpointing_of(pending).commit(pending)

    async def abandon(self, pending: PendingCheckpoint) -> None:
        """See `Consumer.abandon`."""
        await self._checkpointing_of(pending).abandon(pending)

    def pending(self, shard: str | Located) -> PendingCheckpoint | None:
        """See `Consumer.pending`."""
        return self._shards.find_one(shard).checkpointing.pending

    def _checkpointing_of(self, given: Batch[Any] | PendingCheckpoint) -> Checkpointing:
        driver = cast("ShardDriver", given._reader)
        if driver.host is not self._placement.host:
            raise CheckpointError(
                f"{given.stream}, {given.shard_id}: another consumer delivered this: call the method of that one"
            )
        return Checkpointing(driver)
