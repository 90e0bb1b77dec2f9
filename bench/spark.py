"""Measures the Spark source in ``local[2]``, with the local Kinesis as a process beside it.

``rows_*`` and ``cpu_*``: A query with a noop sink reads a backlog in micro-batches. The first batch is start-up and
does not count. Rows per second are of the time that Spark gives for the batches that follow, except for the last, in
which the driver looks for the end of each shard. CPU is that of the JVM and of all Python processes that it started.

``plan_*`` and ``offset_*``: The driver's planner runs alone, on a stream of 2,000 shards. AWS's limits per shard and
call are switched on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench._form import Case, cpu_of_tree_s, judge, measure, options, report, say, wanted
from bench.spark_peers import RECORDS_PATH, ListsSource, StreamFacts, TuplesSource
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.core.hashkeys import even_ranges
from shardway.local.embedded import LocalKinesis
from shardway.model import IteratorAt, StartingPosition, StreamName
from shardway.spark.driver.planner import Planner, PlanOptions
from shardway.spark.options.read_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bench._form import Result
    from shardway.local.spawned import SpawnedKinesis

SHARDS = 4
KEY_BYTES = 10
ROUNDS = 5
START_UP_BATCHES = 1
SLOW_BATCHES = 1
"""The number of batches of the slow peer that a round measures. Our batches are all read."""
WRITTEN_PER_S = 3_000
"""The records per second of the service's time, which is within what four shards take."""
QUERY_TIMEOUT_S = 300.0
PLAN_SHARDS = 2_000
SILENT_SHARDS = 200
BUSY_SHARDS = 100


class Load(NamedTuple):
    """A stream to read, with its records, and how many of them a micro-batch takes."""

    name: str
    records: int
    data_bytes: int
    batch_records: int


LOADS = {
    "100b": Load("small-records", 960_000, 100, 320_000),
    "1kb": Load("large-records", 240_000, 1_000, 80_000),
}


class Measured(NamedTuple):
    rows_per_s: float
    cpu_us_per_row: float


# --- the stage --------------------------------------------------------------------------------------


async def fill(local: SpawnedKinesis, load: Load) -> StreamFacts:
    """Write the records evenly to the shards, and return what the stream holds, with their sequence numbers."""
    stream = StreamName(load.name)
    ranges = even_ranges(SHARDS)
    async with Wire(ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)) as wire:
        client = KinesisClient(wire)
        await client.call("CreateStream", {"StreamName": load.name, "ShardCount": SHARDS})

        for at in range(0, load.records, 500):
            entries = [
                PutEntry(os.urandom(load.data_bytes), f"key-{n:06d}", str(ranges[n % SHARDS][0]))
                for n in range(at, at + 500)
            ]
            answer = await client.put_records(stream, entries)
            assert answer.failed_record_count == 0
            local.clock.advance(500 / WRITTEN_PER_S)
        local.clock.advance(10)
        numbers: dict[str, list[int]] = {}
        for shard in await client.list_shards(stream):
            found = numbers[shard.shard_id] = []
            iterator: str | None = await client.get_shard_iterator(stream, shard.shard_id, IteratorAt.trim_horizon())
            while iterator is not None and len(found) < load.records // SHARDS:
                page = await client.get_records(iterator)
                found += [int(record.sequence_number) for record in page.records]
                iterator = page.next_shard_iterator
    assert sum(len(found) for found in numbers.values()) == load.records
    return StreamFacts(load.data_bytes, KEY_BYTES, numbers)


@contextlib.contextmanager
def session(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark as a user starts it, with the further settings ``more``, and stop it at the end. Its workers find
    the peers through PYTHONPATH.
    """
    from pyspark.sql import SparkSession

    root = Path(__file__).resolve().parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "src")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("shardway-bench")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    spark = builder.config(map=dict(more or {})).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for source in (TuplesSource, ListsSource):
        spark.dataSource.register(source)
    try:
        yield spark
    finally:
        spark.stop()


# --- queries ----------------------------------------------------------------------------------------


def run(
    spark: SparkSession, local: SpawnedKinesis, source: str, load: Load, batches_max: int | None = None
) -> Measured:
    """Read the stream from its beginning to its end, or ``batches_max`` batches of it, and return the figures. The
    first batch does not count.
    """
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # a session that runs has one
    folder = tempfile.mkdtemp(prefix="shardway-bench-")
    query = (
        spark.readStream.format(source)
        .option("streamName", load.name)
        .option("region", local.region)
        .option("endpointUrl", local.endpoint_url)
        .option("startingPosition", "TRIM_HORIZON")
        .option("maxRecordsPerTrigger", load.batch_records)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", folder)
        .start()
    )
    try:
        wait_for(query, START_UP_BATCHES)
        before_s, start_up = cpu_of_tree_s(jvm), done_batches(query)
        if batches_max is None:
            wait_for(query, rows=load.records)
        else:
            wait_for(query, len(start_up) + batches_max)
        cpu_s = cpu_of_tree_s(jvm) - before_s
        batches = done_batches(query)[len(start_up) :]
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    rows = sum(batch["numInputRows"] for batch in batches)
    steady = batches[: batches_max or -1]
    steady_s = sum(batch["durationMs"]["triggerExecution"] for batch in steady) / 1000
    return Measured(sum(batch["numInputRows"] for batch in steady) / steady_s, cpu_s / rows * 1e6)


def done_batches(query: StreamingQuery) -> list[Any]:
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def wait_for(query: StreamingQuery, batches: int = 0, rows: int = 0) -> None:
    """Wait until ``batches`` batches and ``rows`` rows are read. Raises TimeoutError after `QUERY_TIMEOUT_S`."""
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while True:
        done = done_batches(query)
        read = sum(progress["numInputRows"] for progress in done)
        if len(done) >= batches and read >= rows:
            assert rows in (0, read), f"{read} rows were read of {rows}"
            return
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"{read} rows in {len(done)} batches were read in {QUERY_TIMEOUT_S:.0f} s")
        time.sleep(0.02)


def _rows_per_s(measure: Callable[[], Measured]) -> float:
    return measure().rows_per_s


def _cpu_us_per_row(measure: Callable[[], Measured]) -> float:
    return measure().cpu_us_per_row


def query_cases(spark: SparkSession, local: SpawnedKinesis) -> list[Case]:
    cases = []
    for name, load in LOADS.items():
        ours = partial(run, spark, local, "shardway", load)
        tuples = partial(run, spark, local, "boto3_tuples", load, SLOW_BATCHES)
        lists = partial(run, spark, local, "arrow_lists", load)
        cases += [
            Case(
                name=f"rows_{name}",
                unit="rows/s",
                goal=2.5,
                sense="at_least",
                ours=partial(_rows_per_s, ours),
                peer=partial(_rows_per_s, tuples),
                peer_name="boto3 and tuples",
                rounds=3,
            ),
            Case(
                name=f"cpu_{name}",
                unit="us/row",
                goal=1.5,
                sense="at_most",
                ours=partial(_cpu_us_per_row, ours),
                peer=partial(_cpu_us_per_row, lists),
                peer_name="Arrow from lists, nothing read",
                rounds=ROUNDS,
            ),
        ]
    return cases


def query_results(asked: Any) -> list[Result]:
    """Start the server and the session, fill the streams, and measure the cases that the command line asks for."""
    names = [f"{kind}_{name}" for name in LOADS for kind in ("rows", "cpu")]
    if not any(wanted(name, asked) for name in names):
        return []
    folder = Path(tempfile.mkdtemp(prefix="shardway-bench-"))
    try:
        with LocalKinesis.spawn() as local:
            records = folder / "records"
            os.environ |= {**local.environment(), RECORDS_PATH: str(records)}
            facts = {load.name: asyncio.run(fill(local, load)) for load in LOADS.values()}
            records.write_bytes(pickle.dumps(facts))
            with session(folder) as spark:
                cases = [case for case in query_cases(spark, local) if wanted(case.name, asked)]
                return [told(measure(case)) for case in cases]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(result: Result) -> Result:
    say(f"{result.case}: {result.ours:,.4g} {result.unit}, ratio {result.ratio}")
    return result


# --- planning ---------------------------------------------------------------------------------------


class PlanFigures(NamedTuple):
    cold_s: float
    warm_s: float
    offset_bytes: int


async def put_to(client: KinesisClient, stream: StreamName, shards: range, records: int) -> None:
    """Put ``records`` records to each of these shards, at one moment of the service's time."""
    firsts = [str(first) for first, _ in even_ranges(PLAN_SHARDS)]
    entries = [PutEntry(os.urandom(100), f"key-{shard}", firsts[shard]) for shard in shards for _ in range(records)]
    for at in range(0, len(entries), 500):
        answer = await client.put_records(stream, entries[at : at + 500])
        assert answer.failed_record_count == 0


async def plan_round(local: SpawnedKinesis, number: int) -> PlanFigures:
    """Plan batches of a new stream, and return the figures.

    A first planner plans up to some offset. Then some shards are written to and fall silent for hours, and a few are
    busy. A cold planner, which knows no more than the offset, plans the next batch. It is warm when it plans the batch
    after that.
    """
    stream = StreamName(f"wide-{number}")
    settings = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, user_agent_tag="driver")
    async with Wire(settings) as wire:
        client = KinesisClient(wire)

        async def settled() -> None:
            """Move the service's time on, so that what was put is older than a cut. A call brings that time to the
            client.
            """
            local.clock.advance(10)
            await client.describe_stream_summary(stream)

        local.set_limits(per_shard=False)
        await client.call("CreateStream", {"StreamName": stream.name, "ShardCount": PLAN_SHARDS})
        await put_to(client, stream, range(PLAN_SHARDS), 1)
        await settled()
        first = Planner(client, stream, StartingPosition.TRIM_HORIZON, PlanOptions.of(ReadOptions()))
        await first.begin(None)
        stored = await first.plan()
        silent, busy = range(SILENT_SHARDS), range(SILENT_SHARDS, SILENT_SHARDS + BUSY_SHARDS)
        for _ in range(20):
            await put_to(client, stream, silent, 5)
            local.clock.advance(30)
        local.clock.advance(6 * 3600)
        await put_to(client, stream, busy, 5)
        await settled()
        local.set_limits(per_shard=True)

        planner = Planner(client, stream, StartingPosition.TRIM_HORIZON, PlanOptions.of(ReadOptions()))
        began_s = time.perf_counter()
        await planner.begin(stored)
        cold = await planner.plan()
        cold_s = time.perf_counter() - began_s
        assert len(planner.ranges(cold)) == SILENT_SHARDS + BUSY_SHARDS
        await put_to(client, stream, busy, 5)
        await settled()
        began_s = time.perf_counter()
        warm = await planner.plan()
        warm_s = time.perf_counter() - began_s
        assert len(planner.ranges(warm)) == BUSY_SHARDS
        await client.call("DeleteStream", {"StreamName": stream.name})
    return PlanFigures(cold_s, warm_s, max(len(json.dumps(one.to_dict())) for one in (cold, warm)))


def plan_results(asked: Any) -> list[Result]:
    """Measure three rounds, each on a new stream."""
    goals = {
        "plan_2000_cold_s": ("s", 5.0, "cold_s"),
        "plan_2000_warm_s": ("s", 2.0, "warm_s"),
        "offset_2000_bytes": ("bytes", 260_000, "offset_bytes"),
    }
    if not any(wanted(name, asked) for name in goals):
        return []
    with LocalKinesis.spawn(shard_quota=10_000) as local:
        os.environ |= local.environment()
        rounds = [asyncio.run(plan_round(local, number)) for number in range(3)]
    return [
        told(judge(name, [getattr(one, field) for one in rounds], unit=unit, goal=goal, sense="at_most"))
        for name, (unit, goal, field) in goals.items()
        if wanted(name, asked)
    ]


if __name__ == "__main__":
    arguments = options("The Spark source: rows per second, CPU per row, planning.")
    report("spark", [*query_results(arguments), *plan_results(arguments)], as_json=arguments.json)
