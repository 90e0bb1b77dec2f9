"""How far a shard is settled, on its way into its lease: with the renewals, or by writes of its own.

`look` whenever more may be settled. The keeper of the tenure is told how far a write may go, and says what is stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.leases.tenure import Stored
from penstock.runtime.shard.two_phase import TwoPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.leases.tenure import Command
    from penstock.core.ledger.checkpoints import Checkpoints
    from penstock.model import Position
    from penstock.runtime.home import Home
    from penstock.runtime.shard.ledgers import Ledgers
    from penstock.runtime.shard.tenure_keeper import TenureKeeper
    from penstock.runtime.shard.two_phase import PendingCheckpoint


class Storing:
    """The checkpoints of one tenure."""

    def __init__(
        self,
        keeper: TenureKeeper,
        checkpoints: Checkpoints,
        ledgers: Ledgers,
        *,
        where: str,
        furthest: Checkpoint | None,
        holds_end: Callable[[], bool],
        alarm_at: Callable[[float], None],
        on_free: Callable[[], None],
    ) -> None:
        """``holds_end()``: True while the shard must not be stored as ended. ``alarm_at``: have `look` called at a time
        of the loop's clock. ``on_free``: no checkpoint is pending any more.
        """
        self._loop = asyncio.get_running_loop()
        self._keeper = keeper
        self._checkpoints = checkpoints
        self._ledgers = ledgers
        self.furthest = furthest
        """Nothing behind this is checkpointed, settled or not, nor is the shard stored as ended. None: what is settled
        is checkpointed.
        """
        self._holds_end = holds_end
        self._alarm_at = alarm_at
        self._told = keeper.row.checkpoint  # what the keeper knows to be safe
        self._writing: Checkpoint | None = None  # what it was told to write by itself
        self._phases = TwoPhase(
            checkpoints,
            keeper,
            where=where,
            safe=lambda: self.safe,
            came_to=lambda: ledgers.current.came_to,
            told=lambda: self._told,
            on_free=on_free,
        )

    def lives(self, home: Home) -> None:
        """Say where it runs; the callers that commit may be on another loop."""
        self._phases.home = home

    @property
    def safe(self) -> Checkpoint:
        """The furthest that may be stored."""
        ledger = self._ledgers.current
        safe = ledger.safe
        if safe.is_end and self._holds_end():
            safe = ledger.safe_record
        return safe if self.furthest is None else min(safe, self.furthest)

    @property
    def next_at_s(self) -> float:
        """When a write is due by time alone; or infinity."""
        return self._checkpoints.next_at_s(self.safe)

    def look(self) -> None:
        """Tell the keeper how far it is safe: to ride on the next renewal, or by a write of its own if that is due."""
        safe, checkpoints = self.safe, self._checkpoints
        riding = checkpoints.riding(safe)
        if riding is None:
            return
        due = safe.is_end
        if not due and checkpoints.writes_alone:
            due = checkpoints.due(safe, self._ledgers.settled_records, self._loop.time())
        if due and self._writing is None:
            checkpoints.writing(riding, self._ledgers.settled_records)
            self._writing = riding
        if due or riding != self._told:
            self._tell(riding, at_once=due)
            if checkpoints.writes_alone and checkpoints.timed and not due:
                self._alarm_at(checkpoints.next_at_s(safe))

    def tell(self, *, at_once: bool = False) -> None:
        """Tell the keeper what is settled by now, new or not: at once, or with the next write, whatever that is."""
        riding = self._checkpoints.riding(self.safe)
        if riding is not None:
            self._tell(riding, at_once=at_once)

    def heard(self, command: Command) -> None:
        """What the tenure says."""
        self._phases.heard(command)
        if not isinstance(command, Stored):
            return
        if self._writing is not None and self._writing <= command.checkpoint:
            self._writing = None
            self._checkpoints.wrote(self._loop.time())
        elif self._keeper.row.pending is None:
            self._checkpoints.carried(command.checkpoint, self._loop.time())

    def stop(self, reason: str) -> None:
        """The tenure is over."""
        self._phases.stop(reason)

    # --- two phases -----------------------------------------------------------------------------

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint that is stored as pending."""
        return self._phases.pending

    @property
    def idle(self) -> bool:
        """True when none is pending, or on its way to be."""
        return self._phases.idle

    async def prepare(self, position: Position, state: bytes | None) -> PendingCheckpoint:
        """Store one as pending. Raises CheckpointError."""
        return await self._phases.prepare(Checkpoint.at(position), state)

    def _tell(self, riding: Checkpoint, *, at_once: bool) -> None:
        self._told = riding
        self._keeper.settled(riding, at_once=at_once, commit=self._checkpoints.clears)
