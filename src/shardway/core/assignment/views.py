"""Views: a lease or a worker as an observer sees it at one time, in whatever kind of row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.lease_key import LeaseKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.worker_row import WorkerRow


_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A lease as an observer sees it. Keys of leases stand for shards throughout, also among parents and children."""

    key: str
    owner: str | None = None
    """The worker that may read the lease now; for a lease that has ended, the worker that read its last record. None:
    free.
    """
    next_owner: str | None = None
    """The worker that the KCL 3.x's leader wants the lease handed over to."""
    ended: bool = False
    """True when the shard is read to its end."""
    started: bool = True
    """False while the checkpoint still says where to begin."""
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    """The keys of the children that the row names; empty until a worker writes them."""
    unmoved_s: float = 0.0
    """How many seconds the observer has seen the counter stand still; 0 when it sees it for the first time."""
    throughput_kib_s: float | None = None
    """The rate that the owner read of late, in KiB/s. None: not known."""
    hash_range: tuple[int, int] | None = None
    """The hash range of the shard; both bounds belong to it. None: the row does not name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A Shardway worker, as its row shows it."""

    id: str
    alive: bool = True
    """False once the worker's row has not moved for the failover time."""
    leaving: bool = False
    """True: the worker hands over what it holds, and takes nothing."""
    failover_s: float = 0.0
    """The worker's own failover time: another worker takes its leases only after at least as long a silence."""
    unmoved_s: float = 0.0
    """How many seconds the observer has seen the worker's row stand still."""
    leases_max: int | None = None
    """The most leases that the worker will hold."""
    avoids: frozenset[str] = frozenset()
    """The leases that the worker gave up and will not have back for now."""
    wants: frozenset[str] = frozenset()
    """The leases of others that the worker asks for, or has agreed to receive."""
    gives: Mapping[str, str] = field(default_factory=lambda: _NONE, hash=False)
    """The leases that the worker is about to hand over, and the worker that gets each."""
    warm: frozenset[str] = frozenset()
    """The leases that the worker could deliver from at once."""
    process: str | None = None
    """The process of the worker's id; None: its row does not name it."""

    @property
    def present(self) -> bool:
        """True when leases may go to the worker."""
        return self.alive and not self.leaving


def startable(leases: Iterable[LeaseView]) -> list[LeaseView]:
    """Return the leases that may be read now: not ended, and each parent is absent or ended (as the KCL has it)."""
    listed = list(leases)
    reading = {lease.key for lease in listed if not lease.ended}
    return [lease for lease in listed if lease.key in reading and reading.isdisjoint(lease.parents)]


ABANDONED_FAILOVERS = 3
"""The failover times after which a lease whose counter has not moved is free though its owner lives.

The owner stopped delivering after one failover time and gave the lease up after two. It could not write that into the
row, or it has forgotten the lease.
"""


def is_free(lease: LeaseView, workers: Mapping[str, WorkerView], failover_s: float) -> bool:
    """True when any worker may take the lease: it has no owner, a dead one, or one that has given it up.

    A Shardway worker is dead when its row says so. Of others nothing is known but the lease's own counter.
    """
    if lease.owner is None:
        return True
    worker = workers.get(lease.owner)
    if worker is None:
        return lease.unmoved_s > failover_s
    return not worker.alive or lease.unmoved_s > ABANDONED_FAILOVERS * max(failover_s, worker.failover_s)


_NOT_BEGUN = (Checkpoint.AT_TIMESTAMP, Checkpoint.TRIM_HORIZON)


def lease_view(row: LeaseRow, unmoved_s: float = 0.0) -> LeaseView:
    """Return the view of a lease. ``unmoved_s``: for how long the observer has seen the row's counter stand still."""
    known = row.first_hash_key is not None and row.last_hash_key is not None
    return LeaseView(
        key=row.key,
        owner=row.actual_owner,
        next_owner=row.handoff_to,
        ended=row.ended,
        # The KCL counts so when it cleans up: LATEST is as good as a position.
        started=row.checkpoint not in _NOT_BEGUN,
        parents=_keys(row, row.parents),
        children=_keys(row, row.children),
        unmoved_s=unmoved_s,
        throughput_kib_s=row.throughput_kib_s,
        hash_range=(row.first_hash_key or 0, row.last_hash_key or 0) if known else None,
    )


def shard_view(row: LeaseRow, unmoved_s: float = 0.0) -> LeaseView:
    """Return the view of a lease by the bare ids of shards, for what looks at one stream's lineage (births, served,
    holes).
    """
    view = lease_view(row, unmoved_s)
    parents, children = tuple(sorted(row.parents)), tuple(sorted(row.children))
    return replace(view, key=LeaseKey.parse(row.key).shard_id, parents=parents, children=children)


def worker_view(row: WorkerRow, *, alive: bool = True, unmoved_s: float = 0.0) -> WorkerView:
    """Return the view of a worker. ``alive``: its row has moved within the failover time; ``unmoved_s``: for how long
    the row was seen to stand still.
    """
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
    """Return keys of leases: rows of multi-stream tables name parents and children by bare ids too."""
    return tuple(sorted(one if row.stream is None else f"{row.stream}:{one}" for one in shard_ids))
