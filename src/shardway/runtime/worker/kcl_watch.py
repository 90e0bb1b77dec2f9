"""A worker looks with each scan and each minute at which fleet it is in, and writes a metrics row for a KCL leader."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardway.core.assignment.kcl.fleet import Coordination, Finding, Fleet, FleetWatch
from shardway.core.assignment.kcl.rows import SAMPLES_MAX, beside_leases, metrics_row
from shardway.core.leases import Done
from shardway.errors import ShardwayError
from shardway.runtime.worker.processors import Processors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from shardway.core.assignment.kcl.fleet import Place
    from shardway.core.assignment.views import LeaseView
    from shardway.core.leases.listing import Listing
    from shardway.ports import SharedWithKcl


RETRY_INTERVAL_S = 1.0
"""The pause before a worker writes a metrics row again that was not confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KclTimes:
    """The intervals at which a worker does what concerns KCL workers."""

    failover_s: float
    report_interval_s: float
    """The time between two writes of the worker's metrics row."""
    look_interval_s: float
    """The time between two looks at tables that are no lease tables."""


class KclWatch:
    """Says which fleet it is; writes a metrics row while a leader wants one."""

    def __init__(
        self,
        worker_id: str,
        table: SharedWithKcl,
        times: KclTimes,
        *,
        clock: Callable[[], float],
        epoch_s: Callable[[], float] = time.time,
        processors: Processors | None = None,
    ) -> None:
        """``epoch_s`` is the wall clock, which a leader compares with its own; ``processors`` says how busy the
        processors are (None: those of this machine).
        """
        self.finding = Finding(Fleet.ALONE)
        self._worker_id = worker_id
        self._table = table
        self._clock = clock
        self._epoch_s = epoch_s
        self._times = times
        self._watch = FleetWatch(failover_s=times.failover_s, report_interval_s=times.report_interval_s)
        self._own_tables: Coordination | None = None
        self._look_at_s = float("-inf")
        self._cpu_is_shown = False
        self._shown_places: set[Place] = set()
        self._reported_s = float("-inf")
        self._processors = processors or Processors()
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)

    @property
    def is_asleep(self) -> bool:
        """See `FleetWatch.is_asleep`."""
        return self._watch.is_asleep

    async def look(self, listing: Listing, leases: Iterable[LeaseView], shardway_workers: Collection[str]) -> Finding:
        """Find out the fleet, after a scan. ``shardway_workers``: all that had a row when the scan was answered, or
        later.
        """
        now_s = self._clock()
        if now_s >= self._look_at_s:
            await self._look_at_own_tables(now_s)
        beside = beside_leases(listing.foreign)
        self.finding = self._watch.look(
            self._clock(),
            self._epoch_s(),
            own_tables=self._own_tables,
            lease_table=beside,
            leases=leases,
            shardway_workers=shardway_workers,
        )
        places = (beside,) if self._own_tables is None else (beside, self._own_tables)
        if self.is_asleep:  # It is to be noticed soon whether it ends or goes on.
            self._look_at_s = min(self._look_at_s, now_s + self._times.failover_s)
        self._cpu_is_shown = any(not one.show_cpu <= {*shardway_workers} for one in places)
        return self.finding

    async def _look_at_own_tables(self, now_s: float) -> None:
        try:
            self._own_tables = await self._table.coordination()
        except ShardwayError as error:
            if not error.retryable or self._look_at_s == float("-inf"):
                raise  # The rules that hold have to be known before anything is taken.
            self._look_at_s = now_s + self._times.look_interval_s / 10
        else:
            self._look_at_s = now_s + self._times.look_interval_s

    async def owned_keys(self) -> list[str] | None:
        """Return the keys of the leases that name this worker as owner, by the fleet's index; None: there is no
        index.
        """
        return await self._table.owned_keys(self._worker_id)

    async def report(self) -> None:
        """Write the metrics row where the fleet keeps such rows, if it is time. An error that may pass is made good by
        the next write; an error that does not (no permission) is raised: a worker that is not shown is assigned
        nothing, for ever.
        """
        now_s, places = self._clock(), self.finding.metrics_in
        interval_s = self._times.report_interval_s if self._shown_places.issuperset(places) else RETRY_INTERVAL_S
        if now_s - self._reported_s < interval_s:
            return
        busy = self._processors.busy_percent()
        if busy is not None:
            self._samples.append(busy)
        # Where no KCL worker shows how busy its processors are, the leader goes by how much each worker reads. It can
        # compare this worker with the others only if this one does not show it either.
        samples = tuple(self._samples) if self._cpu_is_shown else ()
        for place in places:
            row = metrics_row(place, self._worker_id, self._epoch_s(), samples)
            if isinstance(await self._table.show_metrics(place, row), Done):
                self._shown_places.add(place)
        self._reported_s = now_s

    async def leave(self) -> None:
        """Take the metrics row away: a leader assigns nothing more."""
        places, self._shown_places, self.finding = self._shown_places, set(), Finding(Fleet.ALONE)
        for place in places:
            await self._table.withdraw_metrics(place, self._worker_id)
