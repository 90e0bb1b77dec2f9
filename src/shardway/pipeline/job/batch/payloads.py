"""Decode what Spark has no functions for: compressed data, and what services of AWS put into a stream.

Tasks open and read it in Python (``payload_rows``), once for each row. The steps behind it see columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from shardway.pipeline.dataframes import schema_of
from shardway.pipeline.decode import REASON, VALUE
from shardway.pipeline.payload_rows import OpenedData, PayloadRows, ServiceData
from shardway.pipeline.service_schemas import CLOUDWATCH_LOGS, SERVICE_SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from shardway.pipeline.job.file.model import Decode
    from shardway.pipeline.payload_rows import ReadData

_DATA = "data"
_RAW, _OPENED, _CLOSED = "_shardway_raw", "_shardway_opened", "_shardway_closed"


def read_opened(records: DataFrame, decode: Decode, read: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return what ``read`` makes of records whose ``data`` is opened; in what is returned ``data`` is as it came. For
    a record that cannot be opened ``reason`` says why, in place of what ``read`` says.
    """
    assert decode.compression is not None
    made = OpenedData(decode.compression, decode.opened_bytes_max)
    opened = _with_payloads(records, made, BinaryType(), _OPENED, _CLOSED)
    inside = _selected(opened, {_DATA: fn.col(_OPENED), _OPENED: None}, {_RAW: fn.col(_DATA)})
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
    return _selected(done, changed)


def decode_service(records: DataFrame, decode: Decode) -> DataFrame:
    """``value`` is what a service of AWS put into the stream, a STRUCT of the format's fields."""
    compression = "auto" if decode.format == CLOUDWATCH_LOGS else decode.compression
    made = ServiceData(decode.format, compression, decode.opened_bytes_max)
    return _with_payloads(records, made, schema_of(SERVICE_SCHEMAS[decode.format]), VALUE, REASON)


def _with_payloads(records: DataFrame, made: ReadData, kind: DataType, name: str, reason: str) -> DataFrame:
    schema = StructType([*records.schema.fields, StructField(name, kind), StructField(reason, StringType())])
    return records.mapInArrow(PayloadRows(made, name, reason).added, schema)


def _selected(rows: DataFrame, changed: dict[str, Column | None], more: dict[str, Column] | None = None) -> DataFrame:
    """Return the columns in their order, with some that are changed, or left out where None stands for them, and more
    at the end.
    """
    columns = []
    for name in rows.columns:
        column = changed.get(name, fn.col(f"`{name}`"))
        columns += [] if column is None else [column.alias(name)]
    return rows.select(*columns, *[column.alias(name) for name, column in (more or {}).items()])
