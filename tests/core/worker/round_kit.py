"""What a worker knows of itself, and the tables as it sees them, for tests by example."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.strategies import EqualCounts
from shardway.core.assignment.views import LeaseView, WorkerView, lease_view
from shardway.core.leases import LeaseRow
from shardway.core.worker import events
from shardway.core.worker.state import Terms, WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterable

F = 10.0


def worker_of(worker_id: str = "me", failover_s: float = F, **more: Any) -> WorkerState:
    """A worker that has just started."""
    times = {"warm_deadline_s": 3.0, "drain_deadline_s": 5.0, "upkeep_interval_s": 60.0}
    terms = Terms(**{"worker_id": worker_id, "failover_s": failover_s, **times, **more})
    return WorkerState(terms, EqualCounts(), Random(0))


def row(number: int, owner: str | None = None, counter: int = 1, **more: Any) -> LeaseRow:
    """A lease."""
    return LeaseRow(key=key(number), owner=owner, counter=counter, **more)


def key(number: int) -> str:
    """Its key."""
    return f"s{number}"


def view_of(
    rows: Iterable[LeaseRow],
    workers: Iterable[WorkerView] = (),
    *,
    named: Iterable[str] = (),
    unmoved_s: float = 0.0,
    **more: Any,
) -> events.View:
    """All leases as one scan showed them just now."""
    listed = {one.key: one for one in rows}
    leases: dict[str, LeaseView] = {one.key: lease_view(one, unmoved_s) for one in listed.values()}
    given = {"fleet": Fleet.ALONE, "scanned_s": 0.0, "scan_sent_s": 0.0, "before": listed, **more}
    return events.View(
        leases=leases, rows=listed, workers={one.id: one for one in workers}, named=frozenset(named), **given
    )
