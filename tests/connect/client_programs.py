"""What the tests have a Connect client do. The text is sent to a Python that has the client and Shardway alone."""

from __future__ import annotations

import json  # noqa: F401 - what is printed
import time
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from shardway import OptionError, pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ORDER = "order_id STRING NOT NULL, customer STRING NOT NULL, amount DECIMAL(10,2) NOT NULL"
POSITION = list(pipeline.POSITION)
START = {"startingPosition": "TRIM_HORIZON"}
TIMEOUT_S = 500

spark = SparkSession.builder.getOrCreate()


def finished(writer: DataStreamWriter, folder: str, name: str) -> StreamingQuery:
    """Run a query to the end of what is there."""
    query = writer.option("checkpointLocation", f"{folder}/{name}-checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S), "the query goes on"
    assert query.exception() is None, query.exception()
    return query


def read(folder: str) -> dict[str, Any]:
    records = spark.read.format("shardway").options(streamName="orders", **START).load()
    decoded = pipeline.decode_json(records, ORDER)
    with pipeline.read_once(decoded) as rows:
        good, dead = pipeline.split(rows)
        counts = [good.count(), dead.count()]
    unique = pipeline.deduplicate(decoded, "value.order_id", window="10 minutes")
    of_one = pipeline.sort_by_key(good).where("partition_key = 'customer-3'").select("value.order_id").collect()
    return {
        "client": type(records).__module__,
        "rows": records.count(),
        "split": counts,
        "unique": unique.where(fn.col("reason").isNull()).count(),
        "amount": str(pipeline.split(unique)[0].agg(fn.sum("value.amount")).collect()[0][0]),
        "reasons": [row.reason for row in pipeline.explain_json(dead, ORDER).collect()],
        "text": pipeline.decode_text(records).where("reason IS NULL").count(),
        "bytes": pipeline.decode_bytes(records).where("value = data").count(),
        "in_order": [row.order_id for row in of_one],
    }


def stream_to_files(folder: str) -> dict[str, Any]:
    records = spark.readStream.format("shardway").options(streamName="orders", **START).load()
    unique = pipeline.deduplicate(pipeline.decode_json(records, ORDER), "value.order_id", window="10 minutes")
    rows = unique.select("value.*", "reason")
    query = finished(rows.writeStream.format("parquet").option("path", f"{folder}/files"), folder, "files")
    written = spark.read.parquet(f"{folder}/files")
    return {
        "rows": sum(progress.numInputRows for progress in query.recentProgress),
        "late": [pipeline.late_rows(progress) for progress in query.recentProgress],
        "orders": written.where("reason IS NULL").select("order_id").distinct().count(),
        "written": written.count(),
    }


def copy(folder: str) -> dict[str, Any]:
    target = {"streamName": "copy", "stamps": "position", "aggregation": "true"}
    records = spark.readStream.format("shardway").options(streamName="orders", **START).load()
    writer = records.select("partition_key", "data", *POSITION).writeStream.queryName("copy").format("shardway")
    finished(writer.options(**target), folder, "copy")
    once_more = spark.read.format("shardway").options(streamName="orders", **START).load()
    once_more.select("partition_key", "data", *POSITION).write.format("shardway").options(**target).mode(
        "append"
    ).save()
    source = once_more.select("sequence_number").collect()
    while True:
        copied = spark.read.format("shardway").options(streamName="copy", **START).load()
        if copied.count() == 2 * len(source):
            break
        time.sleep(0.5)  # a batch read ends half a second before now
    first = pipeline.deduplicate_by_stamps(copied, window="1 hour").select("stamp.*", "data").collect()
    streamed = spark.readStream.format("shardway").options(streamName="copy", **START).load()
    unique = pipeline.deduplicate_by_stamps(streamed, window="1 hour").select("stamp.*")
    finished(unique.writeStream.format("parquet").option("path", f"{folder}/unique"), folder, "unique")
    return {
        "written": len(source),
        "same": sorted(row.sequence_number for row in first) == sorted(row.sequence_number for row in source),
        "stamped": pipeline.open_stamps(copied).where("stamp.stream = 'orders'").count(),
        "unique_of_stream": spark.read.parquet(f"{folder}/unique").count(),
        "orders": len({row.data for row in first}),
    }


def each_batch(folder: str) -> dict[str, Any]:
    def write(batch: DataFrame, batch_id: int) -> None:
        with pipeline.read_once(batch) as rows:
            good, dead = pipeline.split(rows)
            good.select("value.*").write.mode("overwrite").parquet(f"{folder}/each/orders/batch={batch_id}")
            dead.select("reason").write.mode("overwrite").parquet(f"{folder}/each/dead/batch={batch_id}")

    records = spark.readStream.format("shardway").options(streamName="orders", **START).load()
    finished(pipeline.decode_json(records, ORDER).writeStream.foreachBatch(write), folder, "each")
    return {
        "orders": spark.read.parquet(f"{folder}/each/orders").count(),
        "dead": spark.read.parquet(f"{folder}/each/dead").count(),
    }


def told(what: Callable[[], object]) -> str | None:
    """The beginning of the message of what is raised."""
    try:
        what()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return None


def refused(folder: str) -> dict[str, Any]:
    records = spark.read.format("shardway").options(streamName="orders", **START).load()
    wrong = {**START, "streamNam": "orders"}
    return {
        "folder": told(lambda: pipeline.ParquetFolder(f"{folder}/lake")),
        "kind": isinstance(raised(lambda: pipeline.BatchFolder(f"{folder}/lake")), OptionError),
        "option": told(lambda: spark.read.format("shardway").options(**wrong).load().count()),
        "stream": told(lambda: spark.read.format("shardway").options(streamName="none").load().count()),
        "column": told(
            lambda: records.select("data").write.format("shardway").options(streamName="copy").mode("append").save()
        ),
        "schema": told(lambda: pipeline.decode_json(records, "STRING NOT NULL order_id")),
    }


def raised(what: Callable[[], object]) -> Exception | None:
    try:
        what()
    except Exception as error:
        return error
    return None


def without_a_question(folder: str) -> dict[str, Any]:
    """The steps as in a query function of a declarative pipeline, and as everywhere: their columns and rows."""
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    records = spark.read.format("shardway").options(streamName="orders", **START).load()
    streamed = spark.readStream.format("shardway").options(streamName="orders", **START).load()
    order: StructType = StructType.fromDDL(ORDER)  # type: ignore[assignment]  # Spark calls it a DataType

    def steps() -> tuple[dict[str, DataFrame], DataFrame]:
        decoded = pipeline.decode_json(records, order)
        made = {
            "text": pipeline.decode_text(records),
            "decoded": decoded,
            "good": pipeline.split(decoded)[0],
            "explained": pipeline.explain_json(pipeline.split(decoded)[1], order),
            "unique": pipeline.deduplicate(decoded, "value.order_id", window="10 minutes"),
            "unique_keys": pipeline.deduplicate(records, "partition_key", window="10 minutes"),
            "opened": pipeline.open_stamps(records),
            "first": pipeline.deduplicate_by_stamps(records, window="10 minutes"),
        }
        return made, pipeline.deduplicate(streamed, "partition_key", window="10 minutes")

    with graph_element_registration_context(object()):  # type: ignore[arg-type]  # it is not asked
        unasked, stream = steps()
    asked, _ = steps()

    def rows(frame: DataFrame) -> tuple[list[str], list[str]]:
        names = sorted(frame.columns)
        return names, sorted(str(row) for row in frame.select(*names).collect())

    return {
        "different": [name for name in asked if rows(asked[name]) != rows(unasked[name])],
        "compared": len(asked),
        "stream": stream.isStreaming,
    }
