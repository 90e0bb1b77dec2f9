"""A job as its file declares it: one read of one stream, steps, and sinks.

The structs are what ``load`` gives, what a TOML file is checked against, and what the JSON schema is made from; the
texts here are those that an editor shows. Rules between fields are in ``rules``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Scalar = str | int | float | bool
"""What an option may be in the file; Spark gets it as text."""

Options = dict[str, Scalar]

Text = Annotated[str, Meta(min_length=1)]
Span = Annotated[str, Meta(pattern=r"^\s*\d+\s*(millisecond|second|minute|hour|day)s?\s*$")]
Function = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]

SPAN_EXAMPLE = '"10 seconds"'
FUNCTION_EXAMPLE = '"orders:clean"'


class Stamps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stream was written with stamps: its envelopes are opened."""

    within: Annotated[
        Span | None, Meta(description="Remove repeats by their stamps, as far apart in time as this; else none is.")
    ] = None


class Decode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a record's data becomes the column ``value``."""

    format: Annotated[
        Literal["json", "text", "bytes", "avro", "protobuf"],
        Meta(description="avro and protobuf need Spark's own packages of these names."),
    ]
    schema: Annotated[Text | None, Meta(description="json: the fields as DDL. avro: the schema as JSON.")] = None
    schema_file: Annotated[
        Text | None, Meta(description="The schema in a file, beside the job file; protobuf: a descriptor set.")
    ] = None
    message: Annotated[Text | None, Meta(description="protobuf: the name of the message.")] = None


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where records go that cannot be decoded: a folder, a stream, or nowhere but into the count."""

    path: Annotated[Text | None, Meta(description="A folder, in files by the hour of arrival.")] = None
    format: Annotated[Literal["parquet", "json"], Meta(description="Of the files in the folder.")] = "parquet"
    stream: Annotated[
        Options | None, Meta(description='Options of format("penstock") for writing: their data as it came.')
    ] = None
    discard: Annotated[bool, Meta(description="true: they are counted and kept nowhere.")] = False


class Deduplicate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep the first of rows with equal keys."""

    keys: Annotated[
        tuple[Text, ...], Meta(min_length=1, description='Columns, or fields of the value: "value.order_id".')
    ]
    within: Annotated[
        Span,
        Meta(description='How far behind the row that stays repeats are removed, such as "10 minutes".'),
    ]
    time: Annotated[Text, Meta(description="The TIMESTAMP column that time is taken from.")] = (
        "approximate_arrival_timestamp"
    )
    exact: Annotated[
        bool,
        Meta(
            description="true: rows further apart than `within` are never removed, which takes longer. Else some are."
        ),
    ] = False


class Transform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of the decoded rows of a batch. Give one of the three."""

    sql: Annotated[Text | None, Meta(description="A query over the view `records`.")] = None
    sql_file: Annotated[Text | None, Meta(description="The query in a file, beside the job file.")] = None
    function: Annotated[
        Function | None,
        Meta(description="module:function, from DataFrame to DataFrame. First it gets one without rows."),
    ] = None


class Sink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place that each batch is written to."""

    format: Annotated[
        Text | None,
        Meta(
            description="parquet, json, orc, csv, delta, iceberg, console, penstock (another stream), or any other "
            "format of Spark."
        ),
    ] = None
    function: Annotated[
        Function | None, Meta(description="In place of a format: module:function, called with (batch, batch_id).")
    ] = None
    path: Annotated[Text | None, Meta(description="The folder of files, or what the format takes for a path.")] = None
    table: Annotated[
        Text | None, Meta(description="A table of Spark's catalog, in place of a path. iceberg needs one.")
    ] = None
    partition_by: Annotated[
        tuple[Text, ...],
        Meta(description="Columns that folders are made of. `hour` is made of `time` where rows have no such column."),
    ] = ()
    time: Annotated[Text, Meta(description="The TIMESTAMP column that `hour` is made of.")] = (
        "approximate_arrival_timestamp"
    )
    key: Annotated[
        Text | None,
        Meta(description="Folders: rows lie sorted by this column and by position, those of one key in one file."),
    ] = None
    sql: Annotated[Text | None, Meta(description="A query over the view `rows`: what this sink gets of them.")] = None
    mode: Annotated[
        Literal["append", "overwrite", "ignore", "error"], Meta(description="Spark's save mode, for other formats.")
    ] = "append"
    options: Annotated[Options, Meta(description="Options of the format. Values from the environment never show.")] = {}

    @property
    def label(self) -> str:
        """How messages and progress call it: never an option."""
        what = self.format or f"function {self.function}"
        where = self.table or self.path or ""
        if self.format == "penstock":
            where = str(self.options.get("streamName") or self.options.get("streamARN") or "")
        return f"{what} {where}".strip()


class Trigger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a batch is made. Without either, one follows the other."""

    every: Annotated[Span | None, Meta(description='Time between the starts of batches, such as "10 seconds".')] = None
    available_now: Annotated[bool, Meta(description="true: read what is in the stream now, and end.")] = False


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline: one query and one read of a stream, whatever the number of sinks."""

    name: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$", description="Names the query, in logs and progress.")
    ]
    checkpoint: Annotated[
        Text,
        Meta(description="Spark's checkpoint directory, by which the job goes on after a stop. One for each job."),
    ]
    source: Annotated[Options, Meta(description='The options of format("penstock") for reading.')]
    sinks: Annotated[tuple[Sink, ...], Meta(min_length=1, description="Written in this order, each batch.")]
    decode: Annotated[Decode, Meta(description="Without it, `value` is the data as it is.")] = Decode(format="bytes")
    stamps: Stamps | None = None
    dead_letters: DeadLetters | None = None
    deduplicate: Deduplicate | None = None
    transform: Transform | None = None
    trigger: Trigger = Trigger()
    spark: Annotated[
        Options, Meta(description="Settings of the Spark session; those of spark-submit go before them.")
    ] = {}
