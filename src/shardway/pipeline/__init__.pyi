# Written by scripts/stubs.py from the list in __init__.py.

from shardway.pipeline.batches import position_order as position_order
from shardway.pipeline.batches import read_once as read_once
from shardway.pipeline.batches import sort_by_key as sort_by_key
from shardway.pipeline.decode import decode_bytes as decode_bytes
from shardway.pipeline.decode import decode_json as decode_json
from shardway.pipeline.decode import decode_text as decode_text
from shardway.pipeline.decode import explain_json as explain_json
from shardway.pipeline.decode import split as split
from shardway.pipeline.deduplication import deduplicate as deduplicate
from shardway.pipeline.listener import MetricsListener as MetricsListener
from shardway.pipeline.parquet_folder import BatchFolder as BatchFolder
from shardway.pipeline.parquet_folder import ParquetFolder as ParquetFolder
from shardway.pipeline.removed_rows import late_rows as late_rows
from shardway.pipeline.stamped_rows import deduplicate_by_stamps as deduplicate_by_stamps
from shardway.pipeline.stamped_rows import open_stamps as open_stamps
from shardway.pipeline.stream_progress import StreamMetrics as StreamMetrics
from shardway.pipeline.stream_progress import observed as observed
from shardway.pipeline.stream_progress import stream_metrics as stream_metrics
from shardway.pipeline.tables.delta import DeltaSink as DeltaSink
from shardway.pipeline.tables.delta import delta_settings as delta_settings
from shardway.pipeline.tables.iceberg import IcebergSink as IcebergSink
from shardway.spark.columns import ALL_COLUMNS as ALL_COLUMNS
from shardway.spark.columns import POSITION as POSITION

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
