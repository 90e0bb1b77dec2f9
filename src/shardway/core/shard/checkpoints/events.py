"""The events of a tenure's checkpoints: what their machine learns of the ledger, callers and the lease's writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from shardway.core.leases.tenure import commands as tenure_commands

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.shard.checkpoints.state import Pending


@dataclass(frozen=True, slots=True)
class Look:
    """More may be settled, or time has passed."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Store what is settled by now, new or not: at once, or with the next write, whatever that is."""

    at_once: bool = False


@dataclass(frozen=True, slots=True)
class SetBound:
    """Let checkpoints go up to this bound, and no further."""

    bound: Checkpoint


@dataclass(frozen=True, slots=True)
class Prepare:
    """Store a checkpoint as pending. It takes the place of a checkpoint that is pending."""

    checkpoint: Checkpoint
    state: bytes | None
    came_to: Checkpoint
    """The checkpoint at which the records that came end: none may be prepared behind it."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Make the pending checkpoint the checkpoint."""

    pending: Pending


@dataclass(frozen=True, slots=True)
class Abandon:
    """Let the pending checkpoint go: what is settled is stored again."""

    pending: Pending


@dataclass(frozen=True, slots=True)
class Close:
    """The tenure is over, or reading is: the next owner is told what is pending."""

    reason: str


Event: TypeAlias = (
    Look
    | Flush
    | SetBound
    | Prepare
    | Commit
    | Abandon
    | tenure_commands.CheckpointStored
    | tenure_commands.PendingStored
    | Close
)
