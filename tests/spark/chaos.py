"""A stream to which anything may happen, a query that is planned and read as Spark does it, and the book of what was
put, so that what comes out can be compared exactly.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.options import ConnectionOptions
from shardway.core.aggregation.writer import encode_aggregate
from shardway.local.faults import Fault
from shardway.model import StartingPosition, StreamName
from shardway.spark.driver.grouping import chains_of, pack_tasks
from shardway.spark.driver.planner import Planner, PlanOptions
from shardway.spark.offsets import StreamOffset
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.ranges import ShardPartition, TaskOptions
from shardway.spark.task.partition_reader import read_partition

if TYPE_CHECKING:
    from shardway.local.embedded import LocalKinesis
    from shardway.local.faults import How

HOUR_S = 3600
RETENTION_S = 24 * HOUR_S
BEFORE_S = 60
BATCHES_MAX = 300
"""More batches than this in one go are no progress."""
FAULTS: tuple[How, ...] = ("throttle", "server_error", "reset", "lost_reply", "truncate", "expired_iterator")
READING = ("GetRecords", "GetShardIterator", "ListShards", "DescribeStreamSummary")


class Place(NamedTuple):
    """Where a user record is in the log."""

    shard_id: str
    sequence_number: int
    sub_sequence_number: int


Row = tuple[Place, bytes]


@dataclass
class Chaos:
    """One stream on a local service, and one query. ``writer`` meets no faults; ``driver`` and the tasks do."""

    local: LocalKinesis
    writer: KinesisClient
    driver: KinesisClient
    stream: StreamName
    rng: random.Random
    options: PlanOptions
    planner: Planner = field(init=False)
    log: dict[Place, bytes] = field(default_factory=dict)
    batches: list[list[list[Row]]] = field(default_factory=list)
    """Batches of tasks of rows."""
    start: StartingPosition = StartingPosition.TRIM_HORIZON
    advanced_s: float = 0.0
    numbers: int = 0

    # --- the stream ------------------------------------------------------------------------------------------------

    async def create(self, shards: int) -> None:
        await self.writer.call("CreateStream", {"StreamName": self.stream.name, "ShardCount": shards})
        await self._draw_start()
        self.restart(None)
        await self.planner.begin(None)

    async def _draw_start(self) -> None:
        """Where the query begins: at the oldest record, or behind some records that it must not have."""
        kind = self.rng.choice(["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
        if kind == "TRIM_HORIZON":
            return
        await self.put()
        self.log.clear()
        self.advanced_s += BEFORE_S
        self.local.clock.advance(BEFORE_S)
        for client in (self.writer, self.driver):
            await client.describe_stream_summary(self.stream)
        since = dt.datetime.fromtimestamp(self.local.clock.now() - BEFORE_S / 2, dt.UTC)
        self.start = StartingPosition.LATEST if kind == "LATEST" else StartingPosition.at_timestamp(since)

    def restart(self, stored: StreamOffset | None) -> None:
        """Another planner, as another process would have it; ``begin`` is still to be called."""
        assert stored is None or StreamOffset.from_dict(stored.to_dict()) == stored
        self.planner = Planner(self.driver, self.stream, self.start, self.options)

    async def put(self) -> None:
        """Some records of one size, plain or aggregated, to keys of the whole hash range or to one."""
        count, size = self.rng.choice([(1, 0), (7, 30), (60, 100), (400, 10), (40, 20_000), (3, 900_000)])
        one_key = self.rng.random() < 0.3
        aggregated = size <= 100 and self.rng.random() < 0.4
        entries, contents = [], []
        for _ in range(count):
            users = [self._data(size) for _ in range(self.rng.randint(1, 5) if aggregated else 1)]
            key = "one" if one_key else f"key-{self.rng.randrange(1000)}"
            data = encode_aggregate((key, user, None) for user in users) if aggregated else users[0]
            entries.append(PutEntry(data, key))
            contents.append(users)
        step = max(1, min(500, 4_000_000 // max(size, 1)))
        for at in range(0, count, step):
            answer = await self.writer.put_records(self.stream, entries[at : at + step])
            assert answer.failed_record_count == 0
            for stored, users in zip(answer.records, contents[at : at + step], strict=True):
                assert stored.shard_id is not None
                assert stored.sequence_number is not None
                for sub, user in enumerate(users):
                    self.log[Place(stored.shard_id, int(stored.sequence_number), sub)] = user

    def _data(self, size: int) -> bytes:
        self.numbers += 1
        return b"%08d" % self.numbers + bytes(max(0, size - 8))

    async def reshard(self) -> None:
        """A split, a merge, or as many of them as a scaling makes."""
        shards = sorted(
            (s for s in await self.writer.list_shards(self.stream) if not s.closed), key=lambda s: s.first_hash_key
        )
        name = {"StreamName": self.stream.name}
        kind = self.rng.choice(["split", "merge", "scale"])
        if kind == "scale":
            target = min(self.rng.randint(-(-len(shards) // 2), 2 * len(shards)), 6)
            params = {**name, "TargetShardCount": max(target, -(-len(shards) // 2)), "ScalingType": "UNIFORM_SCALING"}
            if params["TargetShardCount"] != len(shards):
                await self.writer.call("UpdateShardCount", params)
        elif kind == "merge" and len(shards) > 1:
            left = self.rng.randrange(len(shards) - 1)
            pair = {"ShardToMerge": shards[left].shard_id, "AdjacentShardToMerge": shards[left + 1].shard_id}
            await self.writer.call("MergeShards", {**name, **pair})
        elif len(shards) < 6:
            shard = self.rng.choice(shards)
            middle = str((shard.first_hash_key + shard.last_hash_key) // 2 + 1)
            await self.writer.call("SplitShard", {**name, "ShardToSplit": shard.shard_id, "NewStartingHashKey": middle})

    async def wait(self) -> None:
        """Time passes: never so much that records are lost."""
        seconds = self.rng.choice([2, 2, 10, 60, 400, HOUR_S, 5 * HOUR_S])
        if self.advanced_s + seconds < RETENTION_S - 60:
            self.advanced_s += seconds
            self.local.clock.advance(seconds)
            await self.writer.describe_stream_summary(self.stream)
            await self.driver.describe_stream_summary(self.stream)

    def trouble(self) -> None:
        """Another mixture of faults for the driver and the tasks; sometimes none."""
        self.local.faults.clear()
        for _ in range(self.rng.randrange(4)):
            how = self.rng.choice(FAULTS)
            operation = "GetRecords" if how == "expired_iterator" else self.rng.choice(READING)
            self.local.faults.add(
                Fault(
                    how=how,
                    operation=operation,
                    tag=self.rng.choice(["driver", "task"]),
                    probability=0.03 if how == "expired_iterator" else self.rng.choice([0.03, 0.1, 0.25]),
                    seed=self.rng.randrange(1 << 30),
                )
            )
        if self.rng.random() < 0.3:
            self.local.faults.add(
                Fault(how="delay", delay_s=0.01, tag="driver", probability=0.2, seed=self.rng.randrange(1 << 30))
            )

    # --- the query -------------------------------------------------------------------------------------------------

    async def plan(self, *, until_ms: int | None = None) -> bool:
        """Plans a batch and reads it. False when there is nothing new."""
        before = self.planner.offset
        offset = await self.planner.plan(until_ms=until_ms, capped=self.rng.random() < 0.7)
        if offset is before:
            return False
        if not offset.starts:
            return True
        self.batches.append(await self.read(offset))
        assert any(self.batches[-1]), "a batch without rows"
        return True

    async def read(self, offset: StreamOffset) -> list[list[Row]]:
        """The rows of each task of a batch, read by the real task code."""
        ranges = await self.planner.readable(self.planner.ranges(offset))
        wire = ConnectionOptions(region=self.local.region, endpoint_url=self.local.endpoint_url, user_agent_tag="task")
        carried = self.planner.carried.for_ranges(tuple(ranges))
        options = TaskOptions.of(ReadOptions(), wire)
        tasks = pack_tasks(offset, chains_of(ranges, self.planner.lineage))
        partitions = [ShardPartition(task, self.stream, options, carried) for task in tasks]
        if carried and self.rng.random() < 0.5:  # a task reads the same that the driver saw
            plain = [ShardPartition(task, self.stream, options) for task in tasks]
            rows = await asyncio.gather(*(asyncio.to_thread(_rows, one) for one in [*partitions, *plain]))
            assert rows[: len(plain)] == rows[len(plain) :]
            return list(rows[: len(plain)])
        return list(await asyncio.gather(*(asyncio.to_thread(_rows, one) for one in partitions)))

    async def resume(self) -> None:
        """Another process goes on from the newest offset; the newest batch is read again, as after a crash."""
        stored = self.planner.offset
        if stored is None:
            return
        self.restart(stored)
        await self.planner.begin(StreamOffset.from_dict(stored.to_dict()))
        if stored.starts and self.batches and self.rng.random() < 0.5:
            assert await self.read(stored) == self.batches[-1]

    async def finish(self) -> None:
        """Reads what is there and no more, as AvailableNow does, in another process."""
        await self.resume()
        until_ms = self.planner.service_ms_upper()
        self.local.clock.advance(2)
        await self.driver.describe_stream_summary(self.stream)
        for _ in range(BATCHES_MAX):
            if not await self.plan(until_ms=until_ms):
                return
        raise AssertionError(f"still more batches after {BATCHES_MAX}")

    # --- what must hold --------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every record once, each shard in order, ancestors before their descendants."""
        rows = [row for batch in self.batches for task in batch for row in task]
        assert len(rows) == len(self.log)
        assert dict(rows) == self.log
        last: dict[str, Place] = {}
        for place, _ in rows:
            assert place > last.get(place.shard_id, Place("", 0, 0)), f"disorder in {place.shard_id}"
            last[place.shard_id] = place
        self._check_lineage()

    def _check_lineage(self) -> None:
        """Within a task by the order of its rows; tasks of one batch have no order between them."""
        began: dict[str, tuple[int, int, int]] = {}
        ended: dict[str, tuple[int, int, int]] = {}
        for b, batch in enumerate(self.batches):
            for t, task in enumerate(batch):
                for r, (place, _) in enumerate(task):
                    began.setdefault(place.shard_id, (b, t, r))
                    ended[place.shard_id] = (b, t, r)
        for shard_id, begin in began.items():
            for ancestor in self.planner.lineage.ancestors([shard_id]) & ended.keys():
                end = ended[ancestor]
                assert end[0] < begin[0] or (end[:2] == begin[:2] and end[2] < begin[2]), (
                    f"{ancestor} is read after its descendant {shard_id} began"
                )


def _rows(partition: ShardPartition) -> list[Row]:
    columns = ("shard_id", "sequence_number", "sub_sequence_number", "data")
    rows = []
    for batch in read_partition(partition):
        for shard_id, number, sub, data in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
            rows.append((Place(shard_id, int(number), sub or 0), data))
    return rows
