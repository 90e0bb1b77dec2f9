"""A job on a cluster, under load: orders arrive all the time, and go into a folder and into another stream."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow.parquet as pq

from shardway.local.faults import Fault
from tests.starts import start_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from examples.cluster.standalone import Cluster, Node

    from shardway.local import LocalKinesis

WAIT_S = 240.0
POLL_S = 0.02
KEYS = 200
"""Many: in order per key, a request has each key once."""
PUT_ROWS, PUT_EVERY_S = 15, 0.05
AHEAD_MAX = 3_000
"""Records that are put before they are in a committed batch: there is always enough for some batches, and a slow
machine gets no backlog of minutes. More than a driver can have committed and not reported when it is killed."""
BEFORE_ROWS = 300
"""Orders that lie before the start of a job that does not begin at the oldest record."""
APART_S = 0.01
"""Arrival times are in milliseconds: a time so far from all of them has each record on one of its sides."""
REPEATED = 0.1
"""The share of orders that their producer writes twice, under the same key."""
REQUEST_S = 0.1
"""What the service takes for a request of the sink: a batch takes long enough to be met in its middle."""
ARRANGED = """
from shardway.pipeline import POSITION, sort_by_key


def by_key(rows):
    return sort_by_key(rows.select("value.*", "partition_key", *POSITION, "approximate_arrival_timestamp"))
"""
JOB = """
name = "orders"
checkpoint = "{lake}/checkpoint"

[source]
streamName = "orders"
region = "{region}"
endpointUrl = "{endpoint}"
{start}
maxRecordsPerTrigger = 800

[decode]
format = "json"
schema = "order_id STRING NOT NULL, number INT NOT NULL"

[dead_letters]
path = "{lake}/dead"

[deduplicate]
keys = ["value.order_id"]
window = "10 minutes"

[transform]
function = "arranged:by_key"

[[sinks]]
format = "parquet"
path = "{lake}/orders"
partition_by = ["hour"]
key = "partition_key"

[[sinks]]
format = "shardway"
sql = "SELECT to_json(struct(order_id, number)) AS data, * EXCEPT (order_id, number) FROM rows"
options = { streamName = "copy", region = "{region}", endpointUrl = "{endpoint}", orderedByKey = true, \
stamps = "position" }

[spark]
"spark.sql.session.timeZone" = "UTC"
# Small batches, and all the same in several tasks, which are on both workers.
"spark.sql.shuffle.partitions" = 4
"spark.sql.adaptive.coalescePartitions.enabled" = false
"spark.locality.wait" = "0s"
"""


class Scene:
    """The streams, the load, the job and what became of it. ``close`` ends the load. The seed says where the job
    begins.
    """

    def __init__(self, local: LocalKinesis, cluster: Cluster, folder: Path, *options: str, seed: int) -> None:
        self.local = local
        self.cluster = cluster
        self.begins_at = start_of(seed)
        self.lake = folder / "lake"
        self.report = folder / "report.jsonl"
        self.rng = random.Random(seed)
        self.wanted: dict[str, list[str]] = defaultdict(list)
        """The orders of each key, in the order in which they were put."""
        self.passed: Counter[str] = Counter()
        """How many orders of each key lie before the start."""
        self.opened: Counter[str] | None = Counter() if self.begins_at == "TRIM_HORIZON" else None
        """How many orders of each key may lie before the start: all that follow are put behind it. None: the job has
        not begun to read.
        """
        self._options = options
        self._job = folder / "job.toml"
        (folder / "arranged.py").write_text(ARRANGED, encoding="utf-8")
        self._client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        text = JOB
        values = {"lake": self.lake, "region": local.region, "endpoint": local.endpoint_url, "start": self._begin()}
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        self._job.write_text(text, encoding="utf-8")
        local.faults.add(Fault(how="delay", delay_s=REQUEST_S, tag="sink", operation="PutRecords"))
        self._full = threading.Event()
        self._load = threading.Thread(target=self._put_all_the_time, daemon=True)
        self._load.start()

    # --- the load ---------------------------------------------------------------------------------------------------

    def _begin(self) -> str:
        """Put what lies before the start, and return the job's option that says where it begins."""
        if self.begins_at == "TRIM_HORIZON":
            return 'startingPosition = "TRIM_HORIZON"'
        self._put(BEFORE_ROWS)
        self.passed = self._counts()
        if self.begins_at == "LATEST":
            return 'startingPosition = "LATEST"'
        self.opened = self.passed
        time.sleep(APART_S)
        start_s = self.local.clock.now()
        time.sleep(APART_S)
        return f'startingTimestamp = "{start_s:.3f}"'

    def _put_all_the_time(self) -> None:
        put = 0
        while not self._full.wait(PUT_EVERY_S):
            if self.opened is None and (self.lake / "checkpoint" / "offsets" / "0").exists():
                self.opened, put = self._counts(), 0
            if self.opened is not None and put - sum(event["rows"] for event in self._batches()) > AHEAD_MAX:
                continue
            put += self._put(PUT_ROWS)
        self._client.close()

    def _put(self, rows: int) -> int:
        """Put some orders; return in how many records."""
        records: list[dict[str, Any]] = []
        for _ in range(rows):
            key = f"key-{self.rng.randrange(KEYS)}"
            number = len(self.wanted[key])
            order = f"{key}:{number}"
            data = json.dumps({"order_id": order, "number": number}).encode()
            self.wanted[key].append(order)
            records += [{"Data": data, "PartitionKey": key}] * (2 if self.rng.random() < REPEATED else 1)
        assert self._client.put_records(StreamName="orders", Records=records)["FailedRecordCount"] == 0
        return len(records)

    def _counts(self) -> Counter[str]:
        return Counter({key: len(orders) for key, orders in self.wanted.items()})

    def close(self) -> None:
        """No more orders."""
        self._full.set()
        self._load.join()

    # --- the job ----------------------------------------------------------------------------------------------------

    def start(self) -> Node:
        return self.cluster.submit(self._job, self.report, {}, *self._options)

    @property
    def driver(self) -> Node:
        return self.cluster.drivers[-1]

    def committed(self) -> list[int]:
        """The batches that the job reported."""
        return [event["batch"] for event in self._batches()]

    def _batches(self) -> list[dict[str, Any]]:
        lines = self.report.read_text().splitlines() if self.report.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("}") and line.startswith("{")]
        return [event for event in events if event["event"] == "batch"]

    def copied(self) -> int:
        """Records that were written to the other stream so far."""
        return self.local.stats().records("PutRecords", "sink")

    def until(self, done: Callable[[], Any], what: str) -> Any:
        deadline_s = time.monotonic() + WAIT_S
        while not (found := done()):
            assert self.driver.process.poll() is None, f"the driver ended while waiting for {what}: {self.told()}"
            assert time.monotonic() < deadline_s, f"not in {WAIT_S:.0f} s: {what}: {self.told()}"
            time.sleep(POLL_S)
        return found

    def told(self) -> str:
        """The end of what the job and Spark said."""
        return f"{self.report.read_text()[-2000:]}\n{self.driver.log.read_text(errors='replace')[-4000:]}"

    def overtaken(self) -> int:
        """Tasks that a copy of theirs was faster than, so far (Spark's log tells it)."""
        return len(re.findall(r"as the attempt \d+ succeeded on", self.driver.log.read_text(errors="replace")))

    def until_batches(self, count: int) -> None:
        """Until so many more batches were committed."""
        before = len(self.committed())
        self.until(lambda: len(self.committed()) >= before + count, f"{count} more batches")

    def until_it_copies(self) -> None:
        """Until a batch is in the middle of being written to the stream."""
        wanted = self.copied() + self.rng.randint(1, 200)
        self.until(lambda: self.copied() >= wanted, "rows in the other stream")

    def until_it_stages(self) -> None:
        """Until tasks are writing a batch's files."""
        staging = self.lake / "orders.staging"
        self.until(lambda: any(staging.glob("*/_temporary/0/_temporary/*")), "files that are being written")

    def finish(self) -> None:
        """No more orders; wait until a batch with the last ones is committed, and end the job."""
        self.close()
        assert self.opened is not None
        first = self.opened
        behind = {(key, order) for key, orders in self.wanted.items() for order in orders[first[key] :]}
        self.until(lambda: behind <= set(self.rows()), "all orders in the folder")
        last = max(map(batch_of, self.files()))
        self.until(lambda: max(self.committed(), default=-1) >= last, "the last batch")
        self.driver.kill_family()

    # --- what became of it ------------------------------------------------------------------------------------------

    def files(self) -> list[Path]:
        return sorted(self.lake.glob("orders/hour=*/batch-*"), key=lambda path: path.name)

    def rows(self) -> list[tuple[str, str]]:
        """Key and order of each row of the folder, in the order of batches and of rows in their files."""
        found: list[tuple[str, str]] = []
        for file in self.files():
            try:
                table = pq.read_table(file, columns=["partition_key", "order_id"], partitioning=None)
            except FileNotFoundError:
                continue  # a batch that runs again takes away what it had written
            found += zip(table["partition_key"].to_pylist(), table["order_id"].to_pylist(), strict=True)
        return found

    def check(self, rows: list[tuple[str, str]]) -> None:
        """Every order behind the start once, none before it, and those of a key in their order. At LATEST the start is
        between what was put before the job was submitted and what was put when its first batch was planned.
        """
        assert self.opened is not None
        found: dict[str, list[str]] = defaultdict(list)
        for key, order in rows:
            found[key].append(order)
        for key, orders in self.wanted.items():
            first = len(orders) - len(found[key])
            assert found[key] == orders[max(0, first) :]
            assert self.passed[key] <= first <= self.opened[key]
        assert found.keys() <= self.wanted.keys()


def batch_of(file: Path) -> int:
    """``batch-000000012-3f2a9c41-00000.parquet`` is of batch 12."""
    found = re.match(r"batch-(\d+)-", file.name)
    assert found is not None
    return int(found[1])
