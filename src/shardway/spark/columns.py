"""The columns of the source, with their Spark types."""

from __future__ import annotations

COLUMNS = (
    "partition_key",
    "data",
    "stream",
    "shard_id",
    "sequence_number",
    "sub_sequence_number",
    "approximate_arrival_timestamp",
    "explicit_hash_key",
)
"""The columns of the source, in the order of its schema."""

POSITION = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns that together name one user record of one stream."""

SPARK_TYPES = {
    "partition_key": "string",
    "data": "binary",
    "stream": "string",
    "shard_id": "string",
    "sequence_number": "string",
    "sub_sequence_number": "bigint",
    "approximate_arrival_timestamp": "timestamp",
    "explicit_hash_key": "string",
}
"""The Spark type of each column, as DDL writes it."""

SCHEMA = ", ".join(f"{name} {SPARK_TYPES[name].upper()}" for name in COLUMNS)
"""The schema of the source as a DDL string; every column may be null."""

OUTSIDE = "aggregate_outside_range"
"""The name of a column that is there only for a schema that asks for it: true for the rows of a KPL aggregate some of
whose user records lie outside their shard's hash range."""

ALL_COLUMNS = f"{SCHEMA}, {OUTSIDE} BOOLEAN"
"""The schema of the source with the column ``OUTSIDE``."""
