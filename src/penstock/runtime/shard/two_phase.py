"""Checkpoints in two phases: `prepare` stores one as pending, `commit` makes it the checkpoint.

They lie in the KCL's columns for pending checkpoints, so the next owner, of whatever kind, is told of one that was
prepared and not committed. While one is pending nothing else is checkpointed, as each checkpoint clears those columns.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.leases.tenure import PendingStored, Prepared, Settled, Stored
from penstock.core.ledger.checkpoints import Pending, Phase
from penstock.errors import CheckpointError
from penstock.events import PendingCheckpointFound
from penstock.runtime.home import Here

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from penstock.core.leases import LeaseRow
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.core.leases.tenure import Command
    from penstock.core.ledger.checkpoints import Checkpoints
    from penstock.events import LedgerEvent
    from penstock.model import Position
    from penstock.runtime.home import Home
    from penstock.runtime.shard.tenure_keeper import TenureKeeper

    OnPending: TypeAlias = "Callable[[FoundPending], PendingChoice]"


class PendingChoice(StrEnum):
    """What becomes of a pending checkpoint that a former owner left."""

    ABANDON = "abandon"
    """Its records are handed out again, and the next checkpoint clears it: as the KCL does."""
    COMMIT = "commit"
    """What was prepared is known to be done: reading goes on behind it."""
    KEEP = "keep"
    """Its records are handed out again, and nothing is checkpointed until `PendingCheckpoint.commit` or `abandon`."""


class FoundPending(NamedTuple):
    """A pending checkpoint that the former owner of a shard left."""

    stream: str
    shard_id: str
    position: Position | None
    """All up to here was prepared; None: the whole shard, to its end."""
    state: bytes | None
    """What the application stored with it."""


class Resumed(NamedTuple):
    """Where a tenure begins."""

    settled: Checkpoint
    """All up to here is settled."""
    wanted: Checkpoint
    """Nothing up to here is to be handed out."""


class PendingCheckpoint:
    """A checkpoint that is stored as pending. Commit it once what it stands for is done, or abandon it."""

    __slots__ = ("_phases", "_value")

    def __init__(self, phases: TwoPhase, value: Pending) -> None:
        self._phases = phases
        self._value = value

    @property
    def position(self) -> Position | None:
        """The last position that it covers; None: the whole shard, to its end."""
        return _position(self._value.checkpoint)

    @property
    def state(self) -> bytes | None:
        """What the application stored with it."""
        return self._value.state

    async def commit(self) -> None:
        """Make it the shard's checkpoint; returns when that is stored.

        Raises CheckpointError when records before it are not settled, when it is not the pending one any more, and when
        the shard was lost.
        """
        await self._phases.home.run(lambda: self._phases.commit(self._value))

    async def abandon(self) -> None:
        """Let it go: what is settled is checkpointed as usual. Raises CheckpointError like `commit`."""
        await self._phases.home.run(lambda: self._phases.abandon(self._value))


class TwoPhase:
    """The pending checkpoint of one tenure. One call at a time is under way."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        keeper: TenureKeeper,
        *,
        where: str,
        safe: Callable[[], Checkpoint],
        came_to: Callable[[], Checkpoint],
        told: Callable[[], Checkpoint],
        on_free: Callable[[], None],
    ) -> None:
        """``told``: how far the lease's machine was told that all is settled. ``on_free``: none is pending any more."""
        self.home: Home = Here()
        self._checkpoints = checkpoints
        self._keeper = keeper
        self._where = where
        self._safe, self._came_to, self._told = safe, came_to, told
        self._on_free = on_free
        self._answer: asyncio.Future[None] | None = None
        self._abandoned: Checkpoint | None = None
        self._over: str | None = None

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The one that is stored as pending, if there is one."""
        found = self._checkpoints.pending
        return None if found is None else PendingCheckpoint(self, found)

    @property
    def idle(self) -> bool:
        """True when none is pending, or on its way to be."""
        return self._checkpoints.phase is Phase.NONE

    async def prepare(self, checkpoint: Checkpoint, state: bytes | None) -> PendingCheckpoint:
        """Store it as pending. Raises CheckpointError."""
        self._check_tenure()
        if checkpoint < (told := self._told()):
            raise CheckpointError(
                f"{self._where}: all up to {told.text} is settled and checkpointed: prepare before it is settled"
            )
        value = self._checkpoints.prepare(checkpoint, state, came_to=self._came_to())
        await self._ask(Prepared(checkpoint, state))
        return PendingCheckpoint(self, value)

    async def commit(self, value: Pending) -> None:
        """See `PendingCheckpoint`."""
        self._check_current(value)
        await self._ask(Settled(self._checkpoints.commit(self._safe()), commit=True))

    async def abandon(self, value: Pending) -> None:
        """See `PendingCheckpoint`."""
        self._check_current(value)
        if self._checkpoints.phase is not Phase.PREPARED:
            raise CheckpointError(f"{self._where}: that checkpoint is on its way: wait for its answer")
        self._checkpoints.abandon()
        self._abandoned = self._checkpoints.riding(self._safe())
        assert self._abandoned is not None  # there is always one to clear the columns with
        await self._ask(Settled(self._abandoned, commit=True))

    def heard(self, command: Command) -> None:
        """What the tenure says."""
        checkpoints = self._checkpoints
        now_s = asyncio.get_running_loop().time()
        if isinstance(command, PendingStored):
            if checkpoints.phase is Phase.PREPARING:
                checkpoints.prepared()
                self._answered()
        elif isinstance(command, Stored) and self._keeper.row.pending is None:
            if checkpoints.phase is Phase.COMMITTING:
                checkpoints.committed(now_s)
                self._answered()
                self._on_free()
            elif self._abandoned is not None:
                self._abandoned = None
                self._answered()
                self._on_free()

    def stop(self, reason: str) -> None:
        """The tenure is over: what is pending is told to the next owner."""
        self._over = reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._gone())

    # --- parts ----------------------------------------------------------------------------------

    async def _ask(self, given: Prepared | Settled) -> None:
        answer = self._answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_seen)
        self._keeper.tell(given)
        await asyncio.shield(answer)

    def _answered(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _check_tenure(self) -> None:
        if self._over is not None:
            raise self._gone()
        if self._abandoned is not None:
            raise CheckpointError(f"{self._where}: the one before is being abandoned: wait for that")

    def _check_current(self, value: Pending) -> None:
        self._check_tenure()
        if self._checkpoints.pending is not value:
            raise CheckpointError(f"{self._where}: that checkpoint is not pending any more: prepare another one")

    def _gone(self) -> CheckpointError:
        return CheckpointError(f"{self._where}: the shard is not held any more ({self._over}): its next owner is told")


def resume(
    row: LeaseRow,
    checkpoints: Checkpoints,
    *,
    stream: str,
    shard_id: str,
    on_pending: OnPending | None,
    on_event: Callable[[LedgerEvent], None],
) -> Resumed:
    """Where a new tenure goes on, and what becomes of a checkpoint that the former owner left pending."""
    pending = row.pending
    if pending is None:
        return Resumed(row.checkpoint, row.checkpoint)
    position, choice = _position(pending), PendingChoice.ABANDON
    if on_pending is not None:
        try:
            choice = PendingChoice(on_pending(FoundPending(stream, shard_id, position, row.pending_state)))
        except Exception as error:
            told = {"message": "on_pending raised; the checkpoint is kept pending", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)
            choice = PendingChoice.KEEP
    on_event(PendingCheckpointFound(stream, shard_id, position, choice.value))
    if choice is PendingChoice.KEEP:
        checkpoints.found(Pending(pending, row.pending_state))
        return Resumed(row.checkpoint, row.checkpoint)
    checkpoints.clear_next()
    if choice is PendingChoice.ABANDON or pending < row.checkpoint:
        return Resumed(row.checkpoint, row.checkpoint)
    # To the shard's end: its children have to be found first, by reading to it.
    return Resumed(row.checkpoint if pending.is_end else pending, pending)


def _seen(answer: asyncio.Future[None]) -> None:
    """Look at the error: where the caller was cancelled, no other part does, and asyncio would log it."""
    if not answer.cancelled():
        answer.exception()


def _position(checkpoint: Checkpoint) -> Position | None:
    return checkpoint.position if checkpoint.is_position else None
