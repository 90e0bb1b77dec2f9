"""What is put is written, once, and the result says where."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from shardway.errors import InvalidRecordError, ProducerClosedError
from shardway.model import HASH_KEY_MAX, OutRecord, PutResult
from shardway.runtime.producer.producer import Producer
from shardway.testing import Fault
from tests.runtime.producing import MIDDLE, STREAM, Heard, numbered, place_of, places, quick, read_all, until, wire_of

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])


@BOTH
async def test_results_say_where_the_records_are(local: LocalKinesis, aggregation: bool) -> None:
    records = numbered(range(1_000))
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=aggregation)
    ) as producer:
        one = await producer.put(records[0])
        handles = [producer.put_nowait(record) for record in records[1:100]]
        puts = await producer.put_many(records[100:550])
        pairs = await producer.put_many([(record.partition_key, record.data) for record in records[550:]])
        several = [await handle for handle in handles]
        await asyncio.gather(puts.settled(), pairs.settled())
        results = [one, *several, *puts.results(), *pairs.results()]
    content = await read_all(local)
    assert place_of(content) == {record.data: [place] for record, place in zip(records, places(results), strict=True)}
    assert all(isinstance(one, PutResult) and one.attempts == 1 and not one.duplicates_possible for one in results)
    assert (content.aggregates > 0, content.dropped) == (aggregation, 0)


@BOTH
async def test_a_single_put_does_not_wait_for_company(local: LocalKinesis, aggregation: bool) -> None:
    options = quick(aggregation=aggregation, linger_s=3_600)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        await producer.put(OutRecord(b"alone", "key"))  # would never end if it lingered
        second = producer.put_nowait(OutRecord(b"second", "key"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not second.done()
        await producer.flush()  # nothing lingers then
        assert second.result().attempts == 1
    assert local.stats().operations["PutRecords"].calls == 2


async def test_others_run_while_many_records_are_taken_in(local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 200,000 in one turn held the event loop for half a second."""
    monkeypatch.setattr("shardway.runtime.producer.send_loop.TAKEN_IN_RECORDS_MAX", 2_000)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        handles = [producer.put_nowait(record) for record in numbered(range(8_000))]
        queue = producer._session.intake.queue
        seen = [len(queue)]
        while queue:
            await asyncio.sleep(0)
            seen.append(len(queue))
        await producer.flush()
        assert seen == [4, 3, 2, 1, 0]
        assert all(handle.done() for handle in handles)
    content = await read_all(local)
    assert (len(content.records), content.dropped) == (8_000, 0)


@BOTH
async def test_explicit_hash_keys_choose_the_shard(local: LocalKinesis, aggregation: bool) -> None:
    quarter = (HASH_KEY_MAX + 1) // 4
    keys = [0, quarter - 1, quarter, MIDDLE - 1, MIDDLE, 3 * quarter, HASH_KEY_MAX]
    shards = [f"shardId-{number:012d}" for number in (0, 0, 1, 1, 2, 3, 3)]
    records = [OutRecord(b"%d" % number, "same", key) for number, key in enumerate(keys)]
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=aggregation)
    ) as producer:
        alone = [await producer.put(record) for record in records]
        nowait = [producer.put_nowait(record) for record in records]
        mixed = await producer.put_many(
            [record for pair in zip(records, numbered(range(100, 107)), strict=True) for record in pair]
        )
        assert [result.shard_id for result in alone] == shards
        assert [(await handle).shard_id for handle in nowait] == shards
        await mixed.settled()
        assert [result.shard_id for result in mixed.results()[::2]] == shards
    content = await read_all(local)
    assert (len(content.records), content.dropped) == (7 * 4, 0)


async def test_a_serializer_makes_the_records(local: LocalKinesis) -> None:
    calls: list[int] = []

    def serialize(number: int) -> OutRecord:
        calls.append(number)
        return OutRecord(b"%d" % number, "key")

    async with Producer[int](STREAM, connection=wire_of(local), options=quick(), serializer=serialize) as producer:
        await producer.put(1)
        handle = producer.put_nowait(2)
        puts = await producer.put_many(range(3, 6))
        await handle
        await puts.settled()
    assert calls == [1, 2, 3, 4, 5]
    assert sorted((await read_all(local)).counts()) == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_serializer_is_asked_once_for_a_record_that_waits_for_room(local: LocalKinesis) -> None:
    calls: list[int] = []

    def serialize(number: int) -> OutRecord:
        calls.append(number)
        return OutRecord(b"%d" % number * len(calls), "key")

    options = quick(record_bytes_max=1_024, buffer_bytes_max=1_280)
    async with Producer[int](STREAM, connection=wire_of(local), options=options, serializer=serialize) as producer:
        await asyncio.gather(*(producer.put(number) for number in range(20)))
        assert producer.metrics().buffer_bytes == 0
    assert sorted(calls) == list(range(20))


@BOTH
async def test_data_that_changes_later_was_copied(local: LocalKinesis, aggregation: bool) -> None:
    options = quick(aggregation=aggregation)
    arrays = [bytearray(b"as it was") for _ in range(4)]
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        producer.put_nowait(OutRecord(arrays[0], "key"))  # type: ignore[arg-type]
        producer.put_nowait(OutRecord(memoryview(arrays[1]), "key"))  # type: ignore[arg-type]
        puts = await producer.put_many([("key", arrays[2]), OutRecord(memoryview(arrays[3]), "key")])  # type: ignore[list-item, arg-type]
        for array in arrays:
            array[:] = b"too late!"
        await puts.settled()
    assert (await read_all(local)).counts() == {b"as it was": 4}


async def test_data_that_changes_while_it_waits_for_room_was_copied(local: LocalKinesis) -> None:
    options = quick(record_bytes_max=1_024, buffer_bytes_max=1_280)
    array = bytearray(b"as it was")
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        first = producer.put_nowait(OutRecord(bytes(1_000), "key"))
        waiting = asyncio.create_task(producer.put(OutRecord(array, "key")))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        array[:] = b"too late, and longer than before"
        await first
        await waiting
        assert producer.metrics().buffer_bytes == 0
    assert (await read_all(local)).counts() == {bytes(1_000): 1, b"as it was": 1}


BAD = [
    OutRecord("text", "key"),  # type: ignore[arg-type]
    OutRecord(None, "key"),  # type: ignore[arg-type]
    OutRecord(b"data", ""),
    OutRecord(b"data", "k" * 257),
    OutRecord(b"data", "\ud800"),
    OutRecord(b"data", b"key"),  # type: ignore[arg-type]
    OutRecord(b"data", ["key"]),  # type: ignore[arg-type]
    OutRecord(b"data", None),  # type: ignore[arg-type]
    OutRecord(bytes(4_096), "key"),
    OutRecord(bytes(4_092), "\N{SNOWMAN}\N{SNOWMAN}"),
    OutRecord(b"data", "key", -1),
    OutRecord(b"data", "key", HASH_KEY_MAX + 1),
    OutRecord(b"data", "key", "1"),  # type: ignore[arg-type]
    b"bytes",
    None,
    ("key",),
    ("key", b"data", 0),
    ("key", "text"),
    (["key"], b"data"),
    ("", b"data"),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("begun", [False, True], ids=["first", "further"])
async def test_what_is_no_record_is_refused_and_nothing_taken(local: LocalKinesis, bad: object, begun: bool) -> None:
    options = quick(record_bytes_max=4_096)
    good = OutRecord(b"good", "key")
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        if begun:
            producer.put_nowait(good)
        with pytest.raises(InvalidRecordError):
            producer.put_nowait(bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidRecordError):
            await producer.put(bad)  # type: ignore[arg-type]
        for records in ([bad], [good, bad, good], [bad, ("key", b"data")], [("key", b"data"), bad]):
            with pytest.raises(InvalidRecordError):
                await producer.put_many(records)  # type: ignore[arg-type]
        await producer.flush()
        counts = producer.metrics()
        assert (counts.user_records_accepted, counts.buffer_bytes) == (begun, 0)
        await producer.put(good)
    assert (await read_all(local)).counts() == {b"good": 1 + begun}


async def test_refusals_show_no_data_and_no_key(local: LocalKinesis) -> None:
    options = quick(record_bytes_max=4_096)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        for bad in (
            OutRecord(b"secret" * 5_000, "secret"),
            OutRecord("secret", "secret"),  # type: ignore[arg-type]  # a text is no data
            OutRecord(b"", "secret" * 50),
        ):
            with pytest.raises(InvalidRecordError) as told:
                producer.put_nowait(bad)
            assert "secret" not in str(told.value)


async def test_the_empty_and_the_largest_record(local: LocalKinesis) -> None:
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        await producer.put(OutRecord(b"", "key"))
        await producer.put(OutRecord(b"", "\N{SNOWMAN}" * 256))
        await producer.put(OutRecord(bytes(1024 * 1024 - 3), "key"))
        assert len(await producer.put_many([])) == 0
        assert (await producer.put_many(iter([]))).done()
    assert (await read_all(local)).counts() == {b"": 2, bytes(1024 * 1024 - 3): 1}


async def test_before_the_start_records_wait_for_the_shards(local: LocalKinesis) -> None:
    heard = Heard()
    producer = Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=True), on_event=heard.append
    )
    handle = producer.put_nowait(OutRecord(b"early", "key"))
    puts = await producer.put_many(numbered(range(100)))
    assert (await handle).shard_id
    await producer.start()
    await puts.settled()
    await producer.close()
    content = await read_all(local)
    assert (len(content.records), content.dropped) == (101, 0)


async def test_after_close_nothing_is_taken(local: LocalKinesis) -> None:
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    record = OutRecord(b"data", "key")
    await producer.put(record)
    await producer.close()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        producer.put_nowait(record)
    with pytest.raises(ProducerClosedError):
        await producer.put(record)
    with pytest.raises(ProducerClosedError):
        await producer.put_many([record])
    with pytest.raises(ProducerClosedError):
        await producer.start()
    await producer.flush()
    counts = producer.metrics()
    assert (counts.user_records_put, counts.user_records_accepted, counts.buffer_bytes) == (1, 1, 0)


async def test_while_it_closes_nothing_is_taken(local: LocalKinesis) -> None:
    """Also when a put is under way at the same time, and the loop is about to look at it."""
    fault = local.faults.add(Fault(how="throttle", operation="PutRecords"))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    await producer.start()
    handle = producer.put_nowait(OutRecord(b"data", "key"))
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    while not fault.hits:
        with pytest.raises(ProducerClosedError):
            producer.put_nowait(OutRecord(b"late", "key"))
        await asyncio.sleep(0)
    fault.clear()
    await closing
    assert handle.result().attempts > 1
    assert (await read_all(local)).counts() == {b"data": 1}
    assert producer.metrics().buffer_bytes == 0


async def test_a_producer_that_was_never_used_closes(local: LocalKinesis) -> None:
    await Producer[OutRecord](STREAM, connection=wire_of(local)).close()
    assert local.stats().operations == {}


def test_a_producer_belongs_to_one_loop(local: LocalKinesis) -> None:
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    record = OutRecord(b"data", "key")

    async def put_and_wait() -> None:
        await producer.put(record)

    async def others() -> None:
        with pytest.raises(RuntimeError, match="one per loop"):
            await producer.put(record)
        with pytest.raises(RuntimeError, match="one per loop"):
            producer.put_nowait(record)
        with pytest.raises(RuntimeError, match="one per loop"):
            await producer.put_many([record])
        with pytest.raises(RuntimeError, match="one per loop"):
            await producer.flush()

    with asyncio.Runner() as one, asyncio.Runner() as other:
        one.run(put_and_wait())
        other.run(others())
        one.run(put_and_wait())
        one.run(producer.close())
        assert producer.metrics().user_records_accepted == 2
        assert producer.metrics().buffer_bytes == 0


def test_a_producer_needs_a_running_loop(local: LocalKinesis) -> None:
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    with pytest.raises(RuntimeError):
        producer.put_nowait(OutRecord(b"data", "key"))

    async def go_on() -> None:
        async with producer:
            assert (await producer.put(OutRecord(b"data", "key"))).attempts == 1
            assert producer.metrics().buffer_bytes == 0

    asyncio.run(go_on())


async def test_several_wait_for_one_record(local: LocalKinesis) -> None:
    """One of them may go away; the others have its result, as often as they ask."""
    fault = local.faults.add(Fault(how="throttle", operation="PutRecords"))
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        handle = producer.put_nowait(OutRecord(b"data", "key"))
        puts = await producer.put_many([("key", b"more")])

        async def wait() -> object:
            return await handle

        async def wait_for_all() -> object:
            return (await puts.settled()).results()[0]

        waiting = [asyncio.create_task(work()) for work in (wait, wait, wait_for_all, wait, wait_for_all)]
        await until(lambda: fault.hits)
        waiting[0].cancel()
        waiting[2].cancel()
        await asyncio.sleep(0)
        fault.clear()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert isinstance(outcomes[2], asyncio.CancelledError)
        assert outcomes[1] == outcomes[3] == handle.result() == await handle
        assert outcomes[4] == puts.results()[0]


async def test_two_producers_share_a_stream_and_a_loop(local: LocalKinesis) -> None:
    wire = wire_of(local)
    async with (
        Producer[OutRecord](STREAM, connection=wire, options=quick(aggregation=True)) as one,
        Producer[OutRecord](STREAM, connection=wire, options=quick()) as other,
    ):
        puts = [await one.put_many(numbered(range(500))), await other.put_many(numbered(range(500, 1_000)))]
        for some in puts:
            (await some.settled()).raise_failure()
        assert (one.metrics().user_records_put, other.metrics().user_records_put) == (500, 500)
    assert len((await read_all(local)).counts()) == 1_000


async def test_handles_and_results_before_their_time(local: LocalKinesis) -> None:
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        handle = producer.put_nowait(OutRecord(b"data", "key"))
        puts = await producer.put_many([("key", b"more")])
        with pytest.raises(RuntimeError):
            handle.result()
        for ask in (puts.results, puts.failures, puts.raise_failure):
            with pytest.raises(RuntimeError):
                ask()
        assert not handle.done()
        assert not puts.done()
        await producer.flush()
        await until(handle.done)
        assert await handle == handle.result()
        puts.raise_failure()
        assert puts.failures() == []


class Text(str):
    """As numpy.str_ and an Enum of strings: a str that is written otherwise than it is."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True


class Number(int):
    """An int of the same kind."""

    def __str__(self) -> str:
        return "a number"


@BOTH
async def test_a_partition_key_of_a_subclass_of_str(local: LocalKinesis, aggregation: bool) -> None:
    """It is the text that it is, and its neighbours are written with it."""
    keys = [f"key-{number % 90}" for number in range(400)]
    keys[150], keys[151] = Text("key-a"), Text("sch\u00f6n")
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=aggregation)
    ) as producer:
        for _ in range(2):  # keys that are known, and keys that are not
            puts = await producer.put_many([(key, b"pair") for key in keys])
            puts.raise_failure() if (await puts.settled()) else None
        for number in range(3):
            await producer.put(OutRecord(b"single", Text(f"own-{number}"), Number(17)))
            await producer.put_nowait(OutRecord(b"single", Text(f"own-{number}")))
        puts = await producer.put_many([OutRecord(b"single", Text("key-a"), True)])
        (await puts.settled()).raise_failure()
    written = sorted(record.partition_key for record in (await read_all(local)).records)
    singles = [f"own-{number}" for number in range(3)] * 2
    assert written == sorted([*map(str.__str__, keys), *map(str.__str__, keys), *singles, "key-a"])
    assert all(type(key) is str for key in producer._session.batcher.lanes.routes.known)
