"""Retention that overtakes a reader in the middle of a shard: noticed, told, and read on at the oldest record."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws import wire
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.log.pages import Retention
from shardway.errors import InvalidArgumentError
from shardway.events import CheckpointTrimmed, ReadFailed
from shardway.local import Fault
from shardway.model import IteratorAt, Position
from tests.runtime.feeds.feeding_kit import DEADLINE_S, SHARD_ID, STREAM, fan_out, polling, read, source_of

if TYPE_CHECKING:
    from shardway.aws.record_source import KinesisSource
    from shardway.events import FeedEvent
    from shardway.local import LocalKinesis
    from shardway.runtime.feeds.fan_out import FanOutFeed
    from shardway.runtime.feeds.polling import PollingFeed

RETENTION_S = 24 * 3600.0
FEEDS = pytest.mark.parametrize("how", ["polling", "fan_out"])


def put(kinesis: Any, data: bytes) -> int:
    return int(kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data)["SequenceNumber"])


async def opened(
    how: str,
    source: KinesisSource,
    events: list[FeedEvent],
    after: Checkpoint = Checkpoint.TRIM_HORIZON,
    timestamp_s: float | None = None,
    read_until_s: float | None = None,
) -> PollingFeed | FanOutFeed:
    given: dict[str, Any] = {"retention": Retention(RETENTION_S)}
    given |= {"timestamp_s": timestamp_s, "read_until_s": read_until_s}
    if how == "polling":
        return polling(source, events, after, **given)
    return fan_out(source, await source.register("billing"), events, after, **given)


def trimmed(events: list[FeedEvent]) -> list[CheckpointTrimmed]:
    return [event for event in events if isinstance(event, CheckpointTrimmed)]


@FEEDS
async def test_a_reader_that_is_cut_off_for_longer_than_the_retention(
    local: LocalKinesis, kinesis: Any, how: str
) -> None:
    last = put(kinesis, b"read")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = await opened(how, source, events)
        assert await read(feed, 1) == [b"read"]
        await feed.close()  # nothing more is pushed
        put(kinesis, b"lost")
        local.clock.advance(30 * 3600)
        left = put(kinesis, b"left")
        assert await read(feed, 1) == [b"left"]
        put(kinesis, b"next")
        assert await read(feed, 1) == [b"next"]
        await feed.close()
    assert trimmed(events) == [CheckpointTrimmed(STREAM, SHARD_ID, Position(last), Position(left), False)]


@FEEDS
async def test_a_shard_that_is_silent_for_longer_than_the_retention(
    local: LocalKinesis, kinesis: Any, how: str
) -> None:
    put(kinesis, b"0")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = await opened(how, source, events)
        assert await read(feed, 1) == [b"0"]
        for _ in range(4):
            local.clock.advance(10 * 3600)
            until_s = local.clock.now() - 60
            async with asyncio.timeout(DEADLINE_S):
                while (feed.cursor.read_until_s or 0.0) < until_s:
                    assert len((await feed.next()).records) == 0
        put(kinesis, b"1")
        assert await read(feed, 1) == [b"1"]
        await feed.close()
    assert trimmed(events) == []


@FEEDS
async def test_a_number_that_the_service_refuses(local: LocalKinesis, kinesis: Any, how: str) -> None:
    """Some services answer a trimmed number with an error."""
    put(kinesis, b"read")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = await opened(how, source, events)
        assert await read(feed, 1) == [b"read"]
        await feed.close()
        put(kinesis, b"next")
        operation = "GetShardIterator" if how == "polling" else "SubscribeToShard"
        refusal = Fault(how="error", operation=operation, code="InvalidArgumentException", count=1)
        local.faults.add(refusal)
        if how == "polling":
            local.faults.add(Fault(how="expired_iterator", operation="GetRecords", count=1))
        assert await read(feed, 1) == [b"next"], "the last record is there yet: nothing comes twice"
        await feed.close()
    assert trimmed(events) == []


@FEEDS
async def test_a_time_that_is_soon_to_come_is_waited_for(local: LocalKinesis, kinesis: Any, how: str) -> None:
    """A program whose clock is ahead of the service's asks for what arrives from now on."""
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = await opened(how, source, events, Checkpoint.AT_TIMESTAMP, local.clock.now() + 200.0)
        reading = asyncio.create_task(read(feed, 1))
        while not any(isinstance(one, ReadFailed) and one.error_code == "InvalidArgumentException" for one in events):
            await asyncio.sleep(0.01)
            assert not reading.done()
        put(kinesis, b"too early")
        local.clock.advance(210.0)
        put(kinesis, b"wanted")
        assert await reading == [b"wanted"]
        await feed.close()


@FEEDS
async def test_a_time_far_ahead_in_the_leases_row_is_waited_for_and_told(
    local: LocalKinesis, kinesis: Any, how: str
) -> None:
    """A worker with a wrong clock wrote it: an error would end whichever worker takes the lease, at each start."""
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = await opened(how, source, events, Checkpoint.LATEST, read_until_s=local.clock.now() + 7200.0)
        reading = asyncio.create_task(read(feed, 1))
        while not any(isinstance(one, ReadFailed) for one in events):
            await asyncio.sleep(0.01)
            assert not reading.done()
        told = next(one for one in events if isinstance(one, ReadFailed))
        assert (told.shard_id, told.error_code) == (SHARD_ID, "InvalidArgumentException")
        assert re.search(r"begins at 20..-..-..T..:..:..Z, which is 7,[12]\d\d s ahead", told.reason)
        assert "nothing that arrives before is read" in told.reason
        assert "shardway app seek" in told.reason
        put(kinesis, b"too early")
        local.clock.advance(7210.0)
        put(kinesis, b"wanted")
        assert await reading == [b"wanted"]
        await feed.close()


@FEEDS
async def test_a_time_that_is_far_ahead_is_refused(local: LocalKinesis, kinesis: Any, how: str) -> None:
    async with source_of(local) as source:
        feed = await opened(how, source, [], Checkpoint.AT_TIMESTAMP, local.clock.now() + 3600.0)
        with pytest.raises(InvalidArgumentError, match="cannot be greater than the currentTimestampInMillis"):
            await read(feed, 1)
        await feed.close()


class WallClock:
    """The clock of this machine, as a wire sees it: ``ahead_s`` is what it was set ahead."""

    clock_gettime = staticmethod(time.clock_gettime)

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def time(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr(wire, "time", clock)
    return clock


async def test_a_clock_of_this_machine_that_jumps_ahead_moves_nothing(
    local: LocalKinesis, kinesis: Any, wall: WallClock
) -> None:
    put(kinesis, b"0")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = await opened("polling", source, events)
        assert await read(feed, 1) == [b"0"]
        before_s = source.now_s
        wall.ahead_s = RETENTION_S
        assert before_s <= source.now_s < before_s + RETENTION_S / 2
        local.clock.advance(RETENTION_S / 2)  # the service's own time is believed
        await feed.next()
        assert abs(source.now_s - local.clock.now()) < 60.0
    assert trimmed(events) == []


@pytest.mark.parametrize("when", ["before the source", "before the call", "during the call"])
async def test_no_time_is_ahead_of_the_service_whenever_this_machine_s_clock_is_set_ahead(
    local: LocalKinesis, kinesis: Any, wall: WallClock, when: str
) -> None:
    """What is asked for by a time that has not come is refused, and ends the reading. The answer to a call during which
    the clock is set fits both the time before and the time after.
    """
    wall.ahead_s = 3600.0 if when == "before the source" else 0.0
    async with source_of(local) as source:
        await source.describe()
        if when == "before the call":
            wall.ahead_s = 3600.0
        delay = local.faults.add(Fault(how="delay", delay_s=0.3, operation="ListShards", count=1))
        asked = asyncio.create_task(source.shards())
        while not delay.hits:
            await asyncio.sleep(0.01)
        wall.ahead_s = 3600.0
        await asked
        assert abs(source.now_s - local.clock.now()) < 60.0
        await source.iterator(SHARD_ID, IteratorAt.at_timestamp(source.now_s - 30.0))
