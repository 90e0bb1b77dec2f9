"""A job with windows is killed in batches that close windows, between its two sinks, and started again."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from tests.pipeline.job.job_running import HEAD, ONCE
from tests.pipeline.job.test_job_processes import PROBE, SPARK, Scene, rest, scene
from tests.pipeline.job.test_job_windows import BY_CUSTOMER, EVENTS, event

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

FOLDER = '[[sinks]]\nformat = "parquet"\npath = "{folder}/minutes"\n'
JOB = HEAD + EVENTS + BY_CUSTOMER + FOLDER + PROBE + ONCE + SPARK
KILLS = 2
KILLING = f"""\
import json, os, pathlib, signal

FOLDER = pathlib.Path(__file__).parent

def write(batch, batch_id):
    rows = batch.select("window_start", "customer", "orders").collect()
    if rows and len(list(FOLDER.glob("killed-*"))) < {KILLS}:
        (FOLDER / f"killed-{{batch_id}}-{{os.getpid()}}").touch()
        os.killpg(0, signal.SIGKILL)
    told = [[row.window_start.minute, row.customer, row.orders] for row in rows]
    (FOLDER / f"batch-{{batch_id}}.json").write_text(json.dumps(told))
"""
MINUTES, PER_MINUTE = 3, 30
CUSTOMERS = ("ada", "bob", None)


def put_minute(scene: Scene, minute: int) -> None:
    """Put the orders of a minute, and two that are none."""
    for number in range(PER_MINUTE):
        scene.put_data(event(60 * minute + 2 * number, CUSTOMERS[number % 3]))
    scene.put_data(b"no JSON in minute %d" % minute)
    scene.put_data(b'{"customer": "without a time in minute %d"}' % minute)
    scene.local.clock.advance(3)


def written(folder: Path) -> tuple[Counter[tuple[int, str | None, int]], Counter[bytes]]:
    """The windows in the folder, and the dead letters."""
    windows = ds.dataset(folder / "minutes").to_table().to_pylist()
    dead = ds.dataset(folder / "dead", partitioning="hive").to_table(columns=["data"])["data"].to_pylist()
    return Counter((row["window_start"].minute, row["customer"], row["orders"]) for row in windows), Counter(dead)


def test_each_window_and_each_dead_letter_is_there_once(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "probe_orders.py").write_text(KILLING)
    put_minute(scene, 0)
    codes = []
    for minute in range(1, MINUTES):
        put_minute(scene, minute)
        process = scene.start(JOB)
        _, errors = rest(process)
        codes.append(process.returncode)
        assert process.returncode in (0, -signal.SIGKILL), errors
    scene.put_data(event(60 * MINUTES + 30))
    scene.local.clock.advance(3)
    process = scene.start(JOB)
    events, errors = rest(process)
    assert process.returncode == 0, (events, errors)
    assert codes == [-signal.SIGKILL] * KILLS
    windows, dead = written(tmp_path)
    expected = {(minute, customer, PER_MINUTE // 3) for minute in range(MINUTES) for customer in CUSTOMERS}
    assert windows == Counter(dict.fromkeys(expected, 1))
    assert dead.total() == 2 * MINUTES
    assert set(dead.values()) == {1}
    by_function = [tuple(row) for file in tmp_path.glob("batch-*.json") for row in json.loads(file.read_text())]
    assert Counter(by_function) == windows
