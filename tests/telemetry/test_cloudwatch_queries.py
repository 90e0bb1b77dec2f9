"""What dashboards of the KCL, the KPL and our own ask CloudWatch for is there, as an exporter has sent it."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from scripts import monitoring
from shardway import events
from shardway.telemetry import CloudWatchChoice, CloudWatchExporter
from tests.telemetry.cloudwatch_stand_in import CloudWatch
from tests.telemetry.http_kit import Collector
from tests.telemetry.number_kit import consumer_event, producer_event

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = (0.0, 1e11)


def sent(choice: CloudWatchChoice) -> CloudWatch:
    """Ten seconds of a consumer and a producer, through the exporter, over HTTP."""
    cloudwatch = CloudWatch()
    with closing(Collector()) as collector:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (
                ("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-1"),
                ("AWS_ENDPOINT_URL_CLOUDWATCH", collector.url),
            ):  # fmt: skip
                patch.setenv(name, value)
            with CloudWatchExporter(choice, every_s=3600.0) as exporter:
                for event in (consumer_event(), consumer_event(), producer_event(), _without_a_failure()):
                    exporter(event)
        assert exporter.dropped == 0
        for _, body in collector.got:
            cloudwatch.put(body)
    return cloudwatch


def _without_a_failure() -> events.ConsumerMetrics:
    return consumer_event(application="other")


@pytest.fixture(scope="module")
def detailed() -> CloudWatch:
    return sent(CloudWatchChoice(level="DETAILED", dimensions=("ShardId", "WorkerIdentifier")))


@pytest.fixture(scope="module")
def summary() -> CloudWatch:
    return sent(CloudWatchChoice())


def asked(cloudwatch: CloudWatch, metric: str, statistic: str, **dimensions: str) -> float | None:
    """One number; None: there is no such metric."""
    namespace = dimensions.pop("namespace", "billing")
    query = {
        "Id": "m1",
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            },
            "Period": 60,
            "Stat": statistic,
        },
    }
    return next(iter(cloudwatch.get([query], *ALL)["m1"].values()), None)


@pytest.mark.parametrize(
    ("metric", "statistic", "dimensions", "value"),
    [
        ("MillisBehindLatest", "Maximum", {"Operation": "ApplicationTracker"}, 1001.0),
        ("MillisBehindLatest", "Maximum", {"Operation": "ProcessTask", "ShardId": "shardId-000000000001"}, 1001.0),
        ("RecordsProcessed", "Sum", {"Operation": "ProcessTask", "ShardId": "shardId-000000000000"}, 20.0),
        ("DataBytesProcessed", "Sum", {"Operation": "ProcessTask", "ShardId": "shardId-000000000000"}, 2000.0),
        ("Success", "Average", {"Operation": "ProcessTask", "ShardId": "shardId-000000000000"}, 1.0),
        ("RecordProcessor.processRecords.Time", "Average",
         {"Operation": "ProcessTask", "ShardId": "shardId-000000000000"}, 250.0),
        ("KinesisDataFetcher.getRecords.Time", "Average",
         {"Operation": "ProcessTask", "ShardId": "shardId-000000000000"}, 20.0),
        ("KinesisDataFetcher.getRecords.Success", "Average",
         {"Operation": "ProcessTask", "ShardId": "shardId-000000000000"}, 0.5),
        ("CurrentLeases", "Maximum", {"Operation": "RenewAllLeases", "WorkerIdentifier": "worker-1"}, 2.0),
        ("RenewLease.Success", "Average", {"Operation": "RenewAllLeases", "WorkerIdentifier": "worker-1"}, 1.0),
        ("TotalLeases", "Maximum", {"Operation": "LeaseAssignmentManager"}, 3.0),
        ("NumWorkers", "Maximum", {"Operation": "LeaseAssignmentManager"}, 2.0),
        ("NumWorkers", "Maximum", {"Operation": "TakeLeases", "WorkerIdentifier": "worker-1"}, 2.0),
        ("UserRecordsPut", "Sum", {"namespace": "KinesisProducerLibrary", "StreamName": "orders"}, 8.0),
        ("BufferingTime", "Average", {"namespace": "KinesisProducerLibrary", "StreamName": "orders"}, None),
        ("RequestTime", "p99", {"namespace": "KinesisProducerLibrary", "StreamName": "orders"}, 62.5),
    ],
)  # fmt: skip
def test_what_dashboards_of_the_kcl_and_the_kpl_ask_for_is_there(
    detailed: CloudWatch, metric: str, statistic: str, dimensions: dict[str, str], value: float | None
) -> None:
    found = asked(detailed, metric, statistic, **dimensions)
    assert found is None if value is None else found is not None and math.isclose(found, value, rel_tol=0.011), found


def test_a_search_over_all_shards_finds_each(detailed: CloudWatch) -> None:
    expression = "SEARCH('{billing,Operation,ShardId} MetricName=\"MillisBehindLatest\"', 'Maximum', 60)"
    found = detailed.get([{"Id": "lag", "Expression": expression}], *ALL)
    assert sorted(found) == ["ProcessTask shardId-000000000000", "ProcessTask shardId-000000000001"]


def _queries(made: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for panel in made["panels"]:
        for target in panel["targets"]:
            yield target["metricName"], target["dimensions"]["Operation"], target["statistic"]


@pytest.mark.parametrize(
    ("metric", "operation", "statistic"),
    [
        *_queries(monitoring.grafana_cloudwatch()),
        *(
            (metric[1], metric[3], metric[4]["stat"])
            for widget in monitoring.cloudwatch_dashboard()["widgets"]
            for metric in widget["properties"]["metrics"]
        ),
    ],
)
def test_our_own_dashboards_have_their_numbers(
    summary: CloudWatch, metric: str, operation: str, statistic: str
) -> None:
    assert asked(summary, metric, statistic, Operation=operation) is not None


def test_a_metric_has_one_unit(detailed: CloudWatch) -> None:
    assert all(len(units) == 1 for units in detailed.units.values())
