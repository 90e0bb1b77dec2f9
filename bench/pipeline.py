"""Measures pipelines on Spark in ``local[2]``: the runner's cost, the sink beside boto3, a killed executor, latency.

``runner_overhead`` compares a job file (JSON decode, de-duplication, Parquet, dead letters) with the same written by
hand in plain PySpark with the same public functions. Both run turn by turn in one session. The rows/s are of the time
that Spark gives for the batches behind the first. The program also prints the rows/s of Spark's own functions alone,
which promise less.

``job_rows_large`` and ``job_rows_small`` compare the same job file, in batches of 400,000 and of 40,000 records, with
Spark's own functions. These promise less: no dead letters, no check of types, Spark's file log. ``job_rows_equal``
compares the large batches with plain PySpark that has equal promises and none of our functions.

``window_rows`` compares counts and sums by minute and 10,000 keys, over a million records, by a job file with
``[window]`` and in plain PySpark, without dead letters or a check of types.

``sink_rows_100b``: Rows of 100 bytes go from a cached DataFrame to a server of ready-made answers, with so many shards
that no shard's limit counts. The case compares ``format("shardway")`` with aggregation with ``foreachPartition`` with
boto3.

``cluster_kill_recovery_s`` is the time from an executor's kill to the next committed batch, with two workers.

``latency_p99_s``: A steady 2,000 rows/s of JSON go through the job file with a trigger of 1 s. The time is from the
put to the first look that finds the row's Parquet file in its folder. ``latency_p99_s_continuous`` is the same without
a trigger interval.

``foreach_p50_ms`` and ``foreach_p99_ms``: A steady 500 rows/s go through two shards to ``foreachBatch``, which collects
them, in plain PySpark with Spark's defaults: without a trigger. The time is from the put to the end of the collect.

``state_10m`` compares the rows/s of ``shardway run`` with ten million keys in the state of the de-duplication with
those with an empty state. ``state_10m_memory`` is the most that all its processes had in memory meanwhile. Both are
not measured in the session, and take long.

``first_batch_s`` is the time from the start of ``shardway run``, in a process of its own, to the first Parquet file in
its folder.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from bench import _pipelines
from bench._form import Case, aside, cpu_of_s, judge, looking, measure, options, report, say, wanted
from bench._pipelines import BotoPartition, Scene, fill
from bench._producing import Programs
from bench._state import state_10m
from bench._windows import window_rows
from bench.canned import CannedServer
from bench.spark import session
from bench.wire import BUSY_MAX, set_environment
from shardway.local.embedded import LocalKinesis
from shardway.pipeline.job.run.stopping import Stopping
from shardway.pipeline.job.session.session import least_work
from shardway.pipeline.job.session.state_store import STATE_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from bench._form import Result
    from shardway.local.spawned import SpawnedKinesis

STREAM = "orders-of-the-day"
SHARDS = 4
SHUFFLE_PARTITIONS = "2"
JOB_DEFAULTS = {"spark.python.sql.dataFrameDebugging.enabled": "false", **STATE_SETTINGS}
"""The settings that ``shardway run`` makes by default, beside ``least_work``. Both sides of a comparison get them."""


@contextmanager
def new_folder() -> Iterator[Path]:
    """Make a folder for one round, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="shardway-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- what the runner costs ---------------------------------------------------------------------------------

RECORDS = 160_000
BATCH_RECORDS = 40_000
REPEAT_EVERY = 100
"""One record in this many is a copy of a record that is a little before it."""
BROKEN_EVERY = 1_000
RUNNER_ROUNDS = 4


def orders_and_broken(count: int = RECORDS) -> tuple[list[bytes], int, int]:
    """Return the records of the stream, and how many orders and how many broken records there are, each counted
    once.
    """
    records: list[bytes] = []
    orders = broken = 0
    for number in range(count):
        if number % BROKEN_EVERY == BROKEN_EVERY - 1:
            records.append(b'{"order_id": "order-%09d", "customer":' % number)
            broken += 1
        elif number % REPEAT_EVERY == REPEAT_EVERY - 1:
            records.append(records[-REPEAT_EVERY // 2])
        else:
            records.append(json.dumps(_pipelines.order(number)).encode())
            orders += 1
    return records, orders, broken


def runner_overhead(spark: SparkSession) -> Result:
    """Measure the same rows through the job file and by hand, in turn."""
    records, orders, broken = orders_and_broken()

    def round_of(run: Callable[[Scene], float], *, dead_letters: bool = True) -> float:
        with new_folder() as folder:
            scene = Scene(spark, local, STREAM, BATCH_RECORDS, folder)
            rows_per_s = run(scene)
            found = scene.rows_in("orders"), scene.rows_in("dead") if dead_letters else broken
            assert found == (orders, broken), f"{found} orders and dead letters were written of {(orders, broken)}"
            return rows_per_s

    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as local:
        os.environ |= local.environment()
        asyncio.run(fill(local, STREAM, records))
        case = Case(
            name="runner_overhead",
            unit="rows/s",
            goal=0.95,
            sense="at_least",
            ours=lambda: round_of(_pipelines.job_rows_per_s),
            peer=lambda: round_of(_pipelines.by_hand_rows_per_s),
            peer_name="by hand",
            rounds=RUNNER_ROUNDS,
        )
        result = measure(case)
        own = round_of(_pipelines.own_functions_rows_per_s, dead_letters=False)
    say(f"runner_overhead: Spark's own functions alone, without dead letters or a check of types: {own:,.0f} rows/s")
    return result


# --- a job file beside others ------------------------------------------------------------------------------

JOB_ROUNDS = 5
OWN, EQUAL = "Spark's own functions, which promise less", "plain PySpark with equal promises"


class JobCase(NamedTuple):
    """A case that compares a job file with another way to read the same stream."""

    records: int
    batch_records: int
    peer: Callable[[Scene], float]
    peer_name: str
    keeps_dead_letters: bool
    goal: float


JOB_CASES = {
    "job_rows_large": JobCase(1_200_000, 400_000, _pipelines.own_functions_rows_per_s, OWN, False, 0.8),
    "job_rows_equal": JobCase(1_200_000, 400_000, _pipelines.equal_by_hand_rows_per_s, EQUAL, True, 1.5),
    "job_rows_small": JobCase(160_000, 40_000, _pipelines.own_functions_rows_per_s, OWN, False, 1.1),
}


def settings_of(spark: SparkSession) -> str:
    """Return the settings that both sides run with, as one line of ``name=value``."""
    given = dict(spark.sparkContext.getConf().getAll())
    for name in ("spark.sql.shuffle.partitions", "spark.sql.streaming.checkpointFileManagerClass"):
        given[name] = str(spark.conf.get(name, "")).rpartition(".")[2]
    passing = (
        "app.",
        "driver.port",
        "executor.id",
        "sql.warehouse",
        "driver.host",
        "driver.bindAddress",
        "repl",
        "ui.",
    )
    shown = {
        name.removeprefix("spark."): value
        for name, value in given.items()
        if not name.removeprefix("spark.").startswith(passing) and "extraJavaOptions" not in name
    }
    return ", ".join(f"{name}={value}" for name, value in sorted(shown.items()))


def job_rows(spark: SparkSession, name: str) -> Result:
    """Measure a job file and its peer, which read the same stream to its end, in turn. The server must not be the
    limit.
    """
    wanted_case = JOB_CASES[name]
    records, orders, broken = orders_and_broken(wanted_case.records)
    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as local:
        os.environ |= local.environment()
        asyncio.run(fill(local, STREAM, records))

        def round_of(run: Callable[[Scene], float], *, dead_letters: bool) -> float:
            with new_folder() as folder:
                scene = Scene(spark, local, STREAM, wanted_case.batch_records, folder)
                rows_per_s = run(scene)
                found = scene.rows_in("orders"), scene.rows_in("dead") if dead_letters else broken
                assert found == (orders, broken), f"{found} orders and dead letters of {(orders, broken)}"
                return rows_per_s

        began, busy_s = time.perf_counter(), cpu_of_s(local.pid)
        result = measure(
            Case(
                name=name,
                unit="rows/s",
                goal=wanted_case.goal,
                sense="at_least",
                ours=lambda: round_of(_pipelines.job_rows_per_s, dead_letters=True),
                peer=lambda: round_of(wanted_case.peer, dead_letters=wanted_case.keeps_dead_letters),
                peer_name=wanted_case.peer_name,
                rounds=int(os.environ.get("BENCH_JOB_ROUNDS", JOB_ROUNDS)),
            )
        )
        busy = (cpu_of_s(local.pid) - busy_s) / (time.perf_counter() - began)
    say(f"{name}: both sides with {settings_of(spark)}")
    say(f"{name}: the local Kinesis was busy for {busy:.0%} of the time")
    assert busy <= BUSY_MAX, "the local Kinesis was the limit"
    return result


# --- the sink ------------------------------------------------------------------------------------------------

SINK_SHARDS = 64
SINK_DATA_BYTES = 100
SINK_KEYS = 1_000
SINK_PARTITIONS = 4
OUR_ROWS = 400_000
BOTO3_ROWS = 100_000
"""The rows of a round of boto3, which takes about as long as one of ours."""
SINK_ROUNDS = 4


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """Return ``count`` rows to write, which are in the memory of the executors."""
    made = spark.range(0, count, 1, SINK_PARTITIONS).selectExpr(
        f"concat('key-', lpad(id % {SINK_KEYS}, 4, '0')) AS partition_key",
        f"cast(rpad(sha2(cast(id AS string), 256), {SINK_DATA_BYTES}, 'x') AS binary) AS data",
    )
    kept = made.persist()
    assert kept.count() == count
    return kept


def per_s(write: Callable[[], object], count: int) -> float:
    """Return the rows per second of one write, with all of Spark's job."""
    began = time.perf_counter()
    write()
    return count / (time.perf_counter() - began)


def sink_rows(spark: SparkSession) -> Result:
    """Measure our sink and boto3, which both write cached rows. After each round of boto3 the count of the server must
    have grown by as many entries.
    """
    import boto3

    set_environment()
    os.environ["BENCH_CANNED_SHARDS"] = str(SINK_SHARDS)
    with CannedServer() as server:
        aside(server.pid)
        region = "us-east-1"
        where = {"streamName": STREAM, "region": region, "endpointUrl": server.endpoint_url, "aggregation": "true"}
        ours, boto3s = rows_of(spark, OUR_ROWS), rows_of(spark, BOTO3_ROWS)
        by_boto3 = BotoPartition(STREAM, region, server.endpoint_url)

        def write_ours() -> None:
            ours.write.format("shardway").options(**where).mode("append").save()

        def write_boto3s() -> None:
            before = server.stats()["put_entries"]
            boto3s.foreachPartition(by_boto3)
            assert server.stats()["put_entries"] - before == BOTO3_ROWS

        case = Case(
            name="sink_rows_100b",
            unit="rows/s",
            goal=4,
            sense="at_least",
            ours=lambda: per_s(write_ours, OUR_ROWS),
            peer=lambda: per_s(write_boto3s, BOTO3_ROWS),
            peer_name=f"foreachPartition, boto3 {boto3.__version__}",
            rounds=SINK_ROUNDS,
        )
        began, busy_s = time.perf_counter(), cpu_of_s(server.pid)
        measured = measure(case)
        busy = (cpu_of_s(server.pid) - busy_s) / (time.perf_counter() - began)
        say(f"sink_rows_100b: the canned server was busy for {busy:.0%} of the time")
        assert busy <= BUSY_MAX, "the canned server was the limit"
        for kept in (ours, boto3s):
            kept.unpersist()
    return measured


# --- put to file -----------------------------------------------------------------------------------------------

LATENCY_PER_S = 2_000.0
LATENCY_WARM_UP_S = 20.0
LATENCY_S = 30.0
LATENCY_SCHEMA = "order_id STRING NOT NULL, put_s DOUBLE NOT NULL, filler STRING"
LOOK_S = 0.01


class Watch:
    """The times at which the Parquet files of a folder are first seen. Files come there by a rename, whole."""

    def __init__(self, folder: Path) -> None:
        self.seen: dict[str, float] = {}
        """The epoch seconds at which each file was first seen, by path."""
        self._folder = folder

    def look(self) -> None:
        """Note the files that are there now."""
        if self._folder.exists():
            for entry in os.scandir(self._folder):
                if entry.name.startswith("batch-"):
                    self.seen.setdefault(entry.path, time.time())


def latencies_of(seen: dict[str, float], from_s: float) -> list[float]:
    """Return the seconds from the put of each row until its file was there, ascending. Those rows count that were put
    from ``from_s`` on (epoch seconds).
    """
    found: list[float] = []
    for path, seen_s in seen.items():
        puts = pq.read_table(path, columns=["put_s"])["put_s"].to_pylist()
        found += [seen_s - put_s for put_s in puts if put_s >= from_s]
    return sorted(found)


LATENCY_GOALS_S = {"latency_p99_s": 1.8, "latency_p99_s_continuous": 1.2}
LATENCY_TRIGGERS = {"latency_p99_s": "1 second", "latency_p99_s_continuous": "0 seconds"}


def latency(spark: SparkSession, name: str) -> Result:
    """Measure the latency of the rows of a writer in a process of its own through the job in this process."""
    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as local, new_folder() as folder, Programs() as programs:
        os.environ |= local.environment()
        scene = Scene(spark, local, STREAM, 1_000_000, folder)
        stopping = Stopping()
        text = _pipelines.job_text(scene, f'every = "{LATENCY_TRIGGERS[name]}"', LATENCY_SCHEMA)
        began_s = time.time()
        programs.start(
            "timed",
            endpoint_url=local.endpoint_url,
            stream=STREAM,
            rate_per_s=LATENCY_PER_S,
            seconds=LATENCY_WARM_UP_S + LATENCY_S,
        )
        watch = Watch(folder / "orders")
        with looking(watch.look, LOOK_S), ThreadPoolExecutor(1) as pool:
            job = pool.submit(_pipelines.run_as_job, scene, text, stopping)
            told = programs.results(LATENCY_WARM_UP_S + LATENCY_S + 60)[0]
            _pipelines.until(lambda: job.done() or scene.rows_in("orders") >= told["put"])
            stopping.ask()
            batches = job.result()
        assert scene.rows_in("orders") == told["put"], f"{scene.rows_in('orders')} rows came of {told['put']}"
        took = latencies_of(watch.seen, told["began_s"] + LATENCY_WARM_UP_S)
    p99_s = percentile(took, 99)
    busy_s = ", ".join(f"{batch['seconds']:.1f}" for batch in batches if batch["rows"])
    say(
        f"{name}: {len(took)} rows, median {percentile(took, 50):.2f} s, p99 {p99_s:.2f} s, slowest "
        f"{took[-1]:.2f} s ({time.time() - began_s:.0f} s in all); seconds of each batch: {busy_s}"
    )
    return judge(name, [p99_s], unit="s", goal=LATENCY_GOALS_S[name], sense="at_most")


FOREACH_SHARDS = 2
FOREACH_PER_S = 500
FOREACH_S = 40.0
FOREACH_ROUNDS = 3
FOREACH_GOALS_MS = {"foreach_p50_ms": (50, 400), "foreach_p99_ms": (99, 650)}


def foreach_batches(spark: SparkSession, asked: Any) -> list[Result]:
    """Measure how long rows take to ``foreachBatch`` in a query with Spark's defaults, in some rounds."""
    rounds = [_foreach_latencies_ms(spark) for _ in range(FOREACH_ROUNDS)]
    return [
        judge(name, [percentile(took, percent) for took in rounds], unit="ms", goal=goal, sense="at_most")
        for name, (percent, goal) in FOREACH_GOALS_MS.items()
        if wanted(name, asked)
    ]


def _foreach_latencies_ms(spark: SparkSession) -> list[float]:
    """Return the milliseconds from the put of each row to the end of its batch's collect, ascending."""
    found: list[tuple[float, float]] = []

    def collect(batch: DataFrame, _batch_id: int) -> None:
        rows = batch.select("data").collect()
        now_s = time.time()
        found.extend((put_s, now_s - put_s) for put_s in (json.loads(bytes(row.data))["put_s"] for row in rows))

    with LocalKinesis.spawn(streams={STREAM: FOREACH_SHARDS}) as local, new_folder() as folder, Programs() as programs:
        os.environ |= local.environment()
        source = {"streamName": STREAM, "region": local.region, "endpointUrl": local.endpoint_url}
        records = spark.readStream.format("shardway").options(**source, startingPosition="TRIM_HORIZON").load()
        query = records.writeStream.foreachBatch(collect).option("checkpointLocation", f"{folder}/checkpoint").start()
        try:
            programs.start(
                "timed",
                endpoint_url=local.endpoint_url,
                stream=STREAM,
                rate_per_s=FOREACH_PER_S,
                seconds=LATENCY_WARM_UP_S + FOREACH_S,
            )
            told = programs.results(LATENCY_WARM_UP_S + FOREACH_S + 60)[0]
            _pipelines.until(lambda: len(found) >= told["put"] or query.exception() is not None)
        finally:
            query.stop()
        assert len(found) == told["put"], f"{len(found)} rows came of {told['put']}"
        took = sorted(1000 * late_s for put_s, late_s in found if put_s >= told["began_s"] + LATENCY_WARM_UP_S)
    parts = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
    names = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
    medians = ", ".join(f"{one} {percentile(sorted(part[one] for part in parts), 50)}" for one in names)
    say(
        f"foreach: {len(took)} rows, median {percentile(took, 50):.0f} ms, p99 {percentile(took, 99):.0f} ms, slowest "
        f"{took[-1]:.0f} ms; median ms of {len(parts)} batches: {medians}"
    )
    return took


def percentile(ascending: list[float], percent: float) -> float:
    """Return the least value that ``percent`` percent of the values do not exceed."""
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]


# --- the start --------------------------------------------------------------------------------------------------

START_ROUNDS = 3
START_RECORDS = 1_000
START_S_MAX = 120.0


def first_batch() -> list[Result]:
    """Measure the time from the start of a job in a process of its own to its first file."""
    records = [json.dumps(_pipelines.order(number)).encode() for number in range(START_RECORDS)]
    took: list[float] = []
    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as local:
        os.environ |= local.environment()
        asyncio.run(fill(local, STREAM, records))
        for _ in range(START_ROUNDS):
            with new_folder() as folder:
                took.append(_start(local, folder))
    return [judge("first_batch_s", took, unit="s", goal=12, sense="at_most")]


def _start(local: SpawnedKinesis, folder: Path) -> float:
    source: dict[str, Any] = {"streamName": STREAM, "region": local.region, "endpointUrl": local.endpoint_url}
    text = _pipelines.job_text_of({**source, "startingPosition": "TRIM_HORIZON"}, folder, "available_now = true")
    path = folder / "job.toml"
    path.write_text(text + START_SPARK, encoding="utf-8")
    command = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())", "run", str(path)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not list((folder / "orders").glob("batch-*")):
            if process.poll() is not None or time.perf_counter() - began > START_S_MAX:
                raise RuntimeError(f"no file came within {START_S_MAX:.0f} s, or the job ended before it")
            time.sleep(LOOK_S)
        took_s = time.perf_counter() - began
        process.wait(START_S_MAX)
    finally:
        process.kill()
    return took_s


START_SPARK = """
[spark]
"spark.master" = "local[2]"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"""


# --- an executor is killed -----------------------------------------------------------------------------------


def cluster() -> Result:
    """Measure the time from the kill of an executor to the next committed batch."""
    from bench._cluster import cluster_kill_recovery

    return judge("cluster_kill_recovery_s", [cluster_kill_recovery()], unit="s", goal=30, sense="at_most")


# --- all of it -------------------------------------------------------------------------------------------------

IN_SESSION: dict[str, Callable[[SparkSession], Result]] = {
    "runner_overhead": runner_overhead,
    "sink_rows_100b": sink_rows,
    **{name: partial(job_rows, name=name) for name in JOB_CASES},
    **{name: partial(latency, name=name) for name in LATENCY_GOALS_S},
    "window_rows": partial(window_rows, new_folder=new_folder),
}


def results(asked: Any) -> list[Result]:
    """Measure the cases that the command line asks for: most in one session, and then those that start their own."""
    found: list[Result] = []
    names = [name for name in IN_SESSION if wanted(name, asked)]
    if names:
        set_environment()
        with new_folder() as folder, session(folder, JOB_DEFAULTS) as spark:
            spark.conf.set("spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
            least_work(spark, str(folder))
            spark.sparkContext.setLogLevel("FATAL")  # as in the runner, where a stop refuses a batch, which Spark logs
            for name in names:
                found.append(IN_SESSION[name](spark))
                say(f"{name}: {found[-1].ours:,.4g} {found[-1].unit}, ratio {found[-1].ratio}")
    if any(wanted(name, asked) for name in FOREACH_GOALS_MS):
        set_environment()
        with new_folder() as folder, session(folder) as spark:
            found += foreach_batches(spark, asked)
    if wanted("first_batch_s", asked):
        found += first_batch()
    if wanted("state_10m", asked):
        found += state_10m(new_folder)
    if wanted("cluster_kill_recovery_s", asked):
        found.append(cluster())
    return found


if __name__ == "__main__":
    arguments = options("Pipelines on Spark: the runner, the sink, a killed executor, latency.")
    report("pipeline", results(arguments), as_json=arguments.json)
