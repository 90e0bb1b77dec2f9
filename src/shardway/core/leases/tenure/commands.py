"""The commands of a tenure: what its machine has done, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.writes import Write


class Loss(StrEnum):
    """The reasons for which a lease was lost."""

    TAKEN = "taken"
    """Another worker has the lease."""
    GONE = "gone"
    """The row was deleted."""
    UNCONFIRMED = "unconfirmed"
    """No write was confirmed for `LeaseTimes.unconfirmed_max_s`."""


@dataclass(frozen=True, slots=True)
class Send:
    """Write to the table, and answer with `events.Answered`. The time of the step counts as the send time."""

    write: Write


@dataclass(frozen=True, slots=True)
class Began:
    """The lease is held: read from the row's checkpoint on."""

    token: int
    row: LeaseRow


@dataclass(frozen=True, slots=True)
class Fenced:
    """Stop delivering: writes are not confirmed."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """Go on delivering: no other worker had the lease meanwhile."""


@dataclass(frozen=True, slots=True)
class HandoffAsked:
    """Drain, then answer `events.End` with this worker's name: a KCL leader wants the lease handed to it."""

    to: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The checkpoint is in the table."""

    checkpoint: Checkpoint
    pending: bool = False
    """True: a prepared checkpoint is there as well, and waits to be committed."""


@dataclass(frozen=True, slots=True)
class PendingStored:
    """The prepared checkpoint is in the table."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NotTaken:
    """The take failed. ``row`` is what was found instead; None if that is not known, or nothing was found."""

    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is lost, and the tenure is over. It comes once."""

    why: Loss
    row: LeaseRow | None
    """The row as it was found, if it was found."""
    known: LeaseRow | None = None
    """The lease without an owner, as far as this owner had come, where the row was deleted, or may be."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The tenure has ended as the worker asked. ``row`` is None when it is not known whether the last write was
    done.
    """

    row: LeaseRow | None


Command: TypeAlias = Send | Began | Fenced | Lifted | HandoffAsked | Stored | PendingStored | NotTaken | Lost | Ended
"""The commands of a tenure. Do them in their order."""
