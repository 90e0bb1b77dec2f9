"""A shard for a thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.runtime.consumer.sync_batch import SyncBatch, SyncPendingCheckpoint, asked
from penstock.runtime.consumer.sync_iterating import each, on_loop, unless_closed

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.model import Position
    from penstock.runtime.loop_thread import LoopThread
    from penstock.runtime.shard.shard_reader import ShardReader


class SyncShard:
    """A shard that is held: iterate it for its batches. It ends when the tenure does."""

    def __init__(self, reader: ShardReader, thread: LoopThread) -> None:
        self._asynchronous = reader
        self._thread = thread
        self.stream = reader.stream
        self.shard_id = reader.shard_id
        self.token = reader.token
        self.origin = reader.origin

    def __iter__(self) -> Generator[SyncBatch, None, None]:
        """As ``async for`` over a `ShardReader`."""
        for batch in each(self._thread, lambda: aiter(self._asynchronous)):
            yield SyncBatch(batch, self._thread)

    def next_batch(self) -> SyncBatch | None:
        """As `ShardReader.next_batch`."""
        batch = unless_closed(self._thread, lambda: self._thread.run(self._asynchronous.next_batch()))
        return None if batch is None else SyncBatch(batch, self._thread)

    @property
    def is_over(self) -> bool:
        """As `ShardReader.is_over`."""
        return self._asynchronous.is_over

    @property
    def over_because(self) -> str:
        """As `ShardReader.over_because`."""
        return self._asynchronous.over_because

    @property
    def has_ended(self) -> bool:
        """As `ShardReader.has_ended`."""
        return self._asynchronous.has_ended

    @property
    def millis_behind_latest(self) -> int | None:
        """As `ShardReader.millis_behind_latest`."""
        return self._asynchronous.millis_behind_latest

    def pause(self, paused: bool = True) -> None:
        """As `ShardReader.pause`."""
        unless_closed(self._thread, lambda: on_loop(self._thread, lambda: self._asynchronous.pause(paused)))

    def let_go(self) -> None:
        """As `ShardReader.let_go`."""
        unless_closed(self._thread, lambda: on_loop(self._thread, self._asynchronous.let_go))

    # --- checkpoints ----------------------------------------------------------------------------

    @property
    def settled(self) -> Checkpoint:
        """As `ShardReader.settled`."""
        return self._asynchronous.settled

    @property
    def stored(self) -> Checkpoint:
        """As `ShardReader.stored`."""
        return self._asynchronous.stored

    @property
    def checkpoint_max(self) -> Checkpoint | None:
        """As `ShardReader.checkpoint_max`."""
        return self._asynchronous.checkpoint_max

    def checkpoint_to(self, checkpoint: Checkpoint) -> None:
        """As `ShardReader.checkpoint_to`."""
        unless_closed(self._thread, lambda: on_loop(self._thread, lambda: self._asynchronous.checkpoint_to(checkpoint)))

    def until_stored(self, checkpoint: Checkpoint) -> bool:
        """As `ShardReader.until_stored`."""
        waiting = unless_closed(self._thread, lambda: self._thread.run(self._asynchronous.until_stored(checkpoint)))
        return self.stored >= checkpoint if waiting is None else waiting

    @property
    def pending(self) -> SyncPendingCheckpoint | None:
        """As `ShardReader.pending`."""
        pending = self._asynchronous.pending
        return None if pending is None else SyncPendingCheckpoint(pending, self._thread)

    def prepare(self, position: Position, state: bytes | None = None) -> SyncPendingCheckpoint:
        """As `ShardReader.prepare`."""
        pending = asked(self._thread, lambda: self._asynchronous.prepare(position, state))
        return SyncPendingCheckpoint(pending, self._thread)
