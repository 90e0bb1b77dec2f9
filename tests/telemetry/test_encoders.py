"""Numbers as Prometheus, OTLP and CloudWatch take them: golden text, and what their own models say."""

from __future__ import annotations

import json
import re
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from shardway import OptionError, events
from shardway.core.histogram import Histogram
from shardway.events.consumer_snapshot import Spread
from shardway.telemetry import cloudwatch_datums, prometheus_page
from shardway.telemetry.cloudwatch_datums import CloudWatchChoice, Datum, datums, values_of
from shardway.telemetry.cloudwatch_requests import requests
from shardway.telemetry.emf import emf_lines
from shardway.telemetry.metric_table import TABLE
from shardway.telemetry.metrics import Metric
from shardway.telemetry.points import Point, points
from tests.telemetry.number_kit import consumer_event, producer_event

DETAILED = CloudWatchChoice(level="DETAILED")


def metric(name: str) -> Metric:
    return next(one for one in TABLE if one.name == name)


def histogram(values: list[float]) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value)
    return made


# --- Prometheus -----------------------------------------------------------------------------------


def test_the_page_for_prometheus() -> None:
    found = [
        Point(metric("shardway.consumer.lag"), (("messaging.destination.name", 'a"b\\c\nd'),), 2.5),
        Point(metric("shardway.consumer.failures"), (("error.type", "KeyError"),), 3),
        Point(metric("shardway.consumer.failures"), (("error.type", "ValueError"),), 1),
        Point(metric("aws.kinesis.client.records.size"), (), histogram([1, 64, 65, 2**30])),
    ]
    text = prometheus_page.encode(found).decode()
    assert 'shardway_consumer_lag_seconds{messaging_destination_name="a\\"b\\\\c\\nd"} 2.5\n' in text
    assert text.count("# TYPE shardway_consumer_failures_total counter\n") == 1
    assert 'shardway_consumer_failures_total{error_type="ValueError"} 1\n' in text
    assert text.endswith(
        'aws_kinesis_client_records_size_bytes_bucket{le="67108864.0"} 3\n'
        'aws_kinesis_client_records_size_bytes_bucket{le="+Inf"} 4\n'
        "aws_kinesis_client_records_size_bytes_sum{} 1073741954.0\n"
        "aws_kinesis_client_records_size_bytes_count{} 4\n"
    )
    assert 'records_size_bytes_bucket{le="64.0"} 2\n' in text
    assert prometheus_page.encode([]) == b""


@given(st.lists(st.floats(0, 2000), max_size=50))
def test_classic_buckets_are_cut_without_an_error(values: list[float]) -> None:
    assert list(prometheus_page.cut(histogram(values), -10, 10)) == [
        sum(value <= 2.0**n for value in values) for n in range(-10, 11)
    ]


def test_every_number_is_on_the_page_once() -> None:
    for event in (consumer_event(), producer_event()):
        text = prometheus_page.encode(points(event, by_shard=True)).decode()
        series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
        assert len(series) == len(set(series))
        assert all(re.fullmatch(r"[a-z_0-9]+\{[^}]*\}", one) for one in series)


# --- CloudWatch -----------------------------------------------------------------------------------


def by_name(found: list[Datum]) -> dict[tuple[str, ...], Datum]:
    return {(one.name, *(value for _, value in one.dimensions)): one for one in found}


def test_the_kcls_numbers_have_its_names_units_and_dimensions() -> None:
    found = by_name(datums([consumer_event()], DETAILED))
    assert {one.namespace for one in found.values()} == {"billing"}
    processed = found["RecordsProcessed", "ProcessTask"]
    assert (processed.unit, processed.dimensions, processed.values) == (
        "Count",
        (("Operation", "ProcessTask"),),
        (20.0,),
    )
    behind = found["MillisBehindLatest", "ApplicationTracker"]
    assert (behind.unit, behind.values, behind.counts) == ("Milliseconds", (1000.0, 1001.0), (1.0, 1.0))
    handled = found["RecordProcessor.processRecords.Time", "ProcessTask"]
    assert (handled.unit, handled.values, handled.counts) == ("Milliseconds", (250.0,), (2.0,))
    assert found["KinesisDataFetcher.getRecords.Success", "ProcessTask"].values == (1.0, 0.0)
    assert found["KinesisDataFetcher.getRecords.Success", "ProcessTask"].counts == (2.0, 1.0)
    assert found["UpdateLease.Success", "ProcessTask"].values == (0.0,)
    assert found["CurrentLeases", "RenewAllLeases"].values == (2.0,)
    assert found["TotalLeases", "LeaseAssignmentManager"].values == (3.0,)


def test_success_is_the_share_of_batches_that_did_not_fail() -> None:
    event = consumer_event()
    event.snapshot.batches_failed = {"KeyError": 1}
    success = by_name(datums([event], DETAILED))["Success", "ProcessTask"]
    assert (success.values, success.counts) == ((1.0, 0.0), (1.0, 1.0))


def test_with_shard_ids_existing_dashboards_go_on() -> None:
    choice = CloudWatchChoice(level="DETAILED", dimensions=("ShardId", "WorkerIdentifier"))
    found = by_name(datums([consumer_event(), consumer_event()], choice))
    shard = "shardId-000000000001"
    assert found["RecordsProcessed", "ProcessTask", shard].values == (20.0,)
    assert found["MillisBehindLatest", "ProcessTask", shard].counts == (2.0,)
    assert found["Time", "ProcessTask", shard].spread == Spread(2, 500.0, 250.0, 250.0)
    assert ("RecordsProcessed", "ProcessTask") not in found
    assert ("ExpiredIterator", "ProcessTask") in found
    assert found["CurrentLeases", "RenewAllLeases", "worker-1"].dimensions[1] == ("WorkerIdentifier", "worker-1")


def test_the_rest_of_many_shards_is_one() -> None:
    choice = CloudWatchChoice(dimensions=("ShardId",), shards_max=1)
    found = by_name(datums([consumer_event(shards=4)], choice))
    assert found["RecordsProcessed", "ProcessTask", "others"].spread == Spread(3, 30.0, 10.0, 10.0)


def test_a_consumer_of_several_streams_tells_them_apart() -> None:
    one = consumer_event(stream="a")
    other = consumer_event(stream="b")
    event = events.ConsumerMetrics("a, b", "billing", "worker-1", one.snapshot + other.snapshot)
    event.snapshot.workers = {f"w{n}": each.snapshot.workers["worker-1"] for n, each in enumerate((one, other))}
    found = by_name(datums([event], CloudWatchChoice(dimensions=("ShardId",))))
    assert {key for key in found if key[0] == "MillisBehindLatest" and len(key) == 4} == {
        ("MillisBehindLatest", "ProcessTask", f"shardId-00000000000{n}", stream)
        for n in (0, 1)
        for stream in ("a", "b")
    }


def test_the_kpls_numbers_have_its_names() -> None:
    found = by_name(datums([producer_event()], DETAILED))
    assert {one.namespace for one in found.values()} == {"KinesisProducerLibrary"}
    put = found["UserRecordsPut", "orders"]
    assert (put.values, put.counts) == ((1.0, 0.0), (8.0, 3.0)), "Sum is what was put, Average the share of it"
    assert found["RequestTime", "orders"].values == (62.5,)
    assert found["AllErrors", "orders"].values == (1.0,)
    assert found["UserRecordsPending", "orders"].values == (1.0,)


def test_summary_leaves_out_what_the_kcl_calls_detailed_and_none_is_nothing() -> None:
    names = {one.name for one in datums([consumer_event()], CloudWatchChoice())}
    assert "MillisBehindLatest" in names
    assert "KinesisDataFetcher.getRecords.Time" not in names
    assert datums([consumer_event()], CloudWatchChoice(level="NONE")) == []
    with pytest.raises(OptionError, match='level is "NONE" or "SUMMARY" or "DETAILED", not \'ALL\''):
        CloudWatchChoice(level="ALL")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"dimensions\[0\] is \"ShardId\" or \"WorkerIdentifier\", not 'Operation'"):
        CloudWatchChoice(dimensions=("Operation",))  # type: ignore[arg-type]


def test_each_request_is_one_that_the_service_takes_and_they_are_as_few_as_can_be() -> None:
    shape = botocore.session.get_session().get_service_model("cloudwatch").operation_model("PutMetricData").input_shape
    choice = CloudWatchChoice(level="DETAILED", dimensions=("ShardId",))
    for found in (datums([consumer_event(shards=1000)], choice), datums([producer_event()], DETAILED)):
        bodies = requests(found, 1005.0)
        assert len(bodies) == -(-len(found) // 1000)
        for body in bodies:
            given = json.loads(body)
            assert not ParamValidator().validate(given, shape).has_errors()
            assert len(given["MetricData"]) <= 1000
            assert len(body) < 1_000_000
    assert len(found) < 1000 < len(datums([consumer_event(shards=1000)], choice))


def test_a_request_is_never_larger_than_the_service_takes() -> None:
    large = Datum("n", "m", "Count", (), tuple(n + 0.123456 for n in range(150)), (1.0,) * 150)
    bodies = requests([large] * 1000, 1005.0)
    assert max(map(len, bodies)) < 1_000_000
    assert sum(len(json.loads(body)["MetricData"]) for body in bodies) == 1000


@given(st.lists(st.floats(2**-20, 2**20), min_size=1, max_size=300))
def test_a_histogram_goes_as_values_whose_sum_and_number_are_its_own(values: list[float]) -> None:
    made = histogram(values)
    told, counts = values_of(made, 1000.0)
    assert len(told) <= cloudwatch_datums.VALUES_MAX
    assert sum(counts) == len(values)
    assert sum(value * count for value, count in zip(told, counts, strict=True)) == pytest.approx(made.sum * 1000)
    assert list(told) == sorted(told)


def test_a_line_of_a_log_is_in_the_embedded_metric_format() -> None:
    lines = [json.loads(line) for line in emf_lines(datums([consumer_event()], DETAILED), 1005.0)]
    for line in lines:
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert line["_aws"]["Timestamp"] == 1_005_000
        assert directive["Namespace"] == "billing"
        assert all(name in line for name in directive["Dimensions"][0])
        assert 0 < len(directive["Metrics"]) <= 100
        assert all(one["Name"] in line for one in directive["Metrics"])
    (processing,) = [line for line in lines if line.get("Operation") == "ProcessTask"]
    assert processing["RecordsProcessed"] == 20.0
    assert processing["RecordProcessor.processRecords.Time"] == {
        "Values": [250.0], "Counts": [2.0], "Max": 250.0, "Min": 250.0, "Count": 2, "Sum": 500.0,
    }  # fmt: skip


def test_dimensions_are_what_the_service_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = [
        Datum(":é", "m", "Count", (("Operation", cloudwatch_datums.fitting(":ü" + "x" * 2000)),), (1.0,), (1.0,))
    ]
    (body,) = requests(found, 1.0)
    told = json.loads(body)
    assert told["Namespace"] == "_?"
    assert told["MetricData"][0]["Dimensions"][0]["Value"] == "_?" + "x" * 1022
