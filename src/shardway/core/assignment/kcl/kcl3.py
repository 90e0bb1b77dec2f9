"""In a KCL 3.x fleet the leader alone assigns leases. A follower never takes one.

The leader writes the name of the new owner into the lease's row. It does so at once for a lease that is free or whose
owner is silent. Where a live owner reads the shard, it writes the name of the next owner beside that of the present
one, and the present owner hands over.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shardway.core.assignment.views import LeaseView

    Rows = Mapping[str, Mapping[str, Any]]


class Step(StrEnum):
    """The steps of a worker with a lease."""

    NOTHING = "nothing"
    READ = "read"
    """The lease is assigned to this worker: adopt it, unless it is held already."""
    WARM_UP = "warm up"
    """This worker is the next owner; the present one still reads."""
    HAND_OVER = "hand over"
    """The leader has named a next owner: drain, checkpoint, and give the lease to that worker, within 30 s.

    That is the KCL's ``gracefulLeaseHandoffTimeout``: its leader forces the move a failover time later.
    """
    CONFIRM = "confirm"
    """The row says that this worker hands over to itself: it keeps the lease, and ends that in one write."""


def step(lease: LeaseView, me: str) -> Step:
    """Return what worker ``me`` does with this lease now.

    The lease may have ended: the KCL keeps its row, with an owner, until it is cleaned up, and hands over none.
    """
    if lease.ended:
        return Step.NOTHING
    if lease.owner == me:
        if lease.next_owner is None:
            return Step.READ
        return Step.CONFIRM if lease.next_owner == me else Step.HAND_OVER
    return Step.WARM_UP if lease.next_owner == me else Step.NOTHING


def steps(leases: Iterable[LeaseView], me: str) -> dict[str, Step]:
    """Return the steps for many leases, without those that are none of ``me``'s business."""
    found = {lease.key: step(lease, me) for lease in leases}
    return {key: one for key, one in found.items() if one is not Step.NOTHING}
