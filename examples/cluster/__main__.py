"""A job file on a cluster of this machine, to kill parts of and see what becomes of it.

::

    python -m examples.cluster job.toml

A master and two workers run until the job ends, or Ctrl-C. The program prints what the job reports, line by line, and
which process runs under which number, whenever that changes: kill -9 any of them. It starts a worker or a driver that
is gone again, as a supervisor would.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from examples.cluster.standalone import Cluster

if TYPE_CHECKING:
    from typing import TextIO

    from examples.cluster.standalone import Node

POLL_S = 0.2
KILLED = -9


def main(arguments: list[str] | None = None) -> int:
    """The job's exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.cluster", description="A job file on a cluster.")
    parser.add_argument("job", type=Path, metavar="JOB.toml")
    job = parser.parse_args(arguments).job.resolve()
    with tempfile.TemporaryDirectory(prefix="shardway-cluster-") as folder:
        report = Path(folder, "report.jsonl")
        report.touch()
        with Cluster(Path(folder, "cluster"), {}) as cluster, report.open() as lines:
            try:
                return _watch(cluster, job, report, lines)
            except KeyboardInterrupt:
                return 130


def _watch(cluster: Cluster, job: Path, report: Path, lines: TextIO) -> int:
    driver = cluster.submit(job, report, {})
    shown = ""
    while True:
        for line in lines:
            print(line, end="", flush=True)
        processes = _processes(cluster, driver)
        if processes != shown:
            print(processes, file=sys.stderr, flush=True)
            shown = processes
        for number, worker in enumerate(cluster.workers):
            if worker.process.poll() is not None:
                cluster.start_worker(number)
        code = driver.process.poll()
        if code == KILLED:
            driver.kill_family()
            driver = cluster.submit(job, report, {})
        elif code is not None:
            print("".join(lines), end="", flush=True)
            if code:
                print(driver.log.read_text(errors="replace")[-2000:], file=sys.stderr)
            return code
        time.sleep(POLL_S)


def _processes(cluster: Cluster, driver: Node) -> str:
    workers = ", ".join(str(worker.pid) for worker in cluster.workers)
    executors = ", ".join(map(str, cluster.executors()))
    return f"driver {driver.pid}; workers {workers}; executors {executors or 'none'}"


if __name__ == "__main__":
    sys.exit(main())
