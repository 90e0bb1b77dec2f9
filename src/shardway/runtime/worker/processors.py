"""The busy part of the processors: of the container if it has a limit of its own, else of the machine (Linux).

The KCL 3.x measures it in this way, so that its leader compares like with like.
"""

from __future__ import annotations

import time
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
STAT = Path("/proc/stat")


class Processors:
    """Measures how busy the processors are, from the moment at which it is made."""

    def __init__(self, cgroup: Path = CGROUP, stat: Path = STAT) -> None:
        self._cgroup = cgroup
        self._stat = stat
        self._last_work = _work_done(cgroup, stat)

    def busy_percent(self) -> float | None:
        """Return the mean since the call before, from 0 to 100; None where it is not known."""
        last, now = self._last_work, _work_done(self._cgroup, self._stat)
        self._last_work = now
        if last is None or now is None or now[1] <= last[1]:
            return None
        return min(100.0, max(0.0, 100.0 * (now[0] - last[0]) / (now[1] - last[1])))


def _work_done(cgroup: Path, stat: Path) -> tuple[float, float] | None:
    """Return the work done and the work that could have been done, in one unit; None where it is not known."""
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
    return total - times[3] - times[4], total  # Times 3 and 4 are idle, and waiting for disks.
