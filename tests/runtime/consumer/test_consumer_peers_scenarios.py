"""What the tests of other Kinesis clients ask of theirs, and no other test here asks of ours.

Their cases: two that start together, two that alternate, settlements after the end, a stop in the midst of an
aggregate, either side of a handoff that crashes, a bound on shards, a start at a time, a name for fan-out.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation.writer import encode_aggregate
from shardway.local import LocalKinesis
from shardway.model import StartingPosition
from shardway.options import FanOutOptions
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until
from tests.runtime.consumer.fleet_kit import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARDS = 5


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: getattr(request, "param", SHARDS)}) as service:
        yield service


async def drained(consumer: Any, wanted: int, got: Counter[bytes]) -> None:
    """So many records more."""
    first = got.total()
    async for batch in consumer:
        with batch:
            got.update(record.data for record in batch.records)
        if got.total() >= first + wanted:
            return


async def shares(table: MemoryLeaseTable) -> list[int]:
    """How many shards each owner has, the smallest first."""
    owners = Counter(row.owner for row in (await table.scan()).rows)
    return sorted(owners.values()) if None not in owners else []


async def test_two_that_start_together_on_an_empty_table_share_it(local: LocalKinesis, kinesis: Any) -> None:
    table, got = MemoryLeaseTable(), Counter[bytes]()
    wanted = put(kinesis, range(50))

    async def read(consumer: Any) -> None:
        async for batch in consumer:
            with batch:
                got.update(record.data for record in batch.records)

    async with asyncio.timeout(DEADLINE_S):
        both = [consumer_of(local, table) for _ in range(2)]
        await asyncio.gather(*(one.start() for one in both))
        reading = [asyncio.create_task(read(one)) for one in both]
        while await shares(table) != [2, 3]:
            await asyncio.sleep(0.02)
        wanted += put(kinesis, range(50, 100))
        await until(lambda: set(got) == set(wanted))
        await asyncio.gather(*(one.close() for one in both))
        await asyncio.gather(*reading)
    assert set(got.values()) == {1}


async def test_two_that_alternate_repeat_nothing(local: LocalKinesis, kinesis: Any) -> None:
    table, got = MemoryLeaseTable(), Counter[bytes]()
    async with asyncio.timeout(DEADLINE_S):
        for turn in range(4):
            put(kinesis, range(turn * 20, turn * 20 + 20))
            async with consumer_of(local, table, worker_id=f"worker-{turn % 2}") as consumer:
                await drained(consumer, 20, got)
    assert len(got) == 80
    assert set(got.values()) == {1}


@pytest.mark.parametrize("local", [1], indirect=True)
async def test_what_is_settled_after_the_end_comes_again(local: LocalKinesis, kinesis: Any) -> None:
    """The shard may be another worker's by then: a late settlement moves nothing, and breaks nothing."""
    table = MemoryLeaseTable()
    wanted = put(kinesis, range(10))
    async with asyncio.timeout(DEADLINE_S):
        consumer = consumer_of(local, table, drain_deadline_s=0.1)
        await consumer.start()
        late = await anext(aiter(consumer))
        await consumer.close()
        async with consumer_of(local, table) as other:
            late.ack()
            batch = await anext(aiter(other))
            assert [record.data for record in batch.records] == wanted
            assert batch.token > late.token
            batch.ack()


@pytest.mark.parametrize("local", [1], indirect=True)
async def test_a_stop_in_the_midst_of_an_aggregate_goes_on_in_it(local: LocalKinesis, kinesis: Any) -> None:
    aggregate = encode_aggregate([(f"key-{number}", b"%d" % number, None) for number in range(10)])
    kinesis.put_record(StreamName=STREAM, Data=aggregate, PartitionKey="a")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, table, drain_deadline_s=0.1) as consumer:
            batch = await anext(aiter(consumer))
            assert [record.sub_sequence_number for record in batch.records] == list(range(10))
            for index in range(5):
                batch.ack(index)
        async with consumer_of(local, table) as consumer:
            batch = await anext(aiter(consumer))
            assert [record.sub_sequence_number for record in batch.records] == list(range(5, 10))
            batch.ack()


async def test_a_start_at_a_time_leaves_out_what_came_before(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(20))
    local.clock.advance(60)
    moment = dt.datetime.fromtimestamp(local.clock.now(), dt.UTC)
    local.clock.advance(60)
    wanted = put(kinesis, range(20, 40))
    got = Counter[bytes]()
    starting_position = StartingPosition.at_timestamp(moment)
    async with (
        asyncio.timeout(DEADLINE_S),
        consumer_of(local, MemoryLeaseTable(), starting_position=starting_position) as consumer,
    ):
        await drained(consumer, 20, got)
    assert set(got) == set(wanted)


async def test_a_worker_that_takes_few_shards_leaves_the_rest_to_others(local: LocalKinesis, kinesis: Any) -> None:
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, table, leases_max=1) as few:
        while sum(row.owner is not None for row in (await table.scan()).rows) < 1:
            await asyncio.sleep(0.02)
        async with consumer_of(local, table) as more:
            while await shares(table) != [1, 4]:
                await asyncio.sleep(0.02)
            owners = Counter(row.owner for row in (await table.scan()).rows)
            assert owners == {few.worker_id: 1, more.worker_id: 4}


async def test_fan_out_is_registered_under_the_name_that_was_given(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(10))
    fan_out = {"fan_out": FanOutOptions(consumer_name="mine")}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable(), **fan_out) as consumer:
        await drained(consumer, 10, Counter[bytes]())
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    assert [one["ConsumerName"] for one in kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]] == ["mine"]


@pytest.mark.slow
@pytest.mark.parametrize("leaves", ["owner", "receiver"])
@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_one_that_goes_in_the_midst_of_a_handoff_costs_no_record(
    local: LocalKinesis, kinesis: Any, leaves: str, how: str
) -> None:
    """One asks for its share; while the other is about to give it, one of the two is gone, or says goodbye."""
    table = MemoryLeaseTable()
    # A worker that stops is waited for, not taken over from, however busy the machine is.
    fleet = Fleet(local, table, failover_s=2.0 if how == "crash" else 30.0)
    fleet.handle_s = 0.2  # records are always out when a shard is asked for
    wanted = set(put(kinesis, range(50)))
    try:
        fleet.start("owner")
        await fleet.account.until(wanted)
        wanted |= set(put(kinesis, range(50, 150)))
        fleet.start("receiver")
        async with asyncio.timeout(DEADLINE_S):
            while not any(row.given for row in await table.workers()):
                await asyncio.sleep(0.005)
        await (fleet.kill(leaves) if how == "crash" else fleet.stop(leaves))
        wanted |= set(put(kinesis, range(150, 200)))
        await fleet.account.until(wanted)
        await fleet.until(lambda: [len(held) for held in fleet.held().values()] == [SHARDS])
        assert fleet.account.tokens_rise()
        if how == "stop":
            assert set(fleet.account.counts().values()) == {1}
    finally:
        await fleet.close()
