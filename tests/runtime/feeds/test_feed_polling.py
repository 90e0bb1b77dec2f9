"""A shard read by GetRecords: every record after the checkpoint once, whatever the service does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from shardway.core.leases.checkpoint import Checkpoint
from shardway.errors import AccessDeniedError, NotFoundError
from shardway.events import CheckpointTrimmed, ReadFailed, ReadRefused
from shardway.local import Fault
from shardway.model import Position
from tests.runtime.feeds.feeding_kit import POLL, SHARD_ID, STREAM, kinds, polling, read, read_to_end, source_of

if TYPE_CHECKING:
    from shardway.events import FeedEvent
    from shardway.local import LocalKinesis


def put(kinesis: Any, *datas: bytes) -> list[int]:
    return [int(kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data)["SequenceNumber"]) for data in datas]


async def test_records_come_in_order_and_from_the_checkpoint_on(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2", b"3")
    async with source_of(local) as source:
        assert await read(polling(source, []), 4) == [b"0", b"1", b"2", b"3"]
        after = Checkpoint.at(Position(numbers[1]))
        feed = polling(source, [], after, options=replace(POLL, request_records_max=1))
        assert await read(feed, 2) == [b"2", b"3"]
        put(kinesis, b"4")
        assert await read(feed, 1) == [b"4"]


async def test_latest_gives_what_came_after_the_first_call(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"before")
    local.clock.advance(10)  # LATEST begins up to two seconds before the call: the service's time is known no better
    async with source_of(local) as source:
        await source.shards()  # as a consumer does, which learns the service's time from the answer
        feed = polling(source, [], Checkpoint.LATEST)
        assert len((await feed.next()).records) == 0
        put(kinesis, b"after")
        local.faults.add(Fault(how="expired_iterator", operation="GetRecords", count=1))
        assert await read(feed, 1) == [b"after"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(how="throttle", operation="GetRecords", count=3),
        Fault(how="throttle", operation="GetRecords", count=3, code="KMSThrottlingException"),
        Fault(how="server_error", operation="GetRecords", count=3),
        Fault(how="reset", operation="GetRecords", count=3),
        Fault(how="truncate", operation="GetRecords", count=3),
        Fault(how="expired_iterator", operation="GetRecords", count=3),
        Fault(how="throttle", operation="GetShardIterator", count=3),
        Fault(how="server_error", operation="GetShardIterator", count=3),
    ],
    ids=lambda fault: f"{fault.how}-{fault.operation}{'-kms' * bool(fault.code)}",
)
async def test_what_fails_is_repeated_and_nothing_is_left_out(local: LocalKinesis, kinesis: Any, fault: Fault) -> None:
    put(kinesis, *[b"%d" % number for number in range(6)])
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = polling(source, events, options=replace(POLL, request_records_max=2))
        local.faults.add(fault)
        assert await read(feed, 6) == [b"%d" % number for number in range(6)]
    told = {"throttle": ReadRefused, "expired_iterator": None}.get(fault.how, ReadFailed)
    assert [type(event) for event in events] == ([told] * 3 if told else [])
    lasted_s = [event.refused_for_s for event in events if isinstance(event, ReadRefused)]
    assert lasted_s == sorted(lasted_s)
    assert lasted_s[:1] == ([0.0] if told is ReadRefused else []), "the first refusal begins the time"
    assert all(event.shard_id == SHARD_ID and event.stream == STREAM for event in events)


@pytest.mark.parametrize(
    "code", ["KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException", "KMSNotFoundException"]
)
async def test_a_key_of_kms_that_cannot_be_used_is_an_error_that_names_it(
    local: LocalKinesis, kinesis: Any, code: str
) -> None:
    put(kinesis, b"0")
    local.faults.add(Fault(how="error", operation="GetRecords", code=code, message="the key"))
    async with source_of(local) as source:
        with pytest.raises(AccessDeniedError, match=f"{code}: the key"):
            await read(polling(source, []), 1)


async def test_a_closed_shard_ends_with_its_children(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0", b"1")
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
    async with source_of(local) as source:
        found, last = await read_to_end(polling(source, []))
    assert found == [b"0", b"1"]
    assert [(child.shard_id, child.parents, child.first_hash_key, child.last_hash_key) for child in last.children] == [
        ("shardId-000000000001", (SHARD_ID,), 0, 2**127 - 1),
        ("shardId-000000000002", (SHARD_ID,), 2**127, 2**128 - 1),
    ]


async def test_a_checkpoint_older_than_the_retention(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"old", b"older")
    local.clock.advance(25 * 3600)
    put(kinesis, b"left")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        assert await read(polling(source, events, Checkpoint.at(Position(numbers[0]))), 1) == [b"left"]
    told = [event for event in events if isinstance(event, CheckpointTrimmed)]
    assert [event.position for event in told] == [Position(numbers[0])]
    assert not told[0].surely_nothing_lost


async def test_a_caller_that_is_cancelled_loses_nothing(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, *[b"%d" % number for number in range(4)])
    async with source_of(local) as source:
        feed = polling(source, [], options=replace(POLL, request_records_max=1))
        found = await read(feed, 1)
        for wait_s in (0.0, 0.001, 0.005, 0.02, 0.03):
            reading = asyncio.create_task(feed.next())
            await asyncio.sleep(wait_s)
            reading.cancel()
            done = (await asyncio.gather(reading, return_exceptions=True))[0]
            found += [] if isinstance(done, BaseException) else list(done.records.datas)
        found += await read(feed, 4 - len(found)) if len(found) < 4 else []
    assert found == [b"0", b"1", b"2", b"3"]


async def test_a_stream_that_is_gone_is_an_error(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = polling(source, events)
        await read(feed, 1)
        kinesis.delete_stream(StreamName=STREAM)
        with pytest.raises(NotFoundError):
            await read(feed, 1)
    assert kinds(events) <= {"ReadFailed"}


@pytest.mark.parametrize("local", [{"limits": True}], indirect=True)
async def test_a_stranger_that_takes_half_of_a_shards_calls(local: LocalKinesis, kinesis: Any) -> None:
    """Both get on: the reader finds its rate and few of its calls are refused, once it has."""
    put(kinesis, b"first")
    events: list[FeedEvent] = []
    calls = {"answered": 0}

    async def stranger(source: Any) -> None:
        from shardway.errors import ThrottledError
        from shardway.model import IteratorAt

        iterator = await source.iterator(SHARD_ID, IteratorAt.trim_horizon())
        while True:
            try:
                iterator = (await source.read(iterator, 10)).next_iterator
                calls["answered"] += 1
            except ThrottledError:
                pass
            await asyncio.sleep(0.4)

    from shardway.core.log.pace import PollingOptions

    async with source_of(local) as source, source_of(local) as other:
        feed = polling(source, events, options=PollingOptions(interval_s=0.25, idle_interval_s=0.25))
        taking = asyncio.create_task(stranger(other))
        pages = 0
        async with asyncio.timeout(30):
            began_s = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began_s + 8:
                await feed.next()
                pages += 1
        taking.cancel()
    refused = sum(isinstance(event, ReadRefused) for event in events)
    assert calls["answered"] >= 12, "the stranger is pushed aside"
    assert pages >= 12, "the reader is pushed aside"
    assert refused <= pages / 3
    assert sum(event.refused_for_s for event in events if isinstance(event, ReadRefused)) < 8, "each read ends the time"
