"""Several workers with processors: a shard moves with its processor's last word; nothing comes twice or is left out."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shardway.model import StartingPosition
from shardway.stores.memory import MemoryLeaseTable
from tests.kclpy.kclpy_kit import STREAM, Journal, running

if TYPE_CHECKING:
    from shardway.local import LocalKinesis


def put(kinesis: Any, start: int, stop: int) -> list[str]:
    datas = [str(number) for number in range(start, stop)]
    kinesis.put_records(StreamName=STREAM, Records=[{"Data": data.encode(), "PartitionKey": data} for data in datas])
    return datas


def start_of(local: LocalKinesis, kind: str) -> StartingPosition:
    """The start of this kind; AT_TIMESTAMP is a minute ago."""
    if kind != "AT_TIMESTAMP":
        return StartingPosition(kind)
    return StartingPosition.at_timestamp(dt.datetime.fromtimestamp(local.clock.now() - 60.0, dt.UTC))


async def test_a_worker_that_comes_gets_its_share_and_one_that_goes_leaves_all(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    kinesis.update_shard_count(StreamName=STREAM, TargetShardCount=2, ScalingType="UNIFORM_SCALING")
    open_shards = {"shardId-000000000001", "shardId-000000000002"}

    def owners() -> Counter[str | None]:
        return Counter(row.owner for row in table.rows() if row.key in open_shards)

    wanted = put(kinesis, 0, 40)
    async with running(local, table, "shapes:V3") as first:
        await first.until(lambda: len(journal.datas()) == 40)
        async with running(local, table, "shapes:V3") as second:
            await second.until(lambda: set(owners()) == {first.consumer.worker_id, second.consumer.worker_id})
            moved = journal.lines("shutdown_requested")
            assert len(moved) == 1
            wanted += put(kinesis, 40, 80)
            await second.until(lambda: len(journal.datas()) >= 80)
            first.stop.set()
            await second.until(lambda: owners() == {second.consumer.worker_id: 2})
            await first.end()
            wanted += put(kinesis, 80, 120)
            await second.until(lambda: len(journal.datas()) >= 120)
    assert Counter(journal.datas()) == Counter(wanted)
    assert len(journal.lines("shutdown_requested")) == len(journal.lines("lease_lost")) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "seed", "start"),
    [("V1", 1, "TRIM_HORIZON"), ("V2", 2, "LATEST"), ("V3", 3, "AT_TIMESTAMP")],
)
async def test_processors_that_are_killed_at_any_time_lose_nothing_and_keep_the_order(
    local: LocalKinesis, kinesis: Any, journal: Journal, shape: str, seed: int, start: str
) -> None:
    chance = random.Random(seed)
    wanted: list[str] = []
    table = MemoryLeaseTable()
    async with running(local, table, f"shapes:{shape}", start=start_of(local, start)) as worker:
        await worker.until(table.rows)  # LATEST is the moment at which the lease is made.
        for step in range(25):
            wanted += put(kinesis, len(wanted), len(wanted) + 8)
            if step in (8, 16):
                shards = kinesis.list_shards(StreamName=STREAM)["Shards"]
                newest = max(shards, key=lambda shard: shard["ShardId"])
                first, last = (int(newest["HashKeyRange"][name]) for name in ("StartingHashKey", "EndingHashKey"))
                kinesis.split_shard(
                    StreamName=STREAM, ShardToSplit=newest["ShardId"], NewStartingHashKey=str((first + last) // 2)
                )
            await asyncio.sleep(chance.random() * 0.1)
            for process in worker.processes:
                if not process.exited.done() and chance.random() < 0.3:
                    process._signal("kill")
        await worker.until(lambda: set(journal.datas()) == set(wanted))
        assert any("by signal 9" in line for line in worker.said)
    seen: set[tuple[str, int, int]] = set()
    newest_of: dict[str, tuple[int, int]] = {}
    for note in journal.lines("record"):
        place = (int(note["number"]), note["sub"])
        if (note["shard"], *place) not in seen:
            assert place > newest_of.get(note["shard"], (0, 0))
            newest_of[note["shard"]] = place
            seen.add((note["shard"], *place))
