"""A round of a worker: it reads the tables as a `View`, decides on its part of the assignment, and goes through both
sides of all handoffs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardway.core.assignment.decide import decide
from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.views import worker_view
from shardway.core.worker import actions, awaited, departure, given, held, upkeep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.assignment.decide import Decision
    from shardway.core.worker.actions import Action
    from shardway.core.worker.events import View
    from shardway.core.worker.state import WorkerState


def decide_round(worker: WorkerState, view: View, now_s: float) -> Iterator[Action]:
    """Decide all that follows from the tables: upkeep, what goes to others, what comes here."""
    yield from departure.retreat(worker, view, now_s)
    if not worker.leaving and not view.is_complete:
        yield actions.CreateMissing()
        return
    part = _part(worker, view, now_s)
    yield from upkeep.begin(worker, view, now_s)
    yield from held.offer(worker, part, view, now_s)
    yield from held.let_go(worker, now_s)
    yield from given.pass_on(worker, part, view)
    yield from awaited.receive(worker, part, view, now_s)


def _part(worker: WorkerState, view: View, now_s: float) -> Decision:
    """Return this worker's part of the assignment, by the workers that the round sees."""
    terms, leases = worker.terms, view.leases
    me = worker_view(worker.row(now_s))
    worker.workers = {**view.workers, me.id: me}
    if view.fleet is Fleet.KCL2:
        # What is being taken counts as held, or rounds that follow each other would steal too much.
        leases = {**leases, **{key: replace(leases[key], owner=me.id) for key in worker.claims if key in leases}}
    return decide(
        view.fleet,
        leases.values(),
        worker.workers.values(),
        me.id,
        strategy=worker.strategy,
        rng=worker.rng,
        failover_s=terms.failover_s,
        steal_max=0 if worker.stolen else 1,
    )
