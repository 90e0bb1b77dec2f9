"""How busy the processors are: of the container if it has a limit of its own, else of the machine (Linux).

As the KCL 3.x measures it, so that its leader compares like with like.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CGROUP = Path("/sys/fs/cgroup")
STAT = Path("/proc/stat")


def busy_percent(cgroup: Path = CGROUP, stat: Path = STAT) -> Callable[[], float | None]:
    """Begins to measure. Each call of what it returns tells the mean since the call before, from 0 to 100; None where
    it cannot be told.
    """
    before = _read(cgroup, stat)

    def since() -> float | None:
        nonlocal before
        last, before = before, _read(cgroup, stat)
        if last is None or before is None or before[1] <= last[1]:
            return None
        return min(100.0, max(0.0, 100.0 * (before[0] - last[0]) / (before[1] - last[1])))

    return since


def _read(cgroup: Path, stat: Path) -> tuple[float, float] | None:
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
