"""A Spark query that is killed: ``python leases_process.py ENDPOINT STREAM APPLICATION FOLDER OUTPUT START``, which is
TRIM_HORIZON, LATEST, or a time in epoch seconds.

Each batch that was handled is a line of OUTPUT: shard, sequence number and data of its rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(endpoint_url: str, stream: str, application: str, folder: str, output: str, start: str) -> None:
    """Run until killed."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.format("shardway").options(
        streamName=stream,
        region="us-east-1",
        endpointUrl=endpoint_url,
        dynamodbEndpointUrl=endpoint_url,
        applicationName=application,
        **{"startingPosition" if start.isupper() else "startingTimestamp": start},
        leaseIntervalMs="300",
        pollIntervalMs="200",
    )

    def handle(batch: DataFrame, _: int) -> None:
        found = [list(row) for row in batch.selectExpr("shard_id", "sequence_number", "string(data)").collect()]
        with Path(output).open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")

    query = rows.load().writeStream.foreachBatch(handle).option("checkpointLocation", folder).start()
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
