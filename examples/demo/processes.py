"""The processes of the demo: started with their output in a file, and ended with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
SPARK = (
    "--master local[2] --driver-memory 1g --driver-java-options -XX:TieredStopAtLevel=1"
    " --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
    " --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1"
    " --conf spark.sql.shuffle.partitions=2 --conf spark.sql.session.timeZone=UTC pyspark-shell"
)
"""Two threads on this machine, nothing that listens on more than loopback."""


def start_job(report: Path, log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """``shardway run``: Python, which starts a JVM, which starts Python workers.

    ``report`` gets a line of JSON for each batch, ``log`` what else is said.
    """
    with report.open("ab") as output, log.open("ab") as errors:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "shardway.pipeline.job",
                str(ROOT / "examples" / "jobs" / "orders.toml"),
                "-o",
                "jsonl",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends the job
            env={
                **os.environ,
                **environment,
                "PYSPARK_SUBMIT_ARGS": SPARK,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )


def start_producer(arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """The producer; its standard output says how far it is."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo.producer", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env={**os.environ, **environment},
    )


def kill_tree(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> int:
    """SIGKILL for a process and all that descend from it; returns how many that were."""
    if process.poll() is not None:
        return 0
    doomed = [process.pid]
    parent_of = parents()
    for pid in doomed:
        doomed += [child for child, parent in parent_of.items() if parent == pid]
    for pid in doomed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended with its parent
    process.wait()
    return len(doomed)


def parents() -> dict[int, int]:
    """Every process of this machine and its parent."""
    if Path("/proc/self/stat").exists():
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                # pid (name) state parent ...: the name may hold anything, parentheses too
                found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
        return found
    listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return {int(pid): int(parent) for pid, parent in (line.split() for line in listing.splitlines())}
