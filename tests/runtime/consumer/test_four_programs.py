"""Four programs that people write, with the real consumer: each works, or says at once what is left unsettled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.events import RecordsStalled, RecordsUnsettled
from shardway.model import Position
from shardway.policies import Redeliver
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.fleet_kit import DEADLINE_S
from tests.runtime.consumer.outcome_kit import FOR_EVER, SHARD_ID, checkpoint_reaches, consumer_of, of, put, until

if TYPE_CHECKING:
    from shardway.local import LocalKinesis
    from shardway.runtime.shard.batch import Batch

COUNT = 60


def numbered(kinesis: Any, count: int = COUNT) -> list[int]:
    return put(kinesis, *[b"%d" % number for number in range(count)])


async def test_a_task_per_record_settled_in_any_order(local: LocalKinesis, kinesis: Any) -> None:
    """Works, and never blocks: the next batch comes while earlier records are being worked on."""
    numbers = numbered(kinesis)
    leases = MemoryLeaseTable()
    events: list[Any] = []
    rng = random.Random(3)
    got: list[bytes] = []
    at_work = most = 0
    tasks: set[asyncio.Task[None]] = set()

    async def work(batch: Batch[Any], index: int) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(rng.random() / 20)
        at_work -= 1
        got.append(batch.records[index].data)
        batch.ack(index)

    chosen: dict[str, Any] = {"cadence": Prompt(), "batch_records_max": 7}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        async for batch in consumer:
            tasks |= {asyncio.create_task(work(batch, index)) for index in range(len(batch))}
            if len(tasks) == COUNT:
                break
        await asyncio.gather(*tasks)
        await checkpoint_reaches(leases, numbers[-1])
    assert max(Counter(got).values()) <= 2  # what was out when the iteration was left may have been offered again
    assert {int(data) for data in got} == set(range(COUNT))
    assert most > 7
    assert not of(events, RecordsUnsettled)


async def test_serial(local: LocalKinesis, kinesis: Any) -> None:
    numbers = numbered(kinesis)
    leases, got = MemoryLeaseTable(), []
    events: list[Any] = []
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, cadence=Prompt()) as consumer:
        async for batch in consumer:
            with batch:
                for record in batch:
                    await asyncio.sleep(0)
                    got.append(record.sequence_number)
            if len(got) == COUNT:
                break
        await checkpoint_reaches(leases, numbers[-1])
    assert got == numbers
    assert not of(events, RecordsUnsettled)
    assert not of(events, RecordsStalled)


async def ten_at_a_time(consumer: Any, settle: Any, times: int) -> None:
    """Collect ten records, work on them, settle the last one."""
    ten: list[tuple[Batch[Any], int]] = []
    async for batch in consumer:
        for index in range(len(batch)):
            ten.append((batch, index))
            if len(ten) == 10:
                settle(*ten[-1])
                ten.clear()
                times -= 1
        if not times:
            return


async def test_ten_collected_and_only_the_last_one_settled(local: LocalKinesis, kinesis: Any) -> None:
    """The event at the end of the tenure names the other nine, with the call that settles through a record."""
    numbers = numbered(kinesis)
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen: dict[str, Any] = {"batch_records_max": 10, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        await ten_at_a_time(consumer, lambda batch, index: batch.ack(index), COUNT // 10)
        assert not of(events, RecordsUnsettled)
    (told,) = of(events, RecordsUnsettled)
    others = [Position(number) for place, number in enumerate(numbers) if place % 10 != 9]
    assert told.positions == tuple(others[:20])
    assert told.records == len(others)
    assert "settle_through(record)" in told.advice
    row = await leases.get(SHARD_ID)
    assert row is not None
    assert not row.checkpoint.is_position, "the first record was never settled"


async def test_ten_collected_and_settled_through_the_last_one(local: LocalKinesis, kinesis: Any) -> None:
    """The same with the call that it was told."""
    numbers = numbered(kinesis)
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen: dict[str, Any] = {"batch_records_max": 4, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        await ten_at_a_time(consumer, lambda batch, index: batch.settle_through(batch.records[index]), COUNT // 10)
        await checkpoint_reaches(leases, numbers[-1])
    assert not of(events, RecordsUnsettled)


async def test_batches_per_customer_settled_when_one_has_a_hundred(local: LocalKinesis, kinesis: Any) -> None:
    """Never blocks; a slow customer's records are told, and delivered again, and no record is in two collections."""
    customers = [b"slow" if number % 50 == 0 else b"customer %d" % (number % 2) for number in range(250)]
    numbers = put_many(kinesis, customers)
    leases = MemoryLeaseTable()
    events: list[Any] = []
    ledger = dict[str, Any](retry=FOR_EVER, deadline_s=0.2, stalled=Redeliver(times_max=1))
    got: list[tuple[object, int]] = []
    seen: set[int] = set()
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **ledger) as consumer:
        async with aclosing(consumer.collect(lambda record: record.data, records=100)) as groups:
            async for group in groups:
                with group:
                    got.append((group.key, len(group)))
                    seen |= {record.sequence_number for record in group.records}
                if len(got) == 2:
                    break
            assert sorted(got) == [(b"customer 0", 100), (b"customer 1", 100)]
            assert len(seen) == 200
        slow = {number for number, customer in zip(numbers, customers, strict=True) if customer == b"slow"}
        await until(lambda: slow <= told(events))
        assert {event.action for event in of(events, RecordsStalled)} == {"Redeliver"}


def told(events: list[Any]) -> set[int]:
    """What was said to be unsettled for too long."""
    return {position.sequence_number for event in of(events, RecordsStalled) for position in event.positions}


async def test_batches_per_customer_with_a_flush_by_age(local: LocalKinesis, kinesis: Any) -> None:
    customers = [b"slow" if number % 50 == 0 else b"customer %d" % (number % 2) for number in range(250)]
    numbers = put_many(kinesis, customers)
    leases = MemoryLeaseTable()
    events: list[Any] = []
    got: Counter[object] = Counter()
    chosen: dict[str, Any] = {"cadence": Prompt(), "batch_records_max": 30}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        async with aclosing(consumer.collect(lambda record: record.data, records=100, age_s=0.3)) as groups:
            async for group in groups:
                assert len(group) <= 100
                with group:
                    got[group.key] += len(group)
                if got.total() == len(customers):
                    break
        await checkpoint_reaches(leases, max(numbers))
    assert got == Counter(customers)
    assert not of(events, RecordsStalled)


async def test_what_waits_for_its_customer_is_delivered_when_the_shard_leaves(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = numbered(kinesis, 5)
    leases = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, drain_deadline_s=DEADLINE_S) as consumer:
        got: list[bytes] = []

        async def program() -> None:
            async for group in consumer.collect(lambda record: "all", records=100):
                with group:
                    got.extend(record.data for record in group.records)

        running = asyncio.create_task(program())
        await until(lambda: consumer.statistics().records_delivered == 5)
        await consumer.close()
        await running
    assert got == [b"%d" % number for number in range(5)]
    row = await leases.get(SHARD_ID)
    assert row is not None
    assert row.checkpoint.position.sequence_number == numbers[-1]


def put_many(kinesis: Any, datas: list[bytes]) -> list[int]:
    numbers = []
    for at in range(0, len(datas), 100):
        answer = kinesis.put_records(
            StreamName="orders",
            Records=[{"Data": data, "PartitionKey": data.decode()} for data in datas[at : at + 100]],
        )
        numbers += [int(one["SequenceNumber"]) for one in answer["Records"]]
    return numbers
