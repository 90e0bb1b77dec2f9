"""A query's source as Spark's runner drives it, without Spark: ``python stopping_process.py OPTIONS`` (JSON).

Each line that it reads is a batch that it plans and commits, and answers with a line. At the end of its input it stops,
as the runner does when the connection ends.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql.types import BinaryType, StructField, StructType

from shardway.spark.source import ShardwayDataSource


def batch(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
    """Plan until there is something new, run it, and ask what comes next: then it is committed."""
    while (end := reader.latestOffset(start)) == start:
        pass
    reader.partitions(start, end)
    reader.latestOffset(end)
    return dict(end)


def main(options: dict[str, str]) -> None:
    """Until the input ends, or the process is told to end."""
    reader = ShardwayDataSource(options).streamReader(StructType([StructField("data", BinaryType())]))
    end = reader.initialOffset()
    try:
        for _ in sys.stdin:
            end = batch(reader, end)
            print("committed", flush=True)
        raise EOFError
    finally:
        reader.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
