"""Which fleet a worker is in, looked at with each scan and each minute, and its metrics row for a KCL leader."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.assignment.kcl import (
    SAMPLES_MAX,
    Coordination,
    Finding,
    Fleet,
    FleetWatch,
    beside_leases,
    metrics_row,
)
from penstock.core.leases import Done
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from penstock.core.assignment.kcl import Place
    from penstock.core.assignment.views import LeaseView
    from penstock.core.leases.row import Listing
    from penstock.ports import SharedWithKcl

RETRY_INTERVAL_S = 1.0
"""The pause before a worker writes a metrics row again that was not confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KclTimes:
    """How often a worker does what concerns KCL workers."""

    failover_s: float
    report_interval_s: float
    """Between two writes of its metrics row."""
    look_interval_s: float
    """Between two looks at tables that are no lease tables."""


class KclWatch:
    """Says which fleet it is; publishes a metrics row while a leader wants one."""

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
        """``epoch_s``: the wall clock, which a leader compares with its own; ``processors``: how busy they
        are (None: as this machine tells).
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
        self._shown: set[Place] = set()
        self._reported_s = float("-inf")
        self._processors = processors or Processors()
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)

    @property
    def is_asleep(self) -> bool:
        """See `FleetWatch.is_asleep`."""
        return self._watch.is_asleep

    async def look(self, listing: Listing, leases: Iterable[LeaseView], penstock_workers: Collection[str]) -> Finding:
        """Find out the fleet, after a scan. ``penstock_workers``: all that had a row when it was answered, or later."""
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
            penstock_workers=penstock_workers,
        )
        places = (beside,) if self._own_tables is None else (beside, self._own_tables)
        if self.is_asleep:  # whether it ends or goes on is to be noticed soon
            self._look_at_s = min(self._look_at_s, now_s + self._times.failover_s)
        self._cpu_is_shown = any(not one.show_cpu <= {*penstock_workers} for one in places)
        return self.finding

    async def _look_at_own_tables(self, now_s: float) -> None:
        try:
            self._own_tables = await self._table.coordination()
        except PenstockError as error:
            if not error.retryable or self._look_at_s == float("-inf"):
                raise  # whose rules hold has to be known before anything is taken
            self._look_at_s = now_s + self._times.look_interval_s / 10
        else:
            self._look_at_s = now_s + self._times.look_interval_s

    async def owned_keys(self) -> list[str] | None:
        """The leases that name this worker as owner, by the fleet's index; None: there is none."""
        return await self._table.owned_keys(self._worker_id)

    async def report(self) -> None:
        """Show the metrics row where the fleet keeps them, if it is time. What may pass is made good by the next one;
        raises what does not (no permission): a worker that is not shown is assigned nothing, for ever.
        """
        now_s, places = self._clock(), self.finding.metrics_in
        interval_s = self._times.report_interval_s if self._shown.issuperset(places) else RETRY_INTERVAL_S
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
                self._shown.add(place)
        self._reported_s = now_s

    async def leave(self) -> None:
        """Take the row away: a leader assigns nothing more."""
        places, self._shown, self.finding = self._shown, set(), Finding(Fleet.ALONE)
        for place in places:
            await self._table.withdraw_metrics(place, self._worker_id)


# How busy the processors are: of the container if it has a limit of its own, else of the machine (Linux). This is how
# the KCL 3.x measures it, so that its leader compares like with like.

CGROUP = Path("/sys/fs/cgroup")
STAT = Path("/proc/stat")


class Processors:
    """Measures from the moment at which it is made."""

    def __init__(self, cgroup: Path = CGROUP, stat: Path = STAT) -> None:
        self._cgroup = cgroup
        self._stat = stat
        self._before = _work_done(cgroup, stat)

    def busy_percent(self) -> float | None:
        """The mean since the call before, from 0 to 100; None where it cannot be told."""
        last, now = self._before, _work_done(self._cgroup, self._stat)
        self._before = now
        if last is None or now is None or now[1] <= last[1]:
            return None
        return min(100.0, max(0.0, 100.0 * (now[0] - last[0]) / (now[1] - last[1])))


def _work_done(cgroup: Path, stat: Path) -> tuple[float, float] | None:
    """Work done and work that could have been done, in one unit."""
    try:
        return _of_container(cgroup) or _of_machine(stat)
    except (OSError, ValueError, IndexError, KeyError):
        return None


def _of_container(cgroup: Path) -> tuple[float, float] | None:
    limit = cgroup / "cpu.max"
    if not limit.exists():
        return None
    quota, period = limit.read_text().split()[:2]
    if quota == "max":
        return None
    cpus = int(quota) / int(period)
    used = dict(line.split() for line in (cgroup / "cpu.stat").read_text().splitlines())
    return int(used["usage_usec"]) / 1e6, time.monotonic() * cpus


def _of_machine(stat: Path) -> tuple[float, float]:
    times = [int(one) for one in stat.read_text().splitlines()[0].split()[1:9]]
    total = sum(times)
    return total - times[3] - times[4], total  # idle, and waiting for disks
