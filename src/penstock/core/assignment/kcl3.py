"""What a worker does in a KCL 3.x fleet, whose leader alone assigns leases. A follower never takes one.

The leader writes the name of the new owner into the lease's row. It does so at once for a lease that is free or whose
owner is silent. Where a live owner reads the shard, it writes the name of the next owner beside that of the present
one, and the present owner hands over.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.assignment.views import LeaseView


class Step(StrEnum):
    """What a worker does with a lease."""

    NOTHING = "nothing"
    READ = "read"
    """It is assigned to this worker: adopt it, unless it is held already."""
    WARM_UP = "warm up"
    """This worker is the next owner; the present one still reads."""
    HAND_OVER = "hand over"
    """The leader has named a next owner: drain, checkpoint, and give the lease to that worker, within 30 s."""
    CONFIRM = "confirm"
    """The row says that this worker hands over to itself: it keeps the lease, and ends that in one write."""


HAND_OVER_MAX_S = 30.0
"""The KCL's ``gracefulLeaseHandoffTimeout``: its leader forces the move a failover time later."""


def step(lease: LeaseView, me: str) -> Step:
    """What worker ``me`` does with this lease now.

    Also of a lease that has ended: the KCL keeps its row, with an owner, until it is cleaned up, and hands over none.
    """
    if lease.ended:
        return Step.NOTHING
    if lease.owner == me:
        if lease.next_owner is None:
            return Step.READ
        return Step.CONFIRM if lease.next_owner == me else Step.HAND_OVER
    return Step.WARM_UP if lease.next_owner == me else Step.NOTHING


def steps(leases: Iterable[LeaseView], me: str) -> dict[str, Step]:
    """The same for many, without those that are none of ``me``'s business."""
    found = {lease.key: step(lease, me) for lease in leases}
    return {key: one for key, one in found.items() if one is not Step.NOTHING}
