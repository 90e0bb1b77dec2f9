"""Name the formats of sinks: folders of files, tables, and what a table needs of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.pipeline.job.file.model import as_options
from shardway.pipeline.tables.delta import DeltaSink, delta_settings
from shardway.pipeline.tables.iceberg import IcebergSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.pipeline.job.file.model import Job, Sink
    from shardway.pipeline.tables.table_sink import TableSink


FOLDER_FORMATS = ("parquet", "json", "orc", "csv")
"""The formats that are written as a folder of files, which carry the batch's number."""
TABLE_FORMATS = {
    "delta": "its commit carries the batch's number (txnVersion): a batch that runs again writes nothing",
    "iceberg": "its snapshot carries the batch's number: a batch that runs again writes nothing",
}
"""The formats that are written as a table whose commits carry the batch's number, and what that means for a batch that
runs again.
"""
KNOWN_FORMATS = (
    *FOLDER_FORMATS, "console", "shardway", "noop", "text", "xml", "jdbc", "avro", "kafka", "delta", "iceberg",
    "binaryFile",
)  # fmt: skip
"""Formats of Spark and of well-known packages; another one may be there all the same."""


def stream_of(options: Mapping[str, Any]) -> str:
    """Return the name of the stream that options of ``format("shardway")`` mean."""
    given = {key.lower(): str(value) for key, value in options.items()}
    return given.get("streamname") or given.get("streamarn", "").rpartition("/")[2]


def is_folder(sink: Sink) -> bool:
    """True for a sink that is a folder of files, which has each batch once."""
    return sink.format in FOLDER_FORMATS and sink.table is None and sink.path is not None


def is_table(sink: Sink) -> bool:
    """True for a sink that is a table of a format with transactions, which has each batch once."""
    return sink.format in TABLE_FORMATS and sink.mode == "append"


_EXTENSIONS = "spark.sql.extensions"


def table_sink_of(sink: Sink) -> TableSink:
    """Return the sink that writes each batch once. Raises OptionError for an option that it sets itself."""
    options = as_options(sink.options)
    if sink.format == "delta":
        return DeltaSink(sink.path, table=sink.table, partition_by=sink.partition_by, time=sink.time, options=options)
    assert sink.table is not None
    return IcebergSink(sink.table, partition_by=sink.partition_by, time=sink.time, options=options)


def reserved_options(sink: Sink) -> list[str]:
    """Return the given options of a table's sink that it sets itself."""
    reserved = {"delta": DeltaSink.RESERVED, "iceberg": IcebergSink.RESERVED}.get(sink.format or "", ())
    return [name for name in sink.options if name.lower() in reserved]


def with_tables(job: Job, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the session's settings, and those that Delta needs where a sink is one of its tables and they are not
    given.
    """
    if not any(sink.format == "delta" for sink in job.sinks):
        return dict(settings)
    needed = delta_settings()
    extensions = [name for name in settings.get(_EXTENSIONS, "").split(",") if name]
    if needed[_EXTENSIONS] not in extensions:
        extensions.append(needed[_EXTENSIONS])
    return {**needed, **settings, _EXTENSIONS: ",".join(extensions)}
