"""From rows, and what was observed of them, to what decisions look at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.assignment.views import LeaseView, WorkerView
from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.leases.keys import LeaseKey

if TYPE_CHECKING:
    from penstock.core.leases.membership import WorkerRow
    from penstock.core.leases.row import LeaseRow

_NOT_BEGUN = (Checkpoint.AT_TIMESTAMP, Checkpoint.TRIM_HORIZON)


def lease_view(row: LeaseRow, unmoved_s: float = 0.0) -> LeaseView:
    """``unmoved_s``: for how long the observer has seen the row's counter stand still."""
    known = row.first_hash_key is not None and row.last_hash_key is not None
    return LeaseView(
        key=row.key,
        owner=row.actual_owner,
        next_owner=row.handoff_to,
        ended=row.ended,
        # As the KCL counts when it cleans up: LATEST is as good as a position.
        started=row.checkpoint not in _NOT_BEGUN,
        parents=_keys(row, row.parents),
        children=_keys(row, row.children),
        unmoved_s=unmoved_s,
        throughput_kib_s=row.throughput_kib_s,
        hash_range=(row.first_hash_key or 0, row.last_hash_key or 0) if known else None,
    )


def shard_view(row: LeaseRow, unmoved_s: float = 0.0) -> LeaseView:
    """The same by the bare ids of shards, as what looks at one stream's lineage wants it (births, served, holes)."""
    view = lease_view(row, unmoved_s)
    parents, children = tuple(sorted(row.parents)), tuple(sorted(row.children))
    return replace(view, key=LeaseKey.parse(row.key).shard_id, parents=parents, children=children)


def worker_view(row: WorkerRow, *, alive: bool = True, unmoved_s: float = 0.0) -> WorkerView:
    """``alive``: the row has moved within the failover time; ``unmoved_s``: for how long it was seen to stand still."""
    return WorkerView(
        id=row.worker_id,
        alive=alive,
        leaving=row.leaving,
        failover_s=row.failover_s,
        unmoved_s=unmoved_s,
        leases_max=row.leases_max,
        avoids=row.avoids,
        wants=row.wanted,
        gives=row.given,
        warm=row.warm,
        process=row.process or None,
    )


def _keys(row: LeaseRow, shard_ids: frozenset[str]) -> tuple[str, ...]:
    """Rows of multi-stream tables name parents and children by bare ids too."""
    return tuple(sorted(one if row.stream is None else f"{row.stream}:{one}" for one in shard_ids))
