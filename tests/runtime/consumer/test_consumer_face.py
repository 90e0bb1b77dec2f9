"""The ways to read: single records, many at once, several streams, handlers side by side; errors; steering; numbers."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Consumer, OptionError, Position, ShardReadError, StartingPosition, Unordered, by_key, unordered
from shardway.core.leases.lease_key import LeaseKey
from shardway.leases import MemoryLeaseTable
from shardway.local import LocalKinesis
from shardway.options import LeaseOptions
from tests.options_kit import arguments_of, options_of
from tests.runtime.consumer.face_kit import DEADLINE_S, QUICK_RETRIES, STREAM, consumer_of, put, settings, until, wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway import Batch, Delivered

pytestmark = pytest.mark.timeout(DEADLINE_S)
STREAMS = {STREAM: 2, "returns": 1}


# --- several streams --------------------------------------------------------------------------------


async def test_several_streams_with_lease_keys_as_the_kcl_writes_them(local: LocalKinesis, kinesis: Any) -> None:
    wanted = {(STREAM, data) for data in put(kinesis, range(30))}
    wanted |= {("returns", data) for data in put(kinesis, range(100, 120), stream="returns")}
    table = MemoryLeaseTable()
    got: Counter[tuple[str, bytes]] = Counter()
    async with consumer_of(local, table, stream=[STREAM, "returns"]) as consumer:
        async for batch in consumer:
            with batch:
                got.update((batch.stream, record.data) for record in batch)
                assert {record.stream for record in batch} == {batch.stream}
            if set(got) == wanted:
                break
    assert set(got.values()) == {1}
    rows = (await table.scan()).rows
    assert len(rows) == 3
    for row in rows:
        key = LeaseKey.parse(row.key)
        assert key.stream is not None
        assert (key.stream.text, key.shard_id) == (row.stream, row.shard_id)
        assert key.stream.account == "123456789012"
        assert row.checkpoint.is_position
    assert {LeaseKey.parse(row.key).stream.name for row in rows} == {STREAM, "returns"}  # type: ignore[union-attr]
    more = put(kinesis, range(200, 210), stream="returns")
    again: list[bytes] = []
    async with consumer_of(local, table, stream=(STREAM, "returns")) as consumer:
        async for record in consumer.records():
            with record:
                again.append(record.data)
            if len(again) == len(more):
                break
    assert again == more


async def test_the_shards_of_several_streams_are_shared_and_split(local: LocalKinesis, kinesis: Any) -> None:
    table = MemoryLeaseTable()
    got: Counter[bytes] = Counter()

    async def take(batch: Batch[Any]) -> None:
        got.update(record.data for record in batch)

    async with consumer_of(local, table, stream=[STREAM, "returns"]) as one:
        first = asyncio.create_task(one.run_batches(take))
        async with consumer_of(local, table, stream=[STREAM, "returns"]) as other:
            second = asyncio.create_task(other.run_batches(take))
            await until(lambda: len(one.statistics().shards) in (1, 2) and len(other.statistics().shards) in (1, 2))
            wanted = put(kinesis, range(50), stream="returns")
            (shard,) = kinesis.list_shards(StreamName="returns")["Shards"]
            kinesis.split_shard(StreamName="returns", ShardToSplit=shard["ShardId"], NewStartingHashKey=str(2**127))
            wanted += put(kinesis, range(50, 100), stream="returns")
            await until(lambda: set(got) == set(wanted))
        await second
        await one.close()
        await first
    assert set(got.values()) == {1}
    keys = {row.shard_id for row in (await table.scan()).rows if row.stream is not None and "returns" in row.stream}
    assert len(keys) == 3


# --- handlers ---------------------------------------------------------------------------------------


async def test_by_key_keeps_each_keys_order_while_keys_go_side_by_side(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(200), key=lambda data: str(int(data) % 10))
    got: defaultdict[int, list[int]] = defaultdict(list)
    at_work: set[int] = set()
    failed: set[int] = set()
    most = 0

    async def handle(record: Delivered[Any]) -> None:
        nonlocal most
        number = int(record.data)
        key = number % 10
        assert key not in at_work
        at_work.add(key)
        most = max(most, len(at_work))
        await asyncio.sleep(0.001)
        at_work.discard(key)
        if number % 17 == 0 and number not in failed:
            failed.add(number)
            raise ValueError("not yet")
        got[key].append(number)

    async with consumer_of(local, MemoryLeaseTable(), retry=QUICK_RETRIES) as consumer:
        running = asyncio.create_task(consumer.run_records(handle, concurrency=by_key(8)))
        await until(lambda: sum(map(len, got.values())) >= len(wanted))
        await consumer.close()
        await running
    assert {key: numbers == sorted(numbers) for key, numbers in got.items()} == dict.fromkeys(range(10), True)
    assert sum(map(len, got.values())) == len(wanted)
    assert most > 1


async def test_by_key_keeps_order_over_a_handoff(local: LocalKinesis, kinesis: Any) -> None:
    """Two consumers, of which one leaves while records come: each key's order holds, and nothing comes twice."""
    table = MemoryLeaseTable()
    got: defaultdict[int, list[int]] = defaultdict(list)
    wanted = 0

    async def handle(record: Delivered[Any]) -> None:
        await asyncio.sleep(0.001)
        got[int(record.data) % 8].append(int(record.data))

    def more() -> None:
        nonlocal wanted
        put(kinesis, range(wanted, wanted + 80), key=lambda data: str(int(data) % 8))
        wanted += 80

    async with consumer_of(local, table, drain_deadline_s=DEADLINE_S) as one:
        first = asyncio.create_task(one.run_records(handle, concurrency=by_key(4)))
        more()
        async with consumer_of(local, table, drain_deadline_s=DEADLINE_S) as other:
            second = asyncio.create_task(other.run_records(handle, concurrency=by_key(4)))
            await until(lambda: [len(each.statistics().shards) for each in (one, other)] == [1, 1])
            more()
            await until(lambda: sum(map(len, got.values())) > 100)
            more()
        await second
        more()
        await until(lambda: sum(map(len, got.values())) >= wanted)
        await one.close()
        await first
    assert got == {key: list(range(key, wanted, 8)) for key in range(8)}


async def test_by_key_after_records_came_in_another_order(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(60), key=lambda data: str(int(data) % 6))
    got: list[tuple[set[str | None], list[int]]] = []
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        await until(lambda: sum(shard.records_held for shard in consumer.statistics().shards) == len(wanted))
        first = await consumer.getmany(5)
        for batch in first:
            batch.ack()
        settled = [int(record.data) for batch in first for record in batch]

        async def handle(batch: Batch[Any]) -> None:
            got.append(({record.partition_key for record in batch}, [int(record.data) for record in batch]))

        running = asyncio.create_task(consumer.run_batches(handle, concurrency=by_key(4)))
        await until(lambda: sum(len(numbers) for _, numbers in got) >= len(wanted) - len(settled))
        await consumer.close()
        await running
    assert all(len(keys) == 1 for keys, _ in got)
    assert sorted(settled + [number for _, numbers in got for number in numbers]) == list(range(60))


async def test_a_record_that_fails_is_tried_again_alone_and_before_those_behind_it(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, range(20), key=lambda _: "one")
    calls: list[int] = []

    async def handle(record: Delivered[Any]) -> None:
        calls.append(int(record.data))
        if calls.count(7) < 3 and record.data == b"7":
            raise ValueError("not yet")

    async with consumer_of(local, MemoryLeaseTable(), retry=QUICK_RETRIES) as consumer:
        running = asyncio.create_task(consumer.run_records(handle))
        await until(lambda: calls[-1:] == [19])
        await consumer.close()
        await running
    assert calls == [*range(7), 7, 7, *range(7, 20)]


@pytest.mark.parametrize("way", ["run_batches", "run_records"])
async def test_unordered_calls_go_side_by_side_within_their_bounds(local: LocalKinesis, kinesis: Any, way: str) -> None:
    wanted = put(kinesis, range(60))
    got: Counter[bytes] = Counter()
    now = most = 0
    gate = asyncio.Event()

    async def handle(given: Any) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if most >= 5:
            gate.set()
        await gate.wait()
        await asyncio.sleep(0)
        now -= 1
        got.update([given.data] if way == "run_records" else [record.data for record in given])

    async with consumer_of(local, MemoryLeaseTable(), batch_records_max=3) as consumer:
        running = asyncio.create_task(getattr(consumer, way)(handle, concurrency=unordered(4), handlers_max=5))
        await until(lambda: len(got) == len(wanted))
        await consumer.close()
        await running
    assert set(got.values()) == {1}
    assert most == 5  # of the 8 that two shards have slots for


async def test_a_cancelled_run_gives_back_what_its_handlers_had(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(20))
    table = MemoryLeaseTable()
    had: list[bytes] = []

    async def hang(record: Delivered[Any]) -> None:
        had.append(record.data)
        await asyncio.Event().wait()

    async with consumer_of(local, table) as consumer:
        running = asyncio.create_task(consumer.run_records(hang, concurrency=unordered(2)))
        await until(lambda: len(had) >= 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        got: Counter[bytes] = Counter()
        async for record in consumer.records():
            with record:
                got[record.data] += 1
            if len(got) == len(wanted):
                break
    assert set(got.values()) == {1}


# --- single records, many ---------------------------------------------------------------------------


async def test_single_records_settle_one_by_one(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(10), key=lambda _: "one")
    table = MemoryLeaseTable()
    got: list[tuple[bytes, int]] = []
    places: list[Position] = []
    async with consumer_of(local, table, retry=QUICK_RETRIES) as consumer:
        async for record in consumer.records():
            with record:
                got.append((record.value, record.attempt))
                places.append(Position(record.record.sequence_number))
                if record.data == b"3" and record.attempt == 1:
                    raise ValueError("not yet")
            if got[-1][0] == b"6":
                break
        assert (record.stream, record.shard_id) == (STREAM, record.record.shard_id)
    assert got == [(data, 1) for data in wanted[:7]]  # what failed comes again after its batch
    (row,) = [row for row in (await table.scan()).rows if row.checkpoint.is_position]
    assert row.checkpoint.position == places[2]


async def test_many_records_across_shards_at_most_so_many_and_none_after_a_while(
    local: LocalKinesis, kinesis: Any
) -> None:
    wanted = put(kinesis, range(50))
    got: Counter[bytes] = Counter()
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        while len(got) < len(wanted):
            batches = await consumer.getmany(7, wait_s=DEADLINE_S)
            assert 0 < sum(map(len, batches)) <= 7
            for batch in batches:
                got.update(record.data for record in batch)
                batch.ack()
        assert await consumer.getmany(7, wait_s=0.05) == []
        waiting = asyncio.create_task(consumer.getmany(7))
        await asyncio.sleep(0)
        await consumer.close()
        assert await waiting == []
    assert set(got.values()) == {1}


# --- ends -------------------------------------------------------------------------------------------


async def test_a_handler_may_close_the_consumer_and_closing_twice_is_closing_once(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, range(5), key=lambda _: "one")
    table = MemoryLeaseTable()
    closing: list[asyncio.Task[None]] = []

    async def handle(batch: Batch[Any]) -> None:
        closing.extend(asyncio.create_task(consumer.close()) for _ in range(2))

    async with consumer_of(local, table) as consumer:
        await consumer.run_batches(handle)
    await asyncio.gather(*closing)
    rows = (await table.scan()).rows
    assert {row.owner for row in rows} == {None}
    assert sum(row.checkpoint.is_position for row in rows) == 1


async def test_an_error_of_the_loop_itself_leaves_nothing_that_a_close_waits_for(
    local: LocalKinesis, kinesis: Any
) -> None:
    """The drain's deadline is far away: what is in flight is given back when the iteration is left, by an error too."""
    put(kinesis, range(5))
    table = MemoryLeaseTable()

    async def fail(iterate: Callable[[Consumer[Any]], Any]) -> None:
        async with consumer_of(local, table, drain_deadline_s=10 * DEADLINE_S) as consumer:
            async for _ in iterate(consumer):
                raise LookupError("of the program")

    for iterate in (aiter, Consumer.records):
        with pytest.raises(LookupError):
            await fail(iterate)
    assert {row.owner for row in (await table.scan()).rows} == {None}


async def test_a_close_that_is_cancelled_goes_on(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(5))
    table = MemoryLeaseTable()
    async with consumer_of(local, table) as consumer:
        batches = await consumer.getmany()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        assert closing.cancelled()
        for batch in batches:
            batch.ack()
    assert {row.owner for row in (await table.scan()).rows} == {None}
    assert sum(row.checkpoint.is_position for row in (await table.scan()).rows) >= 1


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["batches", "records", "getmany", "shards", "run"])
async def test_what_ends_reading_is_raised_with_its_stream_and_shard(
    local: LocalKinesis, kinesis: Any, way: str
) -> None:
    put(kinesis, range(5))

    async def handle(batch: Batch[Any]) -> None:
        pass

    async def read(consumer: Consumer[Any]) -> None:
        match way:
            case "batches":
                async for batch in consumer:
                    batch.ack()
            case "records":
                async for record in consumer.records():
                    record.ack()
            case "getmany":
                while await consumer.getmany():
                    pass
            case "shards":
                async for shard in consumer.shards():
                    async for batch in shard:
                        batch.ack()
            case _:
                await consumer.run_batches(handle)

    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        await until(lambda: len(consumer.statistics().shards) == 2)
        reading = asyncio.create_task(read(consumer))
        await until(lambda: consumer.statistics().records_delivered >= (0 if way == "shards" else 5))
        kinesis.delete_stream(StreamName=STREAM)
        with pytest.raises(
            ShardReadError, match=rf"^{STREAM}, shardId-\d+: reading has ended: .*ResourceNotFound"
        ) as told:
            await reading
        assert told.value.stream == STREAM
        assert told.value.shard_id.startswith("shardId-")
        assert told.value.__cause__ is not None


async def test_all_faults_of_the_arguments_are_told_at_once() -> None:
    with pytest.raises(OptionError) as told:
        Consumer([STREAM, STREAM], application="")
    assert len(told.value.faults) == 2
    with pytest.raises(OptionError):
        Consumer([], application="billing")
    with pytest.raises(OptionError):
        Unordered(slots_max=0)


async def test_one_stream_by_two_names_is_refused(local: LocalKinesis, kinesis: Any) -> None:
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    with pytest.raises(OptionError, match="two of the names mean the same stream"):
        async with consumer_of(local, MemoryLeaseTable(), stream=[STREAM, arn]):
            raise AssertionError("not reached")


async def test_leases_in_a_table_of_another_name(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(3))
    options = LeaseOptions(table="billing-leases", tags={"team": "billing"}, connection=wire(local))
    async with Consumer(
        STREAM, application="billing", connection=wire(local), **arguments_of(leases=options, **settings())
    ) as consumer:
        for batch in await consumer.getmany(1):
            batch.ack()
    import boto3

    tables = boto3.client(
        "dynamodb",
        endpoint_url=local.endpoint_url,
        region_name=local.region,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    assert set(tables.list_tables()["TableNames"]) == {"billing-leases", "billing-leases-Workers"}
    with pytest.raises(RuntimeError, match="started once"):
        await consumer.start()


# --- steering ---------------------------------------------------------------------------------------


async def test_a_paused_shard_delivers_nothing_and_the_others_go_on(local: LocalKinesis, kinesis: Any) -> None:
    async with consumer_of(local, MemoryLeaseTable(), drain_deadline_s=0.1) as consumer:
        await until(lambda: len(consumer.statistics().shards) == 2)
        paused, other = (shard.shard_id for shard in consumer.statistics().shards)
        consumer.pause(paused)
        put(kinesis, range(40))
        await until(lambda: sum(shard.records_held for shard in consumer.statistics().shards) == 40)
        (batch,) = await consumer.getmany()
        assert batch.shard_id == other
        batch.ack()
        assert await consumer.getmany(wait_s=0) == []
        consumer.resume(paused)
        (batch,) = await consumer.getmany()
        assert batch.shard_id == paused
        consumer.pause()
        put(kinesis, range(40, 44))
        await until(lambda: sum(shard.records_held for shard in consumer.statistics().shards) == len(batch) + 4)
        assert await consumer.getmany(wait_s=0) == []
        assert all(shard.paused for shard in consumer.statistics().shards)
        consumer.resume()
        assert await consumer.getmany() != []
        with pytest.raises(KeyError, match="does not hold"):
            consumer.pause("shardId-9")


async def test_seek_goes_back_and_forth_and_the_checkpoint_only_forth(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(30), key=lambda _: "one")
    table = MemoryLeaseTable()

    async def numbers(count: int) -> list[int]:
        got: list[int] = []
        while len(got) < count:
            for batch in await consumer.getmany(count - len(got)):
                got += [int(record.data) for record in batch]
                places.update({int(record.data): Position(record.sequence_number) for record in batch})
                batch.ack()
                seen.append(batch)
        return got

    places: dict[int, Position] = {}
    seen: list[Batch[Any]] = []
    async with consumer_of(local, table) as consumer:
        assert await numbers(20) == list(range(20))
        shard = seen[-1]
        assert consumer.position(shard) == places[19]
        (out,) = await consumer.getmany(2)
        consumer.seek(shard, places[4])
        assert not out.ack()  # it counts for nothing any more
        assert consumer.position(shard) == places[4]
        assert await numbers(6) == list(range(5, 11))
        local.clock.advance(60.0)  # LATEST may begin two seconds before the call.
        consumer.seek(shard, places[19])
        consumer.seek(shard, StartingPosition.TRIM_HORIZON)
        assert await numbers(3) == [0, 1, 2]
        consumer.seek(shard, StartingPosition.LATEST)
        assert await consumer.getmany(1, wait_s=0.05) == []
        consumer.seek(shard, places[10])
        assert await numbers(19) == list(range(11, 30))
        consumer.seek(shard.shard_id, places[3])
        assert await numbers(2) == [4, 5]
    (row,) = [row for row in (await table.scan()).rows if row.checkpoint.is_position]
    assert row.checkpoint.position == places[29]
    assert {batch.token for batch in seen} == {seen[0].token}  # all in one tenure


async def test_a_shard_that_is_left_is_offered_anew(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(20), stream="returns")
    got: Counter[bytes] = Counter()
    async with consumer_of(local, MemoryLeaseTable(), stream="returns", batch_records_max=5) as consumer:
        async for shard in consumer.shards():  # left after one batch each time, of which half is settled
            async for batch in shard:
                half = range(0, len(batch), 2)
                batch.ack(*half)
                got.update(batch.records[index].data for index in half)
                break
            if len(got) == len(wanted):
                break
        assert set(got.values()) == {1}
        again = await anext(aiter(consumer.shards()))
        assert again.shard_id == shard.shard_id
        put(kinesis, [b"more"], stream="returns")
        batch = await anext(aiter(again))
        assert [record.data for record in batch] == [b"more"]
        batch.ack()


@pytest.mark.parametrize("way", ["batches", "run"])
async def test_nothing_is_kept_of_shards_that_have_gone(local: LocalKinesis, kinesis: Any, way: str) -> None:
    table = MemoryLeaseTable()

    async def take(batch: Batch[Any]) -> None:
        pass

    async def read(consumer: Consumer[Any]) -> None:
        if way == "run":
            await consumer.run_batches(take)
        else:
            async for batch in consumer:
                batch.ack()

    def each_has_one(other: Consumer[Any]) -> bool:
        return len(one.statistics().shards) == len(other.statistics().shards) == 1

    seen: list[weakref.ref[Any]] = []
    async with consumer_of(local, table) as one:
        reading = asyncio.create_task(read(one))
        for start in (0, 20, 40):
            async with consumer_of(local, table) as other:
                other_reading = asyncio.create_task(read(other))
                await until(partial(each_has_one, other))
                put(kinesis, range(start, start + 20))
            await other_reading
            await until(lambda: len(one.statistics().shards) == 2)
            seen += map(weakref.ref, one._session.turns.held)

        def there() -> set[Any]:
            gc.collect()
            return {reader for found in seen if (reader := found()) is not None}

        assert len(seen) == 6
        # The task that offers shards forgets the last one when it is given the next one, a turn of the loop later.
        await until(lambda: len(there()) == 2)
        assert [reader.over_because for reader in there() if reader.is_over] == []
        await one.close()
        await reading


# --- numbers ----------------------------------------------------------------------------------------


async def test_statistics_add_up(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(30))
    told: list[Any] = []
    async with consumer_of(local, MemoryLeaseTable(), on_event=told.append, drain_deadline_s=0.1) as consumer:
        taken = 0
        while taken < len(wanted):
            batches = await consumer.getmany()
            taken += sum(map(len, batches))
        one = consumer.statistics()
        assert one.records_delivered == one.records_in_flight == len(wanted)
        needed = one.bytes_held - sum(map(len, wanted))
        assert 300 * len(wanted) < needed < 400 * len(wanted), "what Python needs for each record counts too"
        assert {shard.settled for shard in one.shards} == {None}
        assert one.leases == one.leases_by_worker[consumer.worker_id] == len(one.shards) == 2
        assert one.millis_behind_latest is not None
        assert one.source_calls["read"] >= 2
        assert one.table_calls["write"] >= 2
        assert one.events["ShardBegun"] == 2 == [type(event).__name__ for event in told].count("ShardBegun")
        with pytest.raises(OptionError):
            options_of(unreadable="skip", batch_records_max=0)
    last = consumer.statistics()
    assert (last.records_delivered, last.shards) == (len(wanted), ())
    assert last.events["ShardLeft"] == 2
