"""A job is killed at each place of its first batches and started again: every record once, whatever was cut off.

A place is a file that Spark is writing: it has a name of its own until it is whole.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
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


def killed_at(scene: Scene, process: subprocess.Popen[str], folder: Path, pattern: str) -> bool:
    """Kills the job, with its Java, when a file of that name is there, while records come. False when it was whole
    by then.
    """
    deadline_s = time.monotonic() + WAIT_S
    put_s = time.monotonic()
    whole = names_of_the_whole(pattern)
    while not any(folder.glob(pattern)) and not any(list(folder.glob(name)) for name in whole):
        assert time.monotonic() < deadline_s, f"{pattern} never came"
        assert process.poll() is None, process.communicate()
        if time.monotonic() - put_s > PUT_EVERY_S:
            scene.put(3)
            put_s = time.monotonic()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return any(folder.glob(pattern))


def names_of_the_whole(pattern: str) -> tuple[str, ...]:
    """What a file is called once it is whole, where there is only one that comes: it may never be seen before."""
    if not pattern.endswith(".*.tmp") or "[" in pattern:
        return ()
    name = pattern.removesuffix(".*.tmp").replace("/.", "/")
    return name, f"{name}.*"


def assert_exact_after_another_start(scene: Scene, text: str, folder: Path) -> None:
    """The same job once more, until it has read all: every record is there once."""
    scene.local.clock.advance(3.0)
    process = scene.start(text.replace(LIVE, ONCE))
    events, errors = rest(process)
    assert process.returncode == 0, (events, errors)
    found = ds.dataset(folder / "lake" / "orders").to_table(columns=["order_id"])["order_id"].to_pylist()
    assert sorted(found) == sorted(f"order-{number}" for number in range(scene.count))


@pytest.mark.parametrize(
    ("place", "settings"),
    [
        ("checkpoint/.metadata.*.tmp", ""),
        ("checkpoint/offsets/.0.*.tmp", ""),
        ("checkpoint/state/0/*/.1.*.tmp", ""),
        ("checkpoint/state/0/*/.1.*.tmp", ROCKS_WITHOUT_CHANGES),
        ("checkpoint/state/0/*/.1.*.tmp", HDFS),
        ("checkpoint/commits/.0.*.tmp", ""),
        ("lake/orders.staging/*", ""),
        ("checkpoint/offsets/.[1-9]*.tmp", ""),
        ("checkpoint/state/0/*/.[2-9]*.tmp", ""),
        ("checkpoint/state/0/*/.[2-9]*.tmp", ROCKS_WITHOUT_CHANGES),
        ("checkpoint/state/0/*/.[2-9]*.tmp", HDFS),
        ("checkpoint/commits/.[1-9]*.tmp", ""),
    ],
)
def test_killed_while_a_file_is_written(scene: Scene, place: str, settings: str) -> None:
    scene.put(50)
    for attempt in range(TRIES_MAX):
        folder = scene.folder / f"try-{attempt}"
        text = (JOB + settings).replace("{folder}", str(folder))
        if killed_at(scene, scene.start(text), folder, place):
            break
    else:
        pytest.fail(f"{place} was always whole before it was seen")
    assert_exact_after_another_start(scene, text, folder)


@pytest.mark.parametrize("batch", [0, 1])
def test_killed_when_a_batch_is_written_and_not_committed(scene: Scene, batch: int) -> None:
    (scene.folder / "killing.py").write_text(KILLING.replace("{batch}", str(batch)))
    scene.put(50)
    text = JOB.replace("{folder}", str(scene.folder)).replace(LIVE, '[[sinks]]\nfunction = "killing:write"\n' + LIVE)
    process = scene.start(text)
    deadline_s = time.monotonic() + WAIT_S
    while process.poll() is None:
        assert time.monotonic() < deadline_s
        scene.put(1)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PUT_EVERY_S)
    assert (scene.folder / "checkpoint" / "offsets" / str(batch)).exists()
    assert not (scene.folder / "checkpoint" / "commits" / str(batch)).exists()
    assert_exact_after_another_start(scene, text, scene.folder)


@pytest.mark.parametrize("place", ["lake/orders.staging/*", "dead.staging/*", "dead/*"])
def test_killed_while_dead_letters_come_with_the_write_of_good_rows(scene: Scene, place: str) -> None:
    """Before, while and behind the dead letters of a batch that is written in one pass; orders are only staged."""
    for attempt in range(TRIES_MAX):
        scene.put(20)
        scene.put_data(b"no json")
        folder = scene.folder / f"try-{attempt}"
        text = JOB.replace("{folder}", str(folder))
        killed_at(scene, scene.start(text), folder, place)
        if not (folder / "checkpoint" / "commits" / "0").exists():
            break
    assert_exact_after_another_start(scene, text, folder)
    dead = ds.dataset(folder / "dead").to_table(columns=["data"])["data"].to_pylist()
    assert dead == [b"no json"] * (attempt + 1)
