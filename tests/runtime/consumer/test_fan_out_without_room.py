"""A stream has room for 20 applications that read by fan-out: the next one polls, until there is room for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import FanOutOptions
from shardway.events import FanOutLeft, FanOutReturned
from shardway.leases import MemoryLeaseTable
from shardway.runtime.feeds.fan_out import SubscriptionTimes
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
ROOM = 20
STREAMS = {STREAM: 3}


async def test_the_application_without_room_polls_and_subscribes_once_there_is_some(
    local: LocalKinesis, kinesis: Any
) -> None:
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    for number in range(ROOM):
        kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=f"other-{number}")
    wanted, got, events = set(put(kinesis, range(30))), set[bytes](), list[Any]()
    times = SubscriptionTimes(return_after_s=0.2)

    async def read() -> None:
        async for batch in consumer:
            with batch:
                got.update(record.data for record in batch)

    async with consumer_of(
        local, MemoryLeaseTable(), fan_out=FanOutOptions(), subscriptions=times, on_event=events.append
    ) as consumer:
        reading = asyncio.create_task(read())
        await until(lambda: got == wanted)
        left = [event for event in events if isinstance(event, FanOutLeft)]
        assert {event.reason for event in left} == {"LimitExceededException"}
        kinesis.deregister_stream_consumer(StreamARN=arn, ConsumerName="other-7")
        await until(lambda: len({one.shard_id for one in events if isinstance(one, FanOutReturned)}) == 3)
        wanted |= set(put(kinesis, range(30, 60)))
        await until(lambda: got == wanted)
        await consumer.close()
        await reading
    names = [one["ConsumerName"] for one in kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]]
    assert "billing" in names
