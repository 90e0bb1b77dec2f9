"""The checkpoints of one tenure as a value: what is stored, what was told, and what is pending."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.shard.checkpoints.cadence import Cadence, Every, Riding, due_at_s

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint


class State(StrEnum):
    """The states of the checkpoints: what becomes of what is settled, and of a checkpoint in two phases."""

    FREE = "free"
    """What is settled is stored, by the cadence."""
    CLEARING = "clearing"
    """What is settled is stored, by the cadence. The former owner has left a pending checkpoint, which the next write
    clears.
    """
    PREPARING = "preparing"
    """A checkpoint is on its way to be pending. Nothing else is stored."""
    PREPARED = "prepared"
    """A checkpoint is pending. Nothing else is stored."""
    COMMITTING = "committing"
    """The pending checkpoint is on its way to be the checkpoint."""
    ABANDONING = "abandoning"
    """The pending checkpoint does not count any more, and a write that clears it is on its way. What is settled
    meanwhile may go along.
    """


IDLE = (State.FREE, State.CLEARING, State.ABANDONING)
"""The states without a pending checkpoint that counts: what is settled is stored."""
CLEARS = (State.CLEARING, State.ABANDONING)
"""The states whose next write clears the columns of a pending checkpoint, also where nothing new is settled."""
ASKED = (State.PREPARING, State.COMMITTING, State.ABANDONING)
"""The states in which a caller waits for a write."""


class Pending(NamedTuple):
    """A prepared checkpoint."""

    checkpoint: Checkpoint
    state: bytes | None
    """The application's own bytes, which the next owner is given."""


class Progress(NamedTuple):
    """The progress of a ledger."""

    safe: Checkpoint
    """The checkpoint up to which all is settled, and may be stored."""
    records: int
    """The number of records that were settled in this tenure, up to ``safe``; any number where the cadence does not
    count them.
    """


class Writing(NamedTuple):
    """A write of its own that the lease's machine was asked for."""

    checkpoint: Checkpoint
    records: int
    """The records that `Progress` counted."""


class Checkpoints(NamedTuple):
    """The checkpoints of one tenure. No write that they ask for is known to have failed: the lease's machine repeats
    each until it is stored, or the tenure is over.
    """

    where: str
    """The stream and the shard, for errors."""
    cadence: Cadence
    stored: Checkpoint
    """The checkpoint that the lease is known to hold."""
    stored_at_s: float
    told: Checkpoint
    """The furthest checkpoint that the lease's machine was told. It never goes back, as that machine would not either:
    not with a seek, and not with a bound that is set back. It is never before ``stored``.
    """
    state: State = State.FREE
    bound: Checkpoint | None = None
    """The furthest checkpoint that may be stored, even if records after it are settled. Until it is the shard's end,
    the shard is not stored as ended. None: there is no bound.
    """
    pending: Pending | None = None
    """The checkpoint that is pending, from `events.Prepare` on, until it is committed or abandoned."""
    writing: Writing | None = None
    """The write of its own that is on its way; there is at most one."""
    records: int = 0
    """The records that `Progress` counted when the last write of its own that is stored was asked for."""
    closed: str | None = None
    """The reason why the tenure is over; None: it is not."""

    @property
    def idle(self) -> bool:
        """True when no checkpoint is pending, or on its way to be."""
        return self.state in IDLE

    @property
    def counts(self) -> bool:
        """True when it matters how many records are settled."""
        return type(self.cadence) is Every

    def safe(self, progress: Progress) -> Checkpoint:
        """Return the furthest checkpoint that may be stored."""
        return progress.safe if self.bound is None else min(progress.safe, self.bound)

    def wanted(self, progress: Progress) -> Checkpoint | None:
        """Return the checkpoint that a renewal carries, or the tenure's last write; None: there is nothing new."""
        if self.state not in IDLE:
            return None
        safe = self.safe(progress)
        if safe > self.stored:
            return safe
        return self.stored if self.state in CLEARS else None

    def wake_at_s(self, progress: Progress) -> float:
        """Return when `events.Look` may lead to a write though nothing else happens; infinity: never."""
        if self.writing is not None or type(self.cadence) is Riding or self.wanted(progress) is None:
            return math.inf
        return due_at_s(self.cadence, progress.records - self.records, self.stored_at_s)
