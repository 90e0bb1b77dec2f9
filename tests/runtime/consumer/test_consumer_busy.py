"""Programs whose handlers never wait for anything: what else runs on the loop, and in which order shards come."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shardway import by_key, events, unordered
from shardway.leases import MemoryLeaseTable, SqliteLeaseTable
from shardway.local import LocalKinesis
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from shardway import Consumer

pytestmark = pytest.mark.timeout(DEADLINE_S)
RECORDS = 40
STREAMS = {STREAM: 2}


async def iteration(consumer: Consumer[Any], handle: Any) -> None:
    async for batch in consumer:
        with batch:
            handle(batch)


async def records(consumer: Consumer[Any], handle: Any) -> None:
    async for record in consumer.records():
        record.ack()
        handle(record)


async def getmany(consumer: Consumer[Any], handle: Any) -> None:
    while batches := await consumer.getmany(1):
        for batch in batches:
            batch.ack()
            handle(batch)


async def shards(consumer: Consumer[Any], handle: Any) -> None:
    async def follow(shard: AsyncIterator[Any]) -> None:
        async for batch in shard:
            batch.ack()
            handle(batch)

    async with asyncio.TaskGroup() as group:
        async for shard in consumer.shards():
            group.create_task(follow(aiter(shard)))


async def collections(consumer: Consumer[Any], handle: Any) -> None:
    async for group in consumer.collect(lambda record: record.sequence_number, records=1):
        with group:
            handle(group.records[0])


def run(way: str = "run_batches", **options: Any) -> Any:
    async def face(consumer: Consumer[Any], handle: Any) -> None:
        async def called(given: Any) -> None:
            given.ack()
            handle(given)

        await getattr(consumer, way)(called, **options)

    return face


FACES = {
    "iteration": iteration,
    "records": records,
    "getmany": getmany,
    "shards": shards,
    "collections": collections,
    "run": run(),
    "run, one call at a time": run(handlers_max=1),
    "run, each record": run("run_records"),
    "run by key": run(concurrency=by_key(4)),
    "run unordered": run("run_records", concurrency=unordered(4)),
}


@pytest.mark.parametrize("face", FACES)
async def test_the_loop_runs_between_batches_and_shards_take_turns(
    local: LocalKinesis, kinesis: Any, face: str
) -> None:
    put(kinesis, range(RECORDS))
    turns = 0
    closing: list[asyncio.Future[None]] = []
    seen: list[tuple[str, int]] = []  # of which shard, and how often the loop has run by then

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def handle(given: Any) -> None:
        seen.append((given.shard_id, turns))
        end_s = time.monotonic() + 0.006
        while time.monotonic() < end_s:
            pass  # work
        if len(seen) == RECORDS:
            closing.append(asyncio.ensure_future(consumer.close()))

    async with consumer_of(local, MemoryLeaseTable(), batch_records_max=1) as consumer:
        await until(lambda: sum(one.records_held for one in consumer.statistics().shards) == RECORDS)
        counting = asyncio.create_task(count())
        try:
            await FACES[face](consumer, handle)
        finally:
            counting.cancel()
    assert len(seen) >= RECORDS
    at_once = Counter(turn for _, turn in seen)
    assert max(at_once.values()) <= (8 if "key" in face or "unordered" in face else 2), at_once  # slots of both shards
    first = [shard for shard, _ in seen[:8]]
    assert len(set(first)) == 2, first


async def test_leases_are_renewed_and_checkpoints_stored_while_batches_are_ready(
    local: LocalKinesis, kinesis: Any, tmp_path: Path
) -> None:
    """The README's own loop, on a table that answers from outside of the loop."""
    put(kinesis, range(100))
    heard: list[Any] = []
    table = SqliteLeaseTable(tmp_path / "leases.db")
    got = 0
    async with consumer_of(
        local, table, batch_records_max=1, failover_s=1.0, look_interval_s=0.1, on_event=heard.append
    ) as consumer:
        async for batch in consumer:
            with batch:
                time.sleep(0.03)  # noqa: ASYNC251 - a handler that blocks
                got += 1
            if got == 100:
                break
        assert not [event for event in heard if isinstance(event, events.ShardLeft)]
        assert any(row.checkpoint.is_position for row in (await table.scan()).rows)
    await table.close()
