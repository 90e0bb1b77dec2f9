"""The consumer as people use it: batches, a stream of shards, a handler; alone and beside others."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.errors import NotFoundError
from shardway.local import LocalKinesis
from shardway.model import StartingPosition
from shardway.options import FanOutOptions
from shardway.policies import DeadLettersTo, Retry
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.feeds.fan_out import SubscriptionTimes
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import arguments_of
from tests.runtime.consumer.fleet_kit import DEADLINE_S, POLL, STREAM

if TYPE_CHECKING:
    from shardway.core.ledger.letter import Letter
    from shardway.runtime.shard.batch import Batch

SHARDS = 4
STREAMS = {STREAM: SHARDS}


def put(kinesis: Any, start: int, stop: int, key: Any = None) -> set[bytes]:
    datas = [b"%d" % number for number in range(start, stop)]
    for at in range(0, len(datas), 100):
        kinesis.put_records(
            StreamName=STREAM,
            Records=[{"Data": data, "PartitionKey": key or data.decode()} for data in datas[at : at + 100]],
        )
    return set(datas)


def consumer_of(local: LocalKinesis, leases: Any = None, **settings: Any) -> Consumer[Any]:
    return Consumer(
        STREAM,
        application="billing",
        connection=ConnectionOptions(
            endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
        ),
        **arguments_of(
            leases=leases,
            **{
                "failover_s": 2.0,
                "look_interval_s": 0.1,
                "wait_interval_s": 0.02,
                "starting_position": StartingPosition.TRIM_HORIZON,
                "polling": POLL,
                **settings,
            },
        ),
    )


async def test_batches_of_all_shards_with_leases_in_dynamodb(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, 300)
    got: Counter[bytes] = Counter()
    last: defaultdict[str, int] = defaultdict(int)
    async with asyncio.timeout(DEADLINE_S), consumer_of(local) as consumer:
        async for batch in consumer:
            with batch:
                for record in batch.records:
                    assert record.sequence_number > last[record.shard_id]
                    last[record.shard_id] = record.sequence_number
                    got[record.data] += 1
            if len(got) == len(wanted):
                break
    assert set(got) == wanted
    assert set(got.values()) == {1}
    assert len(last) == SHARDS
    more = put(kinesis, 300, 320)
    async with asyncio.timeout(DEADLINE_S), consumer_of(local) as consumer:
        async for batch in consumer:
            with batch:
                got.update(record.data for record in batch.records)
            if more <= set(got):
                break
    assert set(got.values()) == {1}


async def test_fan_out_over_a_handover(local: LocalKinesis, kinesis: Any) -> None:
    await two_share_and_one_leaves(
        local, kinesis, fan_out=FanOutOptions(), subscriptions=SubscriptionTimes(again_after_s=0.1)
    )
    assert local.stats().operations["SubscribeToShard"].calls > 0
    assert local.stats().operations["RegisterStreamConsumer"].calls in (1, 2)  # both, if they look at one moment


async def test_a_handler_is_called_with_each_batch_shards_side_by_side(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, 200)
    got: list[bytes] = []
    at_work: set[str] = set()
    most = 0

    async def handle(batch: Batch[Any]) -> None:
        nonlocal most
        assert batch.shard_id not in at_work, "two batches of one shard at a time"
        at_work.add(batch.shard_id)
        most = max(most, len(at_work))
        await asyncio.sleep(0.05)
        got.extend(record.data for record in batch.records)
        at_work.discard(batch.shard_id)

    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable()) as consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        while set(got) != wanted:
            await asyncio.sleep(0.02)
        closing = asyncio.create_task(consumer.close())
        await running
        await closing
    assert sorted(got) == sorted(wanted)
    assert most > 1


async def test_a_task_per_record_settled_in_any_order_never_blocks(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, 200)
    got: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def work(batch: Batch[Any], index: int, data: bytes) -> None:
        await asyncio.sleep((int(data) * 7919 % 50) / 1000)
        got.append(data)
        batch.ack(index)

    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, table) as consumer:
        async for batch in consumer:
            for index, record in enumerate(batch.records):
                tasks.add(asyncio.create_task(work(batch, index, record.data)))
            if len(tasks) == len(wanted):
                break
        await asyncio.gather(*tasks)
    assert set(got) == wanted
    rows = (await table.scan()).rows
    assert all(row.checkpoint.is_position for row in rows)
    assert {row.owner for row in rows} == {None}


async def test_a_poison_record_does_not_stop_the_others(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, 50) - {b"17"}
    got: set[bytes] = set()
    settings = dict[str, Any](retry=Retry(batch_failures_max=1, failures_max=2, base_s=0.001, cap_s=0.002))
    letters: list[Letter] = []
    chosen = {**settings, "dead_letters": DeadLettersTo(letters.append)}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable(), **chosen) as consumer:
        async for batch in consumer:
            with batch:
                if any(record.data == b"17" for record in batch.records):
                    raise ValueError("no seventeen")
                got |= {record.data for record in batch.records}
            if got == wanted:
                break
    assert [letter.data for letter in letters] == [b"17"]


async def test_an_iteration_that_is_left_early_gives_back_what_it_did_not_settle(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, 0, 20, key="one")
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable()) as consumer:
        async for batch in consumer:
            first = [record.data for record in batch.records]
            break
        async for batch in consumer:
            assert [record.data for record in batch.records] == first
            assert batch.attempt == 2
            batch.ack()
            break


async def test_two_consumers_share_and_one_takes_all_when_the_other_leaves(local: LocalKinesis, kinesis: Any) -> None:
    await two_share_and_one_leaves(local, kinesis)


async def two_share_and_one_leaves(local: LocalKinesis, kinesis: Any, **settings: Any) -> None:
    """Every record arrives once, before, while and after two consumers have half of the shards each."""
    table = MemoryLeaseTable()
    got: Counter[bytes] = Counter()
    wanted = put(kinesis, 0, 100)

    async def consume(consumer: Consumer[Any]) -> None:
        async for batch in consumer:
            with batch:
                got.update(record.data for record in batch.records)

    async with asyncio.timeout(DEADLINE_S), consumer_of(local, table, **settings) as one:
        first = asyncio.create_task(consume(one))
        async with consumer_of(local, table, **settings) as other:
            second = asyncio.create_task(consume(other))
            while {len(rows) for rows in (await owners(table)).values()} != {SHARDS // 2}:
                await asyncio.sleep(0.02)
            wanted |= put(kinesis, 100, 200)
        await second
        wanted |= put(kinesis, 200, 300)
        while set(got) != wanted:
            await asyncio.sleep(0.02)
        await one.close()
        await first
    assert set(got.values()) == {1}


async def owners(table: MemoryLeaseTable) -> dict[str | None, list[str]]:
    found: defaultdict[str | None, list[str]] = defaultdict(list)
    for row in (await table.scan()).rows:
        found[row.owner].append(row.key)
    return found


async def test_a_stream_that_is_not_there_is_told_at_the_start(local: LocalKinesis, kinesis: Any) -> None:
    kinesis.delete_stream(StreamName=STREAM)
    with pytest.raises(NotFoundError):
        async with consumer_of(local, MemoryLeaseTable()):
            raise AssertionError("not reached")
