"""The sink on each PySpark that it supports: Spark 4.0 gives streaming writers rows, later ones Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardway.model import StreamName
from shardway.pipeline import deduplicate_by_stamps, sort_by_key
from tests.spark.querying import QUERY_TIMEOUT_S, Stream, forget_last_commit, reader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_copy_whose_batch_runs_again_is_read_once(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """The source is written as a batch, and copied as a stream."""
    reach = {"region": stream.local.region, "endpointUrl": stream.local.endpoint_url}
    copy = Stream(stream.local, StreamName("copy"))
    copy.call("CreateStream", ShardCount=2)
    copy.close()
    rows = spark.range(300).selectExpr("concat('key-', id % 7) AS partition_key", "format_string('%08d', id) AS data")
    rows.repartition("partition_key").write.format("shardway").options(streamName="orders", **reach).mode(
        "append"
    ).save()
    for aggregation in ("false", "true"):
        writer = reader(spark, stream).writeStream.format("shardway").options(streamName="copy", **reach)
        writer = writer.options(stamps="position", orderedByKey="true", aggregation=aggregation)
        query = writer.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        forget_last_commit(tmp_path / "copy")
    copied = spark.read.format("shardway").options(streamName="copy", **reach).load()
    source = spark.read.format("shardway").options(streamName="orders", **reach).load()
    assert copied.count() == 600
    found, wanted = (
        [(row.partition_key, bytes(row.data)) for row in sort_by_key(frame).collect()]
        for frame in (deduplicate_by_stamps(copied, window="1 hour"), source)
    )
    assert found == wanted
