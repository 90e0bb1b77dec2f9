"""What decisions are made from: a lease and a worker, as an observer sees them at one time, in whatever kind of row."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A lease. Keys of leases stand for shards throughout, also among parents and children."""

    key: str
    owner: str | None = None
    """The worker that may read it now; for a lease that has ended, the worker that read its last record. None: free."""
    next_owner: str | None = None
    """The worker that the KCL 3.x's leader wants it handed over to."""
    ended: bool = False
    """True when the shard is read to its end."""
    started: bool = True
    """False while the checkpoint still says where to begin."""
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    """As the row tells; empty until a worker writes them."""
    unmoved_s: float = 0.0
    """For how long the observer has seen its counter stand still; 0 when it sees it for the first time."""
    throughput_kib_s: float | None = None
    """What its owner read of late, KiB/s. None: not known."""
    hash_range: tuple[int, int] | None = None
    """Inclusive. None: the row does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A Penstock worker, as its row tells."""

    id: str
    alive: bool = True
    """False once its row has not moved for the failover time."""
    leaving: bool = False
    """It hands over what it holds, and takes nothing."""
    failover_s: float = 0.0
    """Its own failover time: another worker takes its leases only after at least as long a silence."""
    unmoved_s: float = 0.0
    """For how long the observer has seen its row stand still."""
    leases_max: int | None = None
    """How many it will hold at most."""
    avoids: frozenset[str] = frozenset()
    """Leases that it gave up and will not have back for now."""
    wants: frozenset[str] = frozenset()
    """Leases of others that it asks for, or has agreed to receive."""
    gives: Mapping[str, str] = field(default_factory=lambda: _NONE, hash=False)
    """Leases that it is about to hand over, and the worker that gets each."""
    warm: frozenset[str] = frozenset()
    """Leases that it could deliver from at once."""
    process: str | None = None
    """Which process of its id it is; None: its row does not tell."""

    @property
    def present(self) -> bool:
        """True when leases may go to it."""
        return self.alive and not self.leaving


def startable(leases: Iterable[LeaseView]) -> list[LeaseView]:
    """The leases that may be read now: not ended, and each parent is absent or ended (as the KCL has it)."""
    listed = list(leases)
    reading = {lease.key for lease in listed if not lease.ended}
    return [lease for lease in listed if lease.key in reading and reading.isdisjoint(lease.parents)]


ABANDONED_FAILOVERS = 3
"""A lease whose counter has not moved for as many failover times is free though its owner lives.

The owner stopped delivering after one failover time and gave the lease up after two. It could not write that into the
row, or it has forgotten the lease.
"""


def is_free(lease: LeaseView, workers: Mapping[str, WorkerView], failover_s: float) -> bool:
    """True when any worker may take it: it has no owner, a dead one, or one that has given it up.

    A Penstock worker is dead when its row says so. Of others nothing is known but the lease's own counter.
    """
    if lease.owner is None:
        return True
    worker = workers.get(lease.owner)
    if worker is None:
        return lease.unmoved_s > failover_s
    return not worker.alive or lease.unmoved_s > ABANDONED_FAILOVERS * max(failover_s, worker.failover_s)
