"""A stream on the local service, a planner before it, and a plain reader of the ranges that it plans."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.core.hashkeys import hash_key
from shardway.model import IteratorAt, StartingPosition, StreamName
from shardway.spark.driver.grouping import chains_of
from shardway.spark.driver.planner import Planner, PlanOptions
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.ranges import EndKind, ShardRange

if TYPE_CHECKING:
    from shardway.local.embedded import LocalKinesis
    from shardway.spark.offsets import StreamOffset


class Row(NamedTuple):
    shard_id: str
    sequence_number: int
    data: bytes


@dataclass
class World:
    local: LocalKinesis
    client: KinesisClient
    stream: StreamName
    written: list[bytes] = field(default_factory=list)

    async def create(self, shards: int) -> None:
        await self.client.call("CreateStream", {"StreamName": self.stream.name, "ShardCount": shards})

    async def put(self, count: int, *, size: int = 0, key: str | None = None) -> None:
        entries = []
        for _ in range(count):
            number = len(self.written)
            data = b"%08d" % number + bytes(max(0, size - 8))
            self.written.append(data)
            entries.append(PutEntry(data, key or f"key-{number}"))
        chunk = 500 if size < 1000 else 25
        for at in range(0, count, chunk):
            answer = await self.client.put_records(self.stream, entries[at : at + chunk])
            assert answer.failed_record_count == 0

    async def open_shards(self) -> list[str]:
        return [s.shard_id for s in await self.client.list_shards(self.stream) if not s.closed]

    async def split(self, index: int) -> None:
        shards = [s for s in await self.client.list_shards(self.stream) if not s.closed]
        shard = shards[index % len(shards)]
        middle = (shard.first_hash_key + shard.last_hash_key) // 2 + 1
        await self.client.call(
            "SplitShard",
            {"StreamName": self.stream.name, "ShardToSplit": shard.shard_id, "NewStartingHashKey": str(middle)},
        )

    async def merge(self, index: int) -> None:
        shards = [s for s in await self.client.list_shards(self.stream) if not s.closed]
        shards.sort(key=lambda s: s.first_hash_key)
        if len(shards) < 2:
            return
        left = index % (len(shards) - 1)
        await self.client.call(
            "MergeShards",
            {
                "StreamName": self.stream.name,
                "ShardToMerge": shards[left].shard_id,
                "AdjacentShardToMerge": shards[left + 1].shard_id,
            },
        )

    def planner(self, start: StartingPosition = StartingPosition.TRIM_HORIZON, **settings: object) -> Planner:
        settings.setdefault("poll_interval_s", 0.0)
        options = replace(PlanOptions.of(ReadOptions()), **settings)  # type: ignore[arg-type]
        return Planner(self.client, self.stream, start, options)

    async def plan_settled(self, planner: Planner) -> StreamOffset:
        """Plans when everything put so far is older than the cut: the clock is moved, then made known."""
        self.local.clock.advance(3)
        await self.client.describe_stream_summary(self.stream)
        return await planner.plan()

    async def drain(self, planner: Planner, batches_max: int = 200) -> list[list[Row]]:
        """Plans and reads until nothing new is planned."""
        batches: list[list[Row]] = []
        before = planner.offset
        for _ in range(batches_max):
            offset = await self.plan_settled(planner)
            if offset is before:
                return batches
            before = offset
            batches.append(await self.read_batch(planner, offset))
        raise AssertionError(f"still more batches after {batches_max}")

    async def half_planned(self, planner: Planner, count: int = 10) -> StreamOffset:
        """Begins with so many records twice, ten seconds apart, and plans a batch of the first ones."""
        await self.put(count)
        self.local.clock.advance(10)
        await self.put(count)
        await planner.begin(None)
        await self.client.describe_stream_summary(self.stream)
        return await planner.plan(until_ms=int(self.local.clock.now() * 1000) - 5_000)

    async def now_ms(self, planner: Planner) -> int:
        """A fixed end: what is there now, at a time that has surely passed."""
        await self.client.describe_stream_summary(self.stream)
        until_ms = planner.service_ms_upper()
        self.local.clock.advance(2)
        await self.client.describe_stream_summary(self.stream)
        return until_ms

    async def finish(self, planner: Planner) -> list[list[Row]]:
        """Reads what is there now and no more, as AvailableNow does: stops at the first plan with nothing new."""
        batches, until_ms = [], await self.now_ms(planner)
        before = planner.offset
        while (offset := await planner.plan(until_ms=until_ms)) is not before:
            before = offset
            batches.append(await self.read_batch(planner, offset))
        return batches

    async def read_batch(self, planner: Planner, offset: StreamOffset) -> list[Row]:
        """All rows of a batch, chain by chain."""
        rows = []
        for chain in chains_of(planner.ranges(offset), planner.lineage):
            for one in chain:
                rows += await self.read_range(one)
        return rows

    async def read_range(self, one: ShardRange) -> list[Row]:
        rows: list[Row] = []
        end = one.end_sequence_number
        at = IteratorAt.at_sequence(one.first_sequence_number)
        iterator: str | None = await self.client.get_shard_iterator(self.stream, one.shard_id, at)
        while iterator is not None:
            page = await self.client.get_records(iterator)
            for record in page.records:
                number = int(record.sequence_number)
                if one.end_kind is EndKind.EXCLUSIVE:
                    assert end is not None
                    if number >= end:
                        assert number == end
                        return rows
                rows.append(Row(one.shard_id, number, record.data))
                if one.end_kind is EndKind.INCLUSIVE and number == end:
                    return rows
            iterator = page.next_shard_iterator
            at_tip = page.millis_behind_latest == 0 and not page.records and iterator is not None
            assert not at_tip, f"the tip came before the end of {one}"
        assert one.end_kind is EndKind.SHARD_END
        return rows


def assert_exact(world: World, batches: list[list[Row]]) -> None:
    """Every record once; each shard in order; parents before their children."""
    rows = [row for batch in batches for row in batch]
    assert sorted(row.data for row in rows) == sorted(world.written)
    last: dict[str, int] = {}
    for row in rows:
        assert row.sequence_number > last.get(row.shard_id, -1)
        last[row.shard_id] = row.sequence_number


def assert_in_step(batches: list[list[Row]]) -> None:
    """No batch has a row that is older than one of the batch before."""
    newest = -1
    for batch in filter(None, batches):
        numbers = sorted(int(row.data[:8]) for row in batch)
        assert numbers[0] > newest
        newest = numbers[-1]


def assert_parents_first(planner: Planner, batches: list[list[Row]]) -> None:
    order = [row.shard_id for batch in batches for row in batch]
    last = {shard_id: index for index, shard_id in enumerate(order)}
    for index, shard_id in enumerate(order):
        for ancestor in planner.lineage.ancestors([shard_id]):
            assert last.get(ancestor, -1) < index, f"{ancestor} is read after its descendant {shard_id} began"


def assert_order_per_key(world: World, batches: list[list[Row]], keys: dict[bytes, str]) -> None:
    seen: dict[int, bytes] = {}
    for batch in batches:
        for row in batch:
            key = hash_key(keys[row.data])
            assert row.data > seen.get(key, b"")
            seen[key] = row.data
