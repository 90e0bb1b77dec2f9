"""The columns of the source have Spark types and Arrow types; a query asks for some of them.

Spark 4.2 and later compare the Arrow schema of a task's batches with their own conversion of the query's schema, and
demand equality of names, order, types and nullability.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shardway.errors import OptionError
from shardway.spark.columns import COLUMNS, OUTSIDE, SPARK_TYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


_TYPES = {**SPARK_TYPES, OUTSIDE: "boolean"}

MAY_BE_NULL = frozenset({"partition_key", "explicit_hash_key"})
"""Columns that a schema given by the user may not declare NOT NULL."""

_ARROW_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
}


def arrow_schema(columns: Iterable[str] = COLUMNS, not_null: Collection[str] = ()) -> pa.Schema:
    """Return the Arrow schema that Spark converts these columns to. ``not_null``: the columns declared NOT NULL."""
    return pa.schema([pa.field(name, _ARROW_TYPES[_TYPES[name]], nullable=name not in not_null) for name in columns])


def asked_columns(schema: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the (columns, those of them that are NOT NULL) that a schema (StructType) given by a user asks for.

    Raises OptionError with every fault found: an unknown, repeated or wrongly typed column, a NOT NULL that
    cannot be kept, no column at all.
    """
    faults = [] if schema.fields else ["the schema asks for no column"]
    names: list[str] = []
    for field in schema.fields:
        name, spark_type = field.name, field.dataType.simpleString()
        if name not in _TYPES:
            near = difflib.get_close_matches(name, _TYPES, n=1)
            hint = f" (did you mean {near[0]}?)" if near else f" (the columns are {', '.join(COLUMNS)})"
            faults.append(f"the source has no column {name}{hint}")
        elif spark_type != _TYPES[name]:
            faults.append(f"column {name} is of type {_TYPES[name]}, not {spark_type}")
        elif name in names:
            faults.append(f"column {name} is asked for twice")
        elif not field.nullable and name in MAY_BE_NULL:
            faults.append(f"column {name} can be null, so it cannot be declared NOT NULL")
        names.append(name)
    if faults:
        raise OptionError(faults)
    return tuple(names), tuple(field.name for field in schema.fields if not field.nullable)
