"""Exporters beside consumers: what they serve and send; and that nothing they meet slows the work, or ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import io
import json
import logging
import socket
import ssl
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from shardway import OptionError, events
from shardway.events.consumer_snapshot import WorkerLevels
from shardway.local.tls import make_certificate
from shardway.telemetry import (
    CloudWatchChoice,
    CloudWatchExporter,
    EmfExporter,
    OtlpExporter,
    PrometheusExporter,
    together,
)
from shardway.telemetry.consumer_meter import ConsumerMeter
from shardway.telemetry.exporting import Exporter
from shardway.telemetry.health import SILENCE_MIN_S, Health
from shardway.telemetry.prometheus import WAITING_MAX
from tests.telemetry.http_kit import Collector, get, until
from tests.telemetry.number_kit import consumer_event, producer_event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)


def left_event(worker: str = "worker-1", *, failed: bool = False) -> events.ConsumerMetrics:
    levels = WorkerLevels(at_s=1010.0, left=True, failed=failed)
    return events.ConsumerMetrics("orders", "billing", worker, ConsumerMeter(1005.0).interval(1010.0, worker, levels))


# --- the endpoint ---------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[PrometheusExporter]:
    with PrometheusExporter(0, shards_max=10) as exporter:
        yield exporter


def test_the_page_has_the_sum_of_all_events(endpoint: PrometheusExporter) -> None:
    for _ in range(3):
        endpoint(consumer_event())
    endpoint(producer_event())
    endpoint(events.KeysIgnored("orders"))
    status, page = get(endpoint.port)
    assert status == 200
    labels = 'messaging_system="aws.kinesis",messaging_destination_name="orders"'
    assert f'shardway_consumer_settled_total{{{labels},messaging_consumer_group_name="billing"}} 51\n' in page
    assert f"messaging_client_sent_messages_total{{{labels}}} 8\n" in page
    assert 'messaging_destination_partition_id="shardId-000000000001"' in page
    assert "shardway_telemetry_dropped_total" in page
    assert "shardway_telemetry_age_seconds" in page
    endpoint(left_event())
    assert "shardway_consumer_lag_seconds{" not in get(endpoint.port)[1], "a worker that has ended has no lag"
    assert (
        f'shardway_consumer_settled_total{{{labels},messaging_consumer_group_name="billing"}} 51\n'
        in get(endpoint.port)[1]
    )


def test_health_is_told_with_reasons(endpoint: PrometheusExporter) -> None:
    assert get(endpoint.port, "/health/live")[0] == 200
    status, why = get(endpoint.port, "/health/ready")
    assert (status, json.loads(why)["problems"]) == (503, ["no consumer and no producer has told its numbers yet"])
    endpoint(producer_event())
    assert get(endpoint.port, "/health/ready")[0] == 200
    endpoint(consumer_event())
    assert get(endpoint.port, "/health/ready")[0] == 503, "it holds leases, and has renewed none"


def test_health_by_what_is_told() -> None:
    health, event = Health(60.0), consumer_event()
    health.heard(event, 100.0)
    assert not health.ready(100.0).good
    (levels,) = event.snapshot.workers.values()
    renewed = WorkerLevels(at_s=1005.0, shards=levels.shards, renewed_ago_s=1.0)
    event.snapshot.workers = {"w": renewed, "worker-1": WorkerLevels(at_s=1.0)}
    health.heard(event, 100.0)
    assert health.ready(100.0).good
    assert health.live(100.0 + SILENCE_MIN_S).good
    late = health.live(101.0 + SILENCE_MIN_S)
    assert late.problems[0] == "orders: nothing was told for 16 s: the consumer's loop does not turn"
    ready = health.ready(165.0)
    assert "orders: the leases were last renewed 66 s ago" in ready.problems
    assert "orders, shardId-000000000000: no read has succeeded for 65 s" in ready.problems
    event.snapshot.workers = {name: WorkerLevels(at_s=2.0, left=True) for name in ("w", "worker-1")}
    health.heard(event, 166.0)
    assert health.live(1000.0).good, "what has ended is not missed"


def test_a_consumer_that_an_error_has_ended_is_missed_until_another_is_in_its_place(
    endpoint: PrometheusExporter,
) -> None:
    def age_s() -> float:
        page = get(endpoint.port)[1]
        return next(float(one.split()[-1]) for one in page.splitlines() if one.startswith("shardway_telemetry_age_"))

    endpoint(consumer_event())
    endpoint(left_event(failed=True))
    status, why = get(endpoint.port, "/health/live")
    assert (status, json.loads(why)["problems"]) == (503, ["orders: an error has ended the consumer"])
    until(lambda: age_s() > 0)
    event = consumer_event()
    event.snapshot.workers["worker-2"] = event.snapshot.workers.pop("worker-1")
    endpoint(event)
    assert get(endpoint.port, "/health/live")[0] == 200
    endpoint(left_event())
    endpoint(left_event("worker-2"))
    assert age_s() == 0, "what was closed is not missed"
    assert get(endpoint.port, "/health/live")[0] == 200


def test_a_producer_that_was_closed_is_not_missed(endpoint: PrometheusExporter) -> None:
    endpoint(producer_event())
    endpoint(events.ProducerMetrics("orders", producer_event().snapshot, last=True))
    assert (
        'shardway_telemetry_age_seconds{messaging_system="aws.kinesis",messaging_destination_name="orders"} 0'
        in (get(endpoint.port)[1])
    )


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /secret HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics HTTP/9\r\n\r\n", b"400"),
        (b"\x16\x03\x01 tls to a plain port\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", b"431"),
        (b"HEAD /metrics?x=1 HTTP/1.1\r\n\r\n", b"200"),
    ],
    ids=["method", "path", "version", "garbage", "long", "head"],
)
def test_odd_requests_get_an_answer(endpoint: PrometheusExporter, sent: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) as client:
        client.sendall(sent)
        answer = client.recv(1000)
    assert answer.split()[1] == status


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))


@pytest.mark.parametrize("count", [1, 16, 64, 512])
def test_clients_that_say_nothing_keep_no_probe_and_no_scrape_out(count: int) -> None:
    with PrometheusExporter(0) as exporter, contextlib.ExitStack() as silent:
        for turn in range(3 if count < WAITING_MAX else 1):
            for _ in range(count):
                silent.enter_context(connected(exporter.port))
            for path in ("/health/live", "/metrics"):
                assert get(exporter.port, path)[0] == 200, (turn, path)
        assert len(exporter._waiting_clients) <= WAITING_MAX


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize("addresses", [1, 16, 127])
def test_silent_clients_cut_off_no_probe_that_has_not_said_its_word_yet(addresses: int) -> None:
    """On a busy machine a probe may speak only when many others have connected since it did."""
    with PrometheusExporter(0) as exporter, contextlib.ExitStack() as silent:
        probe = silent.enter_context(connected(exporter.port))
        until(lambda: exporter._waiting_clients)
        for number in range(512):
            source = f"127.0.1.{1 + number % addresses}"
            silent.enter_context(connected(exporter.port, source))
        until(lambda: len(exporter._waiting_clients) == WAITING_MAX)
        probe.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
        assert probe.recv(100).startswith(b"HTTP/1.1 200")


def test_a_head_that_comes_a_byte_at_a_time_is_cut_off_and_one_that_is_whole_in_time_is_answered() -> None:
    with PrometheusExporter(0) as exporter:
        slow = [connected(exporter.port) for _ in range(16)]
        cut, until_s = 0, time.monotonic() + 30
        while cut < len(slow) and time.monotonic() < until_s:
            cut = 0
            for one in slow:
                try:
                    one.sendall(b"G")
                except OSError:
                    cut += 1
            assert get(exporter.port, "/health/live")[0] == 200
        assert cut == len(slow), "each is cut off, though it goes on sending"
        for one in slow:
            one.close()


def test_scrapes_that_are_not_taken_are_bounded_and_keep_no_probe_out() -> None:
    with PrometheusExporter(0, clients_max=2, shards_max=3_000) as exporter, contextlib.ExitStack() as stuck:
        exporter(consumer_event(shards=3_000))  # a page of some megabytes, which fits into no socket
        for _ in range(2):
            client = stuck.enter_context(connected(exporter.port))
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        until(lambda: len(exporter._scrape_clients) == 2)
        assert get(exporter.port)[0] == 503
        assert get(exporter.port, "/health/live")[0] == 200


def test_closing_beside_clients_that_say_nothing_or_take_nothing_prints_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as clients:
        with PrometheusExporter(0, shards_max=3_000) as exporter:
            exporter(consumer_event(shards=3_000))
            for _ in range(2):
                clients.enter_context(connected(exporter.port)).sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            until(lambda: len(exporter._scrape_clients) == 2)
            for _ in range(16):
                clients.enter_context(connected(exporter.port))
            until(lambda: exporter._waiting_clients)
        assert exporter._tasks == set()
    gc.collect()
    assert caplog.text == ""
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_an_error_at_once(endpoint: PrometheusExporter) -> None:
    with pytest.raises(OptionError, match=r"cannot listen on .*; give another one, or port 0"):
        PrometheusExporter(endpoint.port)
    with pytest.raises(OptionError, match="certificate: nowhere cannot be loaded"):
        PrometheusExporter(0, certificate="nowhere")
    with pytest.raises(OptionError, match="give the certificate, too"):
        PrometheusExporter(0, key="nowhere")
    with pytest.raises(OptionError, match="port is 0 to 65535"):
        PrometheusExporter(70_000)


def test_it_speaks_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "127.0.0.1")
    with PrometheusExporter(0, certificate=str(certificate), key=str(key)) as exporter:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", exporter.port, timeout=30, context=context)
        connection.request("GET", "/health/live")
        assert connection.getresponse().status == 200
        connection.close()


def test_a_closed_exporter_listens_no_more_and_takes_nothing(endpoint: PrometheusExporter) -> None:
    endpoint.close()
    endpoint.close()
    endpoint(consumer_event())
    with pytest.raises(OSError):
        get(endpoint.port)


# --- the queue ------------------------------------------------------------------------------------


class Stuck(Exporter):
    """Its thread never looks into the queue."""

    async def _work(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(0.01)


def test_a_full_queue_drops_the_oldest_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with Stuck("stuck", queue_events_max=3) as exporter, caplog.at_level(logging.INFO, "shardway.telemetry"):
        for _ in range(10):
            exporter(consumer_event())
        assert exporter.dropped == 7
        assert [record.getMessage() for record in caplog.records] == [
            "stuck: numbers are not taken: its queue is full (1 lost so far); the work goes on"
        ]
        assert exporter._points()[-1][0].value == 7


def test_an_event_that_cannot_be_taken_loses_nothing_else() -> None:
    class Odd(Exporter):
        def _take(self, event: Any) -> None:
            if isinstance(event, events.ProducerMetrics):
                raise KeyError("secret")
            taken.append(event)

    taken: list[Any] = []
    with Odd("odd") as exporter:
        exporter(producer_event())
        exporter(consumer_event())
        until(lambda: taken)
        assert exporter.dropped == 1


def test_several_subscribers_are_one() -> None:
    heard: list[Any] = []
    with PrometheusExporter(0) as exporter:
        both = together(heard.append, exporter)
        assert both.metrics_interval_s == 2.0
        both.at_once(producer_event())
        assert heard == []
        both(consumer_event())
        assert len(heard) == 1
        page = get(exporter.port)[1]
        assert "shardway_producer_pending" in page
        assert "shardway_consumer_lag" in page
    assert together(exporter).on_loop is None


# --- what is sent ---------------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_otlp_goes_to_a_collector_and_to_one_that_comes_back(collector: Collector) -> None:
    collector.status = 503
    with OtlpExporter(f"{collector.url}/v1/metrics", every_s=0.05, headers={"x-token": "t"}) as exporter:
        exporter(consumer_event())
        until(lambda: collector.got)
        collector.status = 200
        exporter(consumer_event())
        before = len(collector.got)
        until(lambda: len(collector.got) > before)
    headers, body = collector.got[-1]
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["x-token"] == "t"
    assert b"shardway.consumer.lag" in body
    assert b"service.instance.id" in body
    assert exporter.dropped == 0, "the next request has all that the refused ones had"


def test_otlp_is_signed_for_cloudwatch(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with OtlpExporter(f"{collector.url}/v1/metrics", every_s=0.05, sign_for="monitoring") as exporter:
        exporter(consumer_event())
        until(lambda: collector.got)
    headers, _ = collector.got[0]
    assert "/eu-west-1/monitoring/aws4_request" in headers["authorization"]


def test_a_collector_that_hangs_or_is_not_there_slows_nothing(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    exporters = [
        OtlpExporter(f"http://127.0.0.1:{port}/v1/metrics", every_s=0.02),
        OtlpExporter("http://nowhere.invalid/v1/metrics", every_s=0.02),
    ]
    with caplog.at_level(logging.INFO, "shardway.telemetry"):
        for exporter in exporters:
            for _ in range(100):
                exporter(consumer_event())
        until(lambda: len(caplog.records) == 2)
    for exporter in exporters:
        exporter.close()
    assert len([one for one in caplog.records if "numbers are not taken" in one.getMessage()]) == 2


def test_cloudwatch_gets_what_waited_when_it_is_back(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", collector.url)
    collector.status = 503
    with CloudWatchExporter(every_s=0.05) as exporter:
        exporter(consumer_event())
        until(lambda: collector.got)
        assert exporter._waiting_requests
        collector.status = 200
        exporter(producer_event())
        until(lambda: len(exporter._waiting_requests) == 0 and not exporter._events)
    taken = [json.loads(body) for _, body in collector.got]
    assert {one["Namespace"] for one in taken} == {"billing", "KinesisProducerLibrary"}
    assert collector.got[0][0]["x-amz-target"] == "GraniteServiceVersion20100801.PutMetricData"
    assert collector.got[0][1] == collector.got[1][1], "the same, with the time that it is of"
    assert exporter.dropped == 0


def test_what_cloudwatch_never_takes_does_not_hold_up_the_rest(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", collector.url)
    collector.status = 400
    with CloudWatchExporter(every_s=0.05) as exporter:
        exporter(consumer_event())
        until(lambda: exporter.dropped)
        assert not exporter._waiting_requests


def test_emf_lines_go_to_a_text() -> None:
    text = io.StringIO()
    with EmfExporter(CloudWatchChoice(namespace="mine"), every_s=60.0, to=text) as exporter:
        exporter(consumer_event())
        exporter(consumer_event())
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    assert {line["_aws"]["CloudWatchMetrics"][0]["Namespace"] for line in lines} == {"mine"}
    assert sum(line.get("RecordsProcessed", 0) for line in lines) == 40.0
    with pytest.raises(OptionError, match="every_s must be more than 0"):
        EmfExporter(every_s=0)
