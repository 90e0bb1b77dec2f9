"""What a worker does in a fleet with KCL workers: as those of the KCL 2.x do, or as a leader of the KCL 3.x says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING

from penstock.core.assignment.views import startable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from penstock.core.assignment.views import LeaseView, WorkerView

# --- KCL 2.x --------------------------------------------------------------------------------------
# Taking and stealing as workers of the KCL 2.x do, for a fleet that has some of them (its ``DynamoDBLeaseTaker``).
#
# Each worker decides for itself: it looks at the owners of those leases whose counters move. Penstock workers do
# better among each other than the KCL's workers do, since they see each other's rows: a worker without a lease counts
# too, two of them do not go for the same lease at the same time, and a lease of one is asked for and handed over, not
# stolen.

VERY_OLD_FAILOVERS = 3
"""A lease that no worker has renewed or taken for so many failover times is taken by any worker with room for it, also
by one that has its target already."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What a worker does in one round. All are lease keys."""

    take: tuple[str, ...] = ()
    """No worker renews these leases."""
    steal: tuple[str, ...] = ()
    """A KCL worker has too many leases, and these are taken from it by a write that moves their counters."""
    ask: tuple[str, ...] = ()
    """A Penstock worker has too many leases, and is asked to hand these over."""


def moves(
    leases: Iterable[LeaseView],
    workers: Iterable[WorkerView],
    me: str,
    rng: Random,
    *,
    failover_s: float,
    leases_max: int | None = None,
    steal_max: int = 1,
) -> Moves:
    """One round of worker ``me``.

    As in the KCL, leases of shards that have ended count until they are deleted. ``workers`` are the Penstock workers;
    of the KCL's only those are known that own a lease.
    """
    return _Round(list(leases), list(workers), me, rng, failover_s, leases_max).moves(steal_max)


def grants(
    leases: Iterable[LeaseView], workers: Iterable[WorkerView], me: str, asker: str, *, failover_s: float
) -> bool:
    """True when ``me`` may hand one of its leases to the Penstock worker that asks: by the rule by which it asks."""
    seen = _Round(list(leases), list(workers), asker, None, failover_s, None)
    surplus = seen.held[me] - seen.target
    return seen.need > (0 if surplus > 0 else 1) and surplus >= 0


class _Round:
    """The leases that each worker has in this round, and how many each should have."""

    def __init__(
        self,
        leases: Sequence[LeaseView],
        workers: Sequence[WorkerView],
        me: str,
        rng: Random | None,
        failover_s: float,
        leases_max: int | None,
    ) -> None:
        self.me = me
        self.rng = rng
        self.failover_s = failover_s
        self.ours = sorted({worker.id for worker in workers if worker.present} | {me})
        self.avoids = next((worker.avoids for worker in workers if worker.id == me), frozenset())
        self.available: list[LeaseView] = []
        self.renewed: list[LeaseView] = []
        failovers = {worker.id: worker.failover_s for worker in workers}
        readable = {lease.key for lease in startable(leases)}
        for lease in sorted(leases, key=lambda lease: lease.key):
            wait_s = max(failover_s, failovers.get(lease.owner or "", failover_s))
            if lease.owner is not None and (lease.owner == me or lease.unmoved_s <= wait_s):
                self.renewed.append(lease)
            elif lease.key in readable:  # unlike the KCL, which takes what it cannot read, or has read, too
                self.available.append(lease)
        self.held = Counter(lease.owner for lease in self.renewed if lease.owner is not None)
        everybody = {*self.held, *self.ours}
        self.target = 1 if len(everybody) >= len(leases) else ceil(len(leases) / len(everybody))
        self.room = (len(leases) if leases_max is None else leases_max) - self.held[me]
        self.need = min(self.target - self.held[me], self.room)

    def moves(self, steal_max: int) -> Moves:
        if self.room <= 0:
            return Moves()
        if self.available:
            return Moves(take=self._to_take())
        victim = max(self.held, key=lambda worker: (self.held[worker], worker), default=self.me)
        surplus = self.held[victim] - self.target
        if self.need <= 0 or victim == self.me or surplus < 0:
            return Moves()
        # An owner that has exactly the target loses a lease only to a worker that lacks more than one: else the two
        # would swap their places, and the lease would move back and forth.
        count = min(self.need, surplus) or (1 if self.need > 1 else 0)
        theirs = [lease.key for lease in self.renewed if lease.owner == victim and not lease.ended]
        if victim in self.ours:
            return Moves(ask=self._share_of(theirs, surplus, count))
        return Moves(steal=self._share_of(theirs, surplus, min(count, steal_max)))

    def _to_take(self) -> tuple[str, ...]:
        keys = [lease.key for lease in self.available]
        very_old_s = VERY_OLD_FAILOVERS * self.failover_s
        very_old = [
            lease.key for lease in self.available if lease.unmoved_s > very_old_s and lease.key not in self.avoids
        ]
        chosen = self._share_of(keys, len(keys), self.need)
        return tuple(dict.fromkeys([*chosen, *very_old]))[: self.room]

    def _share_of(self, keys: Sequence[str], surplus: int, count: int) -> tuple[str, ...]:
        """Of the leases that several Penstock workers go for, the part of worker ``me``: every n-th, from its place on.

        When no other worker is in need, it chooses at random among all of them, as a KCL worker does.
        """
        if count <= 0:
            return ()
        in_need = [worker for worker in self.ours if self.held[worker] < self.target]
        place = in_need.index(self.me)
        if place >= max(surplus, 1):
            return ()
        mine = [key for key in keys[place :: len(in_need)] if key not in self.avoids]
        if len(in_need) == 1 and self.rng is not None:
            self.rng.shuffle(mine)
        return tuple(mine[:count])


# --- KCL 3.x --------------------------------------------------------------------------------------
# What a worker does in a KCL 3.x fleet, whose leader alone assigns leases. A follower never takes one.
#
# The leader writes the name of the new owner into the lease's row. It does so at once for a lease that is free or
# whose owner is silent. Where a live owner reads the shard, it writes the name of the next owner beside that of the
# present one, and the present owner hands over.


class Step(StrEnum):
    """What a worker does with a lease."""

    NOTHING = "nothing"
    READ = "read"
    """It is assigned to this worker: adopt it, unless it is held already."""
    WARM_UP = "warm up"
    """This worker is the next owner; the present one still reads."""
    HAND_OVER = "hand over"
    """The leader has named a next owner: drain, checkpoint, and give the lease to that worker, within 30 s.

    That is the KCL's ``gracefulLeaseHandoffTimeout``: its leader forces the move a failover time later.
    """
    CONFIRM = "confirm"
    """The row says that this worker hands over to itself: it keeps the lease, and ends that in one write."""


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
