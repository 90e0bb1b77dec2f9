"""What must work on each PySpark that the source supports; ``scripts/pyspark_matrix.py`` runs it on all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from shardway.aws.kinesis.shapes import PutEntry
from shardway.core.aggregation.writer import encode_aggregate
from tests.spark.querying import (
    QUERY_TIMEOUT_S,
    Batches,
    Stream,
    assert_exact,
    by_shard,
    collect,
    forget_last_commit,
    reader,
    run,
    start,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
SEES_AVAILABLE_NOW = VERSION >= (4, 2)
HOUR_S = 3600


def batch(spark: SparkSession, stream: Stream, **options: str) -> DataFrame:
    given = {"streamName": "orders", "region": stream.local.region, "endpointUrl": stream.local.endpoint_url, **options}
    return spark.read.format("shardway").options(**given).load()


def run_after_unfinished(spark: SparkSession, stream: Stream, checkpoint: Path) -> Batches:
    """Runs a query whose newest batch is not committed; where AvailableNow is one batch, it is that one."""
    batches = run(spark, stream, checkpoint, actions=2)
    if not SEES_AVAILABLE_NOW:
        assert len(batches.rows) == 1
        batches.rows |= run(spark, stream, checkpoint, actions=2).rows
    return batches


def test_it_is_the_pyspark_that_was_meant() -> None:
    assert os.environ.get("SHARDWAY_SMOKE_PYSPARK", pyspark.__version__) == pyspark.__version__


def test_the_format_is_found_without_registering(spark: SparkSession, stream: Stream) -> None:
    assert batch(spark, stream).schema.simpleString() == (
        "struct<partition_key:string,data:binary,stream:string,shard_id:string,sequence_number:string,"
        "sub_sequence_number:bigint,approximate_arrival_timestamp:timestamp,explicit_hash_key:string>"
    )


def test_an_uncommitted_batch_across_a_split_runs_again(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Each batch has two actions; the newest one's commit is taken away, and more arrives before the restart."""
    checkpoint = tmp_path / "checkpoint"
    stream.put(200)
    earlier = run(spark, stream, checkpoint, actions=2)
    stream.put(200)
    stream.split(0)
    stream.put(200)
    first = run(spark, stream, checkpoint, actions=2)
    batch_id = forget_last_commit(checkpoint)
    stream.put(100)
    stream.split(1)
    stream.put(100)
    again = run_after_unfinished(spark, stream, checkpoint)
    for batches in (earlier, first, again):
        assert all(by_shard(rows[0]) == by_shard(rows[1]) for rows in batches.rows.values())
    assert by_shard(again.rows[batch_id][0]) == by_shard(first.rows[batch_id][0])
    assert_exact(stream, [row for rows in (earlier.rows | first.rows | again.rows).values() for row in rows[0]])


def test_batch_zero_runs_again(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(100)
    first = run(spark, stream, tmp_path / "checkpoint")
    assert forget_last_commit(tmp_path / "checkpoint") == 0
    stream.put(100)
    again = run_after_unfinished(spark, stream, tmp_path / "checkpoint")
    assert by_shard(again.rows[0][0]) == by_shard(first.rows[0][0])
    assert_exact(stream, again.all_rows())


def test_a_live_query_is_stopped_and_goes_on(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    batches = Batches()
    for _ in range(2):
        query = start(reader(spark, stream), tmp_path / "checkpoint", batches)
        try:
            for _ in range(2):
                stream.put(50)
                stream.settle()
                while len(batches.all_rows()) < len(stream.written):  # an idle shard is looked at once a second
                    query.processAllAvailable()
        finally:
            query.stop()
    assert_exact(stream, batches.all_rows())


def test_latest_is_pinned_once(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(50)
    stream.settle()
    stream.written.clear()
    assert run(spark, stream, tmp_path / "checkpoint", startingPosition="LATEST").all_rows() == []
    stream.put(50)
    assert_exact(stream, run(spark, stream, tmp_path / "checkpoint", startingPosition="LATEST").all_rows())


def test_available_now_reads_all_that_is_there(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Also what arrived just now: no time passes between the last put and the start."""
    stream.put(300)
    batches = run(spark, stream, tmp_path / "checkpoint")
    assert len(batches.sizes()) == 1
    assert_exact(stream, batches.all_rows())
    stream.put(300)
    later = run(spark, stream, tmp_path / "checkpoint")
    assert_exact(stream, batches.all_rows() + later.all_rows())


def test_available_now_with_a_cap(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Spark 4.0 and 4.1 make one batch of it; further runs read the rest."""
    for _ in range(10):
        stream.put(100)
        stream.settle(1)
    first = run(spark, stream, tmp_path / "checkpoint", maxRecordsPerTrigger="200")
    if SEES_AVAILABLE_NOW:
        assert len(first.sizes()) >= 4
        assert_exact(stream, first.all_rows())
        return
    assert len(first.sizes()) == 1
    assert 0 < len(first.all_rows()) <= 400
    rows = first.all_rows()
    for _ in range(20):
        rows += run(spark, stream, tmp_path / "checkpoint", maxRecordsPerTrigger="200").all_rows()
        if len(rows) >= len(stream.written):
            break
    assert_exact(stream, rows)


def test_a_batch_read(spark: SparkSession, stream: Stream) -> None:
    assert collect(batch(spark, stream)) == []
    stream.put(100)
    stream.split(0)
    stream.put(100)
    assert_exact(stream, collect(batch(spark, stream)))
    stream.settle(HOUR_S)
    middle_s = stream.local.clock.now() - HOUR_S / 2
    stream.put(50)
    assert len(collect(batch(spark, stream, startingTimestamp=str(middle_s)))) == 50
    assert len(collect(batch(spark, stream, endingTimestamp=str(middle_s)))) == 200


def test_aggregates_are_opened(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    users = [(f"key-{number}", b"%04d" % number, 2**100 + number) for number in range(20)]
    hash_key = "0"
    stream.put_entries([PutEntry(encode_aggregate(users), "aggregate", hash_key), PutEntry(b"plain", "p", hash_key)])
    rows = run(spark, stream, tmp_path / "checkpoint").all_rows()
    assert [(row.partition_key, row.data) for row in rows] == [(key, data) for key, data, _ in users] + [
        ("p", b"plain")
    ]
    assert [row.sub_sequence_number for row in rows] == [*range(20), 0]
    keys = [row.explicit_hash_key for row in batch(spark, stream).select("explicit_hash_key").collect()]
    assert keys == [*(str(key) for _, _, key in users), None]


def test_a_schema_selects_columns(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(10)
    given = {"streamName": "orders", "region": stream.local.region, "endpointUrl": stream.local.endpoint_url}
    schema = "approximate_arrival_timestamp TIMESTAMP NOT NULL, data BINARY"
    rows = spark.read.format("shardway").options(**given).schema(schema).load()
    assert rows.columns == ["approximate_arrival_timestamp", "data"]
    assert sorted(bytes(row.data) for row in rows.collect()) == stream.written
    streamed = spark.readStream.format("shardway").options(**given, startingPosition="earliest").schema(schema).load()
    query = (
        streamed.writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    written = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(bytes(row.data) for row in written) == stream.written
    assert {row.approximate_arrival_timestamp.date() for row in written} == {
        row.approximate_arrival_timestamp.date() for row in rows.collect()
    }


def test_lost_records_stop_the_query(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Not those that were read before they were trimmed: a restart does not look for the batch that is committed."""
    checkpoint = tmp_path / "checkpoint"
    stream.put(10)
    stream.settle(2 * HOUR_S)
    stream.put(10)
    rows = run(spark, stream, checkpoint).all_rows()
    stream.settle(23 * HOUR_S)
    stream.put(10)
    assert_exact(stream, rows + run(spark, stream, checkpoint).all_rows())
    stream.put(10)
    stream.settle(30 * HOUR_S)
    stream.put(10)
    lost = "stream orders, shard shardId-.*: records may have been lost: .*failOnDataLoss"
    with pytest.raises(StreamingQueryException, match=lost) as caught:
        run(spark, stream, checkpoint)
    assert "Traceback" not in str(caught.value)
    rest = run(spark, stream, checkpoint, failOnDataLoss="false").all_rows()
    assert sorted(row.data for row in rest) == stream.written[40:]


def test_a_wrong_option_is_named(spark: SparkSession, stream: Stream) -> None:
    with pytest.raises(AnalysisException, match="no option streamnames: did you mean streamName") as caught:
        batch(spark, stream, streamNames="orders")
    assert "Traceback" not in str(caught.value)
