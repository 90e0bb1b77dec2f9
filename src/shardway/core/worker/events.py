"""The events of a worker's machine: what the worker learns, in a round (`View`) and between rounds.

The order of a round comes from the rows that it reads. The workers' rows that a `View` shows were read after its
leases, wherever a silent worker counts (`shardway.core.leases.membership`). An awaited lease is looked at after the
workers' rows were read: the owner's word that the lease is given, or not, is older than the look (`actions.LookAt`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shardway.core.assignment.kcl.fleet import Fleet
    from shardway.core.assignment.views import LeaseView, WorkerView
    from shardway.core.handoff.owner import OwnerEvent
    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.core.worker.state import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The tables, as a round sees them."""

    fleet: Fleet
    leases: Mapping[str, LeaseView]
    rows: Mapping[str, LeaseRow]
    """The rows of the same leases."""
    workers: Mapping[str, WorkerView]
    """The workers but for this one."""
    named: Collection[str]
    """The leases that have this worker's name, are this process's, and are not held by it."""
    robbed: Collection[str] = ()
    """The leases held by live KCL workers. Taking one is a steal: the old owner notices only at its next renewal."""
    given_up: Collection[str] = ()
    """The held leases whose shards the policies for failing records want given up, or stopped."""
    is_complete: bool = True
    """False while one of the streams has no lease at all."""
    has_gone: bool = False
    """True when there are leases for `Work.GONE`."""
    scanned_s: float
    """The time at which the last scan of the leases was answered."""
    scan_sent_s: float
    """The time at which the last scan was sent."""
    before: Mapping[str, LeaseRow]
    """The leases as they were known before the last scan."""


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """A consistent look at the workers' rows was answered. It was sent when ``given`` had been given already."""

    given: Collection[str]
    workers: Mapping[str, WorkerRow]
    leases: Mapping[str, LeaseRow]


@dataclass(frozen=True, slots=True)
class RowsFreed:
    """The worker has done `actions.FreeRows` for these leases."""

    keys: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSeen:
    """An awaited lease was read by itself."""

    key: str
    row: LeaseRow | None
    """The row of the lease; None: it is gone."""
    lease: LeaseView | None
    known: LeaseRow | None
    """The row as it was known before the read."""
    sent_s: float
    is_robbed: bool = False
    """True for a steal; see `View.robbed`."""


@dataclass(frozen=True, slots=True)
class WarmUpDone:
    """What is read ahead has come to the tip, or is as much as there is room for."""

    key: str


@dataclass(frozen=True, slots=True)
class WarmUpFailed:
    """A lease that is on its way here cannot be read ahead."""

    key: str


@dataclass(frozen=True, slots=True)
class TakeAnswered:
    """A tenure has begun, or will not begin."""

    key: str
    began: bool


@dataclass(frozen=True, slots=True)
class ReadingBegan:
    """The worker begins to read the shard of a lease, and may hand it over."""

    key: str


@dataclass(frozen=True, slots=True)
class TenureOver:
    """The tenure or claim that was begun with a lease is over."""

    key: str
    row: LeaseRow
    """The row as it was last confirmed."""


@dataclass(frozen=True, slots=True)
class LeaseUnconfirmed:
    """A lease was lost because no write was confirmed."""


@dataclass(frozen=True, slots=True)
class LeaderNamedReceiver:
    """A KCL leader has named the worker that gets a lease which this worker holds."""

    key: str
    receiver: str


@dataclass(frozen=True, slots=True)
class OwnerSideLearned:
    """Something happened that the owner's side of a lease waits for."""

    key: str
    event: OwnerEvent


@dataclass(frozen=True, slots=True)
class LeaseGivenUp:
    """The program, or a policy, wants another worker to have a lease."""

    key: str
    cool_down_s: float


@dataclass(frozen=True, slots=True)
class ChildFound:
    """The lease of a child of a shard that ended here is there, and has no owner."""

    key: str
    may_start: bool
    """True when the child's other parents have ended, as far as is known."""


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """The worker is to hand over everything, and to take nothing."""


@dataclass(frozen=True, slots=True)
class UpkeepDone:
    """`actions.KeepUp` was done, or has failed."""

    work: Work
    failed: bool


Event: TypeAlias = (
    View
    | WorkersSeen
    | RowsFreed
    | LeaseSeen
    | WarmUpDone
    | WarmUpFailed
    | TakeAnswered
    | ReadingBegan
    | TenureOver
    | LeaseUnconfirmed
    | LeaderNamedReceiver
    | OwnerSideLearned
    | LeaseGivenUp
    | ChildFound
    | LeaveAsked
    | UpkeepDone
)
