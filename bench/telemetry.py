"""Measures what exporters of numbers cost beside none, a scrape of 1,000 shards, and when a standstill is seen.

``cost_*`` is the CPU of this process for each record, with the exporters for Prometheus, OTLP and CloudWatch beside
none, on the same backlog in turn. Those for OTLP and CloudWatch send to a server in another process each second.
``scrape_1000_shards_ms`` is the time of one scrape of a worker that tells the levels of 1,000 shards.
``calls_cloudwatch_1000_shards`` is the number of calls of PutMetricData for a minute of DETAILED with ShardId, for
each 1,000 metrics. ``stalled_seen_s`` is the time from a standstill until ``/metrics`` shows an age of a second. In a
standstill a handler hangs, reads begin to fail, or credentials expire. After those of a file have expired the consumer
goes on, and after those that the program gave have expired it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench._form import aside, cpu_s, judge, options, report, say, wanted
from bench._producing import wire
from bench.wire import CREDENTIALS, REGION, set_environment
from shardway.aws.options import ConnectionOptions
from shardway.errors import ShardwayError
from shardway.events import ConsumerMetrics
from shardway.events.consumer_snapshot import ShardLevels, WorkerLevels
from shardway.model import OutRecord
from shardway.options import BufferOptions, ProducerOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.producer.producer import Producer
from shardway.stores.memory import MemoryLeaseTable
from shardway.telemetry import CloudWatchExporter, OtlpExporter, PrometheusExporter, together
from shardway.telemetry.cloudwatch_datums import CloudWatchChoice, datums
from shardway.telemetry.cloudwatch_requests import requests
from shardway.telemetry.consumer_meter import ConsumerMeter
from shardway.testing import Fault, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench._form import Result

STREAM = "bench"
SHARDS = 4
RECORDS = 400_000
ROUNDS = 5
MANY_SHARDS = 1_000
EVERY_S = 1.0
AGE_SEEN_S = 1.0
DATA = b"x" * 100

SINK = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def sink() -> Iterator[str]:
    """Run a server that takes all that is posted, and yield its address."""
    process = subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def exporters(url: str) -> Iterator[Callable[[Any], None]]:
    """Open all three exporters that a process may have, and yield the function that takes the events."""
    with (
        PrometheusExporter(0) as prometheus,
        OtlpExporter(f"{url}/v1/metrics", every_s=EVERY_S) as otlp,
        CloudWatchExporter(every_s=EVERY_S, connection=wire(url)) as cloudwatch,
    ):
        yield together(prometheus, otlp, cloudwatch)


@contextlib.contextmanager
def nothing() -> Iterator[Callable[[Any], None]]:
    """Yield a function that takes the events and exports nothing."""
    yield lambda _: None


# --- what they cost -----------------------------------------------------------------------------------


async def consumed_us(service: str, on_event: Callable[[Any], None]) -> float:
    """Return the CPU microseconds of this process for each record of the backlog."""
    consumer: Any = Consumer(
        STREAM,
        application="bench",
        leases=MemoryLeaseTable(),
        starting_position="TRIM_HORIZON",
        buffer=BufferOptions(batch_records_max=500),
        connection=wire(service),
        on_event=on_event,
    )
    async with consumer:
        count, begun_s = 0, 0.0
        async for batch in consumer:
            begun_s = begun_s or cpu_s()
            with batch:
                count += len(batch)
            if count >= RECORDS:
                break
        return (cpu_s() - begun_s) / count * 1e6


async def produced_us(service: str, on_event: Callable[[Any], None]) -> float:
    """Return the CPU microseconds of this process for each record that is put."""
    free = ProducerOptions(pacing=False)  # a paced producer would keep to the limits of four shards
    producer: Any = Producer(STREAM, connection=wire(service), options=free, on_event=on_event)
    async with producer:
        begun_s = cpu_s()
        for at in range(0, RECORDS, 10_000):
            await producer.put_many([(f"k{number}", DATA) for number in range(at, at + 10_000)])
        await producer.flush()
        return (cpu_s() - begun_s) / RECORDS * 1e6


def cost(name: str, work: Callable[[str, Callable[[Any], None]], Any]) -> Result:
    """Measure one case with exporters and without, in turn. ``work`` returns the microseconds for each record."""
    ours: list[float] = []
    peer: list[float] = []
    with sink() as url, LocalKinesis.spawn(streams={STREAM: SHARDS}, limits=False) as service:
        aside(service.pid)
        asyncio.run(produced_us(service.endpoint_url, lambda _: None))
        for number in range(ROUNDS + 1):
            for figures, given in ((ours, exporters(url)), (peer, nothing())):
                if work is produced_us:
                    service.reset()  # the service forgets what was put
                with given as on_event:
                    figure = asyncio.run(work(service.endpoint_url, on_event))
                if number:
                    figures.append(figure)
    return judge(name, ours, peer, unit="µs/record", goal=1.03, sense="at_most", peer_name="no exporter")


# --- 1,000 shards -------------------------------------------------------------------------------------


def many_shards() -> ConsumerMetrics:
    """Return the numbers that a worker with 1,000 shards reports."""
    meter, levels = ConsumerMeter(0.0, per_shard=True), []
    for number in range(MANY_SHARDS):
        shard_id = f"shardId-{number:012d}"
        meter.delivered(STREAM, shard_id, 10, 1000)
        meter.handled(STREAM, shard_id, 0.01 + number / 1e5)
        meter.read(STREAM, shard_id, 0.005 + number / 1e5)
        levels.append(
            ShardLevels(
                stream=STREAM, shard_id=shard_id, millis_behind_latest=number, since_read_s=0.5,
                oldest_unsettled_s=1.5, lag_s=1.5, retention_used=0.001, records_held=5, bytes_held=500,
                records_in_flight=1,
            )
        )  # fmt: skip
    held = WorkerLevels(at_s=60.0, shards=tuple(levels), leases=MANY_SHARDS, workers=1, renewed_ago_s=1.0)
    return ConsumerMetrics(STREAM, "bench", "w", meter.interval(60.0, "w", held))


def scrapes_ms() -> list[float]:
    """Return the milliseconds for which a client waits for a page, by round."""
    found = []
    with PrometheusExporter(0, shards_max=MANY_SHARDS) as exporter:
        exporter(many_shards())
        for _ in range(ROUNDS + 1):
            begun_s = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", exporter.port)
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            connection.close()
            found.append((time.perf_counter() - begun_s) * 1000)
    return found[1:]


def calls_per_1000_metrics() -> float:
    """Return how many calls a minute takes, divided by the least number of calls for as many metrics."""
    found = datums([many_shards()], CloudWatchChoice(level="DETAILED", dimensions=("ShardId",)))
    return len(requests(found, 60.0)) / -(-len(found) // 1000)


# --- a standstill -------------------------------------------------------------------------------------


def age_s(port: int, name: str) -> float:
    """Return the highest value of a level on the page; 0.0 where it is not there."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    found = (float(one.rpartition(" ")[2]) for one in page.splitlines() if one.startswith(f"{name}{{"))
    return max(found, default=0.0)


class Standstill(NamedTuple):
    """A cause for which nothing goes on."""

    fault: Any
    """The fault with which the service answers; None where the handler hangs."""
    shown_by: str
    """The level that shows the standstill."""
    operation: str = "GetRecords"
    profile: str | None = None
    """The profile whose file has the credentials; None where the program gives them."""


STANDSTILLS = {
    "hangs": Standstill(None, "shardway_consumer_oldest_seconds"),
    "fails": Standstill("server_error", "shardway_consumer_since_read_seconds"),
    "expires": Standstill("expired_token", "shardway_consumer_since_read_seconds", operation="*", profile="bench"),
    "ends": Standstill("expired_token", "shardway_telemetry_age_seconds", operation="*"),
}


async def seen_s(how: Standstill) -> float:
    """Return the seconds from the standstill until the page shows it."""
    with PrometheusExporter(0) as exporter, LocalKinesis(streams={STREAM: 1}) as service:
        given = {"profile": how.profile} if how.profile else {"credentials": CREDENTIALS}
        connection = ConnectionOptions(region=REGION, endpoint_url=service.endpoint_url, **given)
        consumer: Any = Consumer(
            STREAM, application="bench", leases=MemoryLeaseTable(), starting_position="TRIM_HORIZON",
            connection=connection, on_event=exporter,
        )  # fmt: skip
        async with consumer:
            if how.fault is None:
                async with Producer(STREAM, connection=connection, on_event=lambda _: None) as producer:
                    await producer.put_many([OutRecord(DATA, "k")])
                (batch,) = await consumer.getmany()
                begun_s = time.perf_counter()
                time.sleep(AGE_SEEN_S)  # noqa: ASYNC251 - a handler that blocks the event loop, too
                found = await seen_after_s(begun_s, exporter.port, how)
                batch.ack()
                return found
            while consumer.statistics().millis_behind_latest is None:
                await asyncio.sleep(0.01)
            service.faults.add(Fault(how=how.fault, operation=how.operation))
            begun_s = time.perf_counter()
            # An error that ends the consumer is raised where a program waits for records.
            waiting = asyncio.create_task(consumer.getmany())
            found = await seen_after_s(begun_s, exporter.port, how)
            ended = waiting.done() and isinstance(waiting.exception(), ShardwayError)
            assert ended == (how.profile is None and how.fault == "expired_token")
            service.faults.clear()
            waiting.cancel()
            with contextlib.suppress(ShardwayError):
                await consumer.close()
            return found


async def seen_after_s(begun_s: float, port: int, how: Standstill) -> float:
    """Wait until the page has an age of a second, and return the seconds since ``begun_s``."""
    while await asyncio.to_thread(age_s, port, how.shown_by) < AGE_SEEN_S:
        await asyncio.sleep(0.05)
    return time.perf_counter() - begun_s


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Make a file with credentials, where the SDK looks for it while the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "credentials")
        file.write_text("[bench]\naws_access_key_id = ID\naws_secret_access_key = secret\n", encoding="utf-8")
        os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(file)
        try:
            yield
        finally:
            os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull


def stalled_s() -> float:
    """Return the seconds of the standstill that is seen last."""
    with profile():
        found = {name: asyncio.run(seen_s(how)) for name, how in STANDSTILLS.items()}
    say(", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.items()))
    return max(found.values())


def main() -> None:
    asked = options(__doc__ or "")
    set_environment()
    results: list[Result] = []
    for name, work in (("cost_consume", consumed_us), ("cost_produce", produced_us)):
        if wanted(name, asked):
            results.append(cost(name, work))
    if wanted("scrape_1000_shards_ms", asked):
        results.append(judge("scrape_1000_shards_ms", scrapes_ms(), unit="ms", goal=50.0, sense="at_most"))
    if wanted("calls_cloudwatch_1000_shards", asked):
        calls = [calls_per_1000_metrics()]
        results.append(judge("calls_cloudwatch_1000_shards", calls, unit="calls", goal=1.0, sense="at_most"))
    if wanted("stalled_seen_s", asked):
        seen = [stalled_s() for _ in range(3)]
        results.append(judge("stalled_seen_s", seen, unit="s", goal=5.0, sense="at_most"))
    report("telemetry", results, as_json=asked.json)


if __name__ == "__main__":
    main()
