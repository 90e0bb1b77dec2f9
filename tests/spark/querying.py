"""Spark queries over a local stream whose every batch is collected, as tests look at them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.runtime.threads.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from shardway.local.embedded import LocalKinesis
    from shardway.model import ListedShard, StreamName

QUERY_TIMEOUT_S = 120


class Row(NamedTuple):
    shard_id: str
    sequence_number: int
    sub_sequence_number: int
    partition_key: str
    data: bytes


class Stream:
    """One stream on a local service, for synchronous tests."""

    def __init__(self, local: LocalKinesis, name: StreamName) -> None:
        self.local = local
        self.name = name
        self.written: list[bytes] = []
        self._loop = LoopThread("test-stream")
        self._wire = Wire(
            ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, user_agent_tag="test")
        )
        self.client = KinesisClient(self._wire)

    def close(self) -> None:
        self._loop.run(self._wire.close())
        self._loop.close()

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        return self._loop.run(self.client.call(operation, {"StreamName": self.name.name, **params}))

    def shards(self) -> list[ListedShard]:
        return self._loop.run(self.client.list_shards(self.name))

    def open_shards(self) -> list[ListedShard]:
        return sorted((s for s in self.shards() if not s.closed), key=lambda s: s.first_hash_key)

    def put(self, count: int, *, size: int = 0, keys: int = 1000) -> None:
        """Numbered records; a key's numbers grow."""
        entries = []
        for _ in range(count):
            number = len(self.written)
            data = b"%08d" % number + bytes(max(0, size - 8))
            self.written.append(data)
            entries.append(PutEntry(data, f"key-{number % keys}"))
        self.put_entries(entries, chunk=500 if size < 2_000 else max(1, min(500, 700_000 // size)))

    def put_entries(self, entries: list[PutEntry], chunk: int = 500) -> None:
        for at in range(0, len(entries), chunk):
            answer = self._loop.run(self.client.put_records(self.name, entries[at : at + chunk]))
            assert answer.failed_record_count == 0

    def split(self, index: int = 0) -> None:
        shard = self.open_shards()[index]
        middle = (shard.first_hash_key + shard.last_hash_key) // 2 + 1
        self.call("SplitShard", ShardToSplit=shard.shard_id, NewStartingHashKey=str(middle))

    def merge(self, index: int = 0) -> None:
        shards = self.open_shards()
        self.call("MergeShards", ShardToMerge=shards[index].shard_id, AdjacentShardToMerge=shards[index + 1].shard_id)

    def settle(self, seconds: float = 3.0) -> None:
        """Lets the service's time pass, so that what was put is older than a live batch's cut."""
        self.local.clock.advance(seconds)


@dataclass
class Batches:
    """What each batch gave, per action."""

    actions: int = 1
    rows: dict[int, list[list[Row]]] = field(default_factory=dict)

    def take(self, frame: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = [collect(frame) for _ in range(self.actions)]

    def all_rows(self) -> list[Row]:
        return [row for batch_id in sorted(self.rows) for row in self.rows[batch_id][0]]

    def sizes(self) -> list[int]:
        return [len(self.rows[batch_id][0]) for batch_id in sorted(self.rows)]


def collect(frame: DataFrame) -> list[Row]:
    columns = ("shard_id", "sequence_number", "sub_sequence_number", "partition_key", "data")
    return [
        Row(shard_id, int(number), sub, key, bytes(data))
        for shard_id, number, sub, key, data in frame.select(*columns).collect()
    ]


def reader(spark: SparkSession, stream: Stream, **options: str) -> DataFrame:
    given = {
        "streamName": stream.name.name or "",
        "region": stream.local.region,
        "endpointUrl": stream.local.endpoint_url,
        "startingPosition": "TRIM_HORIZON",
        **options,
    }
    return spark.readStream.format("shardway").options(**given).load()


def run(spark: SparkSession, stream: Stream, checkpoint: Path, *, actions: int = 1, **options: str) -> Batches:
    """Reads all that is there, and ends."""
    batches = Batches(actions)
    query = start(reader(spark, stream, **options), checkpoint, batches, availableNow=True)
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
    finally:
        query.stop()
    return batches


def start(frame: DataFrame, checkpoint: Path, batches: Batches, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(batches.take).option("checkpointLocation", str(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


def forget_last_commit(checkpoint: Path) -> int:
    """Removes the newest entry of the commit log: Spark runs that batch again. Its number."""
    commits = checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    return newest


def rewind(checkpoint: Path, to: Path, batch_id: int) -> Path:
    """A copy of a Spark checkpoint directory as it was when this batch was planned and not yet committed."""
    shutil.copytree(checkpoint, to)
    for log, first_gone in (("offsets", batch_id + 1), ("commits", batch_id)):
        for path in list((to / log).iterdir()):
            number = path.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= first_gone:
                path.unlink()
    return to


def by_shard(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows per shard, in the order in which they came: what must be the same in each run."""
    shards: dict[str, list[Row]] = {}
    for row in rows:
        shards.setdefault(row.shard_id, []).append(row)
    return dict(sorted(shards.items()))


def assert_exact(stream: Stream, rows: list[Row]) -> None:
    """Every record once, each shard in order."""
    assert sorted(row.data for row in rows) == sorted(stream.written)
    for mine in by_shard(rows).values():
        places = [(row.sequence_number, row.sub_sequence_number) for row in mine]
        assert places == sorted(places)
