"""Checkpoints in two phases: `prepare` stores one as pending, `commit` makes it the checkpoint.

They lie in the KCL's columns for pending checkpoints, so the next owner, of whatever kind, is told of a checkpoint that
was prepared and not committed. `shardway.core.shard.checkpoints` says what may be asked for when.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.events import PendingCheckpointFound
from shardway.policies import FoundPending, PendingChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.shard.checkpoints.state import Pending
    from shardway.events import LedgerEvent
    from shardway.model import Position
    from shardway.policies import OnPending
    from shardway.runtime.shard.driver import ShardDriver


class PendingCheckpoint:
    """A checkpoint that is stored as pending. Commit it once what it stands for is done, or abandon it: the consumer
    has a call for each, which waits until that is stored.
    """

    __slots__ = ("_reader", "_value")

    def __init__(self, reader: ShardDriver, value: Pending) -> None:
        self._reader = reader
        self._value = value

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as it was given."""
        return self._reader.stream

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._reader.shard_id

    @property
    def position(self) -> Position | None:
        """The last position that the checkpoint covers; None: the whole shard, to its end."""
        return _covered_position(self._value.checkpoint)

    @property
    def state(self) -> bytes | None:
        """The bytes that the application stored with the checkpoint."""
        return self._value.state


def choose(
    row: LeaseRow,
    on_pending: OnPending | None,
    *,
    stream: str,
    shard_id: str,
    on_event: Callable[[LedgerEvent], None],
) -> PendingChoice:
    """Return what becomes of a checkpoint that the former owner left pending, if there is one: the program says it."""
    pending = row.pending
    if pending is None:
        return PendingChoice.ABANDON
    position, choice = _covered_position(pending), PendingChoice.ABANDON
    if on_pending is not None:
        try:
            choice = PendingChoice(on_pending(FoundPending(stream, shard_id, position, row.pending_state)))
        except Exception as error:
            context = {"message": "on_pending raised; the checkpoint is kept pending", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            choice = PendingChoice.KEEP
    on_event(PendingCheckpointFound(stream, shard_id, position, choice.value))
    return choice


def _covered_position(checkpoint: Checkpoint) -> Position | None:
    return checkpoint.position if checkpoint.is_position else None
