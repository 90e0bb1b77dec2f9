"""What one worker does now, by the rules of the fleet that it is in: the same few words for all three."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.core.assignment import kcl2, kcl3
from penstock.core.assignment.fleet import Fleet
from penstock.core.assignment.plan import plan, receiver_for
from penstock.core.assignment.views import is_free

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from penstock.core.assignment.strategies import Strategy
    from penstock.core.assignment.views import LeaseView, WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All are lease keys, in order."""

    take: tuple[str, ...] = ()
    """To be taken by a conditional write: nobody has them, or a KCL worker has too many."""
    ask: tuple[str, ...] = ()
    """Penstock workers have them, who are asked for a handoff."""
    give: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Held by this worker, and to whom it may hand them: at once if it leaves, else when that one asks."""
    free: tuple[str, ...] = ()
    """Held by this worker, and to be held by nobody: to be drained, and freed."""
    follow: Mapping[str, kcl3.Step] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """What the leader of a KCL 3.x fleet has written into the rows."""


def decide(
    fleet: Fleet,
    leases: Iterable[LeaseView],
    workers: Iterable[WorkerView],
    me: str,
    *,
    strategy: Strategy,
    rng: Random,
    failover_s: float,
    steal_max: int = 1,
) -> Decision:
    """One round of worker ``me``, which is one of ``workers`` (all of them Penstock's).

    A strategy rules only where Penstock workers are alone. Among KCL workers it is theirs that must be kept to: equal
    counts in the 2.x, the leader's word in the 3.x. Who leaves hands its leases to Penstock workers in any fleet.
    """
    listed, known = list(leases), {worker.id: worker for worker in workers}
    if fleet is Fleet.ALONE:
        found = plan(listed, known.values(), me, strategy, failover_s=failover_s)
        return Decision(take=found.take, ask=found.ask, give=found.give, free=found.free)
    if known[me].leaving:
        return _leave(listed, known, me, failover_s)
    if fleet is Fleet.KCL3:
        return Decision(follow=MappingProxyType(kcl3.steps(listed, me)))
    moves = kcl2.moves(
        listed,
        known.values(),
        me,
        rng,
        failover_s=failover_s,
        leases_max=known[me].leases_max,
        steal_max=steal_max,
    )
    give = _granted(listed, list(known.values()), me, failover_s)
    return Decision(take=moves.take + moves.steal, ask=moves.ask, give=MappingProxyType(give))


def _leave(leases: Sequence[LeaseView], workers: Mapping[str, WorkerView], me: str, failover_s: float) -> Decision:
    """Deal out what this worker holds; a KCL worker would not look for what is given to it, so the rest is freed."""
    load = Counter(lease.owner for lease in leases if lease.owner and not is_free(lease, workers, failover_s))
    give: dict[str, str] = {}
    free = []
    for lease in sorted(leases, key=lambda lease: lease.key):
        if lease.owner != me or lease.ended or lease.next_owner is not None:
            continue
        to = receiver_for(lease.key, load, workers.values(), me)
        if to is None:
            free.append(lease.key)
        else:
            give[lease.key] = to
            load[to] += 1
    follow = {key: one for key, one in kcl3.steps(leases, me).items() if one is kcl3.Step.HAND_OVER}
    return Decision(give=MappingProxyType(give), free=tuple(free), follow=MappingProxyType(follow))


def _granted(leases: Sequence[LeaseView], workers: Sequence[WorkerView], me: str, failover_s: float) -> dict[str, str]:
    """Which of its leases this worker may hand to those that ask for them, one after another, by the KCL's rule."""
    now = list(leases)
    give: dict[str, str] = {}
    for place, lease in enumerate(now):
        if lease.owner != me or lease.ended:
            continue
        for asker in workers:
            if lease.key in asker.wants and asker.present and asker.id != me:
                if kcl2.grants(now, workers, me, asker.id, failover_s=failover_s):
                    give[lease.key] = asker.id
                    now[place] = replace(lease, owner=asker.id)
                break
    return give
