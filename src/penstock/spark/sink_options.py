"""The options for writing with ``format("penstock")``, and the columns that a DataFrame must then have."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import OptionError
from penstock.spark.options import REACH_OPTIONS, Option, any_text, boolean, region_of, stream_of, values_of, whole

if TYPE_CHECKING:
    from penstock.model import StreamName

MIB = 1024 * 1024

BUFFER_BYTES = 16 * MIB
BUFFER_BYTES_MIN = 11 * MIB
"""A record of 10 MiB, the largest that Kinesis takes, and its book-keeping fit in."""
WRITE_TIMEOUT_MS = 120_000

NO_STAMPS = "none"
BY_POSITION = "position"
POSITION_COLUMNS = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns of the source that name the record that a row comes from."""

_IGNORED = frozenset({*POSITION_COLUMNS, "approximate_arrival_timestamp"})
"""Columns of the source that may stay in a DataFrame that is written; the service gives the record its own."""
_TEXT = ("string", "varchar", "char")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")

SINK_OPTIONS = (
    *REACH_OPTIONS,
    Option(
        "aggregation",
        "boolean",
        "false",
        "Pack rows into KPL aggregates: fewer and larger Kinesis records, for less cost and more throughput. Readers "
        "must open them, as the source here, the KCL and the KPL's readers do.",
        boolean,
    ),
    Option(
        "orderedByKey",
        "boolean",
        "false",
        "Keep the order of each partition key within a task, also when records are refused and put again; see “Order”.",
        boolean,
    ),
    Option(
        "stamps",
        "`none`, `position`, or a column",
        "none",
        "Write each row in an envelope that says which row it is, so that a reader can remove repeats: by the position "
        "of the record that it comes from, or by a key column (string or integer); see “Stamps”.",
        any_text,
    ),
    Option(
        "stampIndex",
        "an integer column",
        "-",
        "With `stamps` `position`, where a record of the source becomes several rows: the column that numbers them, "
        "the same in every run (`posexplode` makes one).",
        any_text,
    ),
    Option(
        "bufferBytes",
        "bytes",
        f"{BUFFER_BYTES:,}",
        "What a task holds of rows that are not written yet: data, partition key and 256 bytes each. When it is full, "
        "the task waits.",
        whole(BUFFER_BYTES_MIN),
    ),
    Option(
        "writeTimeoutMs",
        "milliseconds",
        f"{WRITE_TIMEOUT_MS:,}",
        "A task fails when none of the rows that it holds was written for so long.",
        whole(1_000),
    ),
)
"""All options for writing. None is listed that does nothing."""


class SinkOptions(NamedTuple):
    """The options of one sink, checked."""

    stream: StreamName
    region: str | None = None
    endpoint_url: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    sts_endpoint_url: str | None = None
    aggregation: bool = False
    ordered_by_key: bool = False
    stamps: str = NO_STAMPS
    """``none``, ``position``, or the name of a key column."""
    stamp_index: str | None = None
    buffer_bytes: int = BUFFER_BYTES
    write_timeout_s: float = WRITE_TIMEOUT_MS / 1000


class SinkColumns(NamedTuple):
    """The places, from 0, of the columns that are written. ``None``: there is none."""

    partition_key: int
    data: int
    explicit_hash_key: int | None = None
    position: tuple[int, int, int, int] | None = None
    """Of POSITION_COLUMNS, where rows are stamped by position."""
    row_index: int | None = None
    key: int | None = None
    """Of the key column that rows are stamped by."""


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Checks what the user gave. Raises OptionError with all faults at once; reads and calls nothing."""
    faults: list[str] = []
    values = values_of(given, SINK_OPTIONS, faults)
    stream = stream_of(values, faults)
    stamps = values.get("stamps", NO_STAMPS)
    if stamps.lower() in (NO_STAMPS, BY_POSITION):
        stamps = stamps.lower()
    if "stampIndex" in values and stamps != BY_POSITION:
        faults.append("stampIndex numbers the rows of one source position: it needs stamps position")
    if faults or stream is None:
        raise OptionError(faults)
    return SinkOptions(
        stream=stream,
        region=values.get("region") or region_of(stream),
        endpoint_url=values.get("endpointUrl"),
        role_arn=values.get("roleArn"),
        role_session_name=values.get("roleSessionName"),
        role_external_id=values.get("roleExternalId"),
        sts_endpoint_url=values.get("stsEndpointUrl"),
        aggregation=values.get("aggregation", False),
        ordered_by_key=values.get("orderedByKey", False),
        stamps=stamps,
        stamp_index=values.get("stampIndex"),
        buffer_bytes=values.get("bufferBytes", BUFFER_BYTES),
        write_timeout_s=values.get("writeTimeoutMs", WRITE_TIMEOUT_MS) / 1000,
    )


def sink_columns(schema: Any, options: SinkOptions) -> SinkColumns:
    """Where the columns are in a schema (StructType) that is written. Raises OptionError with all faults.

    A column that is not written is a fault: its values would be dropped in silence. Those of the source are let pass.
    """
    faults: list[str] = []
    fields = {field.name.lower(): (place, field) for place, field in enumerate(schema.fields)}

    def place_of(name: str, types: Sequence[str], why: str) -> int:
        if name.lower() not in fields:
            near = difflib.get_close_matches(name.lower(), list(fields), n=1)
            hint = f" (is it {fields[near[0]][1].name}?)" if near else ""
            faults.append(f"there is no column {name}{hint}: {why}")
            return -1
        place, field = fields[name.lower()]
        found = field.dataType.simpleString().partition("(")[0]
        if found not in types:
            faults.append(f"column {field.name} must be {' or '.join(types)}, not {field.dataType.simpleString()}")
        return int(place)

    data = place_of("data", ("binary", *_TEXT), "it holds what is written, binary or string")
    partition_key = place_of("partition_key", _TEXT, "it chooses the shard of each row, and rows of one key have order")
    hash_key = place_of("explicit_hash_key", _TEXT, "") if "explicit_hash_key" in fields else None
    position = index = key = None
    if options.stamps == BY_POSITION:
        why = "stamps position takes it from the source"
        found = [place_of(name, _TEXT, why) for name in POSITION_COLUMNS[:3]]
        position = (found[0], found[1], found[2], place_of(POSITION_COLUMNS[3], ("bigint", "int"), why))
        if options.stamp_index is not None:
            index = place_of(options.stamp_index, _INTEGERS, "stampIndex names it")
    elif options.stamps != NO_STAMPS:
        key = place_of(options.stamps, (*_TEXT, *_INTEGERS), "stamps names it")
    used = {data, partition_key, hash_key, index, key, *(position or ())}
    unused = [field.name for name, (place, field) in fields.items() if place not in used and name not in _IGNORED]
    if unused and not faults:
        faults.append(
            f"{', '.join(unused)}: not written, as a record has data and a partition key only. Put what it needs into "
            'data (to_json(struct("*")), for example) and select data and partition_key'
        )
    if len(fields) < len(schema.fields):
        faults.append("two columns have the same name")
    if faults:
        raise OptionError(faults)
    return SinkColumns(partition_key, data, hash_key, position, index, key)
