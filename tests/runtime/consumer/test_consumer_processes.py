"""Real processes that share a stream, and are killed, stopped and paused: a fenced output has every record once."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from copying_process import STREAM

from penstock.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).with_name("copying_process.py")
DEADLINE_S = 90.0
SHARDS = 4


class Copiers:
    """Worker processes on one lease table and one output."""

    def __init__(self, endpoint_url: str, folder: Path) -> None:
        self.output = str(folder / "output.db")
        self._arguments = [endpoint_url, str(folder / "leases.db"), self.output]
        self.running: list[subprocess.Popen[bytes]] = []
        with sqlite3.connect(self.output) as database:
            from copying_process import SCHEMA

            database.executescript(SCHEMA)

    def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(PROGRAM), *self._arguments], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        self.running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        self.running.remove(process)
        process.kill()
        process.communicate()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """As a deploy does."""
        self.running.remove(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0

    def rows(self, query: str) -> list[Any]:
        with sqlite3.connect(self.output, timeout=30) as database:
            return database.execute(query).fetchall()

    def copies(self) -> list[str]:
        return [data.decode() if isinstance(data, bytes) else data for (data,) in self.rows("SELECT data FROM copies")]

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end_s, "it did not come to that"
            assert all(process.poll() is None for process in self.running), "a worker ended by itself"
            time.sleep(0.05)


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: SHARDS}) as service:
        yield service


@pytest.fixture
def copiers(local: LocalKinesis, tmp_path: Path) -> Iterator[Copiers]:
    copiers = Copiers(local.endpoint_url, tmp_path)
    yield copiers
    for process in list(copiers.running):
        process.send_signal(signal.SIGCONT)
        copiers.kill(process)


def put(kinesis: Any, start: int, stop: int) -> list[str]:
    datas = [str(number) for number in range(start, stop)]
    for at in range(0, len(datas), 100):
        kinesis.put_records(
            StreamName=STREAM, Records=[{"Data": data, "PartitionKey": data} for data in datas[at : at + 100]]
        )
    return datas


def test_a_worker_that_is_killed_costs_no_record(local: LocalKinesis, kinesis: Any, copiers: Copiers) -> None:
    wanted = put(kinesis, 0, 100)
    doomed, other = copiers.start(), copiers.start()
    wanted += put(kinesis, 100, 200)
    copiers.until(lambda: len(copiers.copies()) >= 150)
    copiers.kill(doomed)
    wanted += put(kinesis, 200, 300)
    copiers.until(lambda: len(copiers.copies()) >= len(wanted))
    assert sorted(copiers.copies(), key=int) == wanted
    copiers.stop(other)


@pytest.mark.slow
def test_kills_pauses_beyond_the_lease_and_deploys_under_load(
    local: LocalKinesis, kinesis: Any, copiers: Copiers
) -> None:
    """The copier of KCL issue #11: whatever happens to its workers, its output has every record once."""
    rng = random.Random(11)
    wanted: list[str] = []
    for _ in range(3):
        copiers.start()
    for turn in range(8):
        wanted += put(kinesis, 200 * turn, 200 * turn + 200)
        time.sleep(rng.uniform(0.2, 1.5))
        process = rng.choice(copiers.running)
        what = turn % 4
        if what == 0:
            copiers.kill(process)
            copiers.start()
        elif what == 1:
            copiers.start()
            copiers.stop(process)
        elif what == 2:
            process.send_signal(signal.SIGSTOP)
            time.sleep(5.0)  # more than twice the failover time
            process.send_signal(signal.SIGCONT)
        else:
            copiers.stop(process)
            copiers.start()
    copiers.until(lambda: len(copiers.copies()) >= len(wanted))
    time.sleep(1.0)
    assert sorted(copiers.copies(), key=int) == wanted
    # One shard's tokens never fall: whoever came later had the higher one.
    for (shard_id,) in copiers.rows("SELECT DISTINCT shard_id FROM copies"):
        tokens = [token for (token,) in copiers.rows(f"SELECT token FROM copies WHERE shard_id = '{shard_id}'")]
        assert tokens == sorted(tokens)
