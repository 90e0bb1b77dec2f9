"""Values out of records' bytes, and what becomes of records that cannot be read. Streams that ignore keys."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from google.protobuf import struct_pb2

from shardway import (
    AnyOrder,
    ByKey,
    DeadLetters,
    Deliver,
    InOrder,
    OneByOne,
    OptionError,
    Retry,
    Skip,
    SyncConsumer,
    Unreadable,
    by_key,
    deserializers,
    events,
    unordered,
)
from shardway.checkpoints import Prompt
from shardway.dead_letters import DeadLettersTo
from shardway.errors import UnreadableRecordError
from shardway.leases import MemoryLeaseTable
from shardway.local import LocalKinesis
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from shardway import Batch, Delivered

pytestmark = pytest.mark.timeout(DEADLINE_S)


MIXED = [b'{"number": 1, "customer": "a"}', b"secret: no json", b'{"number": "x"}', b'{"number": 2, "customer": "b"}']


@dataclass
class Order:
    number: int
    customer: str


def message() -> Any:
    found = struct_pb2.Struct()
    found.update({"order": 17})
    return found


@pytest.mark.parametrize(
    ("deserializer", "data", "value"),
    [
        (None, b"\xff", b"\xff"),
        (deserializers.text(), "Größe".encode(), "Größe"),
        (deserializers.text("latin-1"), "Größe".encode("latin-1"), "Größe"),
        (deserializers.json(), b'{"number": 17}', {"number": 17}),
        (deserializers.json(Order), b'{"number": 17, "customer": "c-3"}', Order(17, "c-3")),
        (deserializers.msgpack(list[int]), msgspec.msgpack.encode([1, 2]), [1, 2]),
        (deserializers.protobuf(struct_pb2.Struct), message().SerializeToString(), message()),
        (
            deserializers.gzip(deserializers.json(Order)),
            gzip.compress(b'{"number": 1, "customer": "c"}'),
            Order(1, "c"),
        ),
    ],
    ids=["bytes", "text", "latin-1", "json", "dataclass", "msgpack", "protobuf", "gzip"],
)
async def test_values(local: LocalKinesis, kinesis: Any, deserializer: Any, data: bytes, value: object) -> None:
    put(kinesis, [data, data], key=lambda _: "one")
    async with consumer_of(local, MemoryLeaseTable(), deserializer=deserializer) as consumer:
        (batch,) = await consumer.getmany()
        assert list(batch.values) == [value, value]
        assert [record.data for record in batch.records] == [data, data]
        batch.ack()


def test_a_class_that_is_no_message() -> None:
    with pytest.raises(TypeError, match="no protobuf message"):
        deserializers.protobuf(Order)


async def test_what_cannot_be_read_stops_the_shard_by_default(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, MIXED, key=lambda _: "one")
    table = MemoryLeaseTable()
    async with consumer_of(local, table, deserializer=deserializers.json(Order)) as consumer:
        text = rf"^{STREAM}, shardId-0+: .* cannot be read \(DecodeError"
        with pytest.raises(UnreadableRecordError, match=text) as told:
            await consumer.getmany()
        assert isinstance(told.value.error, msgspec.DecodeError)
        assert "secret" not in str(told.value)
        assert told.value.__cause__ is None
    (row,) = (await table.scan()).rows
    assert not row.checkpoint.is_position


async def by_run(consumer: Any) -> None:
    await consumer.run_batches(handled)


async def by_run_each_record(consumer: Any) -> None:
    await consumer.run_records(handled)


async def by_run_with_keys(consumer: Any) -> None:
    await consumer.run_batches(handled, concurrency=by_key(4))


async def by_run_unordered(consumer: Any) -> None:
    await consumer.run_records(handled, concurrency=unordered(4))


async def by_shard(consumer: Any) -> None:
    async for shard in consumer.shards():
        async for batch in shard:
            batch.ack()


async def by_batch(consumer: Any) -> None:
    async for batch in consumer:
        batch.ack()


async def by_record(consumer: Any) -> None:
    async for record in consumer.records():
        record.ack()


async def by_collection(consumer: Any) -> None:
    async for group in consumer.collect(lambda record: record.partition_key, records=1):
        group.ack()


async def handled(given: Any) -> None:
    given.ack()


FACES = [
    by_run, by_run_each_record, by_run_with_keys, by_run_unordered, by_shard, by_batch, by_record, by_collection,
]  # fmt: skip


async def no_owner(table: MemoryLeaseTable) -> None:
    while any(row.owner is not None for row in (await table.scan()).rows):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("face", FACES)
async def test_what_cannot_be_read_is_raised_by_each_face_and_the_shard_is_free(
    local: LocalKinesis, kinesis: Any, face: Any
) -> None:
    put(kinesis, [MIXED[0]], key=lambda _: "one")
    table = MemoryLeaseTable()
    async with consumer_of(local, table, deserializer=deserializers.json(Order), cadence=Prompt()) as consumer:
        reading = asyncio.create_task(face(consumer))
        await until(lambda: consumer.statistics().records_delivered == 1)
        put(kinesis, MIXED[1:], key=lambda _: "one")
        with pytest.raises(UnreadableRecordError):
            await reading
        await no_owner(table)
        assert consumer.statistics().shards == ()
    (row,) = (await table.scan()).rows
    assert row.checkpoint.is_position


def test_what_cannot_be_read_is_raised_by_each_face_of_threads(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, MIXED, key=lambda _: "one")

    def by_shards(consumer: SyncConsumer[Any]) -> None:
        for shard in consumer.shards():
            for batch in shard:
                batch.ack()

    for read in (lambda one: one.run_batches(lambda batch: batch.ack()), by_shards, lambda one: next(iter(one))):
        table = MemoryLeaseTable()
        with consumer_of(local, table, face=SyncConsumer, deserializer=deserializers.json(Order)) as consumer:
            with pytest.raises(UnreadableRecordError):
                read(consumer)
            asyncio.run(no_owner(table))


async def test_another_consumer_that_can_read_goes_on_with_the_shard(local: LocalKinesis, kinesis: Any) -> None:
    """As while a new version is rolled out: the old program, which goes on with its other shards, cannot read it."""
    put(kinesis, MIXED, key=lambda _: "one")
    table = MemoryLeaseTable()
    async with consumer_of(local, table, deserializer=deserializers.json(Order)) as old:
        with pytest.raises(UnreadableRecordError):
            await old.run_batches(handled)
        async with consumer_of(local, table, deserializer=deserializers.text("latin-1")) as new:
            (batch,) = await new.getmany()
            assert [record.data for record in batch] == MIXED
            batch.ack()


async def test_what_cannot_be_read_is_skipped_if_told(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, MIXED, key=lambda _: "one")
    heard: list[Any] = []
    table = MemoryLeaseTable()
    async with consumer_of(
        local, table, deserializer=deserializers.json(Order), unreadable=Skip(), on_event=heard.append
    ) as consumer:
        (batch,) = await consumer.getmany()
        assert batch.values == [Order(1, "a"), Order(2, "b")]
        assert [record.data for record in batch] == [MIXED[0], MIXED[3]]
        batch.nack()
        (again,) = await consumer.getmany()
        assert again.values == [Order(1, "a"), Order(2, "b")]
        last = again.records[1].sequence_number
        again.ack()
        skipped = [event for event in heard if isinstance(event, events.RecordsSkipped)]
        assert [event.reason for event in skipped] == ["unreadable: DecodeError", "unreadable: ValidationError"]
    (row,) = (await table.scan()).rows
    assert row.checkpoint.position.sequence_number == last


async def test_what_cannot_be_read_becomes_a_dead_letter_if_told(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, MIXED, key=lambda _: "one")
    letters: list[Any] = []
    table = MemoryLeaseTable()
    async with consumer_of(
        local,
        table,
        deserializer=deserializers.json(Order),
        unreadable=DeadLetters(),
        dead_letters=DeadLettersTo(letters.append),
    ) as consumer:
        (batch,) = await consumer.getmany()
        assert batch.values == [Order(1, "a"), Order(2, "b")]
        batch.ack()
        await until(lambda: len(letters) == 2)
        assert [(letter.data, letter.error_type) for letter in letters] == [
            (MIXED[1], "DecodeError"),
            (MIXED[2], "ValidationError"),
        ]
    (row,) = (await table.scan()).rows
    assert row.checkpoint.position.sequence_number == batch.records[1].sequence_number


async def test_what_cannot_be_read_is_delivered_as_it_is_if_told(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, MIXED, key=lambda _: "one")
    got: list[Any] = []

    async def handle(record: Delivered[Any]) -> None:
        got.append(record.value)

    async with consumer_of(
        local, MemoryLeaseTable(), deserializer=deserializers.json(Order), unreadable=Deliver()
    ) as consumer:
        running = asyncio.create_task(consumer.run_records(handle))
        await until(lambda: len(got) == len(MIXED))
        await consumer.close()
        await running
    assert (got[0], got[3]) == (Order(1, "a"), Order(2, "b"))
    assert [type(one) for one in got[1:3]] == [Unreadable, Unreadable]
    assert [one.data for one in got[1:3]] == MIXED[1:3]


async def test_a_batch_of_nothing_that_can_be_read_is_not_delivered(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, [b"no", b"json"], key=lambda _: "one")
    async with consumer_of(
        local, MemoryLeaseTable(), deserializer=deserializers.json(Order), unreadable=Skip()
    ) as consumer:
        assert await consumer.getmany(wait_s=0.05) == []
        put(kinesis, [MIXED[0]], key=lambda _: "one")
        (batch,) = await consumer.getmany()
        assert batch.values == [Order(1, "a")]
        batch.ack()


@pytest.mark.parametrize("deserializer", [None, deserializers.text()], ids=["alone", "with a deserializer"])
async def test_parts_of_a_record_are_their_own_values(local: LocalKinesis, kinesis: Any, deserializer: Any) -> None:
    """In a batch, in a record, in a collection: the same; and their data is the record's."""
    put(kinesis, [b"1,2,3", b"4"], key=lambda _: "one")
    whole = {1: b"1,2,3", 2: b"1,2,3", 3: b"1,2,3", 4: b"4"}
    async with consumer_of(
        local,
        MemoryLeaseTable(),
        deserializer=deserializer,
        split=lambda record: [int(number) for number in record.data.split(b",")],
        dead_letters=DeadLettersTo(print),
    ) as consumer:
        got: list[Any] = []
        while len(got) < 4:
            for batch in await consumer.getmany():
                assert list(batch.values) == [part.value for part in batch.records]
                assert [part.data for part in batch.records] == [whole[value] for value in batch.values]
                got += batch.values
                batch.nack()
        async with aclosing(consumer.records()) as records:
            async for record in records:
                assert record.value == record.record.value == got.pop(0)
                assert record.data == whole[record.value]
                record.nack()
                if not got:
                    break
        async with aclosing(consumer.collect(lambda part: part.value % 2, records=2)) as groups:
            async for group in groups:
                got.append([part.value for part in group.records])
                assert group.ack()
                if len(got) == 2:
                    break
    assert sorted(got) == [[1, 3], [2, 4]]


# --- streams that ignore keys -----------------------------------------------------------------------


@pytest.fixture
def auto(local: LocalKinesis, kinesis: Any) -> LocalKinesis:
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    kinesis.update_stream_mode(StreamARN=arn, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    kinesis.update_stream_record_distribution_strategy(StreamARN=arn, RecordDistributionStrategy="AUTO")
    return local


async def never(given: Any) -> None:
    raise AssertionError("not reached")


async def test_a_stream_that_ignores_keys_is_read_by_a_consumer_that_chose_no_order(
    auto: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, range(3))
    heard: list[Any] = []
    got: list[bytes] = []

    async def handle(batch: Batch[Any]) -> None:
        got.extend(record.data for record in batch)

    async with consumer_of(auto, MemoryLeaseTable(), on_event=heard.append) as consumer:
        assert [event for event in heard if isinstance(event, events.KeysIgnored)] == [events.KeysIgnored(STREAM)]
        while not (batches := await consumer.getmany()):
            pass
        for batch in batches:
            batch.nack()
        running = asyncio.create_task(consumer.run_batches(handle))
        await until(lambda: sorted(got) == [b"0", b"1", b"2"])
        await consumer.close()
        await running


@pytest.mark.parametrize(
    ("concurrency", "named"), [(by_key(4), "by_key"), (OneByOne(), "OneByOne")], ids=["by_key", "one by one"]
)
async def test_a_stream_that_ignores_keys_is_not_driven_in_an_order(
    auto: LocalKinesis, concurrency: Any, named: str
) -> None:
    async with consumer_of(auto, MemoryLeaseTable()) as consumer:
        with pytest.raises(OptionError, match=f"^{named}: {STREAM} ignores partition keys .*accept_ignored_keys=True"):
            await consumer.run_batches(never, concurrency=concurrency)


@pytest.mark.parametrize("order", [ByKey(), InOrder()], ids=["by key", "in order"])
async def test_an_order_that_was_chosen_refuses_a_stream_that_ignores_keys(auto: LocalKinesis, order: Any) -> None:
    ledger = dict[str, Any](order=order, retry=Retry(failures_max=None))
    with pytest.raises(OptionError, match=f"^{type(order).__name__}: {STREAM} ignores partition keys"):
        async with consumer_of(auto, MemoryLeaseTable(), **ledger):
            raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("order", "concurrency", "accepted"),
    [
        (InOrder(), by_key(4), True),
        (ByKey(), OneByOne(), True),
        (AnyOrder(), OneByOne(), False),
        (None, unordered(4), False),
    ],
    ids=["accepted in order", "accepted by key", "any order one by one", "unordered"],
)
async def test_a_stream_that_ignores_keys_where_that_is_accepted_or_no_order_is_kept(
    auto: LocalKinesis, kinesis: Any, order: Any, concurrency: Any, accepted: bool
) -> None:
    put(kinesis, range(3))
    got: list[bytes] = []

    async def handle(record: Delivered[Any]) -> None:
        got.append(record.data)

    ledger = dict[str, Any](order=order, retry=Retry(failures_max=None))
    async with consumer_of(auto, MemoryLeaseTable(), **ledger, accept_ignored_keys=accepted) as consumer:
        running = asyncio.create_task(consumer.run_records(handle, concurrency=concurrency))
        await until(lambda: sorted(got) == [b"0", b"1", b"2"])
        await consumer.close()
        await running
