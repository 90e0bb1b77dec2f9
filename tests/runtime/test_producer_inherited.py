"""A producer in a process that was forked off, and one that is not closed when its process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.testing import Fault
from tests.runtime.producing import read_sync

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

PROGRAM = Path(__file__).with_name("forking.py")


def run(what: str, local: LocalKinesis) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), what, local.endpoint_url], capture_output=True, text=True, timeout=60, check=True
    )


def test_after_a_fork_it_raises_in_place_of_hanging(local: LocalKinesis) -> None:
    """What was put before is written by the process that put it; a producer that was not used yet is good."""
    ran = run("fork", local)
    told = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    for name in ("put_nowait", "put", "put_many", "flush", "metrics"):
        assert told.pop(name).startswith("ProducerClosedError orders: the producer was used before"), name
    result = told.pop("result")  # known already, or nothing here will tell
    assert result == "returned" or result.startswith("ProducerClosedError")
    assert told == {"close": "returned", "not used before": "returned", "parent": "closed"}
    assert "lost" not in ran.stderr
    assert read_sync(local).counts() == {b"data": 3}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_producer_that_was_not_used_before_works_in_each_process(local: LocalKinesis, method: str) -> None:
    """Gunicorn and Celery with `preload` make it at the top of a module, and fork then."""
    ran = run(f"unused-{method}", local)
    assert sorted(ran.stdout.split()) == ["child", "child", "parent"]
    assert ran.stderr == ""
    assert read_sync(local).counts() == {b"child": 2, b"parent": 1}


def test_children_of_a_fork_use_what_the_parent_never_did(local: LocalKinesis) -> None:
    """Also after the parent has looked at its numbers, and with each way to put."""
    ran = run("unused-bare", local)
    assert ran.stdout.split() == ["put", "put_nowait", "put_many", "flush", "start", "closed"]
    assert read_sync(local).counts() == {b"data": 3}


@pytest.mark.parametrize("what", ["end", "end_loop"])
def test_a_program_that_does_not_close_it_is_told_of_the_loss(local: LocalKinesis, what: str) -> None:
    local.faults.add(Fault(how="throttle", operation="PutRecords"))
    assert "17 records that it had taken have no outcome" in run(what, local).stderr
