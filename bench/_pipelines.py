"""Runs one pipeline for ``bench.pipeline``: as a job file, by hand, and by Spark's own functions alone.

The pipeline decodes JSON, removes duplicates, and writes Parquet, with dead letters beside it. The module also fills
the streams that the pipeline reads, and has the peer that writes to a stream with boto3.
"""

from __future__ import annotations

import io
import json
import shutil
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pyarrow.dataset as ds
from pyspark.sql import functions as fn

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.model import StreamName
from shardway.pipeline import POSITION, BatchFolder, decode_json, deduplicate, explain_json, read_once, split
from shardway.pipeline.job import ExitCode, load_job
from shardway.pipeline.job.run.output import RunOutput
from shardway.pipeline.job.run.query import run_job
from shardway.pipeline.job.run.stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from shardway.local.spawned import SpawnedKinesis

SCHEMA = "order_id STRING NOT NULL, customer STRING NOT NULL, quantity INT NOT NULL, amount DECIMAL(10,2) NOT NULL"
WITHIN = "10 minutes"
START_UP_BATCHES = 1
"""The number of batches at the beginning of a run that do not count."""
PUT_CALL_RECORDS = 500
WRITTEN_PER_S = 3_000
"""The records per second of the service's time, which is within what four shards take."""
QUERY_TIMEOUT_S = 900
"""The seconds within which a query must end. Plain PySpark with equal promises may take minutes for a round's rows."""


class Scene(NamedTuple):
    """The stream that a pipeline reads, and the folder that it writes to."""

    spark: SparkSession
    local: SpawnedKinesis
    stream: str
    batch_records: int
    folder: Path

    def source(self) -> dict[str, str]:
        """Return the options of the source."""
        return {
            "streamName": self.stream,
            "region": self.local.region,
            "endpointUrl": self.local.endpoint_url,
            "startingPosition": "TRIM_HORIZON",
            "maxRecordsPerTrigger": str(self.batch_records),
        }

    def rows_in(self, folder: str) -> int:
        """Return the number of rows in a folder of this scene, as any reader of Parquet counts them."""
        path = self.folder / folder
        rows: int = ds.dataset(path, format="parquet").count_rows() if path.exists() else 0
        return rows


def order(number: int) -> dict[str, Any]:
    """Return an order, which has about 100 bytes as JSON."""
    return {
        "order_id": f"order-{number:09d}",
        "customer": f"customer-{number % 5000:05d}",
        "quantity": 1 + number % 7,
        "amount": f"{number % 10_000}.{number % 100:02d}",
    }


async def fill(local: SpawnedKinesis, stream: str, records: Iterable[bytes]) -> None:
    """Put the records to the stream, at an even pace of the service's time."""
    left = iter(records)
    async with Wire(ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)) as wire:
        client = KinesisClient(wire)
        while datas := list(islice(left, PUT_CALL_RECORDS)):
            # A duplicate has the key of its order, as a producer would give it.
            entries = [PutEntry(data, f"key-{hash(data) % 1000:04d}", None) for data in datas]
            answer = await client.put_records(StreamName(stream), entries)
            assert answer.failed_record_count == 0
            local.clock.advance(len(datas) / WRITTEN_PER_S)
    local.clock.advance(10)


# --- as a job file ---------------------------------------------------------------------------------------


def job_text(scene: Scene, trigger: str, schema: str = SCHEMA, *, exact: bool = False) -> str:
    """Return the text of the job file that reads the scene's stream."""
    return job_text_of(scene.source(), scene.folder, trigger, schema, exact=exact)


def job_text_of(
    options: dict[str, Any], folder: Path, trigger: str, schema: str = SCHEMA, *, exact: bool = False
) -> str:
    """Return the text of the job file for a source's options and a folder."""
    source = "\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    return f"""\
name = "orders"
checkpoint = "{folder}/checkpoint"

[source]
{source}

[decode]
format = "json"
schema = "{schema}"

[dead_letters]
path = "{folder}/dead"

[deduplicate]
keys = ["value.order_id"]
window = "{WITHIN}"
exact = {json.dumps(exact)}

[[sinks]]
format = "parquet"
path = "{folder}/orders"

[trigger]
{trigger}
"""


def run_as_job(scene: Scene, text: str, stopping: Stopping | None = None) -> list[dict[str, Any]]:
    """Run a job file as ``shardway run -o jsonl`` does, in this process, and return the events of its batches."""
    path = scene.folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    out, errors = io.StringIO(), io.StringIO()
    code = run_job(
        scene.spark, load_job(path, {}), stopping or Stopping(), RunOutput(as_json=True, out=out, errors=errors)
    )
    if code is not ExitCode.DONE:
        raise RuntimeError(f"the job ended with {code}: {errors.getvalue()}")
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    return [event for event in events if event["event"] == "batch"]


def job_rows_per_s(scene: Scene, *, exact: bool = False) -> float:
    """Read the stream to its end by a job file, and return the rows per second."""
    batches = run_as_job(scene, job_text(scene, "available_now = true", exact=exact))
    return steady([(batch["rows"], batch["seconds"]) for batch in batches])


def steady(batches: list[tuple[int, float]]) -> float:
    """Return the rows per second of the batches behind the start-up. A batch is its rows and the seconds that Spark
    gives for it.
    """
    counted = [batch for batch in batches if batch[0]][START_UP_BATCHES:]
    return sum(rows for rows, _ in counted) / sum(seconds for _, seconds in counted)


def until(reached: Callable[[], bool]) -> None:
    """Wait until ``reached`` returns True. Raises TimeoutError after `QUERY_TIMEOUT_S`."""
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"what was waited for did not come within {QUERY_TIMEOUT_S} s")
        time.sleep(0.5)


# --- by hand -----------------------------------------------------------------------------------------------


def by_hand_rows_per_s(scene: Scene) -> float:
    """Read the stream to its end by plain PySpark and the public functions that the job file's steps are, and return
    the rows per second.
    """
    orders = BatchFolder(f"{scene.folder}/orders")
    dead = BatchFolder(f"{scene.folder}/dead", partition_by=["hour"])

    def write(batch: DataFrame, batch_id: int) -> None:
        with read_once(batch) as rows:
            good, letters = split(rows)
            dead.write(explain_json(letters, SCHEMA), batch_id)
            chosen = good.select("value.*", "partition_key", *POSITION, "approximate_arrival_timestamp")
            orders.write(chosen, batch_id)

    records = scene.spark.readStream.format("shardway").options(**scene.source()).load()
    unique = deduplicate(decode_json(records, SCHEMA), "value.order_id", window=WITHIN)
    return run_query(unique.writeStream.foreachBatch(write), scene)


def own_functions_rows_per_s(scene: Scene) -> float:
    """Read the stream by Spark's own functions alone, and return the rows per second. These functions promise less.
    They do not keep broken records and do not check types, and a program that reads the files without Spark's log may
    see rows twice after a crash.
    """
    records = scene.spark.readStream.format("shardway").options(**scene.source()).load()
    parsed = records.withColumn("value", fn.from_json(fn.col("data").cast("string"), SCHEMA))
    good = parsed.where("value.order_id IS NOT NULL").withWatermark("approximate_arrival_timestamp", WITHIN)
    chosen = good.select("value.*", "partition_key", *POSITION, "approximate_arrival_timestamp")
    unique = chosen.dropDuplicatesWithinWatermark(["order_id"])
    return run_query(unique.writeStream.format("parquet").option("path", f"{scene.folder}/orders"), scene)


def equal_by_hand_rows_per_s(scene: Scene) -> float:
    """Read the stream with equal promises and none of our functions, and return the rows per second. Dead letters are
    kept first, types are checked as they stand in the record, and files are put in place by a rename under the batch's
    number.
    """
    records = scene.spark.readStream.format("shardway").options(**scene.source()).load()
    checked = _checked_by_hand(records)
    dead = fn.col("reason").isNotNull()
    timed = checked.withColumns(
        {
            "one": fn.when(~dead, fn.col("value.order_id")),
            "alone": fn.when(dead, fn.concat_ws("/", *POSITION)),
            "at": fn.when(~dead, fn.col("approximate_arrival_timestamp")),
        }
    )
    unique = timed.withWatermark("at", WITHIN).dropDuplicatesWithinWatermark(["one", "alone"])

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        letters = batch.where(dead).drop("value", "one", "alone", "at")
        hours = letters.withColumn("hour", fn.date_format("approximate_arrival_timestamp", "yyyy-MM-dd-HH"))
        _replace(hours, scene.folder / "dead", batch_id, ["hour"])
        good = batch.where(~dead).select("value.*", "partition_key", *POSITION, "approximate_arrival_timestamp")
        _replace(good, scene.folder / "orders", batch_id, [])
        batch.unpersist()

    return run_query(unique.writeStream.foreachBatch(write), scene)


def _checked_by_hand(records: DataFrame) -> DataFrame:
    """Return rows with the ``value`` of the schema above, or with the ``reason`` why there is no value."""
    kinds = "order_id VARIANT, customer VARIANT, quantity INT, amount DECIMAL(10,2)"
    strict = {"columnNameOfCorruptRecord": "broken", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    text = fn.try_validate_utf8(fn.col("data").cast("string"))
    whole = fn.concat(fn.lit('{"value":'), text, fn.lit(',"whole":true}'))
    parsed = fn.from_json(whole, f"value STRUCT<{kinds}>, whole BOOLEAN, broken STRING", strict)
    no_string = [fn.schema_of_variant(f"parsed.value.{name}") != "STRING" for name in ("order_id", "customer")]
    missing = [fn.col(f"parsed.value.{name}").isNull() for name in ("order_id", "customer", "quantity", "amount")]
    reason = (
        fn.when(fn.col("parsed.whole").isNull() | fn.col("parsed.value").isNull(), "no object")
        .when(fn.col("parsed.broken").isNotNull() | no_string[0] | no_string[1], "a wrong type")
        .when(missing[0] | missing[1] | missing[2] | missing[3], "a field is missing")
    )
    value = fn.struct(
        fn.col("parsed.value.order_id").cast("string").alias("order_id"),
        fn.col("parsed.value.customer").cast("string").alias("customer"),
        "parsed.value.quantity",
        "parsed.value.amount",
    )
    told = records.withColumn("parsed", parsed).withColumn("reason", reason)
    return told.withColumn("value", fn.when(fn.col("reason").isNull(), value)).drop("parsed")


def _replace(rows: DataFrame, folder: Path, batch_id: int, partition_by: list[str]) -> None:
    """Write a batch in place of the files that an earlier run of the batch left."""
    staging = folder.with_name(f"{folder.name}.staging")
    for left in folder.rglob(f"batch-{batch_id:09d}-*"):
        left.unlink()
    rows.write.mode("overwrite").partitionBy(*partition_by).parquet(str(staging))
    for number, file in enumerate(sorted(staging.rglob("part-*"))):
        place = folder / file.parent.relative_to(staging)
        place.mkdir(parents=True, exist_ok=True)
        file.rename(place / f"batch-{batch_id:09d}-{number:05d}.parquet")
    shutil.rmtree(staging)


def run_query(writer: Any, scene: Scene) -> float:
    """Run a query to the end of the stream, and return the rows per second."""
    query = writer.option("checkpointLocation", f"{scene.folder}/checkpoint").trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(QUERY_TIMEOUT_S):
            raise TimeoutError(f"a query was not done within {QUERY_TIMEOUT_S} s")
    finally:
        query.stop()
    progresses = [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]
    return steady([(one["numInputRows"], one["durationMs"]["triggerExecution"] / 1000) for one in progresses])


# --- writing to a stream -----------------------------------------------------------------------------------


class BotoPartition:
    """A function for ``foreachPartition`` that writes the rows of a partition with boto3, in calls of 500 records. It
    puts those that failed again.
    """

    def __init__(self, stream: str, region: str, endpoint_url: str) -> None:
        self._stream = stream
        self._where = {"region_name": region, "endpoint_url": endpoint_url}

    def __call__(self, rows: Iterator[Row]) -> None:
        client = boto3.client("kinesis", **self._where)
        records: list[dict[str, Any]] = []
        for row in rows:
            records.append({"Data": bytes(row.data), "PartitionKey": row.partition_key})
            if len(records) == PUT_CALL_RECORDS:
                self._put(client, records)
                records = []
        if records:
            self._put(client, records)

    def _put(self, client: Any, records: list[dict[str, Any]]) -> None:
        while records:
            answer = client.put_records(StreamName=self._stream, Records=records)
            if answer["FailedRecordCount"] == 0:
                return
            answers = zip(records, answer["Records"], strict=True)
            records = [record for record, told in answers if "ErrorCode" in told]
