"""A pipeline has steps, which are functions from DataFrame to DataFrame for the records of ``format("shardway")``, and
sinks.

Steps and sinks are plain PySpark and mix with any other step.

The steps are in ``decode`` (with ``json_types``), ``deduplication``, ``exact_deduplication`` and ``stamped_rows``. The
sinks are ``parquet_folder`` and ``tables``; both ask ``batch_runs`` which batch of which query they are given, and
``batches`` reads a batch once for several of them. ``stream_metrics``, ``listener`` and ``query_numbers`` have a
query's numbers. Below these are the talks with Spark: ``dataframes``, ``jvm``, ``causes``, ``locations``,
``hadoop_files``. ``job`` runs job files, which are made of all that.
"""

from shardway.extras import needing

with needing("spark", "shardway.pipeline"):
    from shardway.pipeline.batches import POSITION, position_order, read_once, sort_by_key
    from shardway.pipeline.decode import decode_bytes, decode_json, decode_text, explain_json, split
    from shardway.pipeline.deduplication import deduplicate
    from shardway.pipeline.listener import MetricsListener
    from shardway.pipeline.parquet_folder import BatchFolder, ParquetFolder
    from shardway.pipeline.removed_rows import late_rows
    from shardway.pipeline.stamped_rows import deduplicate_by_stamps, open_stamps
    from shardway.pipeline.stream_metrics import StreamMetrics, observed, stream_metrics
    from shardway.pipeline.tables.delta import DeltaSink, delta_settings
    from shardway.pipeline.tables.iceberg import IcebergSink
    from shardway.spark.columns import ALL_COLUMNS

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
