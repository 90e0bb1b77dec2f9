"""Large records among small ones, and what an endpoint does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.record_sink import KinesisSink
from shardway.errors import InvalidArgumentError, InvalidRecordError, RecordRefusedError
from shardway.events import PutRecordsDone, RecordsFailed
from shardway.local import LocalKinesis
from shardway.model import ListedShard, OutRecord, PutResult, StreamName
from shardway.runtime.producer.producer import Producer
from tests.runtime.producing import STREAM, Heard, call, numbered, quick, read_all, wire_of

if TYPE_CHECKING:
    from collections.abc import Sequence

KIB = 1024
MIB = 1024 * KIB
BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
LARGEST = OutRecord(bytes(10 * MIB - 5), "large")


async def allow(local: LocalKinesis, kib: int) -> None:
    summary = await call(local, "DescribeStreamSummary", StreamName=STREAM)
    arn = summary["StreamDescriptionSummary"]["StreamARN"]
    await call(local, "UpdateMaxRecordSize", StreamARN=arn, MaxRecordSizeInKiB=kib)


def with_in_the_middle(small: Sequence[OutRecord], *large: OutRecord) -> list[OutRecord]:
    middle = len(small) // 2
    return [*small[:middle], *large, *small[middle:]]


@BOTH
async def test_a_10_mib_record_among_small_ones(local: LocalKinesis, aggregation: bool) -> None:
    await allow(local, 10 * KIB)
    local.set_limits(per_shard=True, put_bytes_per_s=20.0 * MIB)  # a shard's own rate would take ten seconds
    heard = Heard()
    options = quick(aggregation=aggregation, shard_bytes_per_s=20 * MIB)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        small = numbered(range(1_000))
        puts = await producer.put_many(with_in_the_middle(small, LARGEST))
        handles = [producer.put_nowait(record) for record in numbered(range(1_000, 1_100))]
        (await puts.settled()).raise_failure()
        for handle in handles:
            await handle
        result = puts.results()[500]
        assert isinstance(result, PutResult)
        assert result.sub_sequence_number is None  # never with others in an aggregate
    local.set_limits(per_shard=False)
    content = await read_all(local)
    assert content.counts() == {LARGEST.data: 1, **{b"%d" % number: 1 for number in range(1_100)}}
    assert max(event.payload_bytes for event in heard.of(PutRecordsDone)) == 10 * MIB
    assert not [event for event in heard.of(PutRecordsDone) if event.error_code]


async def test_several_large_records_in_order(local: LocalKinesis) -> None:
    await allow(local, 10 * KIB)
    records = []
    for number in range(4):
        records += numbered(range(number * 10, number * 10 + 10), keys=1)
        records.append(OutRecord(b"%d" % number + bytes((number + 1) * MIB), "key-0"))
    options = quick(ordered_by_key=True, aggregation=True, pacing=False)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        (await (await producer.put_many(records)).settled()).raise_failure()
    assert (await read_all(local)).of_key("key-0") == [record.data for record in records]


@BOTH
async def test_a_record_above_the_streams_limit_among_small_ones(local: LocalKinesis, aggregation: bool) -> None:
    """The request is refused as a whole; what spoils it is found, fails alone, and the others are written once."""
    heard = Heard()
    too_large = [OutRecord(bytes(1 * MIB + number), "large") for number in (1, 500_000)]
    options = quick(aggregation=aggregation, pacing=False)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        records = with_in_the_middle(numbered(range(200)), *too_large)
        puts = await producer.put_many(records)
        failures = (await puts.settled()).failures()
        assert [number for number, _ in failures] == [100, 101]
        for _, error in failures:
            assert isinstance(error, RecordRefusedError)
            assert (error.reason, error.may_be_written) == ("ValidationException", False)
        with pytest.raises(RecordRefusedError):
            await producer.put(too_large[0])
        assert (await producer.put(OutRecord(b"after", "key"))).attempts == 1
        counts = producer.metrics()
    assert (counts.user_records_failed, counts.user_records_put, counts.duplicates_possible) == (3, 201, 0)
    assert counts.buffer_bytes == 0
    assert sum(event.user_records for event in heard.of(RecordsFailed)) == 3
    assert (await read_all(local)).counts() == {b"after": 1, **{b"%d" % number: 1 for number in range(200)}}


@BOTH
async def test_what_is_too_large_for_a_shard_s_second(local: LocalKinesis, aggregation: bool) -> None:
    """Records of all that a shard takes in a second are taken one after the other, not refused for ever."""
    await allow(local, 4 * KIB)
    local.set_limits(per_shard=True, put_bytes_per_s=3.0 * MIB)
    records = [OutRecord(bytes([number]) + bytes(3 * MIB - 6), "large") for number in range(2)]
    options = quick(aggregation=aggregation, shard_bytes_per_s=3 * MIB)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        (await (await producer.put_many(records)).settled()).raise_failure()
    local.set_limits(per_shard=False)
    assert len((await read_all(local)).counts()) == 2


async def test_a_record_of_more_than_10_mib_is_refused_at_once(local: LocalKinesis) -> None:
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        with pytest.raises(InvalidRecordError, match="record_bytes_max"):
            await producer.put(OutRecord(bytes(10 * MIB), "k"))
        with pytest.raises(InvalidRecordError, match="record_bytes_max"):
            await producer.put_many([("k", bytes(10 * MIB))])


class FormerLimits:
    """The local stream behind an endpoint that takes 5 MiB a request, as all did before large records came."""

    def __init__(self, local: LocalKinesis) -> None:
        self._sink = KinesisSink(StreamName(STREAM), wire_of(local))
        self.stream = STREAM
        self.entry = self._sink.entry
        self.sizes: list[int] = []

    async def shards(self) -> list[ListedShard] | None:
        return await self._sink.shards()

    async def put(self, entries: Sequence[Any]) -> Sequence[Any]:
        size = sum(len(entry.data) + len(entry.partition_key) for entry in entries)
        self.sizes.append(size)
        if size > 5 * MIB:
            raise InvalidArgumentError(
                "InvalidArgumentException", "Records size exceeds 5 MB limit", operation="PutRecords"
            )
        return await self._sink.put(entries)

    async def close(self) -> None:
        await self._sink.close()


@BOTH
async def test_an_endpoint_with_the_former_limit_of_a_request(local: LocalKinesis, aggregation: bool) -> None:
    """It is found out once, then kept to."""
    sink = FormerLimits(local)
    records = [OutRecord(b"%d" % number + bytes(900 * KIB), f"key-{number}") for number in range(40)]
    options = quick(aggregation=aggregation, pacing=False, request_records_max=12, in_flight_bytes_max=1)
    async with Producer[OutRecord](sink, options=options) as producer:
        small = await producer.put_many(numbered(range(100)))
        puts = await producer.put_many(records)
        (await puts.settled()).raise_failure()
        (await small.settled()).raise_failure()
        assert not any(result.duplicates_possible for result in puts.results())  # type: ignore[union-attr]
    assert len((await read_all(local)).counts()) == 140
    assert len([size for size in sink.sizes if size > 5 * MIB]) <= 1


async def test_requests_stay_within_the_services_bounds(local: LocalKinesis) -> None:
    """500 records and 10 MiB: the local service would refuse more."""
    await allow(local, 10 * KIB)
    heard = Heard()
    options = quick(pacing=False, in_flight_bytes_max=1)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        puts = [await producer.put_many(numbered(range(2_000)))]
        puts.append(await producer.put_many([OutRecord(bytes(700 * KIB), f"key-{number}") for number in range(30)]))
        for some in puts:
            (await some.settled()).raise_failure()
    done = heard.of(PutRecordsDone)
    assert not [event for event in done if event.error_code]
    assert max(event.records for event in done) == 500
    assert max(event.payload_bytes for event in done) <= 10 * MIB
