"""Name the formats of sinks: folders of files, tables, and what else Spark has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.pipeline.tables.commit_keys import RESERVED_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.pipeline.job.file.model import Sink


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
"""Formats of Spark and of well-known packages; there may be others."""


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


def reserved_options(sink: Sink) -> list[str]:
    """Return the given options of a table's sink that it sets itself."""
    reserved = RESERVED_OPTIONS.get(sink.format or "", ())
    return [name for name in sink.options if name.lower() in reserved]
