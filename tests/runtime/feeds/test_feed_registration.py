"""One registration for an application's fan-out, whatever others do to it meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway.errors import ThrottledError
from shardway.events import FanOutLeft, FanOutReturned
from shardway.local import Fault
from tests.runtime.feeds.feeding_kit import DEADLINE_S, STREAM, fan_out, is_subscribed, read, source_of, tick

if TYPE_CHECKING:
    from shardway.events import FeedEvent
    from shardway.local import LocalKinesis

NAME = "billing"


def put(kinesis: Any, data: bytes) -> None:
    kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data)


def of(events: list[FeedEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def until(feed: Any, events: list[FeedEvent], kind: type, count: int = 1) -> None:
    """Read what is silent until it is told so often."""
    async with asyncio.timeout(DEADLINE_S):
        while len(of(events, kind)) < count:
            assert len((await feed.next()).records) == 0


async def test_workers_that_start_together_register_one_consumer(local: LocalKinesis, kinesis: Any) -> None:
    async with source_of(local) as source, source_of(local) as other:
        found = await asyncio.gather(*(one.register(NAME) for one in (source, other) * 4))
        assert len(set(found)) == 1
        assert await source.registered(NAME) == found[0]
        registered = kinesis.list_stream_consumers(StreamARN=found[0].partition("/consumer/")[0])["Consumers"]
        assert [one["ConsumerARN"] for one in registered] == [found[0]]
        calls = local.stats().operations["RegisterStreamConsumer"].calls
        await other.register(NAME)
        assert local.stats().operations["RegisterStreamConsumer"].calls == calls, "five a second may do so"


@pytest.mark.parametrize("operation", ["RegisterStreamConsumer", "DescribeStreamConsumer"])
async def test_a_fleet_that_starts_meets_the_limit_of_such_calls(local: LocalKinesis, operation: str) -> None:
    local.faults.add(Fault(how="error", operation=operation, code="LimitExceededException", message="slower", count=3))
    async with source_of(local) as source:
        assert NAME in await source.register(NAME)


@pytest.mark.slow  # waits for a place for some seconds
async def test_a_stream_with_as_many_consumers_as_it_may_have_says_so(local: LocalKinesis, kinesis: Any) -> None:
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    for number in range(20):
        kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=f"other-{number}")
    async with source_of(local) as source:
        assert await source.registered(NAME) is None
        with pytest.raises(ThrottledError, match=r"LimitExceededException: .*orders.* the limit is 20"):
            await source.register(NAME)
        registering = asyncio.create_task(source.register(NAME))
        kinesis.deregister_stream_consumer(StreamARN=arn, ConsumerName="other-7")
        assert NAME in await registering


@pytest.mark.parametrize("local", [{"stream_settle_s": 30.0}], indirect=True)
async def test_a_consumer_that_is_being_made_or_deleted_is_waited_for(local: LocalKinesis, kinesis: Any) -> None:
    local.clock.advance(60)  # the stream is made
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=NAME)
    async with source_of(local) as source, asyncio.timeout(DEADLINE_S):
        assert await source.registered(NAME) is None, "it is not active yet"
        local.clock.advance(60)
        first = await source.register(NAME)
        kinesis.deregister_stream_consumer(StreamARN=arn, ConsumerName=NAME)
        registering = asyncio.create_task(source.register(NAME))
        while not local.stats().operations["DescribeStreamConsumer"].calls >= 3:
            await asyncio.sleep(0.01)
        local.clock.advance(60)
        while local.stats().operations["RegisterStreamConsumer"].calls < 2:
            await asyncio.sleep(0.01)
        local.clock.advance(60)
        assert await registering != first


async def test_a_consumer_that_is_deleted_while_it_is_used(local: LocalKinesis, kinesis: Any) -> None:
    """The shard is polled, and that is told; once it is registered again, it is subscribed to."""
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        arn = await source.register(NAME)
        feed = fan_out(source, arn, events, find_consumer=lambda: source.registered(NAME))
        put(kinesis, b"0")
        assert await read(feed, 1) == [b"0"]
        await source.deregister(NAME)
        await until(feed, events, FanOutLeft, 2)
        assert {event.reason for event in of(events, FanOutLeft)} == {"ResourceNotFoundException"}
        put(kinesis, b"1")
        assert await read(feed, 1) == [b"1"]
        assert await source.registered(NAME) is None, "it may have been removed on purpose"
        async with source_of(local) as other:
            assert await other.register(NAME) != arn
        ticking = asyncio.create_task(tick(local))
        await until(feed, events, FanOutReturned)
        ticking.cancel()
        put(kinesis, b"2")
        assert await read(feed, 1) == [b"2"]
        assert is_subscribed(feed)
        await feed.close()
