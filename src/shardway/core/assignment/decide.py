"""The decision of what one worker does now, by the rules of its fleet. It has the same form for all three kinds of
fleet.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from shardway.core.assignment.kcl import kcl2, kcl3
from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.shardway_fleet import plan, receiver_for
from shardway.core.assignment.views import LeaseView, WorkerView, is_free

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from shardway.core.assignment.strategies import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision of one worker for now. All its entries are lease keys, in order."""

    take: tuple[str, ...] = ()
    """This worker takes these leases by a conditional write: they are free, or a KCL worker has too many."""
    ask: tuple[str, ...] = ()
    """Other Shardway workers have these leases, and this worker asks them for a handoff."""
    give: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Leases that this worker holds, and the worker that each may be handed to: at once when this worker leaves, else
    when the other worker asks for it."""
    free: tuple[str, ...] = ()
    """This worker holds these leases, and no worker should: it drains and frees them."""
    follow: Mapping[str, kcl3.Step] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """The steps that follow from what the leader of a KCL 3.x fleet has written into the rows."""


def decide(  # noqa: PLR0913 - what a worker sees, and its rules
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
    """Decide one round of worker ``me``, which is one of ``workers`` (all of them Shardway's).

    A strategy rules only where Shardway workers are alone. Among KCL workers, a Shardway worker keeps to the KCL's
    rule: equal counts in the 2.x, the leader's word in the 3.x. In any fleet, a Shardway worker that leaves hands its
    leases to other Shardway workers.
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
    give = _grant(listed, list(known.values()), me, failover_s)
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


def _grant(leases: Sequence[LeaseView], workers: Sequence[WorkerView], me: str, failover_s: float) -> dict[str, str]:
    """Return which of its leases this worker may hand to those that ask for them, one after another, by the
    KCL's rule.
    """
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
