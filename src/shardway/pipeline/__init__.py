"""A pipeline has steps, which are functions from DataFrame to DataFrame for the records of ``format("shardway")``, and
sinks.

Steps and sinks are plain PySpark and mix with any other step.
"""

from shardway.pipeline.batches import POSITION, position_order, read_once, sort_by_key
from shardway.pipeline.decode import decode_bytes, decode_json, decode_text, explain_json, split
from shardway.pipeline.deduplication import deduplicate, deduplicate_by_stamps, late_rows, open_stamps
from shardway.pipeline.metrics import MetricsListener, StreamMetrics, observed, stream_metrics
from shardway.pipeline.parquet_folder import BatchFolder, ParquetFolder
from shardway.pipeline.tables import DeltaSink, IcebergSink, delta_settings
from shardway.spark.ranges import ALL_COLUMNS

__all__ = [
    "ALL_COLUMNS",
    "POSITION",
    "BatchFolder",
    "DeltaSink",
    "IcebergSink",
    "MetricsListener",
    "ParquetFolder",
    "StreamMetrics",
    "decode_bytes",
    "decode_json",
    "decode_text",
    "deduplicate",
    "deduplicate_by_stamps",
    "delta_settings",
    "explain_json",
    "late_rows",
    "observed",
    "open_stamps",
    "position_order",
    "read_once",
    "sort_by_key",
    "split",
    "stream_metrics",
]
