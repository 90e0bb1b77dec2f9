"""A plan for a fleet of Shardway workers alone: what one worker takes, asks for, and hands over.

Each worker looks at the leases and the worker rows, asks the strategy which worker should hold which lease, and does
its own part of the answer: it takes its leases that are free, and asks for those that other workers hold. Owners keep
reading until they have handed over, so that asking for too much, or twice, costs nothing. One round of this carries an
assignment out; the next finds nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from shardway.core.assignment.views import LeaseView, WorkerView, is_free, startable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from shardway.core.assignment.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one worker for now. All its entries are lease keys, in order."""

    take: tuple[str, ...] = ()
    """The free leases that this worker takes by a conditional write."""
    ask: tuple[str, ...] = ()
    """Other workers hold these leases, and this worker asks them for a handoff."""
    give: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Leases that this worker holds, and the worker that the assignment gives each to: it is handed over when that one
    asks, or when this worker leaves."""
    free: tuple[str, ...] = ()
    """This worker holds these leases and no worker should: it leaves as the last one, or the strategy wants it so."""
    unread: tuple[str, ...] = ()
    """Leases that could be read and that the assignment gives to no worker."""


def plan(
    leases: Iterable[LeaseView],
    workers: Iterable[WorkerView],
    me: str,
    strategy: Strategy,
    *,
    failover_s: float,
) -> Plan:
    """Return what worker ``me`` does now.

    A lease whose owner is no Shardway worker and whose counter moves is left alone. Leases that wait for a parent are
    assigned to no worker yet; one that holds such a lease all the same keeps it. A worker whose writes to leases fail
    shows itself as leaving for a while: else it would ask for leases again that it could not keep.
    """
    listed = list(leases)
    everybody = {worker.id: worker for worker in workers}
    may_start = sorted(startable(listed), key=lambda lease: lease.key)
    free = {one.key for one in may_start if is_free(one, everybody, failover_s)}
    ours = [one for one in may_start if one.owner in everybody or one.key in free]
    present = _able_workers(everybody.values(), {one.owner for one in may_start if one.key in free})
    assigned = _ask(strategy, ours, present, _preferences(listed, ours, present))
    leaving = me in everybody and everybody[me].leaving
    mine = [lease.key for lease in ours if lease.owner == me]
    waiting = {one.key for one in listed if leaving and one.owner == me and not one.ended}.difference(mine)
    for_me = [lease.key for lease in ours if lease.owner != me and assigned.get(lease.key) == me]
    return Plan(
        take=tuple(key for key in for_me if key in free),
        ask=tuple(key for key in for_me if key not in free),
        give=MappingProxyType({key: assigned[key] for key in mine if assigned.get(key, me) != me}),
        free=tuple(key for key in (*mine, *sorted(waiting)) if key not in assigned),
        unread=tuple(lease.key for lease in ours if lease.key not in assigned),
    )


def receiver_for(
    key: str, load: Mapping[str, int], workers: Iterable[WorkerView], me: str, without: Collection[str] = ()
) -> str | None:
    """Return the worker that gets a lease of a leaving one when the planned receiver did not come: one with the fewest
    leases.

    ``load`` counts the leases of each worker, with those that were promised to it already. ``without`` are workers
    that were tried. None: there is no such worker, and the row is freed.
    """
    able = [
        worker
        for worker in workers
        if worker.present
        and worker.id != me
        and worker.id not in without
        and key not in worker.avoids
        and (worker.leases_max is None or load.get(worker.id, 0) < worker.leases_max)
    ]
    return min(able, key=lambda worker: (load.get(worker.id, 0), worker.id)).id if able else None


def _able_workers(workers: Iterable[WorkerView], former: Collection[str | None]) -> list[WorkerView]:
    """Return the workers that leases may go to: not those that lost a lease by their silence, as their writes fail."""
    present = [worker for worker in workers if worker.present]
    return [worker for worker in present if worker.id not in former] or present


def _ask(
    strategy: Strategy, leases: Sequence[LeaseView], present: Sequence[WorkerView], preferred: Mapping[str, str]
) -> Mapping[str, str]:
    keeps = {worker.id for worker in present} | {None}
    shown = [one if one.owner in keeps else replace(one, owner=None) for one in leases]
    return strategy(shown, present, preferred) if present else {}


def _preferences(
    leases: Iterable[LeaseView], startable: Iterable[LeaseView], present: Iterable[WorkerView]
) -> dict[str, str]:
    """Return for a lease the worker that could begin it with the least effort: it is warm already, or read a parent
    last.
    """
    last = {lease.key: lease.owner for lease in leases if lease.ended and lease.owner is not None}
    children = (lease for lease in startable if not last.keys().isdisjoint(lease.parents))
    heirs = {lease.key: next(last[parent] for parent in lease.parents if parent in last) for lease in children}
    return heirs | {key: worker.id for worker in present for key in worker.warm}
