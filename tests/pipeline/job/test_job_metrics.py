"""The numbers of a job: in its events, in the query's progress, and as gauges of Spark's metrics system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest

from penstock.core.aggregation import encode_aggregate
from penstock.local import LocalKinesis
from penstock.pipeline.job import ExitCode
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, order
from tests.pipeline.metrics_system import gauges, told_all

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_job_is_metered(spark: SparkSession, tmp_path: Path) -> None:
    data = [order(number) for number in range(20)]
    with LocalKinesis(streams={"metered": 2}) as local:
        client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        for number, one in enumerate(data[:15]):
            client.put_record(StreamName="metered", Data=one, PartitionKey=f"key-{number}")
        users = [("key", one, 0) for one in data[15:]]
        client.put_record(  # in the last shard, where its records do not belong
            StreamName="metered", Data=encode_aggregate(users), PartitionKey="a", ExplicitHashKey=str(2**128 - 1)
        )
        client.close()
        local.clock.advance(3)
        text = (HEAD + JSON).replace('"orders"', '"metered"') + '[[sinks]]\nformat = "noop"\n' + ONCE
        ended = World(spark, local, tmp_path).run(text)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    wanted = {"rows": 20, "bytes": sum(map(len, data)), "aggregates_outside": 1, "possible_losses": 0}
    assert {name: ended.summary[name] for name in wanted} == wanted
    (batch,) = [one for one in ended.of("batch") if one["rows"]]
    assert {name: batch[name] for name in (*wanted, "shards")} == {**wanted, "shards": 2}
    told_all(spark)
    shown = gauges(spark, "penstock.metered.metered.")
    assert (shown["rows"], shown["bytes"], shown["aggregatesOutside"]) == (20, wanted["bytes"], 1)
