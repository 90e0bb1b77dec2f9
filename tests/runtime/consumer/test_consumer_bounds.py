"""What is fetched ahead is bounded, in records and in bytes: by what is not settled, and while a receiver warms up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import ByKey, PollingOptions, Retry, events
from shardway.leases import MemoryLeaseTable
from tests.runtime.consumer.face_kit import DEADLINE_S, consumer_of, put, until

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)

PAGE = 5
PAGES = PollingOptions(interval_s=0.02, idle_interval_s=0.05, request_records_max=PAGE)
RECORD_BYTES = 100
PYTHON_BYTES = 334
"""What Python needs for such a record beside its data."""


@pytest.mark.parametrize(
    "bound",
    [
        {"shard_records_max": 20},
        {"shard_buffer_bytes_max": 20 * (RECORD_BYTES + PYTHON_BYTES)},
        {"repeat_records_max": 20},
    ],
    ids=["records", "bytes", "what-a-crash-repeats"],
)
async def test_at_the_bound_nothing_more_is_fetched_and_nothing_is_dropped(
    local: LocalKinesis, kinesis: Any, bound: dict[str, Any]
) -> None:
    wanted = put(kinesis, [b"%0100d" % number for number in range(60)], key=lambda _: "k")
    told: list[Any] = []
    ledger = dict[str, Any](retry=Retry(failures_max=None), full_after_s=0.05, **bound)
    async with consumer_of(
        local, MemoryLeaseTable(), **ledger, polling=PAGES, on_event=told.append, drain_deadline_s=0.1
    ) as consumer:
        out: list[Any] = []
        while len(out) < 20 // PAGE:
            out += await consumer.getmany(PAGE)
        asking = asyncio.create_task(consumer.getmany())  # a program that wants more is told what is in the way
        while not any(isinstance(event, events.FetchingHeld) for event in told):
            # A batch may be part of a page, so what is there may be more batches than pages: it is asked for again.
            await asyncio.wait([asking], timeout=0.01)
            if asking.done():
                out += asking.result()
                asking = asyncio.create_task(consumer.getmany())
        (shard,) = consumer.statistics().shards
        assert shard.records_in_flight == shard.records_held
        if "shard_buffer_bytes_max" in bound:
            assert 15 <= shard.records_held <= 20, "the first page is small: no record's size is known before it"
            assert shard.bytes_held <= bound["shard_buffer_bytes_max"]
        else:
            assert shard.records_held == 20
        (held,) = [event for event in told if isinstance(event, events.FetchingHeld)]
        assert held.position.sequence_number == out[0].records[0].sequence_number
        reads = consumer.statistics().source_calls["read"]
        got = [record.data for batch in out for record in batch]
        for batch in out:
            batch.ack()
        while len(got) < len(wanted):
            for batch in await asking:
                got += [record.data for record in batch]
                batch.ack()
            asking = asyncio.create_task(consumer.getmany())
        asking.cancel()
        assert got == wanted
        assert reads == 20 // PAGE


async def until_warm(table: MemoryLeaseTable) -> None:
    while not any(row.warm for row in await table.workers()):
        await asyncio.sleep(0.01)


async def test_a_receiver_whose_buffer_is_full_is_warm(local: LocalKinesis, kinesis: Any) -> None:
    """A shard that is written at its full rate is never caught up with: the owner does not wait for that."""
    wanted = put(kinesis, range(60), key=lambda _: "k")
    table, got = MemoryLeaseTable(), list[tuple[str, bytes]]()
    go_on = asyncio.Event()
    chosen = {"polling": PAGES, "warm_bytes_max": 1, "warm_deadline_s": 100 * DEADLINE_S, "batch_records_max": PAGE}

    async def slow(batch: Any) -> None:
        await go_on.wait()
        await until(lambda: batch.leaving)
        got.extend(("owner", record.data) for record in batch)

    async def quick(batch: Any) -> None:
        got.extend(("receiver", record.data) for record in batch)

    async with consumer_of(local, table, drain_deadline_s=DEADLINE_S, **chosen) as owner:
        first = asyncio.create_task(owner.run_batches(slow))
        await until(lambda: owner.statistics().records_in_flight)
        async with consumer_of(local, table, leases_max=1, **chosen) as receiver:
            second = asyncio.create_task(receiver.run_batches(quick))
            while len(await table.workers()) < 2:
                await asyncio.sleep(0.01)
            closing = asyncio.create_task(owner.close())
            await until_warm(table)  # and it has not read to the tip
            go_on.set()
            await closing
            await first
            await until(lambda: len(got) == len(wanted))
            await receiver.close()
            await second
    assert [data for _, data in got] == wanted
    assert [who for who, _ in got] == ["owner"] * PAGE + ["receiver"] * (len(wanted) - PAGE)


@pytest.mark.parametrize("order", [None, ByKey()], ids=["in-order", "by-key"])
async def test_all_shards_together_hold_no_more_than_the_buffer_and_each_gets_something(
    local: LocalKinesis, kinesis: Any, order: Any
) -> None:
    """Without the bound these eight shards hold all of their 800 records."""
    kinesis.create_stream(StreamName="many", ShardCount=8)
    datas = [b"%0100d" % number for number in range(800)]
    wanted = put(kinesis, datas, key=lambda data: data[-4:].decode(), stream="many")
    bound = 200 * (RECORD_BYTES + PYTHON_BYTES)
    got: list[bytes] = []
    async with consumer_of(
        local,
        MemoryLeaseTable(),
        stream="many",
        order=order,
        retry=Retry(failures_max=None),
        polling=PAGES,
        buffer_bytes_max=bound,
    ) as consumer:
        out: list[Any] = []
        while len({batch.shard_id for batch in out}) < 8:
            out += await consumer.getmany(PAGE)
        while len(got) < len(wanted):
            assert (consumer.statistics().bytes_held or 0) <= bound
            for batch in out:
                got += [record.data for record in batch]
                batch.ack()
            out = await consumer.getmany(PAGE) if len(got) < len(wanted) else []
    assert sorted(got) == wanted
