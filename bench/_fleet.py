"""Runs a fleet of consumer processes under load, and finds out what each of them delivered when."""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from itertools import count, pairwise
from typing import TYPE_CHECKING, NamedTuple

from bench._consuming import Delivered, deliveries
from bench._dynamo import table
from bench._producing import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from shardway.core.leases import LeaseRow

DEADLINE_S = 60.0
LOOK_S = 0.1
STEADY_S = 1.5
"""Seconds for which each worker delivers its own shards, and no others, before a fleet counts as balanced."""

_applications = count(1)


class Move(NamedTuple):
    """One move of a shard from one worker to another."""

    shard: int
    at_s: float
    """The time of the last delivery before the move."""
    gap_ms: float
    """Milliseconds between the deliveries around the move, less the shard's usual time between two deliveries."""


class Log:
    """The deliveries in a file, which is read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.all: list[Delivered] = []

    def look(self) -> list[Delivered]:
        """Return all deliveries so far, as they were written."""
        if self._path.exists():
            found, self._read = deliveries(self._path, self._read)
            self.all += found
        return self.all

    def since(self, at_s: float) -> list[Delivered]:
        """Return the deliveries from this time on, in seconds of the monotonic clock."""
        found = []
        for one in reversed(self.look()):
            if one.at_s < at_s - 5.0:  # several processes write, so the order is not quite that of time
                break
            if one.at_s >= at_s:
                found.append(one)
        return found


class Fleet:
    """The worker processes of one application. They end with the block, as does the producer of `load`."""

    def __init__(
        self, kinesis: str, dynamodb: str, folder: Path, *, stream: str, fan_out: bool = False, prompt: bool = False
    ) -> None:
        self.application = f"fleet-{next(_applications)}"
        self.log = Log(folder / self.application)
        self.running: list[subprocess.Popen[bytes]] = []
        """The processes that were not asked to stop."""
        self._started: list[subprocess.Popen[bytes]] = []
        self._numbers = count(1)
        self._kinesis, self._dynamodb = kinesis, dynamodb
        self._stream = stream
        self._given = {
            "kinesis": kinesis, "dynamodb": dynamodb, "stream": stream, "application": self.application,
            "path": str(folder / self.application), "fan_out": fan_out, "prompt": prompt,
        }  # fmt: skip
        self.names: dict[int, int] = {}
        """The number that each process's worker writes with its deliveries, by the id of the process."""
        self._producer: subprocess.Popen[bytes] | None = None

    # --- processes ---

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more worker, with an id that was not there before, and return its process."""
        number = next(self._numbers)
        command = [sys.executable, "-m", "bench._consuming", "worker", json.dumps({**self._given, "number": number})]
        process = subprocess.Popen(command, cwd=ROOT)
        self.names[process.pid] = number
        self.running.append(process)
        self._started.append(process)
        return process

    def ask_to_stop(self, process: subprocess.Popen[bytes]) -> None:
        """Ask a worker to stop, as a deploy does."""
        self.running.remove(process)
        process.send_signal(signal.SIGTERM)

    def stop(self, process: subprocess.Popen[bytes]) -> float:
        """Ask a worker to stop, wait for its end, and return how many seconds that took."""
        began_s = time.monotonic()
        self.ask_to_stop(process)
        self.ended(process)
        return time.monotonic() - began_s

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a worker that was asked to stop. Raises RuntimeError when it failed."""
        if process.wait(DEADLINE_S):
            raise RuntimeError(f"a worker ended with status {process.returncode}: see its message above")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a worker with SIGKILL."""
        self.running.remove(process)
        process.kill()
        process.wait()

    def load(self, rate_per_s: float) -> None:
        """Start a producer that puts ``rate_per_s`` numbered records a second from now on."""
        given = {"endpoint_url": self._kinesis, "stream": self._stream, "rate_per_s": rate_per_s}
        self._producer = subprocess.Popen(
            [sys.executable, "-m", "bench._producing", "numbered", json.dumps(given)], cwd=ROOT, stdout=subprocess.PIPE
        )

    def unload(self) -> int:
        """Stop the producer, wait until all of its records were delivered, and return how many it put."""
        assert self._producer is not None
        self._producer.send_signal(signal.SIGTERM)
        printed, _ = self._producer.communicate(timeout=DEADLINE_S)
        put = int(json.loads(printed)["put"])
        self.until(lambda: len({number for one in self.log.look() for number in one.numbers}) >= put, "all records")
        return put

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self._started, *([self._producer] if self._producer is not None else [])]:
            if process.poll() is None:
                process.kill()
            process.communicate()

    # --- what to wait for ---

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again, until the condition holds. ``what`` says what is waited for, in the error. Raises
        RuntimeError after `DEADLINE_S`, or when a worker ends by itself.
        """
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end_s:
                raise RuntimeError(f"{self.application}: not in {DEADLINE_S:.0f} s: {what}")
            if any(process.poll() is not None for process in self.running):
                raise RuntimeError(f"{self.application}: a worker has ended by itself: see its message above")
            time.sleep(LOOK_S)

    def until_balanced(self, shards: int) -> float:
        """Wait until each worker that runs has delivered its equal share of the shards, and no others, for `STEADY_S`.
        Return how many seconds the wait took, these included.
        """
        began_s = time.monotonic()
        wanted = {self.names[process.pid] for process in self.running}
        share = shards // len(wanted)

        def balanced() -> bool:
            held: dict[int, set[int]] = {}
            for one in self.log.since(time.monotonic() - STEADY_S):
                held.setdefault(one.worker, set()).add(one.shard)
            return held.keys() == wanted and all(len(its) == share for its in held.values())

        self.until(balanced, f"{share} shards for each of {len(wanted)} workers")
        return time.monotonic() - began_s

    def rows(self) -> dict[int, LeaseRow]:
        """Return the rows of the lease table, by the shard's number."""

        async def scan() -> list[LeaseRow]:
            leases = table(self._dynamodb, self.application)
            try:
                return list((await leases.scan(consistent=True)).rows)
            finally:
                await leases.close()

        return {int(row.key.rpartition("-")[2]): row for row in asyncio.run(scan())}


# --- what the deliveries tell -----------------------------------------------------------------------------


def by_shard(found: Iterable[Delivered]) -> dict[int, list[Delivered]]:
    """Return each shard's deliveries in the order of time."""
    shards: dict[int, list[Delivered]] = {}
    for one in sorted(found):
        shards.setdefault(one.shard, []).append(one)
    return shards


def moves(found: Iterable[Delivered], from_s: float) -> list[Move]:
    """Return the moves from this time on. Earlier deliveries say how far apart a shard's deliveries usually are."""
    told = []
    for shard, its in by_shard(found).items():
        before = [later.at_s - one.at_s for one, later in pairwise(its) if later.at_s < from_s]
        usual_s = statistics.median(before[-40:])
        told += [
            Move(shard, one.at_s, (later.at_s - one.at_s - usual_s) * 1e3)
            for one, later in pairwise(its)
            if later.at_s >= from_s and later.worker != one.worker
        ]
    return told


def duplicates(found: Iterable[Delivered]) -> int:
    """Return how many records were delivered again."""
    counts = Counter(number for one in found for number in one.numbers)
    return counts.total() - len(counts)


def two_readers(found: Iterable[Delivered]) -> int:
    """Return how many deliveries of a shard a former owner made after the first delivery of a later owner."""
    late = 0
    for its in by_shard(found).values():
        newest = 0
        for one in its:
            late += one.token < newest
            newest = max(newest, one.token)
    return late


def p99(figures: Sequence[float]) -> float:
    """Return the 99th percentile of the figures, which is the largest where there are fewer than a hundred."""
    return sorted(figures)[-1 - len(figures) // 100]
