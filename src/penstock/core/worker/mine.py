"""What a worker knows of itself: the leases that it holds, those on their way to it, and what it shows to the others.

Only `penstock.core.worker.round.step` changes it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.leases.membership import WorkerRow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from penstock.core.assignment.strategies import Strategy
    from penstock.core.assignment.views import WorkerView
    from penstock.core.handoff.owner import OwnerSide
    from penstock.core.handoff.receiver import ReceiverSide
    from penstock.core.leases.row import LeaseRow

READS_MAX = 32
"""A worker reads up to this many awaited leases one by one."""
LEASES_PER_READ_MAX = 8
"""A worker also reads more of them one by one, while they are fewer than one in this many of all leases: a consistent
read of one lease costs as much as a dozen small leases in a scan, which reads the whole table.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a worker goes by, as long as it lives."""

    worker_id: str
    strategy: Strategy
    failover_s: float
    leases_max: int | None = None
    warm_deadline_s: float
    drain_deadline_s: float
    upkeep_interval_s: float
    version: str = ""
    process: str = ""
    """This process among all that ever had the worker's id."""

    @property
    def upkeep_retry_s(self) -> float:
        """After upkeep that failed. A shard may be waiting for its lease: not for as long as when all is well."""
        return min(self.failover_s, self.upkeep_interval_s)


@dataclass(slots=True)
class Owned:
    """A lease that is held, and delivered from."""

    side: OwnerSide
    stopped_s: float | None = None
    """Since when nothing is handed out, as it is to go. None: it is not."""
    given_to: str | None = None
    """The worker that the last write gives it to. None: it frees the lease, or that worker has no row of its own."""


@dataclass(slots=True)
class Upkeep:
    """When the leases of the streams are looked after next."""

    is_busy: bool = False
    searched: bool = False
    """Once in its life a worker asks which leases are missing, though the table has some."""
    at_s: float = float("-inf")
    gone_at_s: float = float("-inf")
    """When leases whose rows were deleted are looked for."""
    measure_at_s: float = float("-inf")


class Mine(Container[str]):
    """See the module. It contains the keys of the leases that the worker holds, from the claim on."""

    def __init__(self, terms: Terms, rng: Random) -> None:
        self.terms = terms
        self.rng = rng
        self.held: dict[str, Owned] = {}
        self.claims: set[str] = set()
        """Leases on their way to be held."""
        self.stolen: set[str] = set()
        """Those of the claims that were stolen: their KCL workers have to notice first that they lost them."""
        self.receiving: dict[str, ReceiverSide] = {}
        """Leases that may come. A side stays until its lease is held, lest the same lease be taken twice."""
        self.heirs: set[str] = set()
        """Leases of the children of shards that ended here. The worker takes them at once, and evens them out later."""
        self.given: dict[str, LeaseRow] = {}
        """Leases as gives to others left them, until their receivers are seen to have begun."""
        self.wanted: set[str] = set()
        self.warm: set[str] = set()
        self.gives: dict[str, str] = {}
        """As the own row tells it: which worker gets which lease."""
        self.leaving = False
        """It hands over what it holds, and takes nothing."""
        self.retreats = False
        """True: it shows itself as leaving, though it stays, so that others take the leases that it could not keep."""
        self.retreats_until_s = float("-inf")
        """A lease was lost because no write was confirmed: until then others are to have it."""
        self.upkeep = Upkeep()
        self.workers: Mapping[str, WorkerView] = {}
        """All workers, as the last round saw them."""
        self.by_scan_s = float("-inf")
        """When the scan was sent by which the awaited leases were looked at last."""
        self._avoided: dict[str, float] = {}

    def __contains__(self, key: object) -> bool:
        """True from the claim on."""
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
        """True once a worker that leaves holds nothing any more, and nothing can come to it."""
        # A lease that came after the worker had gone would wait for its failover time.
        return self.leaving and not self.held and not self.claims and not self.waits

    def waits_for_many(self, lease_count: int) -> bool:
        """True while so many of all leases are awaited that one scan costs less than a read of each of them."""
        awaited = sum(side.polls for side in self.receiving.values())
        return awaited > READS_MAX and awaited * LEASES_PER_READ_MAX >= lease_count

    def avoid(self, key: str, until_s: float) -> None:
        """Do not take this lease until then."""
        self._avoided[key] = until_s

    def avoids(self, now_s: float) -> frozenset[str]:
        """The leases that it will not have now."""
        self._avoided = {key: until_s for key, until_s in self._avoided.items() if until_s > now_s}
        return frozenset(self._avoided)

    def shown(self, now_s: float, counter: int = 0) -> WorkerRow:
        """Its row, as it would be written now."""
        terms = self.terms
        return WorkerRow(
            worker_id=terms.worker_id,
            counter=counter,
            failover_s=terms.failover_s,
            version=terms.version,
            held=frozenset(self.held),
            wanted=frozenset(self.wanted),
            given=dict(self.gives),
            warm=frozenset(self.warm),
            leaving=self.leaving or self.retreats,
            leases_max=terms.leases_max,
            avoids=self.avoids(now_s),
            process=terms.process,
        )
