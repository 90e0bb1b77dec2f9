"""The columns that a DataFrame must have to be written, by the options of the sink."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardway.errors import OptionError
from shardway.spark.options.sink_options import BY_POSITION, NO_STAMPS, SinkOptions

POSITION_COLUMNS = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns of the source that name the record that a row comes from."""

_IGNORED_COLUMNS = frozenset({*POSITION_COLUMNS, "approximate_arrival_timestamp"})
"""Columns of the source that may stay in a DataFrame that is written; the service gives the record its own values."""
_TEXT = ("string", "varchar", "char")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


class SinkColumns(NamedTuple):
    """The places, from 0, of the columns that are written. None stands for a column that is not there."""

    partition_key: int
    data: int
    explicit_hash_key: int | None = None
    position: tuple[int, int, int, int] | None = None
    """The places of POSITION_COLUMNS, where rows are stamped by position."""
    row_index: int | None = None
    key: int | None = None
    """The place of the key column that rows are stamped by."""


def sink_columns(schema: Any, options: SinkOptions) -> SinkColumns:
    """Find the columns in a schema (StructType) that is written. Raises OptionError with all faults.

    A column that is not written is a fault: its values would be dropped in silence. Columns of the source are let pass.
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
    unused = [
        field.name for name, (place, field) in fields.items() if place not in used and name not in _IGNORED_COLUMNS
    ]
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
