"""The reference page says what the code does: its tables, its snippet, the permissions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts.reference_spark import renewed

from shardway.core.leases.mirror import NOTE
from shardway.spark.columns import SPARK_TYPES
from shardway.spark.driver.batch_size import OVERSHOOT
from shardway.spark.leases.lease_position import WHOLE_RECORD
from tests.spark.querying import Batches, Stream, reader, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "reference" / "spark-source.md").read_text(encoding="utf-8")


def test_the_options_are_those_of_the_code() -> None:
    assert renewed(PAGE) == PAGE


def test_the_columns_are_those_of_the_code() -> None:
    section = PAGE.split("## Columns")[1].split("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section, flags=re.MULTILINE)) == SPARK_TYPES


def test_the_leases_are_those_of_the_code() -> None:
    section = PAGE.split("## Leases")[1].split("\n## ")[0]
    assert f"| its sequence number | {WHOLE_RECORD}:" in section
    assert f"`{NOTE}`" in section


def test_the_overshoot_is_that_of_the_code() -> None:
    assert f"more than {OVERSHOOT} times its cap" in PAGE


@pytest.mark.spark
def test_a_query_makes_the_calls_of_the_policy_and_shows_the_numbers(
    spark: SparkSession,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream.put(10)
    stream.split(0)
    stream.put(10)
    stream.settle()
    stream.local.reset_stats()
    batches = Batches()
    query = start(reader(spark, stream), tmp_path / "checkpoints" / "orders", batches)
    try:
        query.processAllAvailable()
        while len(batches.all_rows()) < len(stream.written):
            query.processAllAvailable()
        progress = query.recentProgress[0]["sources"][0]["latestOffset"]
    finally:
        query.stop()

    called = {f"kinesis:{operation}" for operation in stream.local.stats().operations}
    policy = json.loads((DOCS / "iam" / "spark-source.json").read_text(encoding="utf-8"))
    assert called == set(policy["Statement"][0]["Action"])

    section = PAGE.split("## Numbers in the query's progress")[1].split("\n## ")[0]
    names = [
        name for cell in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]
    numbers = json.loads(progress) if isinstance(progress, str) else progress
    assert set(numbers) == set(names)

    snippet = re.search(r"```python\n(import json.*?)```", PAGE, re.DOTALL)
    assert snippet is not None
    monkeypatch.chdir(tmp_path)
    exec(snippet[1], {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed] == [
        ["shardId-000000000000", "ENDED"],
        *([f"shardId-00000000000{number}", "AFTER"] for number in (1, 2, 3)),
    ]
