"""Measures what a state of ten million keys costs a job: rows/s beside an empty one, and its memory.

``shardway run`` reads a stream of as many orders in large batches, so the job itself fills the state. Then the rounds
begin. In each round the job with all these keys reads some batches of new orders, and then a job with a new checkpoint
directory reads the same orders. The first batch of each run does not count, as a process warms up and loads its state
in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import _pipelines
from bench._form import cpu_of_tree_s, judge, looking, say, tree_of
from bench._pipelines import fill
from shardway.local.embedded import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench._form import Result
    from shardway.local.spawned import SpawnedKinesis

STREAM = "orders-of-the-week"
SHARDS = 4
KEYS = int(os.environ.get("BENCH_STATE_KEYS", "10000000"))
ROUNDS = int(os.environ.get("BENCH_STATE_ROUNDS", "3"))
FILL_BATCH_RECORDS = 1_000_000
BATCH_RECORDS = 400_000
ROUND_RECORDS = 3 * BATCH_RECORDS
WITHIN_S = 6 * 3_600
"""The window of the de-duplication, which no key leaves. The service's time runs ahead of this machine's, so with a
shorter window the keys that leave would depend on the machine's speed.
"""
GIB_MAX = 3.0
LOOK_S = 0.5
RUN_S_MAX = 3_000.0

SPARK = """
[spark]
"spark.master" = "local[2]"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.memory" = "1g"
"""


class Run(NamedTuple):
    """One run of the job, to the end of the stream."""

    batches: list[dict[str, Any]]
    bytes_max: int
    """The most bytes of all its processes at one moment. Memory that they share is counted once."""
    cpu_s: float
    """The CPU seconds of all its processes, start and end included."""

    @property
    def rows_per_s(self) -> float:
        """The rows per second of the batches behind the first; 0 where there is none."""
        read = [(batch["rows"], batch["seconds"]) for batch in self.batches if batch["rows"]]
        return _pipelines.steady(read) if len(read) > 1 else 0.0


class Memory:
    """The most bytes of memory, and the most CPU seconds, that a process and its descendants had at one look."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.bytes_max = 0
        self.cpu_s = 0.0

    def look(self) -> None:
        """Note the memory and the CPU time that the processes have now."""
        self.bytes_max = max(self.bytes_max, sum(map(pss_bytes, tree_of(self._pid))))
        self.cpu_s = max(self.cpu_s, cpu_of_tree_s(self._pid))


def pss_bytes(pid: int) -> int:
    """Return the bytes of memory of one process, with its part of what it shares; 0 when the process has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def orders(first: int, count: int) -> Iterator[bytes]:
    """Yield ``count`` orders as JSON, numbered from ``first`` on."""
    return (json.dumps(_pipelines.order(number)).encode() for number in range(first, first + count))


def run(local: SpawnedKinesis, folder: Path, *, batch_records: int, **starting: str) -> Run:
    """Run the job file by ``shardway run``, in processes of its own, and return what it did. ``starting`` has the
    source's options for the starting position.
    """
    source = {"streamName": STREAM, "region": local.region, "endpointUrl": local.endpoint_url}
    options = {**source, **starting, "maxRecordsPerTrigger": str(batch_records)}
    text = _pipelines.job_text_of(options, folder, "available_now = true").replace(
        f'window = "{_pipelines.WITHIN}"', f'window = "{WITHIN_S} seconds"'
    )
    path = folder / "job.toml"
    path.write_text(text + SPARK, encoding="utf-8")
    program = "import sys; from shardway.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "run", str(path), "-o", "jsonl"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | local.environment())
    memory = Memory(process.pid)
    try:
        with looking(memory.look, LOOK_S):
            out, _ = process.communicate(timeout=RUN_S_MAX)
    finally:
        process.kill()
    events = [json.loads(line) for line in out.decode().splitlines()]
    if process.returncode != 0:
        raise RuntimeError(f"the job ended with {process.returncode}: {events[-1:]}")
    batches = [event for event in events if event["event"] == "batch"]
    return Run(batches, memory.bytes_max, memory.cpu_s)


def told(name: str, one: Run) -> None:
    """Print a line about a run: its state, and the seconds of each batch."""
    state = one.batches[-1]["state"]
    seconds = ", ".join(f"{batch['seconds']:.1f}" for batch in one.batches)
    removals = ", ".join(f"{batch['state']['remove_s']:.1f}" for batch in one.batches)
    say(
        f"state_10m {name}: {one.rows_per_s:,.0f} rows/s; {state['rows']:,} rows in the state ({state['store']}, "
        f"{state['bytes'] / 2**20:,.0f} MiB); {one.bytes_max / 2**30:.2f} GiB in all; {one.cpu_s:.0f} s of CPU; "
        f"seconds of each batch: {seconds}; of them looking for what is over, in both tasks: {removals}"
    )


def state_10m(new_folder: Callable[[], contextlib.AbstractContextManager[Path]]) -> list[Result]:
    """Measure the rows/s of a job with all keys beside those of one with an empty state, and the most memory of the
    job with all keys.
    """
    full: list[Run] = []
    empty: list[Run] = []
    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as local, new_folder() as folder:
        os.environ |= local.environment()
        asyncio.run(fill(local, STREAM, orders(0, KEYS)))
        filled = run(local, folder, batch_records=FILL_BATCH_RECORDS, startingPosition="TRIM_HORIZON")
        told("fill", filled)
        for number in range(ROUNDS):
            from_s = local.clock.now()
            asyncio.run(fill(local, STREAM, orders(KEYS + number * ROUND_RECORDS, ROUND_RECORDS)))
            full.append(run(local, folder, batch_records=BATCH_RECORDS, startingPosition="TRIM_HORIZON"))
            told("full", full[-1])
            with new_folder() as other:
                at = {"startingPosition": "AT_TIMESTAMP", "startingTimestamp": str(from_s)}
                empty.append(run(local, other, batch_records=BATCH_RECORDS, **at))
                told("empty", empty[-1])
            assert full[-1].batches[-1]["state"]["rows"] >= KEYS * 0.97
            assert sum(batch["rows"] for batch in empty[-1].batches) == ROUND_RECORDS
    speeds = [one.rows_per_s for one in full], [one.rows_per_s for one in empty]
    most_gib = max(one.bytes_max for one in [filled, *full]) / 2**30
    return [
        judge("state_10m", *speeds, unit="rows/s", goal=0.7, sense="at_least", peer_name="an empty state"),
        judge("state_10m_memory", [most_gib], unit="GiB", goal=GIB_MAX, sense="at_most"),
    ]
