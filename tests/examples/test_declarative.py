"""The example of a declarative pipeline, run by Spark's own command over a local stream."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow.dataset as ds
import pytest

from shardway.core.aggregation.reader import open_aggregate
from shardway.spark import stamps
from shardway.testing import LocalKinesis
from tests.docs.doc_pages import part

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "declarative"
STORAGE = "file:///var/lib/orders/storage"
HIVE = "spark.sql.catalogImplementation=hive"
SETTINGS = [
    HIVE, "spark.ui.enabled=false", "spark.ui.showConsoleProgress=false",
    "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.driver.memory=1g",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.connect.grpc.binding.address=127.0.0.1",
]  # fmt: skip
RUN_TIMEOUT_S = 600


class Project:
    """A copy of the example in a folder of its own, and the stream that it reads."""

    def __init__(self, local: LocalKinesis, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self._local = local
        self._client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        spec = (folder / "spark-pipeline.yml").read_text()
        assert spec.count(STORAGE) == 1
        (folder / "spark-pipeline.yml").write_text(spec.replace(STORAGE, (folder / "storage").as_uri()))

    def close(self) -> None:
        self._client.close()

    def put(self, count: int) -> None:
        """New orders; the first of all once more; and one that is none."""
        data = [self.order(number) for number in range(self.count, self.count + count)]
        self.count += count
        entries = [{"Data": one, "PartitionKey": f"customer-{n % 5}"} for n, one in enumerate([*data, self.order(0)])]
        self._client.put_records(StreamName="orders", Records=[*entries, {"Data": b"none", "PartitionKey": "x"}])
        self._local.clock.advance(3.0)

    @staticmethod
    def order(number: int) -> bytes:
        return json.dumps({"order_id": f"o-{number}", "customer": f"c-{number % 5}", "amount": "1.50"}).encode()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``spark-pipelines``, in the project's folder."""
        conf = [part for setting in SETTINGS for part in ("--conf", setting)]
        return subprocess.run(
            [str(Path(sys.executable).with_name("spark-pipelines")), *words, *conf],
            cwd=self.folder, env={**os.environ, **self._local.environment()}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False,
        )  # fmt: skip

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows, from its files: no run was broken off."""
        files = [
            str(path)
            for path in (self.folder / "spark-warehouse" / table).rglob("*.parquet")
            if not path.name.startswith((".", "_"))
        ]
        found = ds.dataset(files, format="parquet", partitioning=ds.partitioning(flavor="hive"))
        rows: list[dict[str, Any]] = found.to_table().to_pylist()
        return rows

    def written(self) -> list[bytes]:
        """The data of all records of the stream that the pipeline writes."""
        found: list[bytes] = []
        for shard in self._client.list_shards(StreamName="good-orders")["Shards"]:
            iterator = self._client.get_shard_iterator(
                StreamName="good-orders", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            page = self._client.get_records(ShardIterator=iterator)
            assert page["MillisBehindLatest"] == 0
            found += [record["Data"] for record in page["Records"]]
        return found


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with LocalKinesis(streams={"orders": 2, "good-orders": 2}) as local:
        made = Project(local, tmp_path / "project")
        yield made
        made.close()


@pytest.mark.slow
@pytest.mark.timeout(RUN_TIMEOUT_S)
def test_the_pipeline_is_one(project: Project) -> None:
    """Spark resolves all its flows, and starts none."""
    done = project.command("dry-run")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Run is COMPLETED" in done.stdout + done.stderr
    assert not (project.folder / "storage").exists()


@pytest.mark.slow
@pytest.mark.timeout(3 * RUN_TIMEOUT_S)
def test_two_runs_hold_each_order_once(project: Project) -> None:
    for run in (1, 2):
        project.put(100)
        done = project.command("run")
        assert done.returncode == 0, done.stderr[-4000:]
        assert sorted(row["order_id"] for row in project.rows("orders")) == sorted(
            f"o-{number}" for number in range(100 * run)
        )
        # A flow that did not know what it reads from would be a run behind.
        assert [row["reason"] for row in project.rows("dead_letters")] == ["not exactly one JSON object"] * run
        assert {row["customer"]: row["orders"] for row in project.rows("totals")} == {
            f"c-{number}": 20 * run for number in range(5)
        }
    written = project.written()
    assert all(data.startswith(stamps.MAGIC) and open_aggregate(data) is None for data in written)
    inside = sorted(data[data.index(b'{"order_id"') :] for data in written)
    assert inside == sorted(project.order(number) for number in range(200))


@pytest.mark.parametrize(
    ("language", "file"), [("python", "transformations/orders.py"), ("console", "spark-pipeline.yml")]
)
def test_the_page_shows_the_example(language: str, file: str) -> None:
    """So its code is run by what runs the example."""
    page = EXAMPLE.parents[1] / "docs" / "guides" / "connect-and-declarative.md"
    shown = re.findall(rf"```{language}\n(.*?)```", part(page, "Spark's declarative pipelines"), re.DOTALL)
    assert shown
    text = (EXAMPLE / file).read_text(encoding="utf-8")
    if language == "python":
        assert [block for block in shown if block not in text] == []
    else:
        assert f"# {re.findall(r'spark-pipelines run .*', shown[0])[0]}\n" in text
        assert HIVE in text
