"""Admission before a real backlog: how far batches exceed their cap, what silence costs, what an idle stream costs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.aws.kinesis.shapes import PutEntry
from shardway.spark.driver.batch_size import OVERSHOOT
from shardway.spark.driver.pace import EARLY_SHARE
from tests.spark.querying import Batches, Stream, assert_exact, reader, run, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
HOUR_S = 3600


class Counts:
    """Rows per batch, where collecting them would be too much."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def take(self, frame: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = frame.count()


@pytest.mark.slow
@pytest.mark.parametrize("stream", [4], indirect=True)
def test_a_backlog_of_a_million_rows_under_a_cap(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Written at an even pace, by the service's clock: how long a put really took is next to nothing of a second."""
    total, cap = 1_000_000, 50_000
    entries = [PutEntry(b"%0100d" % number, f"key-{number % 5000}") for number in range(500)]
    for _ in range(total // 500):
        stream.put_entries(entries)
        stream.settle(1)
    stream.settle()
    counts = Counts()
    frame = reader(spark, stream, maxRecordsPerTrigger=str(cap)).select("sequence_number")
    query = start(frame, tmp_path / "checkpoint", counts, availableNow=True)  # type: ignore[arg-type]
    try:
        assert query.awaitTermination(280)
    finally:
        query.stop()
    sizes = list(counts.rows.values())
    print(f"\n{len(sizes)} batches of {total} rows under a cap of {cap}: largest {max(sizes)}, all {sizes}")
    assert sum(sizes) == total
    assert max(sizes) <= OVERSHOOT * cap
    assert len(sizes) <= 1.5 * total / cap


@pytest.mark.slow
def test_three_days_of_silence_cost_few_batches(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.call("IncreaseStreamRetentionPeriod", RetentionPeriodHours=168)
    for _ in range(3):
        stream.put(500)
        stream.settle(1)
    stream.settle(72 * HOUR_S)
    for _ in range(3):
        stream.put(500)
        stream.settle(1)
    stream.settle()
    batches = run(spark, stream, tmp_path / "checkpoint", maxRecordsPerTrigger="1000")
    print(f"\nbatches over a silence of three days: {batches.sizes()}")
    assert_exact(stream, batches.all_rows())
    assert len(batches.sizes()) <= 8


def idle_calls(spark: SparkSession, stream: Stream, checkpoint: Path, seconds: float) -> tuple[float, float, list[int]]:
    """(calls of the driver on a shard, seconds, sizes of batches) while nothing is written."""
    stream.put(100)
    stream.settle()
    batches = Batches()
    query = start(reader(spark, stream), checkpoint, batches)
    try:
        # Answers that come late tell an earlier time, and a batch is cut by it: the first look may have had no rows.
        while len(batches.all_rows()) < len(stream.written):
            assert query.isActive, query.exception()
            query.processAllAvailable()
        before = len(batches.rows)
        began = time.monotonic()
        stream.local.reset_stats()
        while time.monotonic() - began < seconds:
            assert query.isActive, query.exception()
            time.sleep(0.2)
        stats = stream.local.stats()
        calls = stats.calls("GetRecords", "driver") + stats.calls("GetShardIterator", "driver")
        took = time.monotonic() - began
    finally:
        query.stop()
    return calls / len(stream.shards()), took, batches.sizes()[before:]


def calls_at_most(took_s: float) -> float:
    """One a second; the first of a stretch may have been late, and each a little early, but for the average."""
    return took_s + 1 + EARLY_SHARE


def test_an_idle_stream_costs_a_call_per_shard_and_second(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    calls, took, sizes = idle_calls(spark, stream, tmp_path / "checkpoint", 8)
    assert sizes == []
    assert calls <= calls_at_most(took)


@pytest.mark.slow
def test_an_idle_minute(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    calls, took, sizes = idle_calls(spark, stream, tmp_path / "checkpoint", 60)
    print(f"\nidle for {took:.0f} s: {calls} calls of the driver per shard, batches {sizes}")
    assert sizes == []
    assert calls <= calls_at_most(took)


@pytest.mark.parametrize("stream", [1], indirect=True)
def test_the_tail_of_a_shard_that_fell_silent(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """1 MiB/s for two minutes, then nothing for eight hours: the driver looks at less than 4 MiB to find the end."""
    for _ in range(120):
        stream.put(32, size=32 * 1024)
        stream.settle(1)
    stream.settle(8 * HOUR_S)
    stream.local.reset_stats()
    counts = Counts()
    frame = reader(spark, stream).select("shard_id")
    query = start(frame, tmp_path / "checkpoint", counts, availableNow=True)  # type: ignore[arg-type]
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    looked = stream.local.stats().tags["driver"]["GetRecords"]
    print(f"\n120 MiB and 8 h of silence: the driver read {looked.response_bytes:,} bytes in {looked.calls} calls")
    assert sum(counts.rows.values()) == len(stream.written)
    assert looked.response_bytes < 4 * 2**20
