"""A query over a stream of a local Kinesis, with its checkpoint directory, its folder and the stream's own journal.

::

    scripts/run python -m tests.pipeline.query_kit FILE    # writes a fixture
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway.local.embedded import LocalKinesis
from shardway.pipeline import BatchFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_S = 1_795_000_000.0
FIRST = range(30)
TIMEOUT_S = 240
LEFT_OUT = (".crc", "lock")


def service(folder: Path, later_s: float = 0.0) -> LocalKinesis:
    """The stream's service at a time of its own: what the fixture holds never becomes too old."""
    return LocalKinesis(data=folder / "service", clock_start_s=NOW_S + later_s, region="us-east-1")


def ask(local: LocalKinesis, operation: str, **request: Any) -> Any:
    answer = local.ask(operation, json.dumps({"StreamName": "orders", **request}).encode())
    return json.loads(answer) if answer else None


def put(local: LocalKinesis, numbers: range) -> None:
    records = [{"Data": base64.b64encode(b"%04d" % one).decode(), "PartitionKey": f"key-{one % 7}"} for one in numbers]
    assert ask(local, "PutRecords", Records=records)["FailedRecordCount"] == 0


def run(spark: SparkSession, local: LocalKinesis, folder: Path) -> None:
    """Read all there is, in small batches."""
    target = BatchFolder(f"{folder}/out", format="json", writer="orders")
    given = {
        "streamName": "orders",
        "region": local.region,
        "endpointUrl": local.endpoint_url,
        "startingPosition": "TRIM_HORIZON",
        "maxRecordsPerTrigger": "12",
    }
    rows = spark.readStream.format("shardway").options(**given).load()
    rows = rows.selectExpr("CAST(data AS STRING) AS data", "shard_id", "sequence_number")
    query = (
        rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .foreachBatch(target.write)
        .start()
    )
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()


def packed(folder: Path) -> dict[str, str]:
    """The files of a folder, in Base64."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.endswith(LEFT_OUT)]
    return {str(file.relative_to(folder)): base64.b64encode(file.read_bytes()).decode() for file in files}


def unpack(packed: dict[str, str], folder: Path) -> None:
    for name, data in packed.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(data))


def main() -> None:
    from pyspark.sql import SparkSession

    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")  # Spark's Java hands them on.
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with service(folder) as local:
            ask(local, "CreateStream", ShardCount=2)
            put(local, FIRST[:20])
            local.clock.advance(10.0)
            run(spark, local, folder)
            shard = "shardId-000000000000"
            ask(local, "SplitShard", ShardToSplit=shard, NewStartingHashKey=str(2**126))
            put(local, FIRST[20:])
            local.clock.advance(10.0)
            run(spark, local, folder)
        newest = max(int(one.name) for one in (folder / "checkpoint" / "commits").iterdir() if one.name.isdigit())
        (folder / "checkpoint" / "commits" / str(newest)).unlink()  # as if killed in the midst of its last batch
        Path(sys.argv[1]).write_text(json.dumps(packed(folder), indent=1) + "\n", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
