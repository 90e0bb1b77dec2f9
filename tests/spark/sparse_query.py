"""A Spark query that is killed: ``python sparse_query.py MODE ENDPOINT FOLDER START``. MODE is ``live``, ``available``
or ``batch``; START is TRIM_HORIZON, LATEST, or a time in epoch seconds.

Each batch is a file of FOLDER/output that is there as a whole or not at all, under the batch's number. One that runs
again must have the same rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(mode: str, endpoint_url: str, folder: str, start: str) -> None:
    """Run to the end, or until killed."""
    spark = SparkSession.builder.appName("sparse").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    output = Path(folder) / "output"

    def write(batch: DataFrame, batch_id: int) -> None:
        found = [list(row) for row in batch.selectExpr("shard_id", "sequence_number", "string(data)").collect()]
        whole, part = output / f"{batch_id}.json", output / f"{batch_id}.part"
        if whole.exists():
            assert json.loads(whole.read_text()) == found, f"batch {batch_id} has other rows than before"
        part.write_text(json.dumps(found))
        part.rename(whole)

    options = {
        "streamName": "orders",
        "region": "us-east-1",
        "endpointUrl": endpoint_url,
        "startingPosition" if start.isupper() else "startingTimestamp": start,
    }
    if mode == "batch":
        write(spark.read.format("shardway").options(**options).load(), 0)
        return
    rows = spark.readStream.format("shardway").options(**options).load()
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    if mode == "available":
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
