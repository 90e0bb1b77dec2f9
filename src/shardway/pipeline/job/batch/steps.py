"""The steps of a job are functions from DataFrame to DataFrame: those of ``shardway.pipeline``, as the job chooses."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from shardway.errors import OptionError, ShardwayError
from shardway.payloads.opening import check_zstd
from shardway.pipeline.decode import REASON, VALUE, decode_bytes, decode_json, decode_text, explain_json
from shardway.pipeline.deduplication import deduplicate
from shardway.pipeline.job.batch.expectations import UNMET
from shardway.pipeline.job.batch.payloads import decode_service, is_opened, read_opened
from shardway.pipeline.job.file.decode_rules import JSON_FORMATS
from shardway.pipeline.job.file.model import KEPT, as_options
from shardway.pipeline.job.functions import load_function
from shardway.pipeline.job.session import packages
from shardway.pipeline.service_schemas import SERVICE_SCHEMAS
from shardway.pipeline.stamped_rows import deduplicate_by_stamps, open_stamps
from shardway.pipeline.stream_progress import observed
from shardway.spark.columns import ALL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from shardway.pipeline.job.file.model import Job


UNREADABLE = {"avro": "not of the Avro schema", "protobuf": "not of the Protobuf message"}
_CLASSES = {
    "avro": "org.apache.spark.sql.avro.AvroDataToCatalyst",
    "protobuf": "org.apache.spark.sql.protobuf.ProtobufDataToCatalyst",
}
RECORDS, ROWS = "records", "rows"
"""The views that a transform's query and a sink's query read."""


class MissingPackageError(ShardwayError):
    """Spark lacks a package: give it to Spark, by the coordinates in the message."""


def records_of(spark: SparkSession, job: Job, began_s: float) -> DataFrame:
    """Return the stream's records as they are, and have Spark show their numbers in the query's progress. ``began_s``:
    the job's start in epoch seconds, up to which AvailableNow reads.
    """
    reading = spark.readStream.format("shardway").schema(ALL_COLUMNS)
    if job.trigger.available_now:
        reading = reading.option("availableNowMs", int(began_s * 1000))
    return observed(reading.options(**as_options(job.source)).load())


def opened(records: DataFrame, job: Job) -> DataFrame:
    """Return records without the envelopes that a writer with stamps has put around the data, and without its
    duplicates if the job asks for that.
    """
    if job.stamps is None:
        return records
    if job.stamps.window is None:
        return open_stamps(records)
    return deduplicate_by_stamps(records, window=job.stamps.window)


def decoded(records: DataFrame, job: Job, folder: Path) -> DataFrame:
    """Return records with ``value`` and ``reason``. Raises MissingPackageError, OptionError, or what Spark raises for a
    schema.
    """
    _require_zstd(job)
    if job.decode.format in SERVICE_SCHEMAS:
        return decode_service(records, job.decode)
    if is_opened(job.decode):
        return read_opened(records, job, lambda inside: _decode(inside, job, folder))
    return _decode(records, job, folder)


def _decode(records: DataFrame, job: Job, folder: Path) -> DataFrame:
    decode = job.decode
    if decode.format == "bytes":
        return decode_bytes(records)
    if decode.format == "text":
        return decode_text(records)
    if decode.format in JSON_FORMATS:
        return decode_json(records, schema_text(job, folder))
    require_package(records.sparkSession, decode.format)
    return _by_spark(records, job, folder)


def slimmed(rows: DataFrame, job: Job) -> DataFrame:
    """Return rows with the same columns, of which those are null in good rows that no step behind this one reads: they
    would go through the shuffle of a de-duplication, and nowhere else.
    """
    if job.transform is not None:
        return rows
    asked = job.deduplicate
    read = {VALUE, REASON, UNMET, *KEPT}
    read |= set() if asked is None else {name.partition(".")[0].strip("`") for name in (*asked.keys, asked.time)}
    # Names that differ by case only are one column to Spark.
    kept = {name.lower() for name in read}
    idle = {
        name: fn.when(fn.col(REASON).isNotNull(), fn.col(name)) for name in rows.columns if name.lower() not in kept
    }
    return rows.withColumns(idle) if idle else rows


def explained(dead: DataFrame, job: Job, folder: Path) -> DataFrame:
    """Return dead letters with reasons that name fields, where the format allows that."""
    if job.decode.format not in JSON_FORMATS:
        return dead
    schema = schema_text(job, folder)
    if is_opened(job.decode):
        return read_opened(dead, job, lambda inside: explain_json(inside, schema))
    return explain_json(dead, schema)


def without_duplicates(rows: DataFrame, job: Job) -> DataFrame:
    """Keep each key once within the window, if the job asks for that."""
    if job.deduplicate is None:
        return rows
    asked = job.deduplicate
    return deduplicate(rows, asked.keys, window=asked.window, time=asked.time, exact=asked.exact)


def chosen(job: Job) -> list[Column]:
    """Return the columns that the sinks get without a transform."""
    value = VALUE if job.decode.format in ("text", "bytes") else f"{VALUE}.*"
    return [fn.col(name) for name in (value, *KEPT)]


def transformed(good: DataFrame, job: Job, folder: Path) -> DataFrame:
    """Return what the sinks get: what the transform makes, or else the fields of the value and the row's position."""
    transform = job.transform
    if transform is None:
        return good.select(*chosen(job))
    if transform.function is not None:
        function: Callable[[DataFrame], Any] = load_function(transform.function, folder)
        made = function(good)
        if not hasattr(made, "columns"):
            raise OptionError(f"{transform.function} returned {type(made).__name__}, and no DataFrame")
        return made  # type: ignore[no-any-return]
    sql = transform.sql if transform.sql_file is None else (folder / transform.sql_file).read_text("utf-8")
    assert sql is not None
    return queried(good, RECORDS, sql)


def queried(rows: DataFrame, view: str, sql: str) -> DataFrame:
    """Return the result of a query over rows, which stand under a view's name in the session that they are of."""
    rows.createOrReplaceTempView(view)
    return rows.sparkSession.sql(sql)


def schema_text(job: Job, folder: Path) -> str:
    """Return the schema of the data, from the job or from its file."""
    if job.decode.schema_file is not None:
        return (folder / job.decode.schema_file).read_text("utf-8").strip()
    assert job.decode.schema is not None
    return job.decode.schema


def _require_zstd(job: Job) -> None:
    """Raises MissingPackageError where the job is to open zstd, and no library for it is there."""
    if job.decode.compression in ("zstd", "auto"):
        try:
            check_zstd(f'decode.compression = "{job.decode.compression}"')
        except ModuleNotFoundError as error:
            raise MissingPackageError(str(error)) from None


def require_package(spark: SparkSession, name: str) -> None:
    """Raises MissingPackageError where Spark's own package (avro, protobuf) is not on the class path."""
    jvm: Any = spark.sparkContext._jvm
    found = jvm
    for part in _CLASSES[name].split("."):
        found = getattr(found, part)
    if type(found).__name__ == "JavaClass":  # py4j takes a class that is not there for a package
        return
    package = packages.hint(name, packages.Spark(spark.version, scala_of(jvm)))
    raise MissingPackageError(f"Spark has no {name} functions here: {package}")


def scala_of(jvm: Any) -> str:
    """Return the first two numbers of the version of Scala that Spark is made with."""
    version: str = jvm.scala.util.Properties.versionNumberString()
    return ".".join(version.split(".")[:2])


def _by_spark(records: DataFrame, job: Job, folder: Path) -> DataFrame:
    """Decode Avro or Protobuf by Spark's functions: what they cannot read gives a value whose fields are all null."""
    data = fn.col("data")
    if job.decode.format == "avro":
        from pyspark.sql.avro.functions import from_avro

        value = from_avro(data, schema_text(job, folder), {"mode": "PERMISSIVE"})
    else:
        from pyspark.sql.protobuf.functions import from_protobuf

        assert job.decode.message is not None
        file = job.decode.schema_file
        assert file is not None
        value = from_protobuf(data, job.decode.message, str(folder / file), {"mode": "PERMISSIVE"})
    parsed = records.withColumn(VALUE, value)
    kind: Any = parsed.schema[VALUE].dataType
    if not hasattr(kind, "fieldNames"):
        raise OptionError("the schema is not one of a record with fields")
    empty = reduce(lambda left, right: left & right, [fn.col(VALUE).getField(f).isNull() for f in kind.fieldNames()])
    unread = fn.col(VALUE).isNull() | empty
    if job.decode.format == "protobuf":
        unread = unread & (fn.length("data") > 0)  # a message of defaults alone has no bytes
    reason = fn.when(unread, fn.lit(UNREADABLE[job.decode.format]))
    return parsed.withColumn(REASON, reason).withColumn(VALUE, fn.when(fn.col(REASON).isNull(), fn.col(VALUE)))
