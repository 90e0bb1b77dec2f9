"""What a worker knows of itself: the leases that it holds, those on their way to it, and what it shows to the others.

Only `shardway.core.worker.machine.step` changes it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from shardway.core.leases.worker_row import WorkerRow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from shardway.core.assignment.strategies import Strategy
    from shardway.core.assignment.views import WorkerView
    from shardway.core.handoff.owner import OwnerSide
    from shardway.core.handoff.receiver import ReceiverSide
    from shardway.core.leases.row import LeaseRow


READS_MAX = 32
"""A worker reads up to this many awaited leases one by one."""
LEASES_PER_READ_MAX = 8
"""A worker also reads more of them one by one, while they are fewer than one in this many of all leases: a consistent
read of one lease costs as much as a dozen small leases in a scan, which reads the whole table.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a worker, for as long as it lives."""

    worker_id: str
    process: str = ""
    """The name of this process among all that ever had the worker's id."""
    failover_s: float
    leases_max: int | None = None
    warm_deadline_s: float
    drain_deadline_s: float
    upkeep_interval_s: float
    steal_wait_s: float = 0.0
    """The seconds that the worker waits before it delivers from a shard that it has stolen from a KCL worker, which
    reads on.
    """
    look_interval_s: float = 0.5
    """The interval at which the worker looks at the other workers' rows."""

    @property
    def upkeep_retry_s(self) -> float:
        """The pause after upkeep that failed. A shard may be waiting for its lease: the pause is shorter than when all
        is well.
        """
        return min(self.failover_s, self.upkeep_interval_s)


@dataclass(slots=True)
class HeldLease:
    """A lease that the worker holds, and delivers from."""

    side: OwnerSide
    stopped_s: float | None = None
    """The time since which nothing is delivered, because the lease is to go. None: it is not to go."""
    given_to: str | None = None
    """The worker that the last write gives the lease to. None: the write frees it, or that worker has no row of its
    own.
    """


class Work(StrEnum):
    """The kinds of upkeep of the streams' leases."""

    GONE = "gone"
    """The rows of leases were deleted while this worker had them: make the leases again that are missing."""
    SEARCH = "search"
    """Make the leases that are missing."""
    CLEAN = "clean"
    """Delete the leases that have served, and repair holes. One worker does it for all."""


@dataclass(slots=True)
class UpkeepPlan:
    """The times at which the leases of the streams are looked after next."""

    is_busy: bool = False
    has_searched: bool = False
    """True once the worker has asked which leases are missing, though the table has some: it asks once in its life."""
    at_s: float = float("-inf")
    gone_at_s: float = float("-inf")
    """The time at which leases are looked for whose rows were deleted."""
    measure_at_s: float = float("-inf")


class WorkerState(Container[str]):
    """The worker's knowledge of itself. It contains the keys of the leases that the worker holds, from the claim on."""

    def __init__(self, terms: Terms, strategy: Strategy, rng: Random) -> None:
        """``strategy`` says which worker should hold which lease."""
        self.terms = terms
        self.strategy = strategy
        self.rng = rng
        self.held: dict[str, HeldLease] = {}
        self.claims: set[str] = set()
        """The leases on their way to be held."""
        self.stolen: set[str] = set()
        """The claims that were stolen: their KCL workers have to notice first that they lost them."""
        self.receiving: dict[str, ReceiverSide] = {}
        """The leases that may come. A side stays until its lease is held, so that no lease is taken twice."""
        self.heirs: set[str] = set()
        """The leases of the children of shards that ended here. The worker takes them at once, and evens them out
        later.
        """
        self.given: dict[str, LeaseRow] = {}
        """The leases that were given to others, as the gives left them, until their receivers are seen to begin."""
        self.wanted: set[str] = set()
        self.warm: set[str] = set()
        self.gives: dict[str, str] = {}
        """The worker that gets each lease, as the own row shows it."""
        self.leaving = False
        """True: the worker hands over what it holds, and takes nothing."""
        self.retreats = False
        """True: the worker shows itself as leaving, though it stays, so that others take the leases that it could not
        keep.
        """
        self.retreats_until_s = float("-inf")
        """The time until which others are to have a lease that was lost because no write was confirmed."""
        self.upkeep = UpkeepPlan()
        self.workers: Mapping[str, WorkerView] = {}
        """The workers, as the last round saw them."""
        self.awaited_scan_sent_s = float("-inf")
        """When the scan that last checked the awaited leases was sent."""
        self._avoided_leases: dict[str, float] = {}

    def __contains__(self, key: object) -> bool:
        """True for a lease from its claim on."""
        return key in self.held or key in self.claims

    @property
    def waits(self) -> bool:
        """True while a lease may come at any moment."""
        return any(side.polls for side in self.receiving.values())

    @property
    def looks_closely(self) -> bool:
        """True while no old state of the table will do: something is waited for."""
        return bool(self.given or self.gives) or self.waits

    @property
    def looks_often(self) -> bool:
        """True while something is waited for that may come at any moment."""
        return bool(self.gives) or self.waits or self.leaving

    @property
    def is_done(self) -> bool:
        """True once a worker that leaves holds nothing any more, and no lease can come to it."""
        # A lease that came after the worker had gone would wait for its failover time.
        return self.leaving and not self.held and not self.claims and not self.waits

    def waits_for_many(self, lease_count: int) -> bool:
        """True while so large a part of all leases is awaited that one scan costs less than a read of each of them."""
        awaited = sum(side.polls for side in self.receiving.values())
        return awaited > READS_MAX and awaited * LEASES_PER_READ_MAX >= lease_count

    def avoid(self, key: str, until_s: float) -> None:
        """Avoid a lease until a time: do not take it before."""
        self._avoided_leases[key] = until_s

    def avoided(self, now_s: float) -> frozenset[str]:
        """Return the leases that the worker will not have now."""
        self._avoided_leases = {key: until_s for key, until_s in self._avoided_leases.items() if until_s > now_s}
        return frozenset(self._avoided_leases)

    def row(self, now_s: float, counter: int = 0) -> WorkerRow:
        """Return the worker's row, as it would be written now."""
        terms = self.terms
        return WorkerRow(
            worker_id=terms.worker_id,
            counter=counter,
            failover_s=terms.failover_s,
            held=frozenset(self.held),
            wanted=frozenset(self.wanted),
            given=dict(self.gives),
            warm=frozenset(self.warm),
            leaving=self.leaving or self.retreats,
            leases_max=terms.leases_max,
            avoids=self.avoided(now_s),
            process=terms.process,
        )
