"""Measures where the time of a batch of a job file goes, by part, for batches of 1,000, 40,000 and 400,000 rows.

The job is that of ``bench.pipeline``: JSON with a schema, de-duplication, dead letters, Parquet. Each figure is the
median over the full batches behind the first. The program reads three clocks beside each other:

- *driver*: Spark's own durations of a batch (``durationMs`` of its progress), in milliseconds of the wall clock
- *job*: timers around what ``foreachBatch`` calls, in milliseconds of the wall clock
- *tasks*: what Spark's event log and SQL metrics say of the batch's tasks, in milliseconds added over all tasks

``decode`` and ``check of types`` are one stage with reading, and no metric tells them apart. The program measures them
beside it, on cached records, as CPU per row of one step more. It prints one table, or JSON for the page of all
benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from bench import _pipelines
from bench._form import aside, cpu_of_tree_s, judge, options, report, say
from bench._pipelines import SCHEMA, Scene, fill
from bench.pipeline import JOB_DEFAULTS, SHUFFLE_PARTITIONS, STREAM, new_folder, orders_and_broken, settings_of
from bench.spark import session
from bench.wire import set_environment
from shardway.local.embedded import LocalKinesis
from shardway.pipeline import decode_json
from shardway.pipeline.job.batch.batches import Batches
from shardway.pipeline.job.batch.observations import WatchedBatch
from shardway.pipeline.job.run import query
from shardway.pipeline.job.session.session import least_work
from shardway.pipeline.parquet_folder import BatchFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from bench._form import Result

SIZES = {1_000: 8, 40_000: 5, 400_000: 4}
"""The number of full batches that are run, by the rows of a batch. The first batch of each size does not count."""
FULL = 0.9
"""The share of the largest batch's rows from which on a batch is full. What is left at a stream's end is less."""
STEP_ROWS = 200_000
STEP_ROUNDS = 3
EVENT_LOG = "events"

DRIVER_PARTS = {
    "latestOffset": "plan: ends of the shards",
    "walCommit": "log: offsets",
    "getBatch": "plan: partitions",
    "queryPlanning": "plan: the query",
    "addBatch": "the batch itself",
    "commitOffsets": "log: commit",
    "triggerExecution": "all",
}
TIMED = {
    "stage good rows": (BatchFolder, "_stage", "/orders"),
    "look for what was left": (BatchFolder, "_begin", ""),
    "move files": (BatchFolder, "_move", ""),
    "dead letters": (Batches, "_write_letters", ""),
    "wait for the numbers of the write": (WatchedBatch, "told", ""),
}
TASK_METRICS = {
    "time in update": "state: update",
    "time to update": "state: update",
    "time to commit changes": "state: commit",
    "time to remove": "state: remove",
    "shuffle write time": "shuffle: write",
    "fetch wait time": "shuffle: wait for rows",
    "task commit time": "write: commit of tasks",
}


class Profile(NamedTuple):
    """The medians of the batches of one size, by part."""

    parts: dict[str, float]


# --- timers around the job's own parts ---------------------------------------------------------------------


@contextmanager
def timed(found: dict[int, dict[str, float]]) -> Iterator[None]:
    """Add the milliseconds of each part in `TIMED` to ``found``, by batch and part, while the block lasts."""
    write = Batches.write
    before = [(Batches, "write", write), *((owner, name, getattr(owner, name)) for owner, name, _ in TIMED.values())]
    of_batch: dict[str, float] = defaultdict(float)

    def writing(self: Any, batch: Any, batch_id: int) -> None:
        nonlocal of_batch
        of_batch = found[batch_id]
        write(self, batch, batch_id)

    def wrapped(part: str, call: Callable[..., Any], place: str) -> Callable[..., Any]:
        def timing(self: Any, *args: Any, **named: Any) -> Any:
            if place and not str(getattr(self, "_path", "")).endswith(place):
                return call(self, *args, **named)
            began = time.perf_counter()
            try:
                return call(self, *args, **named)
            finally:
                of_batch[part] += (time.perf_counter() - began) * 1000

        return timing

    Batches.write = writing  # type: ignore[method-assign]  # it stays until the block ends
    for part, (owner, name, place) in TIMED.items():
        setattr(owner, name, wrapped(part, getattr(owner, name), place))
    try:
        yield
    finally:
        for owner, name, call in before:
            setattr(owner, name, call)


# --- what Spark's event log says ---------------------------------------------------------------------------


def task_parts(log: Path) -> dict[int, dict[str, float]]:
    """Return for each batch, by its number, the parts of its tasks added over all tasks, in milliseconds. One part is
    the number of the tasks.
    """
    batch_of_stage: dict[int, int] = {}
    metric_names: dict[int, tuple[str, str]] = {}
    found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in log.read_text().splitlines():
        event = json.loads(line)
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerJobStart":
            batch = (event.get("Properties") or {}).get("streaming.sql.batchId")
            if batch is not None:
                batch_of_stage |= dict.fromkeys(event["Stage IDs"], int(batch))
        elif "sparkPlanInfo" in event:
            _note_metrics(event["sparkPlanInfo"], metric_names)
        elif kind == "SparkListenerTaskEnd" and event["Stage ID"] in batch_of_stage:
            _add_task(found[batch_of_stage[event["Stage ID"]]], event, metric_names)
    return found


def _note_metrics(plan: dict[str, Any], names: dict[int, tuple[str, str]]) -> None:
    for metric in plan.get("metrics", []):
        names[metric["accumulatorId"]] = (metric["name"], metric["metricType"])
    for child in plan.get("children", []):
        _note_metrics(child, names)


def _add_task(parts: dict[str, float], event: dict[str, Any], names: dict[int, tuple[str, str]]) -> None:
    numbers = event.get("Task Metrics") or {}
    parts["tasks: number"] += 1
    parts["tasks: run time"] += numbers.get("Executor Run Time", 0)
    parts["tasks: CPU of the JVM"] += numbers.get("Executor CPU Time", 0) / 1e6
    parts["tasks: garbage collection"] += numbers.get("JVM GC Time", 0)
    for one in event["Task Info"].get("Accumulables", []):
        name, kind = names.get(one["ID"], (None, ""))
        part = TASK_METRICS.get(name or "")
        if part is not None:
            parts[part] += float(one["Update"]) / (1e6 if kind == "nsTiming" else 1)


# --- a run of each size ------------------------------------------------------------------------------------


class Run(NamedTuple):
    """The progresses of a run, and the milliseconds of the job's own parts by batch."""

    progresses: list[dict[str, Any]]
    ours: dict[int, dict[str, float]]


def run(spark: SparkSession, rows: int, batches: int) -> Run:
    """Read ``batches`` batches of ``rows`` rows by a job file, and return what was seen."""
    records, _, _ = orders_and_broken(rows * batches)
    ours: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    with LocalKinesis.spawn(streams={STREAM: 4}) as local, new_folder() as place:
        os.environ |= local.environment()
        asyncio.run(fill(local, STREAM, records))
        scene = Scene(spark, local, STREAM, rows, place)
        progresses: list[dict[str, Any]] = []
        with timed(ours), _progresses(progresses):
            _pipelines.run_as_job(scene, _pipelines.job_text(scene, "available_now = true"))
    return Run(progresses, ours)


def profile(run: Run, log: Path) -> Profile:
    """Return the medians over the batches of a run that count: those that are full, without the first, which starts
    what all of them use. ``log`` is the run's event log.
    """
    most = max(one["numInputRows"] for one in run.progresses)
    counted = [one for one in run.progresses if one["numInputRows"] >= FULL * most and one["batchId"] > 0]
    parts = {
        f"driver: {told}": statistics.median(one["durationMs"].get(name, 0) for one in counted)
        for name, told in DRIVER_PARTS.items()
    }
    for part in TIMED:
        parts[f"job: {part}"] = statistics.median(run.ours[one["batchId"]][part] for one in counted)
    by_batch = task_parts(log)
    of_run = [by_batch[one["batchId"]] for one in counted if one["batchId"] in by_batch]
    for name in sorted({name for one in of_run for name in one}):
        parts[name] = statistics.median(one.get(name, 0.0) for one in of_run)
    parts["rows"] = statistics.median(one["numInputRows"] for one in counted)
    return Profile(parts)


@contextmanager
def _progresses(found: list[dict[str, Any]]) -> Iterator[None]:
    """Add the progresses of the query that the runner starts to ``found``, while the block lasts."""
    looked = query._QueryRun
    before = looked._look

    def look(self: Any, query: Any) -> None:
        before(self, query)
        known = {one["batchId"] for one in found}
        found.extend(
            one for one in query.recentProgress if "addBatch" in one["durationMs"] and one["batchId"] not in known
        )

    looked._look = look  # type: ignore[method-assign]  # it stays until the block ends
    try:
        yield
    finally:
        looked._look = before  # type: ignore[method-assign]


# --- steps that no metric parts ----------------------------------------------------------------------------


def steps(spark: SparkSession) -> dict[str, float]:
    """Return the CPU of all processes for one step more at a time, in microseconds per row, by step."""
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    records, _, _ = orders_and_broken(STEP_ROWS)
    found: dict[str, list[float]] = defaultdict(list)
    with LocalKinesis.spawn(streams={STREAM: 4}) as local:
        os.environ |= local.environment()
        aside(local.pid)
        asyncio.run(fill(local, STREAM, records))
        reading = spark.read.format("shardway").options(
            streamName=STREAM, region=local.region, endpointUrl=local.endpoint_url, startingPosition="TRIM_HORIZON"
        )
        kept = reading.load().persist()
        assert kept.count() == STEP_ROWS
        own = kept.withColumn("value", fn.from_json(fn.col("data").cast("string"), SCHEMA))
        cases: dict[str, DataFrame] = {
            "read": reading.load(),
            "cached rows": kept,
            "decode by Spark's own function, no check": own,
            "decode and check of types": decode_json(kept, SCHEMA),
        }
        for _ in range(STEP_ROUNDS + 1):
            for name, rows in cases.items():
                before = cpu_of_tree_s(java)
                rows.write.format("noop").mode("overwrite").save()
                found[name].append((cpu_of_tree_s(java) - before) / STEP_ROWS * 1e6)
        kept.unpersist()
    middle = {name: statistics.median(took[1:]) for name, took in found.items()}
    cached = middle.pop("cached rows")
    return {name: took - (0 if name == "read" else cached) for name, took in middle.items()}


# --- all of it ---------------------------------------------------------------------------------------------


def measured() -> tuple[dict[int, Profile], dict[str, float]]:
    """Measure each size in a session of its own. Return the profiles, by the rows of a batch, and the CPU of each
    step, in microseconds per row.
    """
    set_environment()
    with new_folder() as folder:
        (folder / EVENT_LOG).mkdir()
        logged = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(folder / EVENT_LOG),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.buffer.kb": "1k",
        }
        profiles: dict[int, Profile] = {}
        for rows, batches in SIZES.items():
            for path in (folder / EVENT_LOG).iterdir():
                path.unlink()
            with session(folder, logged | JOB_DEFAULTS) as spark:
                spark.conf.set("spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
                least_work(spark, str(folder))
                spark.sparkContext.setLogLevel("FATAL")
                if not profiles:
                    say(f"with {settings_of(spark)}")
                seen = run(spark, rows, batches)
                if rows == max(SIZES):
                    by_step = steps(spark)
            (log,) = (folder / EVENT_LOG).iterdir()
            profiles[rows] = profile(seen, log)
    return profiles, by_step


def table(profiles: dict[int, Profile], by_step: dict[str, float]) -> str:
    """Return the figures as a table in Markdown."""
    sizes = list(profiles)
    names = list(dict.fromkeys(name for one in profiles.values() for name in one.parts))
    lines = ["| part, ms | " + " | ".join(f"{size:,} rows" for size in sizes) + " |", "| --- |" + " --- |" * len(sizes)]
    for name in names:
        figures = [profiles[size].parts.get(name) for size in sizes]
        lines.append(f"| {name} | " + " | ".join("-" if one is None else f"{one:,.0f}" for one in figures) + " |")
    lines += ["", "| step, us of CPU per row | |", "| --- | --- |"]
    lines += [f"| {name} | {took:.2f} |" for name, took in by_step.items()]
    return "\n".join(lines)


def results(profiles: dict[int, Profile]) -> list[Result]:
    """Return the results of the time of whole batches, for the page of all benchmarks."""
    return [
        judge(f"batch_{rows}_s", [one.parts["driver: all"] / 1000], unit="s", goal=goal, sense="at_most")
        for (rows, one), goal in zip(profiles.items(), (1.0, 2.0, 8.0), strict=True)
    ]


if __name__ == "__main__":
    asked = options("Where the time of a batch of a job file goes.")
    all_profiles, all_steps = measured()
    text = table(all_profiles, all_steps)
    say(text)
    report("job_profile", results(all_profiles), as_json=asked.json, text=text)
