"""A producer that cannot put says so at its start, and to a caller that puts without one."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest

from shardway.aws.kinesis.shapes import PutResult as PutAnswer
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.hashkeys import even_ranges
from shardway.core.producer.batcher import STRAYS_MAX
from shardway.core.sequence import shard_id_of
from shardway.errors import (
    FlushTimeoutError,
    InvalidRecordError,
    NotFoundError,
    OptionError,
    RecordExpiredError,
    RecordRefusedError,
    ShardwayError,
    TransportError,
)
from shardway.events import AggregationOff, Event, ShardMapChanged, ShardMapFailed
from shardway.local import LocalKinesis
from shardway.model import HASH_KEY_MAX, ListedShard, OutRecord
from shardway.runtime.producer.listing import ShardListing
from shardway.runtime.producer.producer import Producer
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.testing import Fault
from tests.runtime.producing import STREAM, WAIT_S, Heard, call, numbered, quick, read_all, until, wire_of

RECORD = OutRecord(b"data", "key")
NOT_THERE = "ResourceNotFoundException"


@pytest.fixture
async def auto(local: LocalKinesis) -> LocalKinesis:
    """The stream ignores partition keys."""
    summary = await call(local, "DescribeStreamSummary", StreamName=STREAM)
    arn = summary["StreamDescriptionSummary"]["StreamARN"]
    await call(local, "UpdateStreamMode", StreamARN=arn, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    await strategy(local, "AUTO")
    return local


async def strategy(local: LocalKinesis, name: str) -> None:
    summary = await call(local, "DescribeStreamSummary", StreamName=STREAM)
    arn = summary["StreamDescriptionSummary"]["StreamARN"]
    await call(local, "UpdateStreamRecordDistributionStrategy", StreamARN=arn, RecordDistributionStrategy=name)


async def test_a_stream_that_does_not_exist(local: LocalKinesis) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        async with Producer("nowhere", connection=wire_of(local), options=quick()):
            pass


async def test_a_stream_that_does_not_exist_put_to_without_a_start(local: LocalKinesis) -> None:
    """At once, not when the time to live has passed; and each put that follows."""
    heard = Heard()
    producer = Producer[OutRecord]("nowhere", connection=wire_of(local), options=quick(), on_event=heard.append)
    for _ in range(3):
        with pytest.raises(RecordRefusedError) as refused:
            await producer.put(RECORD)
        assert (refused.value.reason, refused.value.attempts, refused.value.may_be_written) == (NOT_THERE, 0, False)
    puts = await producer.put_many(numbered(range(10)))
    assert len((await puts.settled()).failures()) == 10
    counts = producer.metrics()
    assert (counts.user_records_failed, counts.user_records_pending, counts.buffer_bytes) == (13, 0, 0)
    assert heard.of(ShardMapFailed)[0].reason == NOT_THERE
    await producer.close()


async def test_a_stream_that_comes_later(local: LocalKinesis) -> None:
    producer = Producer[OutRecord]("later", connection=wire_of(local), options=quick())
    with pytest.raises(NotFoundError):
        await producer.start()
    await call(local, "CreateStream", StreamName="later", ShardCount=1)
    await producer.start()
    await producer.put(RECORD)
    await producer.close()
    assert (await read_all(local, "later")).counts() == {b"data": 1}


@pytest.mark.parametrize("times", [1, 2])
async def test_following_the_shards_is_begun_again_when_it_fails_in_its_own_steps(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Once may be a signal handler that raised; when it fails again, a caller that waits for the shards is told."""
    heard, calls = Heard(), list[int]()
    list_shards = ShardListing._list

    async def fails_first(listing: ShardListing) -> list[Event]:
        calls.append(1)
        if len(calls) <= times:
            raise ZeroDivisionError("a bug")
        return await list_shards(listing)

    def fails_too(listing: ShardListing, error: Exception) -> None:
        raise error

    monkeypatch.setattr(ShardListing, "_list", fails_first)
    monkeypatch.setattr(ShardListing, "_failure_event", fails_too)
    async with asyncio.timeout(WAIT_S):
        producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(), on_event=heard.append)
        if times == 2:
            with pytest.raises(ShardwayError, match="following the stream's shards has failed: ZeroDivisionError"):
                await producer.start()
        else:
            await producer.start()
        await producer.put(RECORD)
        await producer.close()
    assert [one.reason for one in heard.of(ShardMapFailed)] == ["ZeroDivisionError"] * times


async def test_a_stream_that_is_deleted_under_load(local: LocalKinesis) -> None:
    """As it was there before, it may come again: records wait, then say what they met."""
    options = quick(record_ttl_s=0.3)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        await producer.put(RECORD)
        await call(local, "DeleteStream", StreamName=STREAM)
        with pytest.raises(RecordExpiredError) as expired:
            await producer.put(RECORD)
        assert (expired.value.reason, expired.value.may_be_written) == (NOT_THERE, False)


def test_a_stream_that_does_not_exist_in_threads(local: LocalKinesis) -> None:
    with pytest.raises(NotFoundError, match="nowhere"), SyncProducer("nowhere", connection=wire_of(local)):
        pass
    producer = SyncProducer[OutRecord]("nowhere", connection=wire_of(local), options=quick())
    with pytest.raises(RecordRefusedError):
        producer.put(RECORD)
    producer.close()


async def test_what_was_put_before_a_start_that_fails_has_an_outcome(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="access_denied", operation="*"))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    handle = producer.put_nowait(RECORD)
    with pytest.raises(RecordRefusedError):
        async with producer:
            await handle
    assert handle.done()


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "is in region eu-west-1"),
        ("arn:nonsense", "is no stream ARN"),
    ],
)
async def test_an_arn_that_is_wrong(local: LocalKinesis, stream: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        async with Producer(stream, connection=wire_of(local), options=quick()):
            pass
    producer = Producer[OutRecord](stream, connection=wire_of(local), options=quick())
    with pytest.raises(RecordRefusedError, match=says):
        await producer.put(RECORD)
    await producer.close()


async def test_a_stream_by_arn(local: LocalKinesis) -> None:
    summary = await call(local, "DescribeStreamSummary", StreamName=STREAM)
    arn = summary["StreamDescriptionSummary"]["StreamARN"]
    async with Producer[OutRecord](arn, connection=wire_of(local), options=quick(aggregation=True)) as producer:
        await (await producer.put_many(numbered(range(100)))).settled()
    assert len((await read_all(local)).records) == 100


def test_a_stream_without_a_name() -> None:
    with pytest.raises(OptionError, match="stream is empty"):
        Producer("")


@pytest.mark.parametrize("aggregation", [False, True])
async def test_no_permission_to_list_the_shards(local: LocalKinesis, aggregation: bool) -> None:
    """It may be allowed to put all the same: without aggregates, as nothing tells where they would land."""
    heard = Heard()
    for operation in ("ListShards", "DescribeStreamSummary"):
        local.faults.add(Fault(how="access_denied", operation=operation))
    options = quick(aggregation=aggregation, shard_map_refresh_s=0.05)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        puts = await producer.put_many(numbered(range(1_000)))
        (await puts.settled()).raise_failure()
        await until(lambda: local.stats().operations["ListShards"].calls >= 3)
        assert [event.reason for event in heard.of(AggregationOff)] == [
            "the shards can't be listed: AccessDeniedException"
        ] * aggregation
        assert heard.of(ShardMapFailed) == []
        local.faults.clear()  # from then on with the shards
        await until(lambda: heard.of(ShardMapChanged))
        await (await producer.put_many(numbered(range(1_000, 2_000)))).settled()
    content = await read_all(local)
    assert content.counts() == {b"%d" % number: 1 for number in range(2_000)}
    assert (content.aggregates > 0, content.plain >= 1_000, content.dropped) == (aggregation, True, 0)


async def test_no_permission_to_list_the_shards_with_order(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="access_denied", operation="ListShards"))
    local.faults.add(Fault(how="partial", operation="PutRecords", share=0.1, seed=3))
    options = quick(ordered_by_key=True)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        await (await producer.put_many(numbered(range(1_000), keys=10))).settled()
    local.faults.clear()
    content = await read_all(local)
    for key in range(10):
        assert content.of_key(f"key-{key}") == [b"%d" % number for number in range(key, 1_000, 10)]


async def test_permission_to_list_the_shards_that_is_taken_away(local: LocalKinesis) -> None:
    """What is known goes on to be used."""
    heard = Heard()
    options = quick(aggregation=True, shard_map_refresh_s=0.05)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        local.faults.add(Fault(how="access_denied", operation="ListShards"))
        await until(lambda: heard.of(ShardMapFailed))
        await (await producer.put_many(numbered(range(1_000)))).settled()
        assert heard.of(AggregationOff) == []
    local.faults.clear()
    content = await read_all(local)
    assert (len(content.records), content.dropped, content.aggregates > 0) == (1_000, 0, True)


async def test_a_stream_that_ignores_keys_switches_aggregation_off(auto: LocalKinesis) -> None:
    heard = Heard()
    options = quick(aggregation=True)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(auto), options=options, on_event=heard.append
    ) as producer:
        puts = await producer.put_many(numbered(range(1_000)))
        results = (await puts.settled()).results()
        counts = producer.metrics()
    (off,) = heard.of(AggregationOff)
    assert "AUTO" in off.reason
    assert (counts.aggregates, counts.duplicates_possible, counts.records_put) == (0, 0, 1_000)
    assert len({result.shard_id for result in results}) == 4
    content = await read_all(auto)
    assert (len(content.counts()), content.plain) == (1_000, 1_000)


async def test_a_stream_that_ignores_keys_can_not_be_ordered(auto: LocalKinesis) -> None:
    with pytest.raises(OptionError, match="ordered_by_key can't hold"):
        async with Producer(STREAM, connection=wire_of(auto), options=quick(ordered_by_key=True)):
            pass
    producer = Producer[OutRecord](STREAM, connection=wire_of(auto), options=quick(ordered_by_key=True))
    with pytest.raises(RecordRefusedError, match="ordered_by_key can't hold"):
        await producer.put(RECORD)
    await producer.close()
    assert (await read_all(auto)).records == []


async def test_a_stream_that_begins_to_ignore_keys(auto: LocalKinesis) -> None:
    """The strategy can be changed while a producer runs: its promises are kept, or refused."""
    await strategy(auto, "USER_PARTITION_KEY")
    heard = Heard()
    options = quick(aggregation=True, shard_map_refresh_s=0.05)
    ordered = quick(ordered_by_key=True, shard_map_refresh_s=0.05)
    async with (
        Producer[OutRecord](STREAM, connection=wire_of(auto), options=options, on_event=heard.append) as producer,
        Producer[OutRecord](STREAM, connection=wire_of(auto), options=ordered) as strict,
    ):
        await strict.put(RECORD)
        await (await producer.put_many(numbered(range(500)))).settled()
        await strategy(auto, "AUTO")
        puts = await producer.put_many(numbered(range(500, 1_000)))
        (await puts.settled()).raise_failure()
        # Strays switch it off, too. Unless a listing shows AUTO in between, the map does not change again.
        await until(lambda: any("AUTO" in event.reason for event in heard.of(AggregationOff)))
        refused: BaseException | None = None
        while refused is None:
            (outcome,) = await asyncio.gather(strict.put(RECORD), return_exceptions=True)
            refused = outcome if isinstance(outcome, BaseException) else None
        assert isinstance(refused, RecordRefusedError)
        assert "ordered_by_key" in refused.reason
        await strategy(auto, "USER_PARTITION_KEY")
        await until(lambda: len(heard.of(ShardMapChanged)) == 2)
        aggregates = producer.metrics().aggregates
        await (await producer.put_many(numbered(range(1_000, 1_500)))).settled()
        assert producer.metrics().aggregates > aggregates
    content = await read_all(auto)
    assert {record.data for record in content.records} >= {b"%d" % number for number in range(1_500)}


async def test_an_endpoint_that_does_not_know_the_summary(local: LocalKinesis) -> None:
    """Some emulators do not: the stream is taken for one that goes by keys."""
    local.faults.add(Fault(how="error", code="UnknownOperationException", operation="DescribeStreamSummary"))
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(aggregation=True)) as producer:
        await (await producer.put_many(numbered(range(1_000)))).settled()
    assert (await read_all(local)).aggregates > 0


class FaultySink:
    """A sink of another program: its errors are not ours."""

    stream = "elsewhere"

    def __init__(self) -> None:
        self.closed = 0
        self.listings = 0

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        return data

    async def shards(self) -> None:
        self.listings += 1
        if self.listings <= 2:
            raise LookupError("no such thing")

    async def put(self, entries: Any) -> Any:
        raise ZeroDivisionError("a bug")

    async def close(self) -> None:
        self.closed += 1


async def test_a_sink_that_raises_anything() -> None:
    """Its records do not wait in silence. Once, it may have been a signal handler: it is asked twice."""
    sink = FaultySink()
    # Longer than the pause before the second listing, which is 0.2 s.
    producer = Producer[OutRecord](sink, options=quick(record_ttl_s=2.0))
    with pytest.raises(LookupError):
        await producer.start()
    with pytest.raises(RecordRefusedError, match="no such thing"):
        await producer.put(RECORD)
    await producer.start()
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    with pytest.raises(RecordExpiredError) as expired:
        await producer.put(RECORD)
    assert (expired.value.reason, expired.value.may_be_written) == ("ZeroDivisionError", True)
    await producer.close()
    assert sink.closed == 1
    gc.collect()
    assert {type(context["exception"]) for context in reported} == {ZeroDivisionError}


class ForgetfulSink(FaultySink):
    """It answers for fewer records than it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 2
        self.puts = 0

    async def put(self, entries: Any) -> Any:
        self.puts += 1
        return []


@pytest.mark.parametrize("aggregation", [False, True])
async def test_a_sink_that_answers_for_too_few(aggregation: bool) -> None:
    """Nothing tells what became of the others: they are put again until their time to live has passed."""
    sink = ForgetfulSink()
    options = quick(record_ttl_s=0.2, aggregation=aggregation)
    async with Producer[OutRecord](sink, options=options) as producer:
        puts = await producer.put_many(numbered(range(10)))
        failures = [error for _, error in (await puts.settled()).failures()]
        assert [(type(error), error.may_be_written) for error in failures] == [(RecordExpiredError, True)] * 10
        assert failures[0].reason == "TransportError"
        assert producer.metrics().buffer_bytes == 0
    assert sink.puts > 1


async def test_wire_settings_beside_a_sink_are_refused(local: LocalKinesis) -> None:
    with pytest.raises(OptionError, match="not a sink"):
        Producer(FaultySink(), connection=wire_of(local))


async def test_an_endpoint_that_is_not_there(local: LocalKinesis) -> None:
    wire = wire_of(local)
    local.stop()
    producer = Producer[OutRecord](STREAM, connection=wire, options=quick(record_ttl_s=0.3))
    with pytest.raises(TransportError, match="cannot connect"):
        await producer.start()
    with pytest.raises(RecordExpiredError) as expired:
        await producer.put(RECORD)
    assert (expired.value.attempts, expired.value.may_be_written) == (0, False)
    assert "cannot connect" in expired.value.reason
    producer.put_nowait(RECORD)
    with pytest.raises(FlushTimeoutError):
        await producer.close(0)


async def test_a_listener_that_raises(local: LocalKinesis) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def listen(event: object) -> None:
        raise ValueError("a bug in it")

    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(), on_event=listen) as producer:
        await (await producer.put_many(numbered(range(100)))).settled()
    assert len((await read_all(local)).records) == 100
    assert {type(context["exception"]) for context in reported} == {ValueError}
    assert all("on_event raised" in context["message"] for context in reported)


class ChoosySink(FaultySink):
    """As the protocol says it: ``entry`` has three arguments without a default. It makes no entry of some records."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    async def shards(self) -> Any:
        return [
            ListedShard(
                shard_id="shard", parents=(), first_hash_key=0, last_hash_key=HASH_KEY_MAX, first_sequence_number=0
            )
        ]

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        if data == b"bad":
            raise LookupError("no entry of that")
        return data

    async def put(self, entries: Any) -> Any:
        self.written += entries
        return [PutAnswer(sequence_number=str(number), shard_id="shard") for number in range(1, len(entries) + 1)]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_sink_that_makes_no_entry_of_a_record(ordered: bool) -> None:
    """That record is told so, its neighbours are written, and the producer goes on."""
    sink = ChoosySink()
    async with Producer[OutRecord](sink, options=quick(ordered_by_key=ordered)) as producer:
        datas = [b"1", b"bad", b"2", b"bad", b"3"]
        puts = await (await producer.put_many([("key", data) for data in datas])).settled()
        assert [(place, type(error), error.may_be_written) for place, error in puts.failures()] == [
            (1, RecordRefusedError, False),
            (3, RecordRefusedError, False),
        ]
        assert puts.failures()[0][1].reason == "LookupError"
        with pytest.raises(RecordRefusedError, match="no entry"):
            await producer.put(OutRecord(b"bad", "key", 17))
        assert (await producer.put(OutRecord(b"4", "key", 17))).attempts == 1
        counts = producer.metrics()
        assert (counts.user_records_put, counts.user_records_failed, counts.buffer_bytes) == (4, 3, 0)
    assert sink.written == [b"1", b"2", b"3", b"4"]


class AggregateHater(ChoosySink):
    """It takes no aggregate."""

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        if explicit_hash_key is not None:
            raise LookupError("no aggregates")
        return data


async def test_a_sink_that_makes_no_entry_of_an_aggregate() -> None:
    async with Producer[OutRecord](AggregateHater(), options=quick(aggregation=True)) as producer:
        for _ in range(2):
            puts = await (await producer.put_many([("key", b"data")] * 5_000)).settled()
            assert {type(error) for _, error in puts.failures()} == {RecordRefusedError}
            assert len(puts.failures()) == 5_000
        assert producer.metrics().buffer_bytes == 0


class StrictSink(ChoosySink):
    """It cannot write a request that has a certain record."""

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        return data

    async def put(self, entries: Any) -> Any:
        if b"bad" in entries:
            raise InvalidRecordError("this request can't be written")
        return await super().put(entries)


async def test_a_request_that_can_not_be_written_is_not_sent() -> None:
    """Only the record at fault fails, and it is told as not written."""
    sink = StrictSink()
    async with Producer[OutRecord](sink, options=quick()) as producer:
        datas = [b"bad" if number == 249 else b"%d" % number for number in range(400)]
        puts = await (await producer.put_many([("key", data) for data in datas])).settled()
        ((place, error),) = puts.failures()
    assert (place, type(error), error.may_be_written, error.reason) == (
        249,
        RecordRefusedError,
        False,
        "InvalidRecordError",
    )
    assert sorted(sink.written) == sorted(data for data in datas if data != b"bad")


class AstraySink(ChoosySink):
    """It answers one shard id, whatever the partition key; what it lists has several."""

    async def shards(self) -> Any:
        return [
            ListedShard(
                shard_id=shard_id_of(number), parents=(), first_hash_key=first, last_hash_key=last,
                first_sequence_number=0,
            )
            for number, (first, last) in enumerate(even_ranges(4))
        ]  # fmt: skip

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        return data

    async def put(self, entries: Any) -> Any:
        self.written += entries
        return [
            PutAnswer(sequence_number=str(number), shard_id=shard_id_of(0)) for number in range(1, len(entries) + 1)
        ]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_stream_that_answers_a_wrong_shard_id(ordered: bool) -> None:
    """Aggregates are put again a few times, with pauses; then each record goes on its own, and the producer says so."""
    sink, heard = AstraySink(), Heard()
    options = quick(aggregation=True, ordered_by_key=ordered)
    async with Producer[OutRecord](sink, options=options, on_event=heard.append) as producer:
        puts = await (await producer.put_many([(f"key-{n % 40}", b"%d" % n) for n in range(1_000)])).settled()
        assert not puts.failures()
        (off,) = heard.of(AggregationOff)
        assert "shard ids" in off.reason
        before = len(sink.written)
        again = await (await producer.put_many([(f"key-{n % 40}", b"%d" % n) for n in range(1_000)])).settled()
        assert not again.failures()
        assert len(sink.written) - before == 1_000  # each once, on its own
    copies: Counter[bytes] = Counter()
    for data in sink.written:
        aggregate = open_aggregate(data)
        copies.update([data] if aggregate is None else [record.data for record in aggregate])
    assert set(copies) == {b"%d" % n for n in range(1_000)}
    assert max(copies.values()) <= 1 + STRAYS_MAX + 1


async def test_what_is_refused_names_the_stream_and_its_region(local: LocalKinesis) -> None:
    producer = Producer[OutRecord]("nowhere", connection=wire_of(local), options=quick())
    with pytest.raises(RecordRefusedError, match=rf"nowhere in {local.region}: .*ResourceNotFoundException"):
        await producer.put(RECORD)
    await producer.close()
    with pytest.raises(NotFoundError, match=rf"nowhere.*{local.region}"):
        async with Producer("nowhere", connection=wire_of(local), options=quick()):
            pass


@pytest.mark.parametrize("aggregation", [False, True])
async def test_a_record_that_is_too_large_is_told_its_size_and_the_limit(
    local: LocalKinesis, aggregation: bool
) -> None:
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=aggregation)
    ) as producer:
        with pytest.raises(RecordRefusedError, match=r"of 1100003 bytes .* the stream takes at most 1048576"):
            await producer.put(OutRecord(bytes(1_100_000), "key"))
        with pytest.raises(InvalidRecordError, match=r"of 10485761 bytes .* record_bytes_max, 10485760"):
            await producer.put(OutRecord(bytes(10_485_758), "key"))
    local.faults.add(Fault(how="error", code="UnknownOperationException", operation="DescribeStreamSummary"))
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=aggregation)
    ) as producer:
        with pytest.raises(RecordRefusedError, match=r"of 1100003 bytes .* a stream takes by default at most 1048576"):
            await producer.put(OutRecord(bytes(1_100_000), "key"))
