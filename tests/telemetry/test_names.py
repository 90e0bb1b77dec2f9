"""The one table of names: it fits the snapshots, the page is made of it, and the names are those of the field."""

from __future__ import annotations

import re

import pytest

from scripts import reference_telemetry
from shardway.core.histogram import Histogram
from shardway.events.consumer_snapshot import ConsumerShardSnapshot, ConsumerSnapshot, ShardLevels, WorkerLevels
from shardway.events.producer_snapshot import ProducerSnapshot, ShardSnapshot
from shardway.telemetry.metric_table import TABLE
from shardway.telemetry.metrics import APPLICATION, SHARD, STREAM, Kind, Metric, Reporter, prometheus_label
from shardway.telemetry.points import points, stream_label
from tests.docs.doc_pages import DOCS
from tests.telemetry.number_kit import consumer_event, producer_event, query_event

NOT_NUMBERS = {
    "period_start_s",
    "period_end_s",
    "per_shard",
    "workers",
    "batches_delivered",
    "bytes_delivered",
    "requests",
}
"""The numbers that are made of snapshots. Batches, their bytes and requests are the counts and sums of histograms."""


def test_the_page_of_numbers_is_made_of_the_table() -> None:
    page = (DOCS / "reference" / "telemetry.md").read_text(encoding="utf-8")
    assert reference_telemetry.renewed(page) == page, "run python -m scripts.reference_telemetry with the page"


def test_every_number_of_a_snapshot_has_a_name() -> None:
    for snapshot, of in ((ConsumerSnapshot, Reporter.CONSUMER), (ProducerSnapshot, Reporter.PRODUCER)):
        named = {metric.field for metric in TABLE if metric.of is of and metric.level is None}
        assert set(snapshot.__struct_fields__) - NOT_NUMBERS == named
    told = {metric.level for metric in TABLE}
    assert set(ShardLevels.__struct_fields__) - {"stream", "shard_id", "is_full"} <= told
    assert set(WorkerLevels.__struct_fields__) - {"at_s", "shards", "renewed_ago_s", "left", "failed"} <= told


@pytest.mark.parametrize("metric", TABLE, ids=lambda metric: f"{metric.name}-{metric.field}-{metric.level}")
def test_a_row_fits_what_it_names(metric: Metric) -> None:
    by_shard = ConsumerShardSnapshot if metric.of is Reporter.CONSUMER else ShardSnapshot
    assert metric.of_shard is None or metric.of_shard in by_shard.__struct_fields__
    snapshot: object = {
        Reporter.CONSUMER: consumer_event().snapshot,
        Reporter.PRODUCER: producer_event().snapshot,
        Reporter.QUERY: query_event().snapshot,
    }[metric.of]
    assert isinstance(getattr(snapshot, metric.field), Histogram) == (metric.kind is Kind.HISTOGRAM)
    assert re.fullmatch(r"[a-z][a-z0-9_.]*", metric.name)
    assert re.fullmatch(r"s|ms|By|1|\{[a-z]+\}", metric.unit)
    for called in metric.cloudwatch:
        assert called.unit in ("Count", "Bytes", "Milliseconds", "None")
        assert called.factor == (1000.0 if (metric.unit, called.unit) == ("s", "Milliseconds") else 1.0)
        assert all(hasattr(snapshot, field) for field in called.zeros.split())


def test_rows_of_one_name_are_one_metric() -> None:
    for metric in TABLE:
        for other in TABLE:
            if metric is not other and metric.name == other.name:
                assert (metric.kind, metric.unit, metric.help) == (other.kind, other.unit, other.help)
                assert (metric.of, metric.attributes) != (other.of, other.attributes)
    cloudwatch = [(metric.of, called.name, called.operation) for metric in TABLE for called in metric.cloudwatch]
    assert len(cloudwatch) == len(set(cloudwatch))


@pytest.mark.parametrize(
    ("name", "prometheus"),
    [
        ("messaging.client.operation.duration", "messaging_client_operation_duration_seconds"),
        ("messaging.client.consumed.messages", "messaging_client_consumed_messages_total"),
        ("shardway.consumer.retention.used", "shardway_consumer_retention_used_ratio"),
        ("aws.kinesis.client.renew_lease.duration", "aws_kinesis_client_renew_lease_duration_milliseconds"),
        ("aws.kinesis.client.lost_leases", "aws_kinesis_client_lost_leases_total"),
        ("shardway.consumer.held.size", "shardway_consumer_held_size_bytes"),
        ("shardway.consumer.fetched.size", "shardway_consumer_fetched_size_bytes_total"),
    ],
)
def test_prometheus_has_the_name_that_an_opentelemetry_collector_makes(name: str, prometheus: str) -> None:
    assert {metric.prometheus_name for metric in TABLE if metric.name == name} == {prometheus}
    assert prometheus_label("messaging.client-id/é") == "messaging_client_id__"


def test_no_label_holds_an_account_or_a_worker_or_a_reason() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    event = consumer_event(stream=arn)
    labels = {pair for point in points(event, by_shard=True) for pair in point.attributes}
    assert (STREAM, "orders") in labels
    assert (APPLICATION, "billing") in labels
    assert not [value for _, value in labels if "123456789012" in value or "worker-1" in value or "secret" in value]
    assert stream_label(f"{arn}, other") == "orders, other"


def test_beyond_a_number_of_shards_the_rest_is_one() -> None:
    found = list(points(consumer_event(shards=5), by_shard=True, shards_max=2))
    lag = {dict(point.attributes)[SHARD]: point.value for point in found if point.metric.name == "shardway.shard.lag"}
    assert lag == {"shardId-000000000000": 2.0, "shardId-000000000001": 3.0, "others": 6.0}
    held = [point.value for point in found if point.metric.name == "shardway.shard.held"]
    assert held == [3, 3, 9]
    (most,) = [point.value for point in found if point.metric.name == "shardway.consumer.lag"]
    assert most == 6.0
