"""A day of sparse traffic, read by queries that are killed ten times on their way over its silences: no row is lost,
none comes twice, and those of all shards come in step.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from examples.demo.processes import kill_tree
from querying import Stream

from penstock.local import LocalKinesis
from penstock.model import StreamName

ROOT = Path(__file__).resolve().parents[2]
SPARK = (
    "--master local[2] --driver-memory 512m --driver-java-options -XX:TieredStopAtLevel=1"
    " --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
    " --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1"
    " --conf spark.sql.session.timeZone=UTC pyspark-shell"
)
KILLS = 10
MINUTE_S = 60
HOUR_S = 3600
PAGE_SPAN_S = 5 * MINUTE_S
"""So 20 hours are 240 pages of a shard that is silent; the driver makes five calls a second."""
WAIT_S = 600.0
"""Far more than anything here takes."""
POLL_S = 0.02


class Sparse:
    """A stream with little in it, and the query that reads it."""

    def __init__(self, mode: str, stream: Stream, folder: Path, seed: int) -> None:
        self.mode = mode
        self.stream = stream
        self.rng = random.Random(seed)
        self.folder = folder
        self.output = folder / "output"
        self.output.mkdir()
        self.log = folder / "query.log"

    def traffic(self, hours: float) -> None:
        """Now and then a record or a few; some shards have none for most of the time."""
        left_s = hours * HOUR_S
        while left_s > 0:
            self.stream.put(self.rng.choice([1, 1, 2, 5]), keys=self.rng.choice([1, 1, 1, 40]))
            gap_s = self.rng.choice([20, 7 * MINUTE_S, HOUR_S, 5 * HOUR_S])
            self.stream.local.clock.advance(min(gap_s, left_s))
            left_s -= gap_s

    def calls(self) -> int:
        return self.stream.local.stats().calls("GetRecords")

    def started(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": SPARK,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        environment.pop("SPARK_HOME", None)
        environment.pop("PYSPARK_GATEWAY_PORT", None)
        program = str(Path(__file__).with_name("sparse_query.py"))
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, program, self.mode, self.stream.local.endpoint_url, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def killed_after(self, calls: int) -> bool:
        """Run until the query has made so many calls more, then kill it. False: it came to its end before."""
        wanted = self.calls() + calls
        process = self.started()
        try:
            self.wait(process, lambda: self.calls() >= wanted or (self.mode == "live" and self.is_complete()))
            return process.poll() is None
        finally:
            kill_tree(process)

    def finish(self) -> None:
        """Run to the end; a live query has none, and is stopped when it has all rows."""
        process = self.started()
        try:
            self.wait(process, lambda: self.mode == "live" and self.is_complete())
        finally:
            kill_tree(process)

    def wait(self, process: subprocess.Popen[bytes], done) -> None:  # type: ignore[no-untyped-def]
        deadline_s = time.monotonic() + WAIT_S
        while process.poll() is None and not done():
            assert time.monotonic() < deadline_s, f"{len(self.rows())} rows came: {self.said()}"
            time.sleep(POLL_S)
        assert process.returncode in (None, 0), self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def batches(self) -> list[list[list[str]]]:
        files = sorted(self.output.glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in files]

    def rows(self) -> list[list[str]]:
        return [row for batch in self.batches() for row in batch]

    def is_complete(self) -> bool:
        return len(self.rows()) >= len(self.stream.written)

    def check(self) -> None:
        """Every record once, shards in order, and no batch with a row that is older than one of the batch before."""
        rows = self.rows()
        assert sorted(data for _, _, data in rows) == sorted(one.decode() for one in self.stream.written)
        last: dict[str, int] = {}
        for shard_id, number, _ in rows:
            assert int(number) > last.get(shard_id, -1)
            last[shard_id] = int(number)
        newest = ""
        for batch in filter(None, self.batches()):
            numbers = sorted(data for _, _, data in batch)
            assert numbers[0] > newest
            newest = numbers[-1]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["live", "available", "batch"])
def test_a_day_of_sparse_traffic_is_read_exactly_though_the_query_is_killed_ten_times(
    mode: str, tmp_path: Path
) -> None:
    with LocalKinesis(page_span_s=PAGE_SPAN_S) as local:
        stream = Stream(local, StreamName("orders"))
        try:
            stream.call("CreateStream", ShardCount=2)
            stream.call("IncreaseStreamRetentionPeriod", RetentionPeriodHours=168)
            sparse = Sparse(mode, stream, tmp_path, seed=len(mode))
            sparse.traffic(10)
            stream.split(0)
            sparse.traffic(12)
            kills = 0
            while kills < KILLS:
                killed = sparse.killed_after(sparse.rng.choice([20, 60, 150, 400]))
                kills += killed
                if mode != "batch" and (not killed or sparse.is_complete()):
                    sparse.traffic(6)
            local.clock.advance(MINUTE_S)
            sparse.finish()
            sparse.check()
        finally:
            stream.close()
