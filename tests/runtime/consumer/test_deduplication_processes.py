"""Deduplication over a SIGKILL: the worker that takes the shard over reads the window again, and decides as the
dead one did.
"""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime.consumer.fleet_kit import STREAM
from tests.stores.sqlite_leases import leases_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.local import LocalKinesis

PROGRAM = Path(__file__).with_name("dedupe_process.py")
DEADLINE_S = 90.0
BEFORE_S = 60.0
SEED = 7


class Workers:
    def __init__(self, endpoint_url: str, folder: Path, start: str) -> None:
        self.output = folder / "output"
        self.output.touch()
        self.leases = folder / "leases.db"
        self._arguments = [endpoint_url, str(self.leases), str(self.output), start]
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        process = subprocess.Popen([sys.executable, str(PROGRAM), *self._arguments], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        self.running.append(process)

    def kill(self) -> None:
        process = self.running.pop()
        process.kill()
        process.communicate()

    def got(self) -> dict[str, set[str]]:
        """The numbers of the records that were delivered, by their data."""
        found: dict[str, set[str]] = defaultdict(set)
        for line in self.output.read_text().splitlines():
            data, number = line.split()
            found[data].add(number)
        return found

    def has_leases(self) -> bool:
        """Whether the shard has its lease, which fixes where it begins."""
        return len(leases_in(self.leases, "dedupe")) == 1

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end_s, "it did not come to that"
            assert all(process.poll() is None for process in self.running), "a worker ended by itself"
            time.sleep(0.02)


@pytest.fixture(params=[random.Random(SEED).choice(["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])])
def workers(request: pytest.FixtureRequest, local: LocalKinesis, tmp_path: Path) -> Iterator[Workers]:
    since = dt.datetime.fromtimestamp(local.clock.now() - BEFORE_S, dt.UTC).isoformat()
    workers = Workers(local.endpoint_url, tmp_path, since if request.param == "AT_TIMESTAMP" else request.param)
    yield workers
    while workers.running:
        workers.kill()


@pytest.mark.slow
def test_dedupe_survives_a_sigkill(local: LocalKinesis, kinesis: Any, workers: Workers) -> None:
    rng = random.Random(SEED)
    first: dict[str, str] = {}
    workers.start()
    workers.until(workers.has_leases)

    def more_than(count: int) -> Callable[[], bool]:
        return lambda: len(workers.got()) > count

    for turn in range(3):
        keys = [str(rng.randrange(100 * turn + 100)) for _ in range(400)] + [f"end-{turn}"]
        for at in range(0, len(keys), 100):
            answer = kinesis.put_records(
                StreamName=STREAM, Records=[{"Data": key.encode(), "PartitionKey": "k"} for key in keys[at : at + 100]]
            )
            for key, record in zip(keys[at : at + 100], answer["Records"], strict=True):
                first.setdefault(key, record["SequenceNumber"])
        seen = len(workers.got())
        workers.until(more_than(seen + 10))
        workers.kill()  # in the middle of it
        workers.start()
    workers.until(lambda: "end-2" in workers.got())
    assert {key: {number} for key, number in first.items()} == workers.got()
