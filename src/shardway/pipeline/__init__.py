"""A pipeline has steps, which are functions from DataFrame to DataFrame for the records of ``format("shardway")``, and
sinks.

Steps and sinks are plain PySpark and mix with any other step.

The steps are in ``decode`` (with ``json_types``), ``deduplication``, ``exact_deduplication`` and ``stamped_rows``.
``payload_rows`` opens and reads rows' data in tasks, in bounded pieces, where Spark has no function for it: compressed
data, and what services of AWS write, by ``service_schemas``; ``registry_rows`` reads records in the frame of a schema
registry. The sinks are ``parquet_folder`` and ``tables``; both ask
``batch_runs`` which batch of which query they are given, and ``batches`` reads a batch once for several of them, and
``file_layout`` lays rows out in files. ``stream_progress``, ``listener``, ``query_numbers`` and ``removed_rows`` have a
query's numbers. Below these are the talks with Spark: ``dataframes``, ``jvm``, ``py4j_error``, ``causes``,
``locations``, ``spark_paths``, ``hadoop_files``. ``job`` runs job files, which are made of all that.
"""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "ALL_COLUMNS": "shardway.spark.columns",
    "BatchFolder": "shardway.pipeline.parquet_folder",
    "DeltaSink": "shardway.pipeline.tables.delta",
    "IcebergSink": "shardway.pipeline.tables.iceberg",
    "MetricsListener": "shardway.pipeline.listener",
    "POSITION": "shardway.spark.columns",
    "ParquetFolder": "shardway.pipeline.parquet_folder",
    "StreamMetrics": "shardway.pipeline.stream_progress",
    "decode_bytes": "shardway.pipeline.decode",
    "decode_json": "shardway.pipeline.decode",
    "decode_text": "shardway.pipeline.decode",
    "deduplicate": "shardway.pipeline.deduplication",
    "deduplicate_by_stamps": "shardway.pipeline.stamped_rows",
    "delta_settings": "shardway.pipeline.tables.delta",
    "explain_json": "shardway.pipeline.decode",
    "late_rows": "shardway.pipeline.removed_rows",
    "observed": "shardway.pipeline.stream_progress",
    "open_stamps": "shardway.pipeline.stamped_rows",
    "position_order": "shardway.pipeline.batches",
    "read_once": "shardway.pipeline.batches",
    "sort_by_key": "shardway.pipeline.batches",
    "split": "shardway.pipeline.decode",
    "stream_metrics": "shardway.pipeline.stream_progress",
}
"""The module of each name: that one is loaded for it, and no other, so that a job file is checked without PySpark."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES, extra="spark")


def __dir__() -> list[str]:
    return __all__
