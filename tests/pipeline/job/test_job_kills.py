"""A job is killed at each place of its first batches and started again: every record once, whatever was cut off.

A place is a file that Spark is writing: it has a name of its own until it is whole.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from tests.pipeline.job.job_running import HEAD, JSON, ONCE
from tests.pipeline.job.test_job_processes import SINK, SPARK, WAIT_S, Scene, rest, scene

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

UNIQUE = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'
LIVE = '[trigger]\nevery = "0 seconds"\n'
JOB = HEAD + JSON + UNIQUE + SINK + LIVE + SPARK
HDFS = (
    '"spark.sql.streaming.stateStore.providerClass" = '
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"\n'
)
ROCKS_WITHOUT_CHANGES = '"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" = "false"\n'
KILLING = """\
import os, pathlib, signal

def write(batch, batch_id):
    mark = pathlib.Path(__file__).with_name("killed")
    if batch_id == {batch} and not mark.exists():
        mark.touch()
        os.killpg(0, signal.SIGKILL)
"""
PUT_EVERY_S = 0.25
TRIES_MAX = 5
"""A file that Spark writes in a millisecond may be whole before it is seen; then another start is killed."""
APART_S = 0.01
"""Arrival times are in milliseconds: a time so far from all of them has each record on one of its sides."""


@dataclass
class Beginning:
    """Where a job begins, and which orders it has to read."""

    start: str
    option: str
    passed: int
    """So many orders lie before the start."""
    opened: int | None
    """So many may lie before it: all that follow were put behind it. None: the job has not begun to read."""

    def of(self, text: str) -> str:
        """The text of a job that begins there."""
        return text.replace('startingPosition = "TRIM_HORIZON"', self.option)

    def look(self, scene: Scene, folder: Path) -> None:
        """At LATEST the start is known once the first batch is planned: it is that moment, or before it."""
        if self.opened is None and (folder / "checkpoint" / "offsets" / "0").exists():
            self.opened = scene.count


def beginning(scene: Scene, start: str) -> Beginning:
    """A start behind what was put so far, or at the oldest record."""
    if start == "TRIM_HORIZON":
        return Beginning(start, 'startingPosition = "TRIM_HORIZON"', 0, 0)
    if start == "LATEST":
        return Beginning(start, 'startingPosition = "LATEST"', scene.count, None)
    time.sleep(APART_S)
    since_s = scene.local.clock.now()
    time.sleep(APART_S)
    scene.put(50)
    return Beginning(start, f'startingTimestamp = "{since_s:.3f}"', scene.count - 50, scene.count - 50)


def killed_at(scene: Scene, begins: Beginning, text: str, folder: Path, pattern: str) -> bool:
    """Starts the job, and kills it, with its Java, when a file of that name is there, while records come. False when it
    was whole by then.
    """
    process = scene.start(text)
    deadline_s = time.monotonic() + WAIT_S
    put_s = time.monotonic()
    whole = names_of_the_whole(pattern)
    while not any(folder.glob(pattern)) and not any(list(folder.glob(name)) for name in whole):
        assert time.monotonic() < deadline_s, f"{pattern} never came"
        assert process.poll() is None, process.communicate()
        begins.look(scene, folder)
        if time.monotonic() - put_s > PUT_EVERY_S:
            scene.put(3)
            put_s = time.monotonic()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    begins.look(scene, folder)
    return any(folder.glob(pattern))


def names_of_the_whole(pattern: str) -> tuple[str, ...]:
    """What a file is called once it is whole, where there is only one that comes: it may never be seen before."""
    if not pattern.endswith(".*.tmp") or "[" in pattern:
        return ()
    name = pattern.removesuffix(".*.tmp").replace("/.", "/")
    return name, f"{name}.*"


def assert_exact_after_another_start(scene: Scene, begins: Beginning, text: str, folder: Path) -> None:
    """The same job once more, until it has read all: every record behind its start is there once."""
    scene.local.clock.advance(3.0)
    process = scene.start(text.replace(LIVE, ONCE))
    events, errors = rest(process)
    assert process.returncode == 0, (events, errors)
    found = ds.dataset(folder / "lake" / "orders").to_table(columns=["order_id"])["order_id"].to_pylist()
    numbers = sorted(int(one.removeprefix("order-")) for one in found)
    assert begins.opened is not None
    assert begins.passed <= numbers[0] <= begins.opened
    assert numbers == list(range(numbers[0], scene.count))


@pytest.mark.parametrize(
    ("place", "settings", "start"),
    [
        ("checkpoint/.metadata.*.tmp", "", "AT_TIMESTAMP"),
        ("checkpoint/offsets/.0.*.tmp", "", "TRIM_HORIZON"),  # at LATEST no start is stored yet
        ("checkpoint/state/0/*/.1.*.tmp", "", "LATEST"),
        ("checkpoint/state/0/*/.1.*.tmp", ROCKS_WITHOUT_CHANGES, "AT_TIMESTAMP"),
        ("checkpoint/state/0/*/.1.*.tmp", HDFS, "TRIM_HORIZON"),
        ("checkpoint/commits/.0.*.tmp", "", "LATEST"),
        ("lake/orders.staging/*", "", "LATEST"),
        ("checkpoint/offsets/.[1-9]*.tmp", "", "AT_TIMESTAMP"),
        ("checkpoint/state/0/*/.[2-9]*.tmp", "", "TRIM_HORIZON"),
        ("checkpoint/state/0/*/.[2-9]*.tmp", ROCKS_WITHOUT_CHANGES, "LATEST"),
        ("checkpoint/state/0/*/.[2-9]*.tmp", HDFS, "AT_TIMESTAMP"),
        ("checkpoint/commits/.[1-9]*.tmp", "", "TRIM_HORIZON"),
    ],
)
def test_killed_while_a_file_is_written(scene: Scene, place: str, settings: str, start: str) -> None:
    scene.put(50)
    for attempt in range(TRIES_MAX):
        folder = scene.folder / f"try-{attempt}"
        begins = beginning(scene, start)
        text = begins.of((JOB + settings).replace("{folder}", str(folder)))
        if killed_at(scene, begins, text, folder, place):
            break
    else:
        pytest.fail(f"{place} was always whole before it was seen")
    assert_exact_after_another_start(scene, begins, text, folder)


@pytest.mark.parametrize(("batch", "start"), [(0, "AT_TIMESTAMP"), (1, "TRIM_HORIZON"), (1, "LATEST")])
def test_killed_when_a_batch_is_written_and_not_committed(scene: Scene, batch: int, start: str) -> None:
    (scene.folder / "killing.py").write_text(KILLING.replace("{batch}", str(batch)))
    scene.put(50)
    begins = beginning(scene, start)
    text = JOB.replace("{folder}", str(scene.folder)).replace(LIVE, '[[sinks]]\nfunction = "killing:write"\n' + LIVE)
    text = begins.of(text)
    process = scene.start(text)
    deadline_s = time.monotonic() + WAIT_S
    while process.poll() is None:
        assert time.monotonic() < deadline_s
        begins.look(scene, scene.folder)
        scene.put(1)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PUT_EVERY_S)
    assert (scene.folder / "checkpoint" / "offsets" / str(batch)).exists()
    assert not (scene.folder / "checkpoint" / "commits" / str(batch)).exists()
    assert_exact_after_another_start(scene, begins, text, scene.folder)


@pytest.mark.parametrize("place", ["lake/orders.staging/*", "dead.staging/*", "dead/*"])
def test_killed_while_dead_letters_come_with_the_write_of_good_rows(scene: Scene, place: str) -> None:
    """Before, while and behind the dead letters of a batch that is written in one pass; orders are only staged."""
    begins = beginning(scene, "TRIM_HORIZON")
    for attempt in range(TRIES_MAX):
        scene.put(20)
        scene.put_data(b"no json")
        folder = scene.folder / f"try-{attempt}"
        text = JOB.replace("{folder}", str(folder))
        killed_at(scene, begins, text, folder, place)
        if not (folder / "checkpoint" / "commits" / "0").exists():
            break
    assert_exact_after_another_start(scene, begins, text, folder)
    dead = ds.dataset(folder / "dead").to_table(columns=["data"])["data"].to_pylist()
    assert dead == [b"no json"] * (attempt + 1)
