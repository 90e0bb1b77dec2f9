"""The upkeep of the streams' leases: the worker looks once at the start which leases are missing, and one worker cleans
up at intervals for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.worker import actions
from shardway.core.worker.state import Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.worker.actions import Action
    from shardway.core.worker.events import UpkeepDone, View
    from shardway.core.worker.state import WorkerState

MEASURES_PER_FAILOVER = 4
"""How often in a failover time the owner writes its throughput into the leases."""


def begin(worker: WorkerState, view: View, now_s: float) -> Iterator[Action]:
    """Begin the measurement and the upkeep that are due."""
    plan, terms = worker.upkeep, worker.terms
    if now_s >= plan.measure_at_s:
        plan.measure_at_s = now_s + terms.failover_s / MEASURES_PER_FAILOVER
        yield actions.Measure()
    work = None if plan.is_busy else _due(worker, view, now_s)
    if work is None:
        return
    if work is not Work.GONE:
        plan.at_s = now_s + terms.upkeep_interval_s
    plan.is_busy = True
    yield actions.KeepUp(work)


def _due(worker: WorkerState, view: View, now_s: float) -> Work | None:
    plan = worker.upkeep
    if view.has_gone and now_s >= plan.gone_at_s:
        return Work.GONE
    if now_s < plan.at_s:
        return None
    if not plan.has_searched:
        return Work.SEARCH
    first = min(one for one, other in worker.workers.items() if other.alive)
    return Work.CLEAN if worker.terms.worker_id == first else None


def finish(worker: WorkerState, event: UpkeepDone, now_s: float) -> Iterator[Action]:
    """Note that upkeep was done; what failed is done again soon."""
    plan = worker.upkeep
    plan.is_busy = False
    if event.failed:
        plan.at_s = plan.gone_at_s = now_s + worker.terms.upkeep_retry_s
    elif event.work is Work.SEARCH:
        plan.has_searched = True
    yield from ()
