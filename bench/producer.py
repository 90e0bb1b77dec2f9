"""Measures the producer beside boto3: its rate, latency, memory, share of a shard, and what reshards lose.

``put_*``, ``plain_*`` and ``cpu_*`` put records of 100 bytes to a server of ready-made answers with four shards. Both
sides put from one thread of this process, and count until the last record is confirmed. Our producer does not pace
itself there, as no shard of the server has a limit. ``cpu_*`` and ``plain_100b_cpu`` are CPU time of this process, all
threads together.

The others put to the local Kinesis, or to a server that takes PutRecords and never answers. They put from processes of
their own, except for ``reshard_*``. ``latency_*``: Producer and service have one core each, and there are 16 shards.
``two_producers_*``: Two processes put to a shard with AWS's limits, once records of 1 kB and once aggregates of
500-byte records. The whole of 30 s from 20 s after their start counts, and the worse of the two loads. ``reshard_*``
is what a reader that follows the KCL's rules gets of 1,000 ordered keys.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import _readback
from bench._form import Case, apart, aside, cpu_of_s, cpu_s, judge, measure, options, report, say, wanted
from bench._producing import REGION, Programs, ticks, wire
from bench.canned import CannedServer
from bench.wire import BUSY_MAX, set_environment
from shardway import Producer, ProducerOptions
from shardway.errors import BufferFullError
from shardway.model import OutRecord, PutResult
from shardway.testing import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench._form import Result, Sense
    from shardway.local.spawned import SpawnedKinesis

STREAM = "orders-of-the-day"
DATA_BYTES = 100
KEYS = 1000
BOTO3_CALL_RECORDS = 500
OUR_CALL_RECORDS = 5_000
ROUNDS = 5

Pairs = list[tuple[str, bytes]]


# --- putting to ready-made answers ----------------------------------------------------------------------


class Records:
    """Fresh user records for each round. Text that was hashed or cached before would cost less."""

    def __init__(self, keys: int | None) -> None:
        self._keys = keys
        self._made = 0

    def make(self, count: int) -> Pairs:
        """Return the next ``count`` records, with the case's keys, or each with a key of its own."""
        keys = self._keys or 1 << 62
        numbers = range(self._made, self._made + count)
        self._made += count
        payload = os.urandom(DATA_BYTES * count)
        made = [
            (f"key-{number % keys:09d}", payload[at : at + DATA_BYTES])
            for number, at in zip(numbers, range(0, len(payload), DATA_BYTES), strict=True)
        ]
        gc.collect()
        return made


class Ours:
    """Our producer on a loop of its own, open for a whole case."""

    def __init__(self, endpoint_url: str, *, aggregation: bool) -> None:
        self._loop = asyncio.new_event_loop()
        self._producer = Producer(
            STREAM, options=ProducerOptions(aggregation=aggregation, pacing=False), connection=wire(endpoint_url)
        )
        self._loop.run_until_complete(self._producer.__aenter__())

    def put_many(self, pairs: Pairs) -> None:
        """Put all records, in calls of OUR_CALL_RECORDS, and wait until each is confirmed."""

        async def put() -> None:
            puts = [
                await self._producer.put_many(pairs[at : at + OUR_CALL_RECORDS])
                for at in range(0, len(pairs), OUR_CALL_RECORDS)
            ]
            for one in puts:
                await one.settled()
            assert all(len(one) == OUR_CALL_RECORDS for one in puts)
            assert all(type(result) is PutResult for result in puts[-1].results())

        self._loop.run_until_complete(put())

    def put_nowait(self, pairs: Pairs) -> None:
        """Put all records one by one, with a result object for each, and wait until each is confirmed."""

        async def put() -> None:
            put_nowait = self._producer.put_nowait
            handles = []
            for number, (key, data) in enumerate(pairs):
                record = OutRecord(data, key)
                try:
                    handles.append(put_nowait(record))
                except BufferFullError:
                    await handles[-1]
                    handles.append(put_nowait(record))
                if number % BOTO3_CALL_RECORDS == 0:
                    await asyncio.sleep(0)  # the producer sends nothing while the loop does not run
            for handle in handles:
                assert type(await handle) is PutResult

        self._loop.run_until_complete(put())

    def close(self) -> None:
        self._loop.run_until_complete(self._producer.__aexit__(None, None, None))
        self._loop.close()


class Boto3:
    """boto3's client, which puts in a loop of calls of 500 records."""

    def __init__(self, endpoint_url: str) -> None:
        import boto3

        self.name = f"boto3 {boto3.__version__}"
        self._client: Any = boto3.client("kinesis", region_name=REGION, endpoint_url=endpoint_url)

    def put(self, pairs: Pairs) -> None:
        """Put all records, and look whether all were taken."""
        for at in range(0, len(pairs), BOTO3_CALL_RECORDS):
            answer = self._client.put_records(
                StreamName=STREAM,
                Records=[{"Data": data, "PartitionKey": key} for key, data in pairs[at : at + BOTO3_CALL_RECORDS]],
            )
            assert answer["FailedRecordCount"] == 0

    def close(self) -> None:
        self._client.close()


def per_s(put: Callable[[Pairs], None], records: Records, count: int) -> float:
    """Run one round, and return the records confirmed per second."""
    pairs = records.make(count)
    began = time.perf_counter()
    put(pairs)
    return count / (time.perf_counter() - began)


def cpu_us(put: Callable[[Pairs], None], records: Records, count: int) -> float:
    """Run one round, and return the microseconds of this process's CPU per record (so seconds per million)."""
    pairs = records.make(count)
    began = cpu_s()
    put(pairs)
    return (cpu_s() - began) / count * 1e6


class Speed(NamedTuple):
    """A case that puts to the server of ready-made answers."""

    goal: float
    sense: Sense
    aggregation: bool
    keys: int | None
    """The number of partition keys; None where each record has its own."""
    our_records: int
    """The records of one round of ours."""
    figure: Callable[[Callable[[Pairs], None], Records, int], float] = per_s
    unit: str = "records/s"
    put: str = "put_many"
    beside_boto3: bool = True


CPU = "µs of CPU per record"
SPEEDS = {
    "put_many_1000_keys": Speed(10, "at_least", True, KEYS, 500_000),
    "put_many_distinct_keys": Speed(6, "at_least", True, None, 500_000),
    "put_nowait_1000_keys": Speed(5, "at_least", True, KEYS, 200_000, put="put_nowait"),
    "plain_100b": Speed(3, "at_least", False, KEYS, 200_000),
    "plain_100b_cpu": Speed(0.25, "at_most", False, KEYS, 200_000, cpu_us, CPU),
    "cpu_s_per_million": Speed(1.5, "at_most", True, KEYS, 500_000, cpu_us, "s", beside_boto3=False),
}
BOTO3_RECORDS = 50_000
"""The records of a round of boto3, which takes about as long as one of ours."""


def speed(name: str, server: CannedServer) -> Result:
    """Measure one case with a producer of its own."""
    of = SPEEDS[name]
    ours, peer = Ours(server.endpoint_url, aggregation=of.aggregation), Boto3(server.endpoint_url)
    records = Records(of.keys)
    case = Case(
        name=name,
        unit=of.unit,
        goal=of.goal,
        sense=of.sense,
        ours=partial(of.figure, getattr(ours, of.put), records, of.our_records),
        peer=partial(of.figure, peer.put, records, BOTO3_RECORDS) if of.beside_boto3 else None,
        peer_name=peer.name if of.beside_boto3 else None,
        rounds=ROUNDS,
    )
    began, busy_s = time.perf_counter(), cpu_of_s(server.pid)
    measured = measure(case)
    busy = (cpu_of_s(server.pid) - busy_s) / (time.perf_counter() - began)
    ours.close()
    peer.close()
    say(f"{name}: the canned server was busy for {busy:.0%} of the time")
    assert busy <= BUSY_MAX, "the canned server was the limit"
    return measured


# --- put to confirmed -----------------------------------------------------------------------------------

LATENCY_SHARDS = 16
LATENCIES = {
    "latency_p99_ms_1": (10, 1, 25.0),
    "latency_p99_ms_100": (10, 100, 10.0),
    "latency_p99_ms_10000": (60, 10_000, 10.0),
}
"""The goal in ms, the records/s, and the seconds, by case."""


def latency(name: str) -> list[Result]:
    """Measure the latency of one load on a fresh stream."""
    goal, rate_per_s, seconds = LATENCIES[name]
    with LocalKinesis.spawn(streams={STREAM: LATENCY_SHARDS}) as local, apart(local.pid), Programs() as programs:
        programs.start(
            "latency", endpoint_url=local.endpoint_url, stream=STREAM, rate_per_s=rate_per_s, seconds=seconds
        )
        took = programs.results(seconds + 60)[0]["latencies_s"]
    say(
        f"{name}: {len(took)} records in {seconds:.0f} s, median {percentile(took, 50) * 1e3:.2f} ms, "
        f"p99 {percentile(took, 99) * 1e3:.2f} ms, slowest {took[-1] * 1e3:.2f} ms"
    )
    assert len(took) >= 0.9 * rate_per_s * seconds, "the load fell behind its rate"
    return [judge(name, [percentile(took, 99) * 1e3], unit="ms", goal=goal, sense="at_most")]


def percentile(ascending: list[float], percent: float) -> float:
    """Return the least value that ``percent`` percent of the values do not exceed."""
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]


# --- the service does not answer ------------------------------------------------------------------------

STALL_S = 60.0
STALL_RATE_PER_S = 40_000.0
"""The records a second that are put. The buffer takes fewer, even after the first records have expired."""


def stalled() -> list[Result]:
    """Measure the growth of memory beside its bound. Records are put one by one and by lists, side by side, and the
    worse counts.
    """
    styles = ("put_nowait", "put_many")
    with CannedServer(stalled=True) as server, Programs() as programs:
        for style in styles:
            programs.start(
                "stalled", endpoint_url=server.endpoint_url, style=style, rate_per_s=STALL_RATE_PER_S, seconds=STALL_S
            )
        told = dict(zip(styles, programs.results(STALL_S + 60), strict=True))
    for style, one in told.items():
        say(f"stalled_growth, {style}: {json.dumps(one)}")
    shares = [one["grown_bytes"] / one["bound_bytes"] for one in told.values()]
    return [judge("stalled_growth", [max(shares)], unit="x the bound", goal=2, sense="at_most")]


# --- two at one shard -----------------------------------------------------------------------------------

SHARE_FROM_S = 20.0
SHARE_S = 30.0
SHARE_STREAMS = {"plain": (False, 1_000), "aggregated": (True, 500)}
"""The aggregation, and the bytes of a user record, by stream."""
RECORDS_PER_S_MAX = 1000
BYTES_PER_S_MAX = 1024 * 1024


def two_producers() -> list[Result]:
    """Measure what two processes get into one shard together, and how much of what they try is refused."""
    shares, refusals = [], []
    with LocalKinesis.spawn(limits=True, streams=dict.fromkeys(SHARE_STREAMS, 1)) as local, Programs() as programs:
        from_s = time.time() + SHARE_FROM_S
        for stream, (aggregation, data_bytes) in SHARE_STREAMS.items():
            for _ in range(2):
                programs.start(
                    "share",
                    endpoint_url=local.endpoint_url,
                    stream=stream,
                    aggregation=aggregation,
                    data_bytes=data_bytes,
                    from_s=from_s,
                    until_s=from_s + SHARE_S,
                )
        results = programs.results(SHARE_FROM_S + SHARE_S + 60)
        told = {stream: results[2 * number : 2 * number + 2] for number, stream in enumerate(SHARE_STREAMS)}
        local.set_limits(per_shard=False)
        for stream, both in told.items():
            sizes = [
                size for at_s, size in asyncio.run(_readback.arrivals(local, stream)) if 0 <= at_s - from_s < SHARE_S
            ]
            share = max(len(sizes) / RECORDS_PER_S_MAX, sum(sizes) / BYTES_PER_S_MAX) / SHARE_S
            refused = sum(one["records_refused"] for one in both)
            refusal = refused / (refused + sum(one["records_put"] for one in both))
            say(f"two producers, {stream}: {share:.1%} of the shard's limit, {refusal:.2%} refused, {json.dumps(both)}")
            shares.append(share)
            refusals.append(refusal)
    return [
        judge("two_producers_share", [min(shares)], unit="of the limit", goal=0.9, sense="at_least"),
        judge("two_producers_refused", [max(refusals)], unit="of the records", goal=0.05, sense="at_most"),
    ]


# --- resharding under load ------------------------------------------------------------------------------

RESHARD_RATE_PER_S = 10_000.0
RESHARD_PHASE_S = 4.0
"""Seconds of load on 4 shards, on 8, and on 4 again."""
SETTLE_S = 1.0
"""The seconds for which each reshard takes place."""


async def load_while_resharding(local: SpawnedKinesis, stream: str) -> int:
    """Put records numbered by key while the stream goes from 4 to 8 to 4 shards, and return how many were put."""
    producing = ProducerOptions(aggregation=True, ordered_by_key=True)
    kinesis = _readback.client(local)

    async def reshard() -> None:
        for count in (8, 4):
            await asyncio.sleep(RESHARD_PHASE_S)
            await kinesis.call(
                "UpdateShardCount", {"StreamName": stream, "TargetShardCount": count, "ScalingType": "UNIFORM_SCALING"}
            )

    async with Producer(stream, options=producing, connection=wire(local.endpoint_url)) as producer:
        resharding = asyncio.create_task(reshard())
        put = 0
        async for due in ticks(RESHARD_RATE_PER_S, 3 * RESHARD_PHASE_S):
            await producer.put_many([numbered(n) for n in due])
            put += len(due)
        await resharding
        await producer.flush(deadline_s=30)
        counted = producer.metrics()
    await kinesis.wire.close()
    failed = put - counted.user_records_put
    say(
        f"reshard: {put} put, {failed} not confirmed, {counted.aggregates_repeated} aggregates put again by shard, "
        f"{counted.duplicates_possible} records that may be there twice"
    )
    return put


def numbered(number: int) -> tuple[str, bytes]:
    """Return a record that tells how many of its key were before it."""
    return f"key-{number % KEYS:04d}", (b"%d" % (number // KEYS)).ljust(DATA_BYTES)


def lost_and_late(put: int, records: Pairs) -> tuple[int, int, int]:
    """Return how many records were lost, how many came after a later one of their key, and how many came again."""
    seen: set[tuple[str, int]] = set()
    last: dict[str, int] = {}
    late = 0
    for key, data in records:
        number = int(data)
        if (key, number) not in seen:
            seen.add((key, number))
            late += number < last.get(key, -1)
            last[key] = max(number, last.get(key, -1))
    return put - len(seen), late, len(records) - len(seen)


def resharded() -> list[Result]:
    """Measure, of what was put across two reshards, what is lost and out of order when it is read back."""
    with LocalKinesis.spawn(streams={STREAM: 4}, stream_settle_s=SETTLE_S) as local:
        local.clock.advance(SETTLE_S)
        put = asyncio.run(load_while_resharding(local, STREAM))
        read = asyncio.run(_readback.user_records(local, STREAM))
    lost, late, again = lost_and_late(put, read.records)
    say(
        f"reshard: {read.aggregates} aggregates, {read.dropped} of them dropped by the KCL's rule; "
        f"{lost} records lost, {late} out of order, {again} read twice"
    )
    return [
        judge("reshard_lost", [lost], unit="records", goal=0, sense="at_most"),
        judge("reshard_out_of_order", [late], unit="records", goal=0, sense="at_most"),
    ]


BEHAVIOUR: dict[tuple[str, ...], Callable[[], list[Result]]] = {
    **{(name,): partial(latency, name) for name in LATENCIES},
    ("stalled_growth",): stalled,
    ("two_producers_share", "two_producers_refused"): two_producers,
    ("reshard_lost", "reshard_out_of_order"): resharded,
}
"""The run that gives the results of one or more cases, by the names of the cases."""


def main() -> None:
    asked = options(__doc__ or "")
    set_environment()
    results: list[Result] = []
    if any(wanted(name, asked) for name in SPEEDS):
        with CannedServer() as server:
            aside(server.pid)
            results += [speed(name, server) for name in SPEEDS if wanted(name, asked)]
    for names, run in BEHAVIOUR.items():
        if any(wanted(name, asked) for name in names):
            results += run()
    report("producer", results, as_json=asked.json)


if __name__ == "__main__":
    main()
