"""The module has a job as its file declares it: one read of one stream, steps, and sinks.

``load_job`` gives the structs, a TOML file is checked against them, and the JSON schema is made from them; their texts
are those that an editor shows. Rules between fields are in ``rules``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from shardway.payloads.opening import OPENED_BYTES_MAX
from shardway.spark.columns import POSITION
from shardway.spark.options.parsing import parse_sink_options
from shardway.spark.options.sink_columns import sink_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


Scalar = str | int | float | bool
"""The types that an option may have in the file; Spark gets it as text."""
Options = dict[str, Scalar]
Expressions = dict[str, str]
"""SQL expressions, by the names of the columns that they make."""
Text = Annotated[str, Meta(min_length=1)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(gt=0)]
Span = Annotated[str, Meta(pattern=r"^\s*\d+\s*(millisecond|second|minute|hour|day)s?\s*$")]
_SPAN = re.compile(r"\s*(\d+)\s*(millisecond|second|minute|hour|day)s?\s*")
_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
Function = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
KEPT = ("partition_key", *POSITION, "approximate_arrival_timestamp")
"""The source's columns that rows keep beside their value, where no transform says otherwise."""
SPAN_EXAMPLE = '"10 seconds"'
FUNCTION_EXAMPLE = '"orders:clean"'


class Stamps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stream was written with stamps: its envelopes are opened."""

    window: Annotated[
        Span | None, Meta(description="Remove duplicates by their stamps, up to this far apart in time.")
    ] = None


class Registry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says where a schema registry is. The password of one of Confluent's protocol is in the environment of the tasks,
    as ``SHARDWAY_SCHEMA_REGISTRY_AUTH``.
    """

    url: Annotated[Text | None, Meta(description="confluent: the address of the registry.")] = None
    region: Annotated[
        Text | None, Meta(description="glue: the region of the registry; without it, that of the source.")
    ] = None
    endpoint_url: Annotated[Text | None, Meta(description="glue: the address of another service than AWS's.")] = None
    wait: Annotated[
        Span,
        Meta(
            description="How long a task waits for a registry that is away, before the batch fails.",
            examples=["5 minutes"],
        ),
    ] = "60 seconds"


class Decode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says how a record's data becomes the column ``value``."""

    format: Annotated[
        Literal[
            "json", "text", "bytes", "avro", "protobuf", "confluent", "glue", "cloudwatch-logs", "dms",
            "dynamodb-change",
        ],
        Meta(
            description="avro and protobuf need Spark's own packages of these names. confluent and glue: records in "
            "the frame of a schema registry. The last three: what services of AWS put into a stream."
        ),
    ]  # fmt: skip
    schema: Annotated[
        Text | None, Meta(description="json, confluent, glue: the fields as DDL. avro: the schema as JSON.")
    ] = None
    schema_file: Annotated[
        Text | None, Meta(description="The schema in a file, beside the job file; protobuf: a descriptor set.")
    ] = None
    message: Annotated[Text | None, Meta(description="protobuf: the name of the message.")] = None
    registry: Annotated[
        Registry | None, Meta(description="Where the schema registry is: required for confluent, optional for glue.")
    ] = None
    compression: Annotated[
        Literal["gzip", "zstd", "auto"] | None,
        Meta(
            description="The data is opened before it is decoded. auto: gzip and zstd, by their first bytes; other "
            "data stays as it is."
        ),
    ] = None
    opened_bytes_max: Annotated[
        int,
        Meta(ge=1, le=1 << 30, description="Data that opens to more bytes is a dead letter."),
    ] = OPENED_BYTES_MAX

    @property
    def takes_all(self) -> bool:
        """True where no record can be a dead letter: its data is the value as it came."""
        return self.format == "bytes" and self.compression is None


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says where records go that cannot be decoded: into a folder, into a stream, or only into the count."""

    path: Annotated[Text | None, Meta(description="A folder, in files by the hour of arrival.")] = None
    format: Annotated[Literal["parquet", "json"], Meta(description="The format of the files in the folder.")] = (
        "parquet"
    )
    stream: Annotated[
        Options | None,
        Meta(description='Options of format("shardway") for writing. The stream gets the data as it came.'),
    ] = None
    discard: Annotated[bool, Meta(description="true: dead letters are counted, and not kept.")] = False


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition that each decoded row is expected to meet, and what becomes of a row that does not."""

    name: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$", description="Its name in reasons, progress and metrics."),
    ]
    sql: Annotated[
        Text,
        Meta(
            description='A condition over the columns of the source and the value: "value.amount > 0". Null counts as '
            "not met."
        ),
    ]
    action: Annotated[
        Literal["count", "drop", "dead-letter", "stop"],
        Meta(
            description="What becomes of a row that does not meet it: it is only counted, left out, kept as a dead "
            "letter, or the job ends before the batch is written."
        ),
    ] = "count"


class Deduplicate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep the first of rows with equal keys."""

    keys: Annotated[
        tuple[Text, ...], Meta(min_length=1, description='Columns, or fields of the value: "value.order_id".')
    ]
    window: Annotated[
        Span,
        Meta(description='How far a duplicate may lie behind the row that stays, such as "10 minutes".'),
    ]
    time: Annotated[Text, Meta(description="The TIMESTAMP column that time is taken from.")] = (
        "approximate_arrival_timestamp"
    )
    exact: Annotated[
        bool,
        Meta(
            description="true: rows further apart than `window` are never removed, which takes longer. false: some are."
        ),
    ] = False


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of one span of time and of equal keys become one row, which comes once, when the span is over."""

    length: Annotated[
        Span,
        Meta(
            description="How long a window is. Windows follow each other without a gap, from 1970 on in UTC.",
            examples=["1 minute"],
        ),
    ]
    late_by: Annotated[
        Span,
        Meta(
            description="The watermark: how far a row may be behind the newest one and still count. A window's row "
            "comes when a record is this far behind the window's end.",
            examples=["10 seconds"],
        ),
    ]
    aggregates: Annotated[
        Expressions,
        Meta(
            min_length=1,
            description='Columns by their SQL expressions: {orders = "count(*)", total = "sum(value.amount)"}.',
        ),
    ]
    keys: Annotated[
        tuple[Text, ...],
        Meta(description='Columns, or fields of the value: "value.customer". Without them a window has one row.'),
    ] = ()
    time: Annotated[Text, Meta(description="The TIMESTAMP column, or field of the value, that time is taken from.")] = (
        "approximate_arrival_timestamp"
    )


class Transform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says what becomes of the decoded rows of a batch. Give one of the three fields."""

    sql: Annotated[Text | None, Meta(description="A query over the view `records`.")] = None
    sql_file: Annotated[Text | None, Meta(description="The query in a file, beside the job file.")] = None
    function: Annotated[
        Function | None,
        Meta(description="module:function, from DataFrame to DataFrame. The check calls it with one without rows."),
    ] = None


class Sink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place that each batch is written to."""

    format: Annotated[
        Text | None,
        Meta(
            description="parquet, json, orc, csv, delta, iceberg, console, shardway (another stream), or any other "
            "format of Spark."
        ),
    ] = None
    function: Annotated[
        Function | None, Meta(description="In place of a format: module:function, called with (batch, batch_id).")
    ] = None
    path: Annotated[Text | None, Meta(description="The folder of files, or what the format uses as a path.")] = None
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
        Meta(
            description="For folders: rows are sorted by this column and by position; those of one key are in one file."
        ),
    ] = None
    sql: Annotated[Text | None, Meta(description="A query over the view `rows`, whose result this sink gets.")] = None
    mode: Annotated[
        Literal["append", "overwrite", "ignore", "error"], Meta(description="Spark's save mode, for other formats.")
    ] = "append"
    options: Annotated[Options, Meta(description="Options of the format. Values from the environment never show.")] = {}

    @property
    def label(self) -> str:
        """The name of the sink in messages and progress: its format, and its table, path or stream."""
        what = self.format or f"function {self.function}"
        where = self.table or self.path or ""
        if self.format == "shardway":
            where = str(self.options.get("streamName") or self.options.get("streamARN") or "")
        return f"{what} {where}".strip()


class Trigger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says when Spark makes a batch. Without either option, one batch follows the other."""

    every: Annotated[Span | None, Meta(description='Time between the starts of batches, such as "10 seconds".')] = None
    available_now: Annotated[bool, Meta(description="true: the job reads what is in the stream now, and ends.")] = False


class Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says where the job's numbers go, beside the lines that it writes. They go to each place that is given."""

    port: Annotated[
        Port | None, Meta(description="/metrics for Prometheus, and probes, on this port; 0 takes a free one.")
    ] = None
    host: Annotated[Text, Meta(description="The address that this port is on.")] = "127.0.0.1"
    otlp_url: Annotated[
        Text | None, Meta(description="An OpenTelemetry collector, such as http://localhost:4318/v1/metrics.")
    ] = None
    cloudwatch: Annotated[
        Literal["SUMMARY", "DETAILED"] | None,
        Meta(description="The level of what CloudWatch gets, by the KCL's names."),
    ] = None
    emf: Annotated[bool, Meta(description="true: lines for CloudWatch's logs on standard error.")] = False
    every_s: Annotated[Seconds, Meta(description="Time between what is sent to the collector or CloudWatch.")] = 60.0


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline: one query and one read of a stream, whatever the number of sinks."""

    name: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$", description="Names the query, in logs and progress.")
    ]
    checkpoint: Annotated[
        Text,
        Meta(description="Spark's checkpoint directory, where the job continues after a stop. One for each job."),
    ]
    source: Annotated[Options, Meta(description='The options of format("shardway") for reading.')]
    sinks: Annotated[
        tuple[Sink, ...], Meta(min_length=1, description="The job writes each batch to them in this order.")
    ]
    decode: Annotated[Decode, Meta(description="Without it, `value` is the data as it is.")] = Decode(format="bytes")
    stamps: Stamps | None = None
    dead_letters: DeadLetters | None = None
    expect: Annotated[
        tuple[Expectation, ...], Meta(description="What each decoded row is expected to be. All of them are looked at.")
    ] = ()
    deduplicate: Deduplicate | None = None
    window: Window | None = None
    transform: Transform | None = None
    trigger: Trigger = Trigger()
    metrics: Metrics = Metrics()
    spark: Annotated[
        Options, Meta(description="Settings of the Spark session. Those of spark-submit override them.")
    ] = {}

    @property
    def sets_apart(self) -> bool:
        """True where a row may be set apart before it comes to a sink or a window."""
        return not self.decode.takes_all or bool(self.expect)


def span_ms(span: str) -> int:
    """Return the milliseconds of a span of time as job files have it; 0 where it is none."""
    found = _SPAN.fullmatch(span)
    return 0 if found is None else int(found[1]) * _MS[found[2]]


def as_options(given: Mapping[str, Scalar]) -> dict[str, str]:
    """Return options as text, with ``true`` and ``false`` as Spark writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def check_stream_columns(rows: DataFrame, options: Mapping[str, str]) -> None:
    """Raises OptionError when rows do not have what a stream takes."""
    sink_columns(rows.schema, parse_sink_options(options))
