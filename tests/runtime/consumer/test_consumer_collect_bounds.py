"""Collections that wait for more records of their keys fill the shard's buffer: then the oldest one goes out."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from shardway import SyncConsumer, by_key
from shardway.leases import MemoryLeaseTable
from tests.runtime.consumer.face_kit import DEADLINE_S, consumer_of, put

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
KEYS = 60
WANTED = range(KEYS * 7)
BOUND = 100
"""The records that may wait in the end, when no more come."""
BOUNDS = {"shard_records_max": BOUND}


def key_of(data: bytes) -> str:
    return str(int(data) % KEYS)


@pytest.mark.parametrize("order", [None, by_key(4)], ids=["in order", "by key"])
async def test_the_oldest_collection_goes_out_where_the_shard_has_no_room(
    local: LocalKinesis, kinesis: Any, order: Any
) -> None:
    wanted = put(kinesis, WANTED, key=key_of)
    got: Counter[bytes] = Counter()
    by_keys: defaultdict[str, list[int]] = defaultdict(list)
    sizes: list[int] = []
    async with (
        consumer_of(local, MemoryLeaseTable(), order=order, **BOUNDS) as consumer,
        aclosing(consumer.collect(lambda record: record.partition_key, records=5)) as groups,
    ):
        async for group in groups:
            with group:
                sizes.append(len(group))
                got.update(record.data for record in group.records)
                by_keys[group.key] += [int(record.data) for record in group.records]
            if len(got) > len(wanted) - BOUND:
                break
    assert set(got.values()) == {1}
    assert max(sizes) <= 5
    assert all(numbers == sorted(numbers) for numbers in by_keys.values())


async def test_collections_that_are_still_with_the_program_are_waited_for(local: LocalKinesis, kinesis: Any) -> None:
    """The program settles later: all the same, no record comes twice, and each comes."""
    wanted = put(kinesis, WANTED, key=key_of)
    got: Counter[bytes] = Counter()

    async def work(group: Any) -> None:
        await asyncio.sleep(0.01)
        got.update(record.data for record in group.records)
        group.ack()

    async with (
        consumer_of(local, MemoryLeaseTable(), **BOUNDS) as consumer,
        asyncio.TaskGroup() as tasks,
        aclosing(consumer.collect(lambda record: record.partition_key, records=5)) as groups,
    ):
        seen = 0
        async for group in groups:
            tasks.create_task(work(group))
            seen += len(group)
            if seen > len(wanted) - BOUND:
                break
        while sum(got.values()) < seen:
            await asyncio.sleep(0.01)
    assert set(got.values()) == {1}


def test_a_consumer_for_threads_gives_the_oldest_collection_out_too(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, WANTED, key=key_of)
    got: Counter[bytes] = Counter()
    with consumer_of(local, MemoryLeaseTable(), face=SyncConsumer, **BOUNDS) as consumer:
        for group in consumer.collect(lambda record: record.partition_key, records=5):
            with group:
                got.update(record.data for record in group.records)
            if len(got) > len(wanted) - BOUND:
                break
    assert set(got.values()) == {1}


async def test_while_there_is_room_a_collection_waits_until_it_is_complete(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(KEYS * 5), key=key_of)
    sizes: list[int] = []
    async with (
        consumer_of(local, MemoryLeaseTable()) as consumer,
        aclosing(consumer.collect(lambda record: record.partition_key, records=5)) as groups,
    ):
        async for group in groups:
            with group:
                sizes.append(len(group))
            if len(sizes) == KEYS:
                break
    assert sizes == [5] * KEYS
