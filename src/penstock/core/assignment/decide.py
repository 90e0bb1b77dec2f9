"""What one worker does now, by the rules of its fleet. A `Decision` has the same form for all three kinds of fleet."""

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
    """This worker takes these leases by a conditional write: they are free, or a KCL worker has too many."""
    ask: tuple[str, ...] = ()
    """Other Penstock workers have these leases, and this worker asks them for a handoff."""
    give: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Leases that this worker holds, and the worker that each may be handed to: at once when this worker leaves, else
    when the other worker asks for it."""
    free: tuple[str, ...] = ()
    """This worker holds these leases, and no worker should: it drains and frees them."""
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

    A strategy rules only where Penstock workers are alone. Among KCL workers, a Penstock worker keeps to the KCL's
    rule: equal counts in the 2.x, the leader's word in the 3.x. In any fleet, a Penstock worker that leaves hands its
    leases to other Penstock workers.
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
