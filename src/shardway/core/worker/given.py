"""The leases that have this worker's gives behind them and are not held by it: those whose receivers have gone are
freed, so that no lease waits for a failover time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.assignment.kcl.kcl3 import Step
from shardway.core.worker import actions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.assignment.decide import Decision
    from shardway.core.worker.actions import Action
    from shardway.core.worker.events import RowsFreed, View, WorkersSeen
    from shardway.core.worker.state import WorkerState


def see_workers(worker: WorkerState, event: WorkersSeen, now_s: float) -> Iterator[Action]:
    """Free what was given to a worker that has left meanwhile: it would wait for that worker's failover time.

    A worker that began with the lease wrote to the lease's row before its own row went: then the free is refused.
    """
    orphans = []
    for key in event.given:  # What was given since does not count: the look may be older than the receiver's row.
        if (row := worker.given.get(key)) is None:
            continue
        now, receiver = event.leases.get(key), event.workers.get(row.actual_owner or "")
        if now is None or now.counter > row.counter or (receiver is not None and key in receiver.held):
            del worker.given[key]
        elif receiver is None:
            orphans.append(row)
    if orphans:
        yield actions.FreeRows(orphans)


def forget_freed(worker: WorkerState, event: RowsFreed, now_s: float) -> Iterator[Action]:
    """Wait no more for the receivers of leases that were freed."""
    for key in event.keys:
        worker.given.pop(key, None)
    yield from ()


def pass_on(worker: WorkerState, part: Decision, view: View) -> Iterator[Action]:
    """Free what a leader wants handed over by this worker, which does not hold it: the worker held it in a former
    life.
    """
    wanted = [key for key, one in part.follow.items() if one is Step.HAND_OVER]
    former = [view.rows[key] for key in wanted if key not in worker and key in view.named]
    if former:
        yield actions.FreeRows(former)
