"""A job on a standalone master with two workers, killed in parts: every order once, and each key in order.

Workers and drivers run a Python without any package; what they import is in the archive that is sent along.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples.cluster.guard import kill

from shardway.local.faults import Fault
from shardway.pipeline import deduplicate_by_stamps, sort_by_key
from tests.pipeline.cluster.cluster_scene import Scene

if TYPE_CHECKING:
    from examples.cluster.standalone import Cluster
    from pyspark.sql import SparkSession

    from shardway.local import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def read_copy(spark: SparkSession, local: LocalKinesis) -> tuple[int, list[tuple[str, str]]]:
    """How many records the copy has, and key and order of each that is no duplicate, in order."""
    options = {"streamName": "copy", "region": local.region, "endpointUrl": local.endpoint_url}
    raw = spark.read.format("shardway").options(**options).load()
    unique = sort_by_key(deduplicate_by_stamps(raw, window="1 hour")).select("partition_key", "data").collect()
    return raw.count(), [(row.partition_key, json.loads(bytes(row.data))["order_id"]) for row in unique]


def check_all(spark: SparkSession, scene: Scene) -> int:
    """The folder has every order once, and the copy for a reader that drops duplicates; how many it dropped."""
    scene.check(scene.rows())
    raw, unique = read_copy(spark, scene.local)
    scene.check(unique)
    return raw - len(unique)


def listening(pids: list[int]) -> set[str]:
    """The addresses at which processes listen, as the kernel writes them (Linux)."""
    inodes = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(file))
            except FileNotFoundError:
                continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, address, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in inodes:
                found.add(address.partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_an_executor_a_worker_and_the_driver_are_killed(
    spark: SparkSession, local: LocalKinesis, cluster: Cluster, tmp_path: Path
) -> None:
    bare = subprocess.run([cluster.python, "-c", "import shardway"], capture_output=True, check=False)
    assert b"No module named 'shardway'" in bare.stderr
    scene = Scene(local, cluster, tmp_path, seed=1)
    try:
        scene.start()
        scene.until_batches(2)
        assert len(cluster.executors()) == 2
        if Path("/proc/net/tcp").exists():
            assert listening(cluster.family()) <= LOOPBACK

        scene.until_it_copies()
        kill(cluster.executors()[0])
        scene.until_batches(2)
        scene.until(lambda: len(cluster.executors()) == 2, "another executor")

        scene.until_it_stages()
        cluster.workers[1].kill_family()
        scene.until_batches(2)
        cluster.start_worker(1)
        scene.until(lambda: len(cluster.executors()) == 2, "an executor of the new worker")

        scene.until_it_copies()
        scene.driver.kill_family()
        scene.start()
        scene.until_batches(2)
        scene.finish()
    finally:
        scene.close()
    duplicates = check_all(spark, scene)
    print(f"{scene.begins_at}: {sum(map(len, scene.wanted.values()))} orders, {duplicates} duplicates in the copy")
    assert duplicates > 0, "no kill made a duplicate: nothing was tested"


STRAGGLE_S = 40.0


def test_what_a_killed_driver_leaves_behind_ends_by_itself(
    spark: SparkSession, local: LocalKinesis, cluster: Cluster, tmp_path: Path
) -> None:
    """Only its JVM is killed, as for want of memory: its Python and the executors find out, beside the next driver."""
    scene = Scene(local, cluster, tmp_path, seed=2)
    try:
        scene.start()
        scene.until_batches(1)
        lost = scene.driver
        scene.until_it_copies()
        lost.kill()
        scene.start()
        scene.until_batches(1)
        scene.until(lambda: lost.family() == [], "the end of the former driver's Python")
        assert "Traceback" not in scene.report.read_text()
        scene.finish()
    finally:
        scene.close()
    assert check_all(spark, scene) > 0


SPECULATION = [
    "--conf=spark.speculation=true",
    "--conf=spark.speculation.interval=100ms",
    "--conf=spark.speculation.quantile=0.5",
    "--conf=spark.speculation.minTaskRuntime=2s",
    "--conf=spark.speculation.task.duration.threshold=5s",  # also of a task that is alone in its stage
]


@pytest.mark.parametrize(("operation", "seed"), [("GetRecords", 3), ("PutRecords", 4)])
def test_a_straggling_task_runs_twice(
    spark: SparkSession, local: LocalKinesis, cluster: Cluster, tmp_path: Path, operation: str, seed: int
) -> None:
    scene = Scene(local, cluster, tmp_path, *SPECULATION, seed=seed)
    tag = {"GetRecords": "task", "PutRecords": "sink"}[operation]
    try:
        scene.start()
        scene.until_batches(2)
        before = scene.overtaken()
        local.faults.add(Fault(how="delay", delay_s=STRAGGLE_S, tag=tag, operation=operation, count=1))
        struck_s = time.monotonic()
        scene.until(lambda: scene.overtaken() > before, "the copy of a straggling task")
        scene.until_batches(1)
        scene.until_it_copies()
        kill(cluster.executors()[1])
        scene.until_batches(2)
        scene.finish()
    finally:
        scene.close()
    while time.monotonic() < struck_s + STRAGGLE_S + 1:  # its request may still be taken, behind all others
        time.sleep(0.1)
    duplicates = check_all(spark, scene)
    print(
        f"{scene.begins_at}: {sum(map(len, scene.wanted.values()))} orders, {duplicates} duplicates in the copy, "
        f"{scene.overtaken()} overtaken"
    )
