"""The keys under which a table's commit names the batch, and the writer's options that sinks keep for themselves."""

from __future__ import annotations

ICEBERG_PROPERTY = "snapshot-property."
"""What Iceberg's writer puts before the name of a property of the snapshot."""
ICEBERG_OURS = "shardway."
ICEBERG_WRITER, ICEBERG_BATCH = f"{ICEBERG_OURS}writer", f"{ICEBERG_OURS}batch"
ICEBERG_BOUNDS, ICEBERG_QUERY = f"{ICEBERG_OURS}bounds", f"{ICEBERG_OURS}query"
RESERVED_OPTIONS = {
    "delta": ("txnappid", "txnversion", "usermetadata", "path"),
    "iceberg": tuple(
        ICEBERG_PROPERTY + name for name in (ICEBERG_WRITER, ICEBERG_BATCH, ICEBERG_BOUNDS, ICEBERG_QUERY)
    ),
}
"""The options of each format that its sink sets itself, in lower case."""
