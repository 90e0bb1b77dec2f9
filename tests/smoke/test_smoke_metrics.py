"""A query's numbers on each PySpark: in its progress, and as gauges of Spark's metrics system."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.aws.kinesis.shapes import PutEntry
from shardway.core.aggregation.writer import encode_aggregate
from shardway.pipeline import ALL_COLUMNS, MetricsListener, StreamMetrics, observed, stream_metrics
from tests.spark.querying import QUERY_TIMEOUT_S, Stream

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pipeline"))

from tests.pipeline.metrics_system import gauges, told_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOUR_S = 3600


def run(spark: SparkSession, stream: Stream, checkpoint: Path) -> StreamMetrics:
    """Read what is there; what the last batch with rows told."""
    reading = spark.readStream.format("shardway").schema(ALL_COLUMNS)
    reading = reading.options(
        streamName="orders", region=stream.local.region, endpointUrl=stream.local.endpoint_url,
        startingPosition="TRIM_HORIZON", failOnDataLoss="false",
    )  # fmt: skip
    writer = observed(reading.load()).writeStream.format("noop").queryName("metered")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    (metrics,) = stream_metrics([one for one in query.recentProgress if one["numInputRows"]][-1])
    return metrics


def test_rows_bytes_shards_aggregates_losses_and_lag(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    told: list[StreamMetrics] = []
    listener = MetricsListener(spark, on_metrics=lambda _, metrics: told.append(metrics))
    spark.streams.addListener(listener)
    try:
        stream.put(100)
        users = [(f"key-{number}", b"%04d" % number, 0) for number in range(5)]
        stream.put_entries([PutEntry(encode_aggregate(users), "a", str(2**128 - 1))])
        stream.settle()
        first = run(spark, stream, tmp_path / "checkpoint")
        says_silence = first.silent_shards is not None  # from PySpark 4.2 on
        assert first._replace(lag_s=0.0, cut_ms=0) == StreamMetrics(
            "orders", 0, 105, 820, 0, 0, 2, 2, 1, 0, *((0, 0) if says_silence else ())
        )
        assert 0 <= first.lag_s < HOUR_S
        stream.put(10)
        stream.settle(30 * HOUR_S)  # they are trimmed: longer than the retention
        stream.put(10)
        stream.settle()
        second = run(spark, stream, tmp_path / "checkpoint")
        assert (second.rows, second.bytes, second.aggregates_outside_range) == (10, 80, 0)
        assert second.possible_losses >= 1
        told_all(spark)
        assert [one for one in told if one.rows] == [first, second]
        shown = gauges(spark, "shardway.metered.orders.")
        assert {**shown, "lagMs": 0, "batch": 0} == {
            "lagMs": 0, "shards": 2, "unreadShards": 2, "possibleLosses": second.possible_losses, "batch": 0,
            "rows": 115, "bytes": 900, "aggregatesOutsideRange": 1,
            **({"silentShards": 0, "leftOutShards": 0} if says_silence else {}),
        }  # fmt: skip
    finally:
        spark.streams.removeListener(listener)
