"""The example jobs with a table, as programs: killed between the table's commit and Spark's, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow.dataset as ds
import pytest

from shardway.local import LocalKinesis
from tests.pipeline.tables.table_packages import ROOT, UNRESOLVED, WAIT_S, Newest, newest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(WAIT_S + 60)]

KILLS_ITSELF = """
import os, pathlib, signal

def write(batch, batch_id):
    if batch_id == 0 and not (done := pathlib.Path(__file__).with_name("killed")).exists():
        done.touch()
        os.killpg(os.getpgid(0), signal.SIGKILL)  # Spark's Java too
"""
SETTINGS = """
"spark.master" = "local[2]"
"spark.ui.enabled" = false
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.sql.shuffle.partitions" = 1
"spark.databricks.delta.snapshotPartitions" = 1
"""
SINK_THAT_KILLS = '[[sinks]]\nfunction = "kills_itself:write"\n\n[trigger]'


class World:
    """A stream, a folder, and the example's job over them, with a sink behind the table that kills the driver once."""

    def __init__(self, local: LocalKinesis, folder: Path, given: Newest) -> None:
        self.local = local
        self.folder = folder
        self.given = given
        self.count = 0
        self._client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        (folder / "kills_itself.py").write_text(KILLS_ITSELF)
        text = (ROOT / "examples" / "jobs" / f"orders_{given.format}.toml").read_text(encoding="utf-8")
        text = text.replace("[trigger]", SINK_THAT_KILLS) + SETTINGS
        (folder / "job.toml").write_text(text, encoding="utf-8")

    def close(self) -> None:
        self._client.close()

    def put(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            order = {"order_id": str(number), "item": f"item {number % 2}", "quantity": 2, "amount": "1.50"}
            self._client.put_record(StreamName="orders", Data=json.dumps(order), PartitionKey=f"key-{number % 7}")
        self.count += count
        self.local.clock.advance(3.0)

    def run(self) -> tuple[int, list[dict[str, Any]], str]:
        """The exit code, the events and the errors."""
        names = {"STREAM": "orders", "LAKE": str(self.folder), "ONCE": "true"}
        environment = {**self.given.environment(), **self.local.environment(), **names}
        command = [str(self.given.python), "-m", "shardway.pipeline.job", "job.toml", "-o", "jsonl"]
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, errors = process.communicate(timeout=WAIT_S / 3)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode == 3 and UNRESOLVED in errors:
            pytest.skip(f"{self.given.package} cannot be had here")
        return process.returncode, [json.loads(line) for line in out.splitlines()], errors

    def ids(self) -> list[int]:
        """Rows of the data files: where each batch was committed once they are those of the table."""
        folders = {"delta": "orders-delta", "iceberg": "shop/orders/data"}
        table = ds.dataset(self.folder / folders[self.given.format], format="parquet", exclude_invalid_files=True)
        return sorted(int(one) for one in table.to_table(columns=["order_id"])["order_id"].to_pylist())

    def batches(self) -> list[int]:
        """The numbers that the table's commits carry."""
        if self.given.format == "delta":
            logs = sorted((self.folder / "orders-delta" / "_delta_log").glob("*.json"))
            actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
            return [one["txn"]["version"] for one in actions if "txn" in one]
        metadata = (self.folder / "shop" / "orders" / "metadata").glob("v*.metadata.json")
        last = max(metadata, key=lambda path: int(path.name.split(".")[0][1:]))
        summaries = [one["summary"] for one in json.loads(last.read_text())["snapshots"]]
        return [int(one["shardway.batch"]) for one in summaries if "shardway.batch" in one]


@pytest.fixture(params=["delta", "iceberg"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    given = newest(request.param)
    with LocalKinesis(streams={"orders": 2}) as local:
        made = World(local, tmp_path, given)
        yield made
        made.close()


def test_a_driver_that_dies_between_the_tables_commit_and_sparks(world: World) -> None:
    world.put(20)
    code, events, errors = world.run()
    assert code == -signal.SIGKILL, errors
    assert (world.folder / "killed").exists()
    checked = next(one for one in events if one["event"] == "checked")
    assert (checked["sinks"][0]["how"], checked["sinks"][0].get("note", "")) == ("exactly once", "")
    assert (world.ids(), world.batches()) == (list(range(20)), [0])
    checkpoint = world.folder / f"checkpoint-{world.given.format}"
    assert not (checkpoint / "commits" / "0").exists()

    world.put(10)
    code, events, errors = world.run()
    assert code == 0, errors
    assert [one["batch"] for one in events if one["event"] == "batch" and one["rows"]] == [0, 1]
    assert world.ids() == list(range(30))
    assert world.batches() == [0, 1]

    # The checkpoint directory loses its newest entries: batch 1 is planned anew, of more records.
    for name in ("commits/1", "offsets/1", "commits/.1.crc", "offsets/.1.crc"):
        (checkpoint / name).unlink(missing_ok=True)
    world.put(5)
    code, events, errors = world.run()
    assert code == 6, errors
    (told,) = [one["message"] for one in events if one["event"] == "error"]
    assert "the table has a batch 1 of this writer with other records" in told
    assert world.batches() == [0, 1]
