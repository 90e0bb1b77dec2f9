"""``spark.read``: a stretch of time of a stream, as one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.querying import Stream, assert_exact, collect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HOUR_S = 3600


def batch(spark: SparkSession, stream: Stream, **options: str) -> DataFrame:
    given = {"streamName": "orders", "region": stream.local.region, "endpointUrl": stream.local.endpoint_url, **options}
    return spark.read.format("shardway").options(**given).load()


def test_an_empty_stream_has_no_rows(spark: SparkSession, stream: Stream) -> None:
    frame = batch(spark, stream)
    assert collect(frame) == []
    stream.put(5)
    stream.settle()
    now_s = stream.local.clock.now()
    assert collect(batch(spark, stream, startingTimestamp=str(now_s - 1))) == []


def test_all_that_is_there_across_a_split_and_a_merge(spark: SparkSession, stream: Stream) -> None:
    stream.put(100)
    stream.split(0)
    stream.put(100)
    stream.merge(1)
    stream.put(100)
    assert_exact(stream, collect(batch(spark, stream)))


def test_between_two_times(spark: SparkSession, stream: Stream) -> None:
    times_s = []
    for _ in range(3):
        stream.put(20)
        stream.settle(HOUR_S)
        times_s.append(stream.local.clock.now() - HOUR_S / 2)
    first, second, _ = times_s
    rows = collect(batch(spark, stream, startingTimestamp=str(first), endingTimestamp=str(second)))
    assert sorted(row.data for row in rows) == stream.written[20:40]
