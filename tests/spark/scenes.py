"""A stream on the local service and partitions of it, read as a Spark task reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.aws.kinesis.shapes import PutEntry, WireRecord
from shardway.aws.options import ConnectionOptions
from shardway.core.hashkeys import even_ranges
from shardway.model import IteratorAt, StreamName
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.ranges import EndKind, ShardPartition, ShardRange, TaskOptions
from shardway.spark.task.connections import connection_for
from shardway.spark.task.partition_reader import read_partition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    import pyarrow as pa

    from shardway.local.embedded import LocalKinesis
    from shardway.model import ListedShard
    from shardway.spark.ranges import Chain


class Row(NamedTuple):
    shard_id: str
    sequence_number: int
    sub_sequence_number: int
    data: bytes


class Scene:
    """Puts records where it is told, and knows the whole log of each shard."""

    def __init__(self, local: LocalKinesis, shards: int = 1, stream: str = "orders") -> None:
        self.local = local
        self.stream = StreamName(stream)
        self.wire = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, user_agent_tag="task")
        self.client = connection_for(self.wire).client
        self.run(self.client.call("CreateStream", {"StreamName": stream, "ShardCount": shards}))
        self._keys = {f"shardId-{n:012d}": first for n, (first, _) in enumerate(even_ranges(shards))}

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return connection_for(self.wire).thread.run(work, 60)

    def put(self, shard: int, *datas: bytes) -> None:
        """To the shard with this number, by an explicit hash key."""
        shards = {one.shard_id: one for one in self.shards()}
        explicit = str(shards[f"shardId-{shard:012d}"].first_hash_key)
        size = max(1, *map(len, datas)) if datas else 1
        step = max(1, min(500, 4 * 2**20 // size))
        for at in range(0, len(datas), step):
            entries = [PutEntry(data, f"key-{len(data)}", explicit) for data in datas[at : at + step]]
            answer = self.run(self.client.put_records(self.stream, entries))
            assert answer.failed_record_count == 0

    def shards(self) -> list[ListedShard]:
        return list(self.run(self.client.list_shards(self.stream)))

    def log(self, shard: int) -> list[WireRecord]:
        """All records of a shard that are not trimmed."""

        async def walk() -> list[WireRecord]:
            shard_id = f"shardId-{shard:012d}"
            at = IteratorAt.trim_horizon()
            iterator: str | None = await self.client.get_shard_iterator(self.stream, shard_id, at)
            found: list[WireRecord] = []
            while iterator is not None:
                page = await self.client.get_records(iterator)
                found += page.records
                if page.millis_behind_latest == 0 and not page.records:
                    break
                iterator = page.next_shard_iterator
            return found

        return list(self.run(walk()))

    def split(self, shard: int) -> None:
        one = next(s for s in self.shards() if s.shard_id == f"shardId-{shard:012d}")
        middle = (one.first_hash_key + one.last_hash_key) // 2 + 1
        params = {"StreamName": self.stream.name, "ShardToSplit": one.shard_id, "NewStartingHashKey": str(middle)}
        self.run(self.client.call("SplitShard", params))

    def merge(self, shard: int, adjacent: int) -> None:
        params = {
            "StreamName": self.stream.name,
            "ShardToMerge": f"shardId-{shard:012d}",
            "AdjacentShardToMerge": f"shardId-{adjacent:012d}",
        }
        self.run(self.client.call("MergeShards", params))

    def settings(self, **changes: Any) -> TaskOptions:
        return msgspec.structs.replace(TaskOptions.of(ReadOptions(), self.wire), **{"no_progress_s": 20.0, **changes})

    def partition(self, *chains: Chain, **changes: Any) -> ShardPartition:
        return ShardPartition(chains, self.stream, self.settings(**changes))

    def batches(self, *chains: Chain, **changes: Any) -> list[pa.RecordBatch]:
        return list(read_partition(self.partition(*chains, **changes)))

    def read(self, *chains: Chain, **changes: Any) -> list[Row]:
        return rows_of(self.batches(*chains, **changes))


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    names = ("shard_id", "sequence_number", "sub_sequence_number", "data")
    rows = []
    for batch in batches:
        for shard_id, number, sub, data in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            rows.append(Row(shard_id, int(number), sub, data))
    return rows


def range_of(
    shard: int, log: Sequence[WireRecord], kind: EndKind, end: WireRecord | None = None, **more: Any
) -> ShardRange:
    """The range that begins with the first record of ``log``."""
    return ShardRange(
        f"shardId-{shard:012d}",
        int(log[0].sequence_number),
        int(log[0].approximate_arrival_timestamp),
        kind,
        None if end is None else int(end.sequence_number),
        **more,
    )


def whole(shard: int, log: Sequence[WireRecord], **more: Any) -> ShardRange:
    """All records of a log, the last one included."""
    return range_of(shard, log, EndKind.INCLUSIVE, log[-1], **more)
