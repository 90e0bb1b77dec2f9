"""The numbers of a job: in its events, in the query's progress, and as gauges of Spark's metrics system."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import operator
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.core.aggregation.writer import encode_aggregate
from shardway.inspect import jobs_at
from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from shardway.pipeline.job.errors.exit_codes import StepError
from shardway.pipeline.job.file.model import Metrics
from shardway.pipeline.job.run.output import RunOutput
from shardway.pipeline.job.run.program import exporters_of
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, order
from tests.pipeline.metrics_system import gauges, told_all
from tests.telemetry.number_kit import query_event

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from shardway.events import QueryMetrics
    from shardway.inspect import JobView


def page_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_a_job_file_and_the_command_say_where_the_numbers_go() -> None:
    out = io.StringIO()
    show = RunOutput(as_json=True, out=out)
    with exporters_of(Metrics(), None, show) as on_event:
        assert on_event is None
    for given, port in ((Metrics(port=0), None), (Metrics(port=1), 0)):
        with exporters_of(given, port, show) as on_event:
            assert on_event is not None
            on_event(query_event())
            served = json.loads(out.getvalue().splitlines()[-1])
            assert (served["event"], served["host"]) == ("serves", "127.0.0.1")
            page = page_at(served["port"])
            assert 'shardway_consumer_lag_seconds{messaging_system="aws.kinesis",' in page
            assert 'messaging_consumer_group_name="orders_to_lake"} 1.5' in page
            (seen,) = jobs_at(f"http://127.0.0.1:{served['port']}").jobs
            assert (seen.name, seen.lag_s) == ("orders_to_lake", 1.5)
            with (
                pytest.raises(StepError, match=r"metrics: port: cannot listen on 127\.0\.0\.1, port") as raised,
                exporters_of(Metrics(port=served["port"], emf=True), None, show),
            ):
                pass
            assert raised.value.code == ExitCode.NOT_READY
    text = io.StringIO()
    with contextlib.redirect_stderr(text), exporters_of(Metrics(emf=True), None, show) as on_event:
        assert on_event is not None
        on_event(query_event())
    line = json.loads(text.getvalue().splitlines()[0])
    assert line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "orders_to_lake"
    assert (line["RecordsProcessed"], line["DataBytesProcessed"]) == (20.0, 2000.0)


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
        told: list[QueryMetrics] = []
        ended = World(spark, local, tmp_path).run(text, on_event=told.append)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    wanted = {"rows": 20, "bytes": sum(map(len, data)), "aggregates_outside_range": 1, "possible_losses": 0}
    assert {name: ended.summary[name] for name in wanted} == wanted
    (batch,) = [one for one in ended.of("batch") if one["rows"]]
    assert {name: batch[name] for name in (*wanted, "shards")} == {**wanted, "shards": 2}
    assert {(one.stream, one.application) for one in told} == {("metered", "metered")}
    whole = functools.reduce(operator.add, [one.snapshot for one in told])
    assert (whole.records_read, whole.bytes_read, whole.aggregates_outside_range) == (20, wanted["bytes"], 1)
    assert (whole.batches, whole.batch_s.count) == (len(ended.of("batch")), len(ended.of("batch")))
    assert (told[-2].snapshot.shards, told[-2].snapshot.shards_unread) == (2, 2)
    assert told[0].snapshot.batches == 0, "it is told that the query has begun"
    assert [one.last for one in told] == [False] * (len(told) - 1) + [True]
    told_all(spark)
    shown = gauges(spark, "shardway.metered.metered.")
    assert (shown["rows"], shown["bytes"], shown["aggregatesOutsideRange"]) == (20, wanted["bytes"], 1)
    by_directory, by_lines = _from_beside(tmp_path, ended.events)
    batches = [one["batch"] for one in ended.of("batch")]
    assert [one.batch for one in by_directory.recent] == [one.batch for one in by_lines.recent] == batches
    for seen in (by_directory, by_lines):
        assert [(one.stream, one.shards) for one in seen.streams] == [("metered", 2)]
    assert by_directory.planned is None
    assert by_lines.records == 20
    assert by_lines.outcome is not None
    assert not by_lines.failed


def _from_beside(folder: Path, events: list[dict[str, Any]]) -> list[JobView]:
    """The job by its checkpoint directory, and by what it has printed."""
    (folder / "run.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    return [job for place in ("checkpoint", "run.jsonl") for job in jobs_at(str(folder / place)).jobs]
