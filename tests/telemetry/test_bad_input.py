"""What exporters meet: services that hang, refuse or answer garbage; odd names, many shards, a close during a scrape.
The work goes on, what is lost is counted and told once, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway import ConnectionOptions, Credentials, events
from shardway.errors import TransportError
from shardway.events.consumer_snapshot import OTHERS, SHARDS_MAX, WorkerLevels
from shardway.telemetry import CloudWatchExporter, OtlpExporter, PrometheusExporter, prometheus_page
from shardway.telemetry.consumer_meter import ConsumerMeter
from shardway.telemetry.exporting import Totals
from shardway.testing import VirtualLoop
from tests.telemetry.http_kit import Collector, get, until
from tests.telemetry.number_kit import consumer_event, producer_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)
HOUR_S = 3600.0


def left_behind() -> tuple[set[str], int]:
    """Threads of exporters, and open files and sockets."""
    threads = {one.name for one in threading.enumerate() if one.name.startswith("shardway-")}
    return threads, len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0


def is_no_more(before: tuple[set[str], int]) -> bool:
    """True where nothing is there that was not there before. What other tests left in this process, such as connections
    to Spark's Java, may be collected meanwhile: so there may be less.
    """
    threads, files = left_behind()
    return threads <= before[0] and files <= before[1]


@contextmanager
def server(answer: bytes | None) -> Iterator[int]:
    """A server that answers each request so, and closes; None: it takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ends = threading.Event()

        def serve() -> None:
            while not ends.is_set():
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    client.recv(65_536)
                    client.sendall(answer or b"")

        thread = threading.Thread(target=serve)
        if answer is not None:
            thread.start()
        yield listening.getsockname()[1]
        ends.set()
        if answer is not None:
            socket.create_connection(("127.0.0.1", listening.getsockname()[1])).close()
            thread.join()


def otlp(port: int) -> OtlpExporter:
    options = ConnectionOptions(region="eu-west-1", read_timeout_s=0.2, request_timeout_s=0.2, connect_timeout_s=0.2)
    return OtlpExporter(f"http://127.0.0.1:{port}/v1/metrics", every_s=0.01, connection=options)


def cloudwatch(port: int) -> CloudWatchExporter:
    options = ConnectionOptions(
        endpoint_url=f"http://127.0.0.1:{port}", region="eu-west-1", credentials=Credentials("id", "secret"),
        read_timeout_s=0.2, request_timeout_s=0.2, connect_timeout_s=0.2,
    )  # fmt: skip
    return CloudWatchExporter(every_s=0.01, connection=options)


@pytest.mark.parametrize("make", [otlp, cloudwatch], ids=["otlp", "cloudwatch"])
@pytest.mark.parametrize(
    "answer",
    [None, b"", b"\x00\xff garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
     b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"],
    ids=["hangs", "resets", "garbage", "half", "redirects"],
)  # fmt: skip
def test_a_service_that_is_no_use_is_told_once_and_leaves_nothing_behind(
    make: Callable[[int], Any], answer: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    before = left_behind()
    with server(answer) as port, caplog.at_level(logging.INFO, "shardway.telemetry"):
        exporter = make(port)
        tries = 0
        failed = exporter._handle_failure

        def counted(error: Exception) -> None:
            nonlocal tries
            tries += 1
            failed(error)

        exporter._handle_failure = counted
        exporter(consumer_event())
        until(lambda: tries > 1)
        exporter(consumer_event())
        until(lambda: not exporter._queue)
        exporter.close(timeout_s=1.0)
    until(lambda: is_no_more(before))
    lines = [one.getMessage() for one in caplog.records if one.name == "shardway.telemetry"]
    assert len([line for line in lines if "numbers are not taken" in line]) == 1


@pytest.mark.timeout(30)
def test_events_are_taken_while_a_service_hangs_and_a_close_does_not_wait_for_it() -> None:
    before = left_behind()
    with server(None) as port:
        exporter = OtlpExporter(f"http://127.0.0.1:{port}/v1/metrics", every_s=0.01)  # it would wait for a minute
        exporter(consumer_event())
        until(lambda: not exporter._queue)
        for _ in range(5_000):
            exporter(consumer_event())
            if len(exporter._queue) > 500:
                until(lambda: not exporter._queue)
        exporter.close(timeout_s=1.0)
    assert exporter.dropped == 0
    until(lambda: is_no_more(before))


class Away:
    """A service that is away until a time."""

    def __init__(self, until_s: float) -> None:
        self._until_s = until_s
        self.tries = 0
        self.taken: list[bytes] = []

    async def post(self, body: bytes, headers: object) -> bytes:
        self.tries += 1
        if asyncio.get_running_loop().time() < self._until_s:
            raise TransportError("no connection")
        self.taken.append(body)
        return b""

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("make", [otlp, cloudwatch], ids=["otlp", "cloudwatch"])
def test_a_collector_that_comes_back_after_an_hour_gets_everything(
    make: Callable[[int], Any], caplog: pytest.LogCaptureFixture
) -> None:
    exporter, away = make(1), Away(HOUR_S)
    exporter.every_s = 60.0
    exporter._process = os.getpid()  # its work is done on a loop in virtual time, and in no thread
    exporter._poster = away
    told = 0

    async def main() -> None:
        nonlocal told
        working = asyncio.create_task(exporter._work())
        while asyncio.get_running_loop().time() < 1.5 * HOUR_S:
            exporter(consumer_event())
            told += 1
            await asyncio.sleep(30.0)
        exporter._closed.set()
        await working

    with caplog.at_level(logging.INFO, "shardway.telemetry"), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert exporter.dropped == 0
    assert away.tries - len(away.taken) < 25, "it waits longer from one time to the next"
    records = [one.getMessage() for one in caplog.records if one.name == "shardway.telemetry"]
    assert len(records) == 2
    assert "numbers are taken again" in records[1]
    if make is cloudwatch:
        data = [one for body in away.taken for one in json.loads(body)["MetricData"]]
        delivered = [one for one in data if one["MetricName"] == "RecordsProcessed"]
        assert sum(one.get("Value", 0.0) for one in delivered) == 20.0 * told


def test_credentials_that_expire_lose_nothing(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    try:
        collector.status = 400
        collector.body = b'{"__type":"ExpiredTokenException","message":"The security token is expired"}'
        with caplog.at_level(logging.INFO, "shardway.telemetry"), cloudwatch(collector.server.server_port) as exporter:
            exporter(consumer_event())
            until(lambda: len(collector.got) > 2)
            assert exporter._waiting_requests
            collector.status, collector.body = 200, b"{}"
            until(lambda: not exporter._waiting_requests)
        assert exporter.dropped == 0
    finally:
        collector.close()
    lines = [one.getMessage() for one in caplog.records if one.name == "shardway.telemetry"]
    assert len([line for line in lines if "numbers are not taken" in line]) == 1


def test_each_character_that_a_name_may_have_is_read_back_from_the_page() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    stream = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-" + "x" * 62
    application = 'a "quoted\\ name"\nof two lines, {é}'
    totals = Totals()
    totals.add(consumer_event(stream=stream, application=application), 1.0)
    page = prometheus_page.encode([point for point, _ in totals.points(2.0)]).decode()
    labels = [
        sample.labels for family in parser.text_string_to_metric_families(page) for sample in family.samples
    ]  # fmt: skip
    assert {one["messaging_destination_name"] for one in labels} == {stream}
    assert {one["messaging_consumer_group_name"] for one in labels} == {application}


def test_ten_thousand_shards_are_a_bounded_page() -> None:
    event = consumer_event(shards=10_000)
    totals = Totals(200)
    totals.add(event, 1.0)
    page = prometheus_page.encode([point for point, _ in totals.points(2.0)]).decode().splitlines()
    of_shards = [line for line in page if line.startswith("shardway_shard_lag_seconds{")]
    assert len(of_shards) == 201
    assert sum(f'"{OTHERS}"' in line for line in of_shards) == 1
    assert len(page) < 3_000


def test_more_shards_than_are_told_apart_are_counted_together() -> None:
    meter = ConsumerMeter(0.0, per_shard=True)
    for number in range(SHARDS_MAX + 5):
        meter.delivered("orders", f"shardId-{number:012}", 1, 1)
    snapshot = meter.interval(1.0, "w", WorkerLevels(at_s=1.0))
    assert len(snapshot.per_shard) == SHARDS_MAX + 1
    assert snapshot.per_shard[f"orders/{OTHERS}"].records_delivered == 5


def test_two_consumers_of_one_process_are_one_sum_and_one_may_go() -> None:
    def told(worker: str, levels: WorkerLevels) -> events.ConsumerMetrics:
        snapshot = ConsumerMeter(1000.0).interval(1005.0, worker, levels)
        return events.ConsumerMetrics("orders", "billing", worker, snapshot)

    with PrometheusExporter(0) as exporter:

        def held() -> str:
            page = get(exporter.port)[1].splitlines()
            return next(line for line in page if line.startswith("aws_kinesis_client_current_leases")).split()[-1]

        (levels,) = consumer_event().snapshot.workers.values()
        exporter(told("one", levels))
        exporter(told("two", levels))
        assert held() == "4"
        exporter(told("one", WorkerLevels(at_s=1010.0, left=True)))
        assert held() == "2"


def test_a_scrape_during_a_close_gets_an_answer_or_none_and_leaves_nothing_behind() -> None:
    before = left_behind()
    for _ in range(5):
        exporter = PrometheusExporter(0)
        exporter(consumer_event())
        begun = threading.Barrier(4)
        ends = threading.Event()

        def scrape(port: int, begun: threading.Barrier, ends: threading.Event) -> None:
            begun.wait()
            while not ends.is_set():
                try:
                    assert get(port)[0] in (200, 503)
                except OSError:
                    return

        threads = [threading.Thread(target=scrape, args=(exporter.port, begun, ends)) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait()
        exporter(producer_event())
        exporter.close()
        ends.set()
        for thread in threads:
            thread.join()
    until(lambda: is_no_more(before))
