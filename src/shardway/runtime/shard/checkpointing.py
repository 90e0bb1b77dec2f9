"""The checkpointing of one shard by the program: how far checkpoints may go, and checkpoints in two phases.

`shardway.core.shard.checkpoints` says what may be asked for when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.runtime.shard.pending import PendingCheckpoint

if TYPE_CHECKING:
    from shardway.core.shard.checkpoints.state import Pending
    from shardway.model import Position
    from shardway.runtime.shard.driver import ShardDriver


class Checkpointing:
    """Asks for the checkpoints that the program wants of one shard. It keeps nothing itself: the machine does."""

    def __init__(self, driver: ShardDriver) -> None:
        self._driver = driver

    async def prepare(self, position: Position, state: bytes | None = None) -> PendingCheckpoint:
        """Store a pending checkpoint up to and with this position, with bytes of the application's for the next
        owner. Until it is committed or abandoned nothing else is checkpointed.

        Raises CheckpointError: for a position that is checkpointed already, or was not fetched yet, while another call
        is on its way, and when the shard is lost.
        """
        prepared = await self._driver.host.run(lambda: self._prepare(Checkpoint.at(position), state))
        assert prepared is not None
        return PendingCheckpoint(self._driver, prepared)

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint that is stored as pending: prepared in this tenure, or left by a former owner and kept."""
        found = self._driver.machine.checkpoints.pending
        return None if found is None else PendingCheckpoint(self._driver, found)

    async def commit(self, pending: PendingCheckpoint) -> None:
        """Make a pending checkpoint the checkpoint, and wait until that is stored. Raises CheckpointError."""
        await self._driver.host.run(lambda: self._driver.ask(checkpoint_events.Commit(pending._value)))

    async def abandon(self, pending: PendingCheckpoint) -> None:
        """Let a pending checkpoint go, and wait until that is stored. Raises CheckpointError."""
        await self._driver.host.run(lambda: self._driver.ask(checkpoint_events.Abandon(pending._value)))

    def checkpoint_to(self, checkpoint: Checkpoint) -> None:
        """Let checkpoints go up to this one, if all before is settled, and no further; a later call moves the bound."""
        driver = self._driver
        with driver.lock:
            results = driver.machine.handle(checkpoint_events.SetBound(checkpoint), driver.now_s)
        driver.perform_soon(results)
        driver.touched()

    async def until_stored(self, checkpoint: Checkpoint) -> bool:
        """Wait until the lease holds this checkpoint, or a later one. False when the tenure ended before."""
        driver = self._driver
        while True:
            seen = driver.signal.count
            if driver.stored >= checkpoint or driver.is_over:
                break
            await driver.signal.wait(seen)
        return driver.stored >= checkpoint

    async def _prepare(self, to: Checkpoint, state: bytes | None) -> Pending | None:
        return await self._driver.ask(checkpoint_events.Prepare(to, state, self._driver.ledger.progress.came_to))
