"""A fleet that has some workers of the KCL 2.x takes and steals as these do (its ``DynamoDBLeaseTaker``).

Each worker decides for itself: it looks at the owners of those leases whose counters move. Shardway workers do better
among each other than the KCL's workers do, since they see each other's rows: a worker without a lease counts too, two
of them do not go for the same lease at the same time, and a lease of one is asked for and handed over, not stolen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from shardway.core.assignment.views import startable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from shardway.core.assignment.views import LeaseView, WorkerView

    Rows = Mapping[str, Mapping[str, Any]]


VERY_OLD_FAILOVERS = 3
"""The failover times after which a lease that no worker has renewed or taken is taken by any worker with room for it,
also by a worker that has its target already.
"""


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of a worker in one round. All its entries are lease keys."""

    take: tuple[str, ...] = ()
    """The leases that no worker renews, and this worker takes."""
    steal: tuple[str, ...] = ()
    """The leases that a KCL worker has too many of: they are taken from it by a write that moves their counters."""
    ask: tuple[str, ...] = ()
    """The leases that a Shardway worker has too many of: it is asked to hand them over."""


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
    """Return the moves of one round of worker ``me``.

    As in the KCL, leases of shards that have ended count until they are deleted. ``workers`` are the Shardway workers;
    of the KCL's only those are known that own a lease.
    """
    return _Round(list(leases), list(workers), me, rng, failover_s, leases_max).moves(steal_max)


def grants(
    leases: Iterable[LeaseView], workers: Iterable[WorkerView], me: str, asker: str, *, failover_s: float
) -> bool:
    """True when ``me`` may hand one of its leases to the Shardway worker that asks: by the rule by which it asks."""
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
            elif lease.key in readable:  # The KCL takes what it cannot read, or has read, too.
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
        """Return the part of worker ``me`` of the leases that several Shardway workers go for: every n-th, from its
        place on.

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
