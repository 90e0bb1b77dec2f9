"""Measures how long a job on a cluster stands still when it loses an executor.

The cluster has a standalone master and two workers, and the job reads a stream under load. The executors run a bare
Python and unpack an archive of 290 MB, as ``examples.cluster`` and the guide for standalone clusters have it. The next
batch does not wait for the new executor, as the other worker takes over.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

from shardway.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.cluster.standalone import Cluster, Node

    from shardway.local.spawned import SpawnedKinesis

KILLS = 3
SHARDS = 4
PUT_RECORDS, PUT_EVERY_S = 50, 0.1
WAIT_S = 300.0
POLL_S = 0.01
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "any will do"}
JOB = """
name = "orders"
checkpoint = "FOLDER/checkpoint"

[source]
streamName = "orders"
startingPosition = "LATEST"
maxRecordsPerTrigger = 2000

[decode]
format = "json"
schema = "order_id STRING NOT NULL"

[dead_letters]
path = "FOLDER/dead-letters"

[[sinks]]
format = "parquet"
path = "FOLDER/orders"
key = "partition_key"

[trigger]
every = "1 second"

[spark]
# Both executors have tasks of every batch.
"spark.sql.shuffle.partitions" = 4
"spark.sql.adaptive.coalescePartitions.enabled" = false
"spark.locality.wait" = "0s"
"""


def cluster_kill_recovery() -> float:
    """Return the seconds from the SIGKILL of an executor in the middle of a batch to the next report of a committed
    batch. The figure is the longest of three, and both executors are back before each kill. The killed executor is
    always the first worker's, so that the one that takes over has run for a while, as in a real job.
    """
    from examples.cluster.standalone import Cluster

    with (
        tempfile.TemporaryDirectory(prefix="shardway-bench-") as folder,
        LocalKinesis.spawn(streams={"orders": SHARDS}) as local,
        Cluster(Path(folder) / "cluster", {**local.environment(), **CREDENTIALS}) as cluster,
    ):
        job = _Job(Path(folder), cluster)
        stop = threading.Event()
        load = threading.Thread(target=_put, args=(local, stop), daemon=True)
        load.start()
        try:
            return max(job.recovery_s() for _ in range(KILLS))
        finally:
            stop.set()
            load.join()


class _Job:
    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder = folder
        self._cluster = cluster
        self._report = folder / "report.jsonl"
        path = folder / "job.toml"
        path.write_text(JOB.replace("FOLDER", str(folder)), encoding="utf-8")
        self._driver: Node = cluster.submit(path, self._report, {})

    def recovery_s(self) -> float:
        """Kill an executor once, and return the seconds until the next committed batch."""
        from examples.cluster.guard import kill

        settled = self._committed() + 2
        self._until(lambda: self._committed() >= settled and len(self._cluster.executors()) == 2)
        writing = "orders.staging/*/_temporary/0/_temporary/*"
        self._until(lambda: any(self._folder.glob(writing)))
        before = self._committed()
        began_s = time.perf_counter()
        kill(self._cluster.workers[0].executors()[0])
        self._until(lambda: self._committed() > before)
        return time.perf_counter() - began_s

    def _committed(self) -> int:
        lines = self._report.read_text().splitlines() if self._report.exists() else []
        return sum(line.endswith("}") and json.loads(line)["event"] == "batch" for line in lines)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not done():
            if self._driver.process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the job does not go on: {self._driver.log.read_text(errors='replace')[-4000:]}")
            time.sleep(POLL_S)


def _put(local: SpawnedKinesis, stop: threading.Event) -> None:
    client = boto3.client(
        "kinesis", endpoint_url=local.endpoint_url, region_name=local.region,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"], aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )  # fmt: skip
    count = 0
    while not stop.wait(PUT_EVERY_S):
        records = [
            {"Data": json.dumps({"order_id": f"order-{number}"}).encode(), "PartitionKey": f"key-{number % 100}"}
            for number in range(count, count + PUT_RECORDS)
        ]
        client.put_records(StreamName="orders", Records=records)
        count += PUT_RECORDS
    client.close()


if __name__ == "__main__":
    print(f"{cluster_kill_recovery():.1f} s")
