"""A program asks for another order after its consumer has fetched: no record is passed over, and none comes twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Deduplicate, OneByOne, OptionError, SettlingOptions, StartingPosition, by_key, unordered
from shardway.events import DuplicatesLeftOut
from shardway.leases import MemoryLeaseTable
from shardway.model import HASH_KEY_MAX
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
ORDERS = pytest.mark.parametrize("order", [by_key(4), unordered(4), OneByOne()], ids=["by key", "unordered", "one"])
STARTS = pytest.mark.parametrize("start", [StartingPosition.LATEST, StartingPosition.TRIM_HORIZON], ids=str)
HALF = str(HASH_KEY_MAX // 2 + 1)


def held(consumer: Any) -> int:
    return sum(shard.records_held for shard in consumer.statistics().shards)


async def begun(consumer: Any) -> None:
    """Wait until the consumer reads at the tip of its shard."""
    await until(lambda: [shard.millis_behind_latest for shard in consumer.statistics().shards] == [0])


async def run_until(consumer: Any, condition: Callable[[], object], handle: Any, order: Any) -> None:
    running = asyncio.create_task(consumer.run_records(handle, concurrency=order))
    waiting = asyncio.create_task(until(condition))
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await consumer.close()
    await running


@ORDERS
@STARTS
async def test_no_record_is_passed_over_where_the_order_is_asked_for_late(
    local: LocalKinesis, kinesis: Any, start: Any, order: Any
) -> None:
    got: list[bytes] = []
    table = MemoryLeaseTable()
    async with consumer_of(local, table, starting_position=start) as consumer:
        await begun(consumer)
        wanted = put(kinesis, range(13), key=lambda data: str(int(data) % 3))
        await until(lambda: held(consumer) == len(wanted))
        await run_until(consumer, lambda: len(got) >= len(wanted), lambda record: got.append(record.data), order)
    assert sorted(got) == sorted(wanted)
    if isinstance(order, OneByOne):
        assert got == wanted


@ORDERS
async def test_duplicates_stay_left_out_where_the_order_is_asked_for_late(
    local: LocalKinesis, kinesis: Any, order: Any
) -> None:
    got: list[bytes] = []
    events: list[Any] = []
    choice = Deduplicate(key=lambda record: record.data, wait=True)
    async with consumer_of(local, MemoryLeaseTable(), deduplicate=choice, on_event=events.append) as consumer:
        put(kinesis, [b"a", b"b", b"a", b"c", b"b"])
        await until(lambda: held(consumer) == 3)
        put(kinesis, [b"d"])
        await until(lambda: held(consumer) == 4)
        running = asyncio.create_task(consumer.run_records(lambda one: got.append(one.data), concurrency=order))
        await until(lambda: len(got) >= 4)
        put(kinesis, [b"a", b"d", b"e"])
        await until(lambda: b"e" in got)
        await consumer.close()
        await running
    assert sorted(got) == [b"a", b"b", b"c", b"d", b"e"]
    assert sum(event.records for event in events if isinstance(event, DuplicatesLeftOut)) == 4


@ORDERS
async def test_another_order_while_the_end_of_a_shard_is_being_told(
    local: LocalKinesis, kinesis: Any, order: Any
) -> None:
    """The children of the shard are read in the new order, and the shard that has ended stays as it is."""
    got: list[bytes] = []
    may_end = asyncio.Event()
    telling = asyncio.Event()

    async def ended(_: Any) -> None:
        telling.set()
        await may_end.wait()

    async with consumer_of(local, MemoryLeaseTable(), on_shards_ended=ended) as consumer:
        wanted = put(kinesis, range(4))
        await until(lambda: held(consumer) == len(wanted))
        for batch in await consumer.getmany():
            with batch:
                got.extend(record.data for record in batch)
        kinesis.split_shard(StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=HALF)
        await telling.wait()
        running = asyncio.create_task(consumer.run_records(lambda one: got.append(one.data), concurrency=order))
        await asyncio.wait((running,), timeout=0.1)
        may_end.set()
        wanted += put(kinesis, range(4, 20))
        waiting = asyncio.create_task(until(lambda: len(got) >= len(wanted)))
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await consumer.close()
        await running
    assert sorted(got) == sorted(wanted)


@STARTS
async def test_a_second_run_has_another_order_and_takes_what_the_first_one_left(
    local: LocalKinesis, kinesis: Any, start: Any
) -> None:
    got: list[int] = []
    async with consumer_of(local, MemoryLeaseTable(), starting_position=start) as consumer:
        await begun(consumer)
        for number, order in enumerate([by_key(2), unordered(3), by_key(1), OneByOne()]):
            put(kinesis, range(number * 20, number * 20 + 20), key=lambda data: str(int(data) % 4))
            await run_and_leave(consumer, got, order)
        last = len(got)
        await run_until(consumer, lambda: set(got) == set(range(80)), lambda one: got.append(int(one.data)), OneByOne())
    assert sorted(got) == list(range(80)), "what was with a handler when a run was left had not been handled"
    assert got[last:] == sorted(got[last:]), "one by one keeps the order of the shard again"


async def run_and_leave(consumer: Any, got: list[int], order: Any) -> None:
    """Run until seven records are done and further ones are with handlers, and cancel the run."""
    done = 0
    busy = asyncio.Event()

    async def handle(record: Any) -> None:
        nonlocal done
        if done == 7:
            busy.set()
            await asyncio.Event().wait()
        done += 1
        got.append(int(record.data))

    running = asyncio.create_task(consumer.run_records(handle, concurrency=order))
    await busy.wait()
    running.cancel()
    await asyncio.wait((running,))


async def test_an_order_by_key_is_refused_where_the_newest_settlement_counts_for_all(local: LocalKinesis) -> None:
    settling = SettlingOptions(latest_wins=True)
    async with consumer_of(local, MemoryLeaseTable(), settling=settling) as consumer:
        with pytest.raises(OptionError, match="latest_wins"):
            await consumer.run_batches(lambda _: None, concurrency=by_key(4))
