"""Processes that have one worker id, or came of one process: no shard has two readers."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.local import LocalKinesis
from tests.runtime.consumer.face_kit import STREAM, put
from tests.stores.sqlite_leases import leases_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).with_name("twin_process.py")
DEADLINE_S = 60.0
STREAMS = {STREAM: 4}
BEFORE_S = 60.0


class Twins:
    """Programs, each with a process group of its own, and what all of them were given."""

    def __init__(self, local: LocalKinesis, folder: Path, start: str) -> None:
        self.output = folder / "output"
        self.leases = folder / "leases.db"
        self.running: list[subprocess.Popen[str]] = []
        since = dt.datetime.fromtimestamp(local.clock.now() - BEFORE_S, dt.UTC).isoformat()
        start = since if start == "AT_TIMESTAMP" else start
        self._arguments = [local.endpoint_url, str(self.leases), str(self.output), start]

    def start(self, how: str) -> subprocess.Popen[str]:
        self.running.append(
            subprocess.Popen(
                [sys.executable, str(PROGRAM), *self._arguments, how],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return self.running[-1]

    def got(self) -> Counter[bytes]:
        return Counter(self.output.read_bytes().splitlines()) if self.output.exists() else Counter()

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert all(process.poll() is None for process in self.running), "a program ended by itself"
            assert time.monotonic() < end_s, "it did not come to that"
            time.sleep(0.02)

    def end(self, number: int) -> None:
        for process in self.running:
            os.killpg(process.pid, number)
        for process in self.running:
            process.wait(DEADLINE_S)
            if process.stdout is not None:
                process.stdout.close()
        self.running.clear()

    def has_leases(self) -> bool:
        """Whether each shard has its lease, which fixes where it begins."""
        return len(leases_in(self.leases, "twins")) == STREAMS[STREAM]


@pytest.fixture(params=["TRIM_HORIZON", "AT_TIMESTAMP"])
def twins(request: pytest.FixtureRequest, local: LocalKinesis, tmp_path: Path) -> Iterator[Twins]:
    made = Twins(local, tmp_path, request.param)
    yield made
    made.end(signal.SIGKILL)


def test_a_consumer_made_before_a_fork_is_another_worker_in_each_process(twins: Twins, kinesis: Any) -> None:
    wanted = set(put(kinesis, range(300)))
    program = twins.start("fork")
    assert program.stdout is not None
    ids = {program.stdout.readline().split()[1] for _ in range(3)}
    assert len(ids) == 3
    twins.until(lambda: set(twins.got()) >= wanted)
    wanted |= set(put(kinesis, range(300, 600)))
    twins.until(lambda: set(twins.got()) >= wanted)
    twins.end(signal.SIGTERM)
    assert twins.got() == Counter(wanted)


@pytest.mark.parametrize("twins", ["LATEST"], indirect=True)
def test_a_first_start_at_latest_of_two_processes_of_one_id(twins: Twins, kinesis: Any) -> None:
    """What was there before is left out, and all that comes behind the leases is read once, by either process."""
    put(kinesis, range(100))
    time.sleep(SERVICE_CLOCK_S + 1)  # LATEST reaches back as far as the service's clock may be wrong.
    for _ in range(2):
        twins.start("w1")
    twins.until(twins.has_leases)
    wanted = set(put(kinesis, range(300, 600)))
    twins.until(lambda: set(twins.got()) >= wanted)
    with twins.running.pop(0) as gone:
        gone.kill()
    wanted |= set(put(kinesis, range(600, 900)))
    twins.until(lambda: set(twins.got()) >= wanted)
    assert set(twins.got()) == wanted


def test_two_processes_of_one_id_that_start_together(twins: Twins, kinesis: Any) -> None:
    """One of them reads; the other one takes nothing while that one lives, and everything when it is gone."""
    wanted = set(put(kinesis, range(300)))
    both = [twins.start("w1") for _ in range(2)]
    for program in both:
        assert program.stdout is not None
        assert program.stdout.readline() == "started w1\n"
    twins.until(lambda: set(twins.got()) >= wanted)
    wanted |= set(put(kinesis, range(300, 600)))
    twins.until(lambda: set(twins.got()) >= wanted)
    assert twins.got() == Counter(wanted)
    with twins.running.pop(0) as gone:
        gone.kill()
    wanted |= set(put(kinesis, range(600, 900)))
    twins.until(lambda: set(twins.got()) >= wanted)
