"""Orders from a Kinesis stream into Parquet, by hour, without duplicates; what cannot be decoded beside them.

::

    python examples/orders_to_parquet.py --stream orders --region eu-west-1 --out lake/ --checkpoint checkpoints/orders

It runs until it is stopped. After SIGTERM it finishes what is in the stream by then, and ends. Killed in any other
way, it goes on from its Spark checkpoint directory at the next start, and the folders hold each order once.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from shardway.pipeline import ParquetFolder, decode_json, deduplicate, explain_json, late_rows, read_once, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ORDER = (
    "order_id STRING NOT NULL, customer STRING NOT NULL, counter BIGINT NOT NULL,"
    " item STRING NOT NULL, quantity INT NOT NULL, amount DECIMAL(10,2) NOT NULL"
)
REPEATED_WITHIN = "10 minutes"
POLL_S = 0.5


def read(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """The stream's records, as they are."""
    options = {"streamName": args.stream, "startingPosition": "TRIM_HORIZON"}
    optional = {"region": args.region, "endpointUrl": args.endpoint_url, "maxRecordsPerTrigger": args.max_records}
    options |= {name: value for name, value in optional.items() if value is not None}
    return spark.readStream.format("shardway").options(**options).load()


def start(spark: SparkSession, args: argparse.Namespace, trigger: dict[str, Any]) -> StreamingQuery:
    """The query: decoded orders without duplicates, written to two folders from one read of the stream."""
    orders = ParquetFolder(f"{args.out}/orders", key="partition_key")
    dead_letters = ParquetFolder(f"{args.out}/dead-letters")

    def write(batch: DataFrame, batch_id: int) -> None:
        with read_once(batch) as rows:
            good, dead = split(rows)
            columns = ["value.*", "partition_key", "shard_id", "sequence_number", "sub_sequence_number"]
            orders.write(good.select(*columns, "approximate_arrival_timestamp"), batch_id)
            dead_letters.write(explain_json(dead, ORDER), batch_id)

    decoded = decode_json(read(spark, args), ORDER)
    unique = deduplicate(decoded, "value.order_id", window=REPEATED_WITHIN)
    writer = unique.writeStream.queryName("orders").foreachBatch(write).option("checkpointLocation", args.checkpoint)
    return writer.trigger(**trigger).start()


class Report(StreamingQueryListener):
    """Says what each batch did: a line for people, and one of JSON in a file where that is asked for."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to say."""

    def onQueryProgress(self, event: Any) -> None:
        """Spark calls this after each batch."""
        progress = event.progress
        rows, late = int(progress["numInputRows"]), late_rows(progress)
        seconds = int(progress["durationMs"].get("triggerExecution", 0)) / 1000
        print(f"batch {progress['batchId']}: {rows:,} records in {seconds:.1f} s, {late:,} dropped as late", flush=True)
        if self._path is not None:
            line = {"batch": progress["batchId"], "rows": rows, "late": late, "seconds": seconds}
            with Path(self._path).open("a") as file:
                file.write(json.dumps(line) + "\n")

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to say."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to say."""


def run(spark: SparkSession, args: argparse.Namespace, stopping: threading.Event) -> None:
    """Run until it is to stop, then finish what is there. Raises what made the query fail."""
    query = start(spark, args, {"processingTime": args.every})
    while not stopping.is_set():
        if query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # Spark takes parts of a second, too
            return
    query.stop()
    start(spark, args, {"availableNow": True}).awaitTermination()


def main(arguments: list[str]) -> None:
    """Take the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stream", required=True)
    parser.add_argument("--out", required=True, help="folder for orders/ and dead-letters/")
    parser.add_argument("--checkpoint", required=True, help="Spark checkpoint directory")
    parser.add_argument("--region")
    parser.add_argument("--endpoint-url")
    parser.add_argument("--max-records", type=int, help="about how many records a batch takes")
    parser.add_argument("--every", default="1 second", help="time between the starts of batches")
    parser.add_argument("--report", metavar="FILE", help="append a line of JSON per batch")
    args = parser.parse_args(arguments)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark = SparkSession.builder.appName("orders").getOrCreate()
    spark.streams.addListener(Report(args.report))
    try:
        run(spark, args, stopping)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
