"""The programs of examples/consumers, each as processes of their own, on the local Kinesis."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "consumers"
DEADLINE_S = 90.0


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={"orders": 3}) as service:
        yield service


@pytest.fixture
def start(local: LocalKinesis) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(program: str, *arguments: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, str(PROGRAMS / program), *arguments],
                env={**os.environ, **local.environment()},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> str:
    """Its last line, after a SIGTERM."""
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    return out.strip().splitlines()[-1]


def test_orders_are_counted_by_customer(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("count_orders.py", "orders", "--produce", "200")
    assert process.stdout is not None
    seen = ""
    while seen != "200 orders\n":
        seen = process.stdout.readline()
        assert seen, process.communicate()[1]
    counts = json.loads(end(process))
    assert counts == {f"customer-{key}": len(range(key, 200, 7)) for key in range(7)}


@pytest.mark.slow
def test_every_order_is_in_the_database_once_when_one_of_two_is_killed(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = tmp_path / "orders.db"
    one = start("orders_to_sqlite.py", "orders", str(path), "--produce", "100")
    deadline_s = time.monotonic() + DEADLINE_S

    def copied() -> list[bytes]:
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as database:
                return [data for (data,) in database.execute("SELECT data FROM orders")]
        except sqlite3.OperationalError:  # it is not made yet
            return []

    def until(count: int) -> None:
        while len(copied()) < count:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    until(100)
    other = start("orders_to_sqlite.py", "orders", str(path), "--produce", "100")
    one.kill()
    until(200)
    assert end(other) == f"200 orders are in {path}"
    assert sorted(copied()) == sorted([b"order %d" % number for number in range(100)] * 2)
