"""Measures what 1,000 idle shards cost a consumer, how fast it reads a backlog beside boto3, and the time to a handler.

``idle_*``: One process holds 1,000 shards, polls each once a second, and has its leases in DynamoDB. ``rows_*`` and
``cpu_*``: A consumer reads a backlog through ``async for batch`` with an empty handler, and boto3 reads the same one
by ``get_records`` in a loop, each from one thread. The figures count from the first batch on. The local Kinesis has a
core of its own and no limits per shard. ``held_of_bound``: The handlers of a process hang over a backlog of 64 shards.
``latency_*``: Another process puts 1,000 records/s to four shards with AWS's limits. With ``_http2`` the subscriptions
share a connection.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench._dynamo import dynamodb
from bench._form import apart, aside, cpu_of_s, cpu_s, judge, options, report, say, wanted
from bench._producing import REGION, ROOT, Programs, wire
from bench._requests import KINESIS, call
from bench.local import put_requests
from bench.wire import BUSY_MAX, set_environment
from shardway.runtime.consumer.consumer import Consumer
from shardway.stores.memory import MemoryLeaseTable
from shardway.testing import LocalKinesis

if TYPE_CHECKING:
    from argparse import Namespace

    from bench._form import Result
    from shardway.local.spawned import SpawnedKinesis

MIB = 1024 * 1024
STREAM = "bench"
ROUNDS = 5
SHARDS = 4
BACKLOG_PER_SHARD = 150_000
PEER_RECORDS = 100_000
IDLE_SHARDS = 1_000
IDLE_SETTLE_S = 10.0
HELD_SHARDS = 64
HELD_RECORDS = 1_000_000
HELD_BYTES_MAX = 256 * MIB
"""The default bound of a consumer's memory. The records of the backlog take 427 MiB."""
IDLE_S = 20.0
RATE_PER_S = 1_000
WARM_UP_S = 8.0
LATENCY_S = 30.0


# --- 1,000 shards without records -----------------------------------------------------------------------


def idle_results(asked: Namespace) -> list[Result]:
    """Measure the CPU and the memory of a process that holds idle shards."""
    if not (wanted("idle_1000_core", asked) or wanted("idle_1000_mib", asked)):
        return []
    with (
        dynamodb() as leases,
        LocalKinesis.spawn(streams={STREAM: IDLE_SHARDS}, shard_quota=IDLE_SHARDS, limits=True) as service,
    ):
        aside(service.pid)
        given: dict[str, Any] = {
            "kinesis": service.endpoint_url,
            "dynamodb": leases,
            "stream": STREAM,
            "shards": IDLE_SHARDS,
        }
        with started("idle", **given, settle_s=IDLE_SETTLE_S, seconds=IDLE_S) as process:
            begun = line(process)
            service.reset_stats()
            told = line(process)
            polls = service.stats().calls("GetRecords") / IDLE_S / IDLE_SHARDS
    say(
        f"idle: all held after {begun['held_s']:.1f} s; {polls:.2f} polls per shard and second; "
        f"{told['most'] / MIB:,.0f} MiB at most"
    )
    core = told["core"] / min(1.0, polls)  # the figure is for all polls, also where the machine has no time for them
    return [
        judge("idle_1000_core", [core], unit="cores", goal=0.3, sense="at_most"),
        judge("idle_1000_mib", [told["resident"] / MIB], unit="MiB", goal=300, sense="at_most"),
    ]


# --- a backlog ------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """The figures of one round."""

    records_per_s: float
    cpu_us: float
    """CPU microseconds of this process, per record."""


class Meter:
    """The count of a round's records. It begins with the first page, so that no start is measured."""

    def __init__(self) -> None:
        self.records = 0
        self._first = 0
        self._began_s = self._cpu_s = math.nan

    def add(self, records: int) -> None:
        """Count records that came."""
        if not self.records:
            self._first, self._began_s, self._cpu_s = records, time.perf_counter(), cpu_s()
        self.records += records

    def read(self) -> Read:
        """Return the figures of the round."""
        took_s, cpu, records = time.perf_counter() - self._began_s, cpu_s() - self._cpu_s, self.records - self._first
        return Read(records / took_s, cpu / records * 1e6)


async def ours(endpoint_url: str, records: int) -> Read:
    """Read the whole backlog through a consumer that begins at the oldest record, and return the figures."""
    meter = Meter()
    async with Consumer(
        STREAM,
        application="bench",
        leases=MemoryLeaseTable(),
        starting_position="TRIM_HORIZON",
        connection=wire(endpoint_url),
    ) as consumer:
        async for batch in consumer:
            with batch:
                meter.add(len(batch))
            if meter.records >= records:
                return meter.read()
    raise AssertionError("the consumer has ended by itself")


def boto3_loop(client: Any, records: int) -> Read:
    """Read ``records`` records of the backlog with boto3, shard by shard in turn, and return the figures."""
    meter = Meter()
    iterators = [
        client.get_shard_iterator(
            StreamName=STREAM, ShardId=f"shardId-{number:012d}", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        for number in range(SHARDS)
    ]
    while meter.records < records:
        for number, iterator in enumerate(iterators):
            page = client.get_records(ShardIterator=iterator, Limit=10_000)
            meter.add(len(page["Records"]))
            iterators[number] = page["NextShardIterator"]
    return meter.read()


def fill(service: SpawnedKinesis, records: int = SHARDS * BACKLOG_PER_SHARD) -> int:
    """Put a backlog of at least ``records`` records, and return how many it has."""
    port = int(service.endpoint_url.rpartition(":")[2])
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in put_requests(STREAM)]
    put = 0
    while put < records:
        body = bodies[put // 500 % len(bodies)]
        call(port, KINESIS, "PutRecords", body)
        put += len(body["Records"])
    return put


def backlog_results(asked: Namespace) -> list[Result]:
    """Measure the consumer and boto3, turn by turn, on the same records."""
    import boto3

    if not (wanted("rows_100b", asked) or wanted("cpu_100b", asked)):
        return []
    mine, peers = [], []
    busy = 0.0
    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as service, apart(service.pid):
        client: Any = boto3.client("kinesis", region_name=REGION, endpoint_url=service.endpoint_url)
        records = fill(service)
        for turn in range(ROUNDS + 1):
            began_s, server_s = time.perf_counter(), cpu_of_s(service.pid)
            one = asyncio.run(ours(service.endpoint_url, records))
            share = (cpu_of_s(service.pid) - server_s) / (time.perf_counter() - began_s)
            other = boto3_loop(client, PEER_RECORDS)
            if turn:
                mine.append(one)
                peers.append(other)
                busy = max(busy, share)
    say(f"backlog: the local Kinesis was busy for {busy:.0%} of our time at most")
    assert busy <= BUSY_MAX, "the server was the limit"
    name = f"boto3 {boto3.__version__}"
    return [
        judge("rows_100b", [one.records_per_s for one in mine], [one.records_per_s for one in peers],
              unit="records/s", goal=8, sense="at_least", peer_name=name),
        judge("cpu_100b", [one.cpu_us for one in mine], [one.cpu_us for one in peers],
              unit="us/record", goal=0.125, sense="at_most", peer_name=name),
    ]  # fmt: skip


# --- memory ---------------------------------------------------------------------------------------------


def held_results(_asked: Namespace) -> list[Result]:
    """Measure by how much a process grows that holds all it may of a backlog, beside its bound. The C library keeps
    memory of answers that were freed for later ones, unless an environment variable says that it gives large blocks
    back.
    """
    results = []
    with LocalKinesis.spawn(streams={STREAM: HELD_SHARDS}) as service:
        records = fill(service, HELD_RECORDS)
        given: dict[str, Any] = {"kinesis": service.endpoint_url, "stream": STREAM, "buffer_bytes_max": HELD_BYTES_MAX}
        for name, environment, goal in (
            ("held_of_bound", {}, 1.5),
            ("held_of_bound_given_back", {"MALLOC_MMAP_THRESHOLD_": "131072"}, 1.1),
        ):
            with started("hangs", environment=environment, **given) as process:
                told = line(process)
            say(
                f"{name}: {records:,} records of 100 B in {HELD_SHARDS} shards; the process grew by "
                f"{told['grown'] / MIB:,.0f} MiB, at most {told['most'] / MIB:,.0f}; it counts "
                f"{told['held'] / MIB:,.0f} of {HELD_BYTES_MAX / MIB:,.0f}"
            )
            share = told["grown"] / HELD_BYTES_MAX
            results.append(judge(name, [share], unit="of the bound", goal=goal, sense="at_most"))
    return results


# --- put to handler -------------------------------------------------------------------------------------


def latency_result(name: str, goal: float, *, fan_out: bool, http2: bool = False) -> Result:
    """Measure the 99th percentile of the latencies of half a minute's records."""
    with (
        dynamodb() as leases,
        LocalKinesis.spawn(streams={STREAM: SHARDS}, limits=True) as service,
        Programs() as programs,
    ):
        aside(service.pid)
        now_s = time.time()
        from_s, until_s = now_s + WARM_UP_S, now_s + WARM_UP_S + LATENCY_S
        given: dict[str, Any] = {
            "kinesis": service.endpoint_url,
            "dynamodb": leases,
            "stream": STREAM,
            "fan_out": fan_out,
            "http2": http2,
        }
        with started("latency", **given, from_s=from_s, until_s=until_s) as process:
            line(process)
            programs.start(
                "timed", endpoint_url=service.endpoint_url, stream=STREAM, rate_per_s=RATE_PER_S,
                seconds=until_s - time.time(),
            )  # fmt: skip
            ages_ms = sorted(1e3 * age_s for age_s in line(process)["ages_s"])
            busy = cpu_of_s(service.pid) / (time.time() - now_s)
        stats = service.stats()
        refused = sum(count.errors for count in stats.operations.values())
        calls = stats.calls("GetRecords") / (time.time() - now_s) / SHARDS
    p50, p99 = ages_ms[len(ages_ms) // 2], ages_ms[math.ceil(0.99 * len(ages_ms)) - 1]
    say(
        f"{name}: {len(ages_ms):,} records, p50 {p50:.1f} ms, most {ages_ms[-1]:.1f} ms; {calls:.2f} GetRecords per "
        f"shard and second, {refused} errors; the local Kinesis at {busy:.0%} of its core"
    )
    assert len(ages_ms) >= 0.9 * RATE_PER_S * LATENCY_S, "not all records came"
    return judge(name, [p99], unit="ms", goal=goal, sense="at_most")


# --- starting consumers ---------------------------------------------------------------------------------


class started:  # noqa: N801  (reads as the verb that it is)
    """A program of `bench._consuming` that runs while the block lasts."""

    def __init__(self, what: str, *, environment: dict[str, str] | None = None, **arguments: Any) -> None:
        self._environment = {**os.environ, **(environment or {})}
        self._command = [sys.executable, "-m", "bench._consuming", what, json.dumps(arguments)]

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, cwd=ROOT, env=self._environment)
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the JSON object in the next line that the process prints."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise RuntimeError("a consumer has ended: see its message above")
    said: dict[str, Any] = json.loads(text)
    return said


def main() -> None:
    asked = options(__doc__ or "")
    set_environment()
    results = idle_results(asked) + backlog_results(asked)
    if wanted("held_of_bound", asked) or wanted("held_of_bound_given_back", asked):
        results += held_results(asked)
    for name, goal, fan_out in (("latency_p99_ms_polling", 260.0, False), ("latency_p99_ms_fanout", 60.0, True)):
        if wanted(name, asked):
            results.append(latency_result(name, goal, fan_out=fan_out))
    if wanted("latency_p99_ms_fanout_http2", asked):
        results.append(latency_result("latency_p99_ms_fanout_http2", 60.0, fan_out=True, http2=True))
    report("consume", [result for result in results if wanted(result.case, asked)], as_json=asked.json)


if __name__ == "__main__":
    main()
