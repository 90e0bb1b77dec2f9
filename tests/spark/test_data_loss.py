"""Lost records at Spark's level: the error with failOnDataLoss, exactly the rest without, nothing for mere silence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.querying import Batches, Stream, assert_exact, forget_last_commit, reader, run, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
HOUR_S = 3600


def fails(spark: SparkSession, stream: Stream, checkpoint: Path, match: str) -> None:
    with pytest.raises(StreamingQueryException, match=match) as caught:
        run(spark, stream, checkpoint)
    assert "Traceback" not in str(caught.value)


def test_batch_zero_again_after_part_of_it_was_trimmed(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    stream.put(100)
    stream.settle(2 * HOUR_S)
    stream.put(100)
    stream.settle()
    run(spark, stream, checkpoint)
    assert forget_last_commit(checkpoint) == 0
    stream.settle(23 * HOUR_S)
    fails(spark, stream, checkpoint, "DataLossError: stream orders, shard shardId-.*: records were lost: .* is trimmed")
    stream.written[:] = stream.written[100:]
    assert_exact(stream, run(spark, stream, checkpoint, failOnDataLoss="false").all_rows())


def test_a_trimmed_start(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    stream.put(100)
    stream.settle()
    run(spark, stream, checkpoint)
    stream.put(50)
    stream.settle(25 * HOUR_S)
    stream.put(50)
    stream.settle()
    fails(spark, stream, checkpoint, "records may have been lost")
    stream.written[:] = stream.written[150:]
    assert_exact(stream, run(spark, stream, checkpoint, failOnDataLoss="false").all_rows())


def test_a_shard_that_is_gone_unread(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    stream.put(100)
    stream.settle()
    run(spark, stream, checkpoint)
    stream.put(100)
    stream.split(0)
    stream.settle(50 * HOUR_S)
    stream.put(100)
    stream.settle()
    fails(spark, stream, checkpoint, "shard shardId-000000000000: records .* lost: the shard is gone")
    stream.written[:] = stream.written[200:]
    assert_exact(stream, run(spark, stream, checkpoint, failOnDataLoss="false").all_rows())


def test_a_stream_deleted_and_made_again(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    stream.put(100)
    stream.settle()
    run(spark, stream, checkpoint)
    stream.call("DeleteStream")
    stream.settle(5)
    stream.call("CreateStream", ShardCount=2)
    stream.written.clear()
    stream.put(70)
    stream.settle()
    fails(spark, stream, checkpoint, "records were lost: the stream was deleted and made again")
    assert_exact(stream, run(spark, stream, checkpoint, failOnDataLoss="false").all_rows())


def test_a_running_query_counts_what_it_passed_over(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    stream.put(100)
    stream.settle()
    run(spark, stream, checkpoint)
    stream.settle(30 * HOUR_S)
    stream.put(10)
    stream.settle()
    batches = Batches()
    query = start(reader(spark, stream, failOnDataLoss="false"), checkpoint, batches)
    try:
        query.processAllAvailable()
        progress = query.lastProgress
    finally:
        query.stop()
    assert [row.data for row in sorted(batches.all_rows(), key=lambda row: row.data)] == stream.written[100:]
    assert progress is not None
    assert '"possibleLosses":2' in str(progress["sources"][0]["latestOffset"]).replace(" ", "").replace("'", '"')


@pytest.mark.slow
def test_a_shard_silent_for_longer_than_the_retention_is_no_loss(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """Thirty hours of silence under 24 h of retention, while the query runs and with a restart in between."""
    checkpoint = tmp_path / "checkpoint"
    stream.put(100)
    stream.settle()
    batches = Batches()
    for stretch_h in (14, 16):
        query = start(reader(spark, stream), checkpoint, batches)
        try:
            query.processAllAvailable()
            for _ in range(stretch_h // 2):
                stream.settle(2 * HOUR_S)
                query.processAllAvailable()
        finally:
            query.stop()
    stream.put(30)
    stream.settle()
    last = run(spark, stream, checkpoint)
    assert_exact(stream, batches.all_rows() + last.all_rows())
