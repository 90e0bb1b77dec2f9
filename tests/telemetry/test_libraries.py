"""What the libraries of others make of the numbers: OTLP's own messages, prometheus-client, OpenTelemetry's SDK."""

from __future__ import annotations

from typing import Any

import pytest

from shardway.core.histogram import Histogram
from shardway.telemetry import (
    OpenTelemetryExporter,
    PrometheusCollector,
    PrometheusExporter,
    prometheus_page,
)
from shardway.telemetry import otlp_request as otlp
from shardway.telemetry.metric_table import TABLE
from shardway.telemetry.points import points
from tests.telemetry.number_kit import consumer_event, producer_event


def otlp_request(*events: Any) -> Any:
    module = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    found = [(point, 1000.0) for event in events for point in points(event)]
    body = otlp.encode(found, now_s=1005.0, resource={"service.name": "shardway", "empty": ""}, version="0.2")
    request = module.ExportMetricsServiceRequest()
    request.ParseFromString(body)
    assert len(request.SerializeToString()) == len(body), "nothing of it is unknown to the library"
    return request


def test_otlp_is_read_by_its_own_messages() -> None:
    (resource,) = otlp_request(consumer_event(), producer_event()).resource_metrics
    attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert attributes == {"service.name": "shardway", "empty": ""}
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("shardway", "0.2")
    told = {metric.name: metric for metric in scope.metrics}
    assert set(told) <= {metric.name for metric in TABLE}
    (lag,) = told["shardway.consumer.lag"].gauge.data_points
    assert (lag.as_double, lag.time_unix_nano) == (3.0, 1_005_000_000_000)
    settled = told["shardway.consumer.settled"].sum
    assert (settled.is_monotonic, settled.aggregation_temporality) == (True, 2)
    assert (settled.data_points[0].as_int, settled.data_points[0].start_time_unix_nano) == (17, 1_000_000_000_000)
    durations = told["messaging.client.operation.duration"].exponential_histogram.data_points
    names = [{pair.key: pair.value.string_value for pair in one.attributes} for one in durations]
    assert [one["messaging.operation.name"] for one in names] == ["GetRecords", "PutRecords"]
    assert told["messaging.client.operation.duration"].unit == "s"


def test_an_exponential_histogram_has_the_values_where_they_are() -> None:
    made = Histogram()
    for value, count in ((0.0, 2), (0.02, 3), (0.25, 1), (4.0, 5)):
        made.add(value, count)
    event = consumer_event()
    event.snapshot.fetch_s = made
    told = {one.name: one for one in otlp_request(event).resource_metrics[0].scope_metrics[0].metrics}
    (point,) = told["messaging.client.operation.duration"].exponential_histogram.data_points
    assert (point.count, point.zero_count, point.scale, point.min, point.max) == (11, 2, 5, 0.0, 4.0)
    assert point.sum == pytest.approx(made.sum)
    found = {point.positive.offset + index: count for index, count in enumerate(point.positive.bucket_counts) if count}
    assert sorted(found.values()) == [1, 3, 5]
    base = 2 ** (2**-point.scale)
    for value, count in ((0.02, 3), (0.25, 1), (4.0, 5)):
        (index,) = [number for number, each in found.items() if each == count]
        assert base**index * (1 - 1e-12) < value <= base ** (index + 1) * (1 + 1e-12)


def test_prometheus_clients_parser_reads_the_page() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = prometheus_page.encode([*points(consumer_event(), by_shard=True), *points(producer_event())]).decode()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["shardway_consumer_lag_seconds"].type == "gauge"
    assert families["shardway_consumer_settled"].type == "counter"
    duration = families["messaging_client_operation_duration_seconds"]
    assert duration.type == "histogram"
    assert sum(sample.value for sample in duration.samples if sample.name.endswith("_count")) == 3.0


def test_a_registry_of_prometheus_client_shows_what_the_own_page_shows() -> None:
    client = pytest.importorskip("prometheus_client")
    parser = pytest.importorskip("prometheus_client.parser")
    registry = client.CollectorRegistry()
    with PrometheusCollector(shards_max=10) as collector, PrometheusExporter(0, shards_max=10) as own:
        registry.register(collector)
        for exporter in (collector, own):
            exporter(consumer_event())
            exporter(consumer_event())
            exporter(producer_event())
        theirs = client.generate_latest(registry).decode()
        ours = own._answer("/metrics").body.decode()

    def samples(text: str) -> dict[Any, float]:
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.name.startswith("shardway_telemetry")
        }

    assert samples(theirs) == samples(ours)


def test_an_sdk_of_opentelemetry_gets_all_numbers() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    try:
        with OpenTelemetryExporter(meter_provider=provider, shards_max=10) as exporter:
            exporter(consumer_event())
            exporter._drain()
            data = reader.get_metrics_data()
        told = {one.name: one for one in data.resource_metrics[0].scope_metrics[0].metrics}
        assert told["shardway.consumer.settled"].data.data_points[0].value == 17
        assert told["shardway.consumer.lag"].unit == "s"
        assert {point.value for point in told["shardway.shard.lag"].data.data_points} == {2.0, 3.0}
        (handled,) = told["messaging.process.duration"].data.data_points
        assert (handled.count, handled.sum) == (2, 0.5)
    finally:
        provider.shutdown()


def test_numbers_are_computed_once_for_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    looked: list[int] = []
    now = OpenTelemetryExporter._current_points

    def counted(exporter: OpenTelemetryExporter) -> Any:
        looked.append(1)
        return now(exporter)

    monkeypatch.setattr(OpenTelemetryExporter, "_current_points", counted)
    monkeypatch.setattr("shardway.telemetry.libraries.COLLECTION_S", 3600.0)
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    try:
        with OpenTelemetryExporter(meter_provider=provider) as exporter:
            exporter(consumer_event())
            settled = []
            for number in (1, 2, 3):
                data = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
                told = {one.name: one for one in data}
                settled.append(told["shardway.consumer.settled"].data.data_points[0].value)
                assert len(looked) == number
                exporter(consumer_event())
            assert settled == [17, 34, 51], "each collection has what came before it"
    finally:
        provider.shutdown()


def test_what_two_readers_ask_by_turns_is_never_old(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.metrics")
    monkeypatch.setattr("shardway.telemetry.libraries.COLLECTION_S", 0.0)
    with OpenTelemetryExporter() as exporter:
        exporter(consumer_event())
        (first,) = exporter._observe("shardway.consumer.settled")
        exporter(consumer_event())
        (second,) = exporter._observe("shardway.consumer.fetched")
        assert (first.value, second.value) == (17, 2 * consumer_event().snapshot.records_fetched)


def test_more_values_than_the_api_takes_are_counted() -> None:
    class Instrument:
        recorded = 0

        def record(self, value: float, attributes: Any) -> None:
            self.recorded += 1

    pytest.importorskip("opentelemetry.metrics")
    many, instrument = Histogram(), Instrument()
    many.add(1.0, 9_000)
    many.add(2.0, 9_000)
    with OpenTelemetryExporter() as exporter:
        exporter._record(instrument, many, {})
        assert (instrument.recorded, exporter.dropped) == (10_000, 8_000)
