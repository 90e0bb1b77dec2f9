"""A child whose parents are read by two workers begins when the last of them ends: at once, whichever that is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import StartingPosition
from shardway.leases import Fixed, MemoryLeaseTable
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)

LEFT, RIGHT, CHILD = (f"shardId-{number:012d}" for number in range(3))
NOBODY_LOOKS_S = 50 * DEADLINE_S
"""A failover time at which nothing in this test happens by an interval: not a scan of the leases, nor an audit."""
STREAMS = {STREAM: 2}


class Reader:
    """A consumer that settles at once, or holds what it got of a shard until it is let go on."""

    def __init__(self, consumer: Any, told: list[tuple[str, str, bytes]], holds: str | None) -> None:
        self.consumer = consumer
        self.let_go = asyncio.Event()
        if holds is None:
            self.let_go.set()
        self._told = told
        self._task = asyncio.create_task(consumer.run_batches(self._handle))

    async def _handle(self, batch: Any) -> None:
        for record in batch:
            self._told.append((self.consumer.worker_id, batch.shard_id, record.data))
        await self.let_go.wait()

    async def close(self) -> None:
        await self.consumer.close()
        await self._task


@pytest.mark.parametrize(
    ("child_of", "starting_position"),
    [("first", StartingPosition.TRIM_HORIZON), ("last", StartingPosition.LATEST)],
    ids=["child-for-the-first-to-end", "child-for-the-last-to-end"],
)
async def test_a_child_begins_when_the_last_of_its_parents_ends_on_another_worker(
    local: LocalKinesis, kinesis: Any, child_of: str, starting_position: StartingPosition
) -> None:
    """All of the child is read, wherever the application begins in shards that no worker knows."""
    table, told = MemoryLeaseTable(), list[tuple[str, str, bytes]]()
    lists = {"first": [LEFT], "last": [RIGHT]}
    lists[child_of] = [*lists[child_of], CHILD]
    chosen = {
        "strategy": Fixed(lists), "failover_s": NOBODY_LOOKS_S, "upkeep_interval_s": NOBODY_LOOKS_S,
        "starting_position": starting_position,
    }  # fmt: skip
    async with (
        consumer_of(local, table, worker_id="first", **chosen) as first,
        consumer_of(local, table, worker_id="last", **chosen) as last,
    ):
        readers = Reader(first, told, None), Reader(last, told, RIGHT)
        await until(lambda: [held(first), held(last)] == [[LEFT], [RIGHT]])
        await until(lambda: all(one.statistics().shards[0].millis_behind_latest is not None for one in (first, last)))
        before = put(kinesis, range(10))
        await until(lambda: {data for *_, data in told} == set(before))
        kinesis.merge_shards(StreamName=STREAM, ShardToMerge=LEFT, AdjacentShardToMerge=RIGHT)
        after = put(kinesis, range(10, 20))
        rows: dict[str, Any] = {}
        while CHILD not in rows or not rows[LEFT].ended:  # all is fetched, and of one parent not all is settled
            rows = {row.key: row for row in (await table.scan()).rows}
            await asyncio.sleep(0.01)
        await rounds(5, first, last)
        row = await table.get(RIGHT)
        assert row is not None
        assert not row.ended
        assert CHILD not in {shard_id for _, shard_id, _ in told}
        readers[1].let_go.set()
        await until(lambda: {data for *_, data in told} == {*before, *after})
        assert len(told) == 20
        assert {data for _, shard_id, data in told if shard_id == CHILD} == set(after)
        for reader in readers:
            await reader.close()


def held(consumer: Any) -> list[str]:
    return [shard.shard_id for shard in consumer.statistics().shards]


async def rounds(count: int, *consumers: Any) -> None:
    """Each has looked at the others so often: it would have begun what it may."""
    wanted = [one.statistics().table_calls["workers"] + count for one in consumers]
    await until(
        lambda: all(
            one.statistics().table_calls["workers"] >= calls for one, calls in zip(consumers, wanted, strict=True)
        )
    )
