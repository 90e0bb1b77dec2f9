"""A job of its own process: copies a stream, stamped and in order per key, until it is killed or there is no more."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tests.spark.killing import Program

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.local import LocalKinesis

DONE_TIMEOUT_S = 240.0
SINCE_S = 1.0
"""How long before now a time lies at which the job begins; the clock was moved by more than that just before."""


def copy(given: dict[str, Any]) -> None:
    """What the process does; it ends when all that is there is copied."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("copier").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    records = spark.readStream.format("shardway").options(**given["source"]).load()
    writer = records.writeStream.format("shardway").options(**given["target"])
    query = writer.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()


class Copier:
    """Starts the job, kills it, and lets it come to its end."""

    def __init__(self, local: LocalKinesis, folder: Path, *, start: str, **target: str) -> None:
        """``start``: TRIM_HORIZON, LATEST or AT_TIMESTAMP, which is now."""
        since = {"startingTimestamp": str(local.clock.now() - SINCE_S)} if start == "AT_TIMESTAMP" else {}
        reach = {"region": local.region, "endpointUrl": local.endpoint_url}
        self._local = local
        self._program = Program(__file__, folder / "copier.log", deadline_s=DONE_TIMEOUT_S)
        self._given = {
            "source": {
                **reach,
                "streamName": "orders",
                "startingPosition": start,
                **since,
                "maxRecordsPerTrigger": "1000",
            },
            "target": {**reach, "streamName": "copy", "orderedByKey": "true", "stamps": "position", **target},
            "checkpoint": str(folder / "checkpoint"),
        }

    def killed_after(self, records: int) -> bool:
        """Runs until so many more records were written, then is killed. False: it came to its end before."""
        wanted = self.written() + records
        return self._program.killed_when(lambda: self.written() >= wanted, json.dumps(self._given))

    def finished(self) -> None:
        """Runs to its end."""
        self._program.finished(json.dumps(self._given))

    def written(self) -> int:
        """Records that all runs have put into the copy."""
        return self._local.stats().records("PutRecords", "sink")


if __name__ == "__main__":
    copy(json.loads(sys.argv[1]))
