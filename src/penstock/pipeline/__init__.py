"""Steps of a pipeline: functions from DataFrame to DataFrame, for the records of ``format("penstock")``, and a sink.

They are plain PySpark and mix with any other step.
"""

from penstock.pipeline.batches import read_once
from penstock.pipeline.decode import decode_bytes, decode_json, decode_text, explain_json, split
from penstock.pipeline.parquet_folder import ParquetFolder
from penstock.pipeline.positions import POSITION, position_order, sort_by_key
from penstock.pipeline.repeats import deduplicate, late_rows

__all__ = [
    "POSITION",
    "ParquetFolder",
    "decode_bytes",
    "decode_json",
    "decode_text",
    "deduplicate",
    "explain_json",
    "late_rows",
    "position_order",
    "read_once",
    "sort_by_key",
    "split",
]
