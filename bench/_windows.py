"""Counts and sums by minute and key for ``bench.pipeline``: as a job file, and in plain PySpark."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import functions as fn

from bench import _pipelines
from bench._form import Case, cpu_of_s, measure, say
from bench._pipelines import Scene
from shardway.local.embedded import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from bench._form import Result

NAME = "window_rows"
STREAM, SHARDS = "orders-of-the-day", 4
RECORDS, KEYS, BATCH_RECORDS = 1_000_000, 10_000, 200_000
ROUNDS = 3
SCHEMA = "order_id STRING NOT NULL, customer STRING NOT NULL, quantity INT NOT NULL, amount DECIMAL(10,2) NOT NULL"
LATE_BY = "10 seconds"


def orders() -> Iterator[bytes]:
    """Yield the orders, in turn of each customer."""
    for number in range(RECORDS):
        yield json.dumps({**_pipelines.order(number), "customer": f"customer-{number % KEYS:05d}"}).encode()


def as_job_rows_per_s(scene: Scene) -> float:
    """Read the stream to its end by a job file with windows, and return the rows per second."""
    source = "\n".join(f"{name} = {json.dumps(value)}" for name, value in scene.source().items())
    text = f"""\
name = "minutes"
checkpoint = "{scene.folder}/checkpoint"

[source]
{source}

[decode]
format = "json"
schema = "{SCHEMA}"

[dead_letters]
path = "{scene.folder}/dead"

[window]
length = "1 minute"
late_by = "{LATE_BY}"
keys = ["value.customer"]
aggregates = {{ orders = "count(*)", amount = "sum(value.amount)" }}

[[sinks]]
format = "parquet"
path = "{scene.folder}/orders"

[trigger]
available_now = true
"""
    batches = _pipelines.run_as_job(scene, text)
    return _pipelines.steady([(batch["rows"], batch["seconds"]) for batch in batches])


def plain_rows_per_s(scene: Scene) -> float:
    """Do the same in plain PySpark, without dead letters or a check of types, into Spark's own sink of files."""
    records = scene.spark.readStream.format("shardway").options(**scene.source()).load()
    parsed = records.withColumn("value", fn.from_json(fn.col("data").cast("string"), SCHEMA))
    minutes = (
        parsed.where("value.order_id IS NOT NULL")
        .withWatermark("approximate_arrival_timestamp", LATE_BY)
        .groupBy(fn.window("approximate_arrival_timestamp", "1 minute"), "value.customer")
        .agg(fn.count("*").alias("orders"), fn.sum("value.amount").alias("amount"))
    )
    return _pipelines.run_query(minutes.writeStream.format("parquet").option("path", f"{scene.folder}/orders"), scene)


def counted(folder: Path) -> tuple[int, int]:
    """Return the number of windows in a folder of Parquet files, and the sum of their counts."""
    table = ds.dataset(folder / "orders", format="parquet").to_table(columns=["orders"])
    return table.num_rows, pc.sum(table["orders"]).as_py()


def window_rows(spark: SparkSession, new_folder: Callable[[], AbstractContextManager[Path]]) -> Result:
    """Measure windows of a minute by 10,000 keys through the job file and in plain PySpark, in turn. Both must have the
    same windows.
    """
    found: set[tuple[int, int]] = set()
    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as local:
        os.environ |= local.environment()
        asyncio.run(_pipelines.fill(local, STREAM, orders()))

        def round_of(run: Callable[[Scene], float]) -> float:
            with new_folder() as folder:
                rows_per_s = run(Scene(spark, local, STREAM, BATCH_RECORDS, folder))
                found.add(counted(folder))
                return rows_per_s

        busy_s = cpu_of_s(local.pid)
        result = measure(
            Case(
                name=NAME,
                unit="rows/s",
                goal=0.9,
                sense="at_least",
                ours=lambda: round_of(as_job_rows_per_s),
                peer=lambda: round_of(plain_rows_per_s),
                peer_name="plain PySpark, which promises less",
                rounds=int(os.environ.get("BENCH_JOB_ROUNDS", ROUNDS)),
            )
        )
        busy_s = cpu_of_s(local.pid) - busy_s
    (windows, records) = found.pop()
    assert not found, f"the sides have different windows: {found}, and {(windows, records)}"
    say(f"{NAME}: {windows:,} windows of {records:,} records; the local Kinesis was busy for {busy_s:.0f} s")
    return result
