"""Decode what Spark has no functions for: compressed data, records in the frame of a schema registry, and what
services of AWS put into a stream.

Tasks open and read it in Python (``payload_rows``), once for each row. The steps behind it see columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from shardway.payloads.frames import CONFLUENT, GLUE
from shardway.pipeline.dataframes import schema_of
from shardway.pipeline.decode import REASON, VALUE
from shardway.pipeline.job.file.decode_rules import JSON_FRAMES
from shardway.pipeline.job.file.model import Registry, as_options, span_ms
from shardway.pipeline.payload_rows import OpenedData, PayloadRows, ServiceData
from shardway.pipeline.registry_rows import FramedData, RegistryPlace
from shardway.pipeline.service_schemas import CLOUDWATCH_LOGS, SERVICE_SCHEMAS
from shardway.spark.options.parsing import parse_read_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from shardway.pipeline.job.file.model import Decode, Job
    from shardway.pipeline.payload_rows import ReadData

_DATA = "data"
_RAW, _OPENED, _CLOSED = "_shardway_raw", "_shardway_opened", "_shardway_closed"


def is_opened(decode: Decode) -> bool:
    """True where the data is opened, or taken out of its frame, before Spark decodes it."""
    return decode.format in JSON_FRAMES or decode.compression is not None


def read_opened(records: DataFrame, job: Job, read: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return what ``read`` makes of records whose ``data`` is opened; in what is returned ``data`` is as it came. For
    a record that cannot be opened ``reason`` says why, in place of what ``read`` says.
    """
    opened = _with_payloads(records, _opening(job), BinaryType(), _OPENED, _CLOSED)
    inside = _select(opened, {_DATA: fn.col(_OPENED), _OPENED: None}, {_RAW: fn.col(_DATA)})
    done = read(inside)
    closed = fn.col(_CLOSED)
    changed: dict[str, Column | None] = {
        _DATA: fn.col(_RAW),
        REASON: fn.coalesce(closed, fn.col(REASON)),
        _RAW: None,
        _CLOSED: None,
    }
    if VALUE in done.columns:  # dead letters have none
        changed[VALUE] = fn.when(closed.isNull(), fn.col(VALUE))
    return _select(done, changed)


def _opening(job: Job) -> ReadData:
    decode = job.decode
    if decode.format in JSON_FRAMES:
        return FramedData(_registry_place(job), decode.compression, decode.opened_bytes_max)
    assert decode.compression is not None
    return OpenedData(decode.compression, decode.opened_bytes_max)


def _registry_place(job: Job) -> RegistryPlace:
    """Return where the schema registry of a job is. Glue's is in the region of the stream, if the file says no other
    one.
    """
    given = job.decode.registry or Registry()
    wait_s = span_ms(given.wait) / 1_000
    if job.decode.format == CONFLUENT:
        return RegistryPlace(CONFLUENT, url=given.url or "", wait_s=wait_s)
    source = parse_read_options(as_options(job.source), streaming=True)
    region = given.region or source.connection("").region
    return RegistryPlace(GLUE, region=region, endpoint_url=given.endpoint_url, wait_s=wait_s)


def decode_service(records: DataFrame, decode: Decode) -> DataFrame:
    """``value`` is what a service of AWS put into the stream, a STRUCT of the format's fields."""
    compression = "auto" if decode.format == CLOUDWATCH_LOGS else decode.compression
    made = ServiceData(decode.format, compression, decode.opened_bytes_max)
    return _with_payloads(records, made, schema_of(SERVICE_SCHEMAS[decode.format]), VALUE, REASON)


def _with_payloads(records: DataFrame, made: ReadData, kind: DataType, name: str, reason: str) -> DataFrame:
    schema = StructType([*records.schema.fields, StructField(name, kind), StructField(reason, StringType())])
    return records.mapInArrow(PayloadRows(made, name, reason).added, schema)


def _select(rows: DataFrame, changed: dict[str, Column | None], more: dict[str, Column] | None = None) -> DataFrame:
    """Return the columns in their order, with some that are changed, or left out where None stands for them, and more
    at the end.
    """
    columns = []
    for name in rows.columns:
        column = changed.get(name, fn.col(f"`{name}`"))
        columns += [] if column is None else [column.alias(name)]
    return rows.select(*columns, *[column.alias(name) for name, column in (more or {}).items()])
