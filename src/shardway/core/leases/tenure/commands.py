"""The commands of a tenure: what its machine has done, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.conditional_write import Write
    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.tenure.state import Loss


@dataclass(frozen=True, slots=True)
class SendWrite:
    """Write to the table, and answer with `events.WriteAnswered`. The time of the step counts as the send time."""

    write: Write


@dataclass(frozen=True, slots=True)
class TenureBegan:
    """The lease is held: read from the row's checkpoint on."""

    token: int
    row: LeaseRow


@dataclass(frozen=True, slots=True)
class FenceFell:
    """Stop delivering: writes are not confirmed."""


@dataclass(frozen=True, slots=True)
class FenceLifted:
    """Go on delivering: no other worker had the lease meanwhile."""


@dataclass(frozen=True, slots=True)
class HandoffAsked:
    """Drain, then answer `events.EndTenure` with this worker's name: a KCL leader wants the lease handed to it."""

    to: str


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """The checkpoint is in the table."""

    checkpoint: Checkpoint
    pending: bool = False
    """True: a prepared checkpoint is there as well, and waits to be committed."""


@dataclass(frozen=True, slots=True)
class PendingStored:
    """The prepared checkpoint is in the table."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class TakeFailed:
    """The take failed. ``row`` is what was found instead; None if that is not known, or nothing was found."""

    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease is lost, and the tenure is over. It comes once."""

    why: Loss
    row: LeaseRow | None
    """The row as it was found, if it was found."""
    known: LeaseRow | None = None
    """The lease without an owner, as far as this owner had come, where the row was deleted, or may be."""


@dataclass(frozen=True, slots=True)
class TenureEnded:
    """The tenure has ended as the worker asked. ``row`` is None when it is not known whether the last write was
    done.
    """

    row: LeaseRow | None


Departure: TypeAlias = HandoffAsked | TenureEnded | LeaseLost
"""The commands that say that the lease is to go, has gone, or is lost."""
Command: TypeAlias = (
    SendWrite | TenureBegan | FenceFell | FenceLifted | CheckpointStored | PendingStored | TakeFailed | Departure
)
"""The commands of a tenure. Do them in their order."""
