"""The actions of a worker's machine: what is to be done after an event.

An answer is made as a whole before any of it is done, and is done in its order: first what takes no time, then what
calls a table (`TableCall`), for each lease in its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.row import LeaseRow
    from shardway.core.worker.state import Work


@dataclass(frozen=True, slots=True)
class PublishRow:
    """Write the worker's own row: there is something new in it."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Make another round at once."""


@dataclass(frozen=True, slots=True)
class Take:
    """Begin a tenure."""

    key: str
    receives: bool
    """True: the tenure begins without a write of its own; False: it claims the lease."""
    unmoved_s: float | None
    """The time at which the last look was sent that still showed the former owner, where it ``receives``."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Read ahead in a shard that is likely to be this worker's soon, unless that is done already."""

    key: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Drop what was read ahead before the owner's stored progress: it is not needed."""

    key: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Discard:
    """Stop reading ahead in a shard, and drop what was read."""

    key: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Let the program read the shard."""

    key: str


@dataclass(frozen=True, slots=True)
class StopDelivering:
    """Deliver nothing more of a shard; answer `events.OwnerSideLearned` when all is settled, or at the deadline."""

    key: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class ResumeDelivering:
    """Go on with a shard that was stopped."""

    key: str


@dataclass(frozen=True, slots=True)
class EndTenure:
    """Give the lease to a worker, or free it (None), with the last checkpoint."""

    key: str
    to: str | None
    process: str | None
    """The process of that name that gets the lease; None: its row does not say."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Have the leases' next renewals store how much is read."""


@dataclass(frozen=True, slots=True)
class KeepUp:
    """Begin upkeep; answer `events.UpkeepDone`."""

    work: Work


@dataclass(frozen=True, slots=True)
class CreateMissing:
    """A stream has no leases: make them. Nothing else is done in this round."""


@dataclass(frozen=True, slots=True)
class FreeRows:
    """Free leases that are not held here, as their rows were seen, and answer `events.RowsFreed`."""

    rows: list[LeaseRow]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Read a shard ahead from its stored checkpoint on, while it is still to come here; answer `events.WarmUpDone`."""

    key: str


@dataclass(frozen=True, slots=True)
class LookAt:
    """Read a lease, consistently, and answer `events.LeaseSeen`."""

    key: str


TableCall: TypeAlias = CreateMissing | FreeRows | WarmUp | LookAt
TABLE_CALLS = (CreateMissing, FreeRows, WarmUp, LookAt)
Action: TypeAlias = (
    PublishRow
    | Wake
    | Take
    | ReadAhead
    | Follow
    | Discard
    | Deliver
    | StopDelivering
    | ResumeDelivering
    | EndTenure
    | Measure
    | KeepUp
    | TableCall
)
