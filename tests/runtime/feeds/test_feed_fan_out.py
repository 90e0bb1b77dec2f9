"""A shard read by SubscribeToShard: every record once, over renewals, breaks, takeovers, and polling in between."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.log.pages import ReadPage
from shardway.errors import AccessDeniedError
from shardway.events import FanOutLeft, FanOutReturned, ReadFailed
from shardway.local import Fault
from shardway.model import IteratorAt, Position
from shardway.runtime.feeds.fan_out import SubscriptionGate, SubscriptionTimes
from tests.runtime.feeds.feeding_kit import (
    DEADLINE_S,
    FAN_OUT,
    SHARD_ID,
    STREAM,
    fan_out,
    is_subscribed,
    kinds,
    read,
    read_to_end,
    source_of,
    tick,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shardway.events import FeedEvent
    from shardway.local import LocalKinesis


def put(kinesis: Any, *datas: bytes) -> list[int]:
    return [int(kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data)["SequenceNumber"]) for data in datas]


async def test_records_are_pushed_from_the_checkpoint_on(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    async with source_of(local) as source:
        arn = await source.register("billing")
        assert await source.register("billing") == arn
        feed = fan_out(source, arn, [], Checkpoint.at(Position(numbers[0])))
        assert await read(feed, 2) == [b"1", b"2"]
        put(kinesis, b"3")
        assert await read(feed, 1) == [b"3"]
        assert is_subscribed(feed)
        await feed.close()
        await source.deregister("billing")
        await source.deregister("billing")
        assert kinesis.list_stream_consumers(StreamARN=arn.partition("/consumer/")[0])["Consumers"] == []


async def test_empty_events_over_a_silence_are_followed_and_reading_goes_on_behind_them(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription crosses hours without a record, and ends. That is no fault, and no reason to poll."""
    monkeypatch.setattr("shardway.runtime.feeds.fan_out.BUFFERED_S", -1.0)  # none lay there before
    (number,) = put(kinesis, b"0")
    events: list[FeedEvent] = []
    asked: list[IteratorAt] = []
    async with source_of(local) as source:
        subscribe = source.subscribe

        async def crossing(arn: str, shard_id: str, at: IteratorAt) -> AsyncIterator[ReadPage]:
            asked.append(at)
            async with contextlib.aclosing(subscribe(arn, shard_id, at)) as pages:
                async for page in pages:
                    yield page._replace(millis_behind_latest=11 * 3_600_000) if len(asked) == 1 else page
                    if len(asked) == 1:
                        for hours in range(10, 0, -1):
                            yield ReadPage([], hours * 3_600_000, continuation=page.continuation)
                        return

        monkeypatch.setattr(source, "subscribe", crossing)
        feed = fan_out(source, await source.register("billing"), events, Checkpoint.at(Position(number)))
        async with asyncio.timeout(DEADLINE_S):
            found = [await feed.next() for _ in range(11)]
        assert [(len(one.records), one.ended, one.trimmed) for one in found] == [(0, False, None)] * 11
        assert [one.millis_behind_latest for one in found[1:]] == [hours * 3_600_000 for hours in range(10, 0, -1)]
        read_until_s = feed.cursor.read_until_s
        assert read_until_s is not None
        assert source.now_s - 2 * 3600 < read_until_s < source.now_s - 3000
        put(kinesis, b"1")
        assert await read(feed, 1) == [b"1"], "polled: another subscription is refused for some seconds"
        assert feed.cursor.start(source.now_s).sequence_number is not None
        assert events == []
        await feed.close()


async def test_subscriptions_are_renewed_without_a_gap_or_a_repeat(local: LocalKinesis, kinesis: Any) -> None:
    events: list[FeedEvent] = []
    times = SubscriptionTimes(renew_after_s=0.15, renew_jitter_s=0.05, again_after_s=0.1)
    wanted = [b"%d" % number for number in range(40)]

    async def putting() -> None:
        for data in wanted:
            await asyncio.to_thread(put, kinesis, data)
            await asyncio.sleep(0.02)

    # The service refuses a second subscription within 5 s: its clock is what counts there.
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), events, times=times)
        task = asyncio.create_task(putting())
        ticking = asyncio.create_task(tick(local))
        assert await read(feed, len(wanted)) == wanted
        await task
        ticking.cancel()
        await feed.close()
    assert local.stats().operations["SubscribeToShard"].calls >= 3
    assert "FanOutLeft" not in kinds(events)


async def test_a_closed_shard_ends_with_its_children(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0", b"1")
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
    async with source_of(local) as source:
        found, last = await read_to_end(fan_out(source, await source.register("billing"), []))
    assert found == [b"0", b"1"]
    assert {child.shard_id for child in last.children} == {"shardId-000000000001", "shardId-000000000002"}


async def test_fall_back_from_fan_out_to_polling_and_return(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0", b"1")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), events)
        fault = local.faults.add(Fault(how="server_error", operation="SubscribeToShard"))
        assert await read(feed, 2) == [b"0", b"1"]
        assert not is_subscribed(feed)
        async with asyncio.timeout(DEADLINE_S):
            while not any(isinstance(event, FanOutLeft) for event in events):
                assert len((await feed.next()).records) == 0
        assert [event.reason for event in events if isinstance(event, FanOutLeft)] == ["InternalFailureException"]
        fault.clear()
        async with asyncio.timeout(DEADLINE_S):
            while not any(isinstance(event, FanOutReturned) for event in events):
                assert len((await feed.next()).records) == 0
        put(kinesis, b"2")
        assert await read(feed, 1) == [b"2"]
        assert is_subscribed(feed)
        await feed.close()


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException"])
async def test_a_consumer_that_is_gone_or_not_allowed_means_polling_at_once(
    local: LocalKinesis, kinesis: Any, code: str
) -> None:
    put(kinesis, b"0")
    events: list[FeedEvent] = []
    local.faults.add(Fault(how="error", operation="SubscribeToShard", code=code, message="no"))
    async with source_of(local) as source:
        assert await read(fan_out(source, await source.register("billing"), events), 1) == [b"0"]
    assert [event.reason for event in events if isinstance(event, FanOutLeft)] == [code]


@pytest.mark.parametrize("how", ["reset", "truncate", "throttle"])
async def test_a_subscription_that_breaks_off_goes_on_where_it_was(local: LocalKinesis, kinesis: Any, how: Any) -> None:
    events: list[FeedEvent] = []
    wanted = [b"%d" % number for number in range(12)]
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), events)
        ticking = asyncio.create_task(tick(local))
        found: list[bytes] = []
        for start in range(0, 12, 3):
            local.faults.add(Fault(how=how, operation="SubscribeToShardEvent", count=1))
            await asyncio.to_thread(put, kinesis, *wanted[start : start + 3])
            found += await read(feed, 3)
        ticking.cancel()
        await feed.close()
    assert found == wanted


async def test_a_connection_that_falls_silent_is_left(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0")
    events: list[FeedEvent] = []
    times = SubscriptionTimes(silence_max_s=0.3, again_after_s=0.1, failures_max=1, return_after_s=60)
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), events, times=times)
        assert await read(feed, 1) == [b"0"]
        local.faults.add(Fault(how="delay", operation="SubscribeToShardEvent", delay_s=5, count=1))
        put(kinesis, b"1")
        assert await read(feed, 1) == [b"1"]
        assert [event.reason for event in events if isinstance(event, FanOutLeft)] == ["TransportError"]
        await feed.close()


async def test_another_reader_takes_the_subscription_over(local: LocalKinesis, kinesis: Any) -> None:
    """Two that subscribe to one shard in turn: both get all records, by polling while the other has it."""
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        arn = await source.register("billing")
        feed, other = fan_out(source, arn, events), fan_out(source, arn, events)
        put(kinesis, b"0")
        ticking = asyncio.create_task(tick(local))
        assert await read(feed, 1) == [b"0"]
        assert await read(other, 1) == [b"0"]
        put(kinesis, b"1")
        one, two = await asyncio.gather(read(feed, 1), read(other, 1))
        assert (one, two) == ([b"1"], [b"1"])
        ticking.cancel()
        await feed.close()
        await other.close()


async def test_a_new_owner_polls_while_the_former_ones_subscription_is_young(local: LocalKinesis, kinesis: Any) -> None:
    """Within five seconds of the former owner's, a subscription is refused: records come all the same."""
    events: list[FeedEvent] = []
    put(kinesis, b"0", b"1")
    refusal = Fault(how="error", operation="SubscribeToShard", code="ResourceInUseException", count=1)
    async with source_of(local) as source:
        local.faults.add(refusal)
        feed = fan_out(source, await source.register("billing"), events, times=SubscriptionTimes(again_after_s=600.0))
        assert await read(feed, 2) == [b"0", b"1"]
        put(kinesis, b"2")
        assert await read(feed, 1) == [b"2"]
        assert [event.error_code for event in events if isinstance(event, ReadFailed)] == ["ResourceInUseException"]
        assert not is_subscribed(feed)
        await feed.close()


async def test_a_caller_that_is_cancelled_loses_nothing(local: LocalKinesis, kinesis: Any) -> None:
    wanted = [b"%d" % number for number in range(8)]
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), [], times=FAN_OUT)
        found: list[bytes] = []
        for number, wait_s in enumerate((0.0, 0.001, 0.01, 0.05) * 2):
            await asyncio.to_thread(put, kinesis, wanted[number])
            reading = asyncio.create_task(feed.next())
            await asyncio.sleep(wait_s)
            reading.cancel()
            done = (await asyncio.gather(reading, return_exceptions=True))[0]
            found += [] if isinstance(done, BaseException) else list(done.records.datas)
        found += await read(feed, 8 - len(found)) if len(found) < 8 else []
        await feed.close()
    assert found == wanted


async def test_so_many_subscriptions_start_in_a_second() -> None:
    gate = SubscriptionGate(50.0)
    turns = [gate.turn_s() for _ in range(11)]
    assert turns[-1] - turns[0] >= 0.19


async def test_a_subscription_that_the_service_ends_after_five_minutes_goes_on_behind_its_last_event(
    local: LocalKinesis, kinesis: Any
) -> None:
    """It is not renewed before, as if the process had stood still: nothing is left out, and nothing comes twice."""
    events: list[FeedEvent] = []
    times = replace(FAN_OUT, renew_after_s=3_600.0, renew_jitter_s=0.0)
    wanted = [b"%d" % number for number in range(6)]
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), events, times=times)
        found: list[bytes] = []
        for number in range(0, 6, 3):
            await asyncio.to_thread(put, kinesis, *wanted[number : number + 3])
            found += await read(feed, 3)
            ended = local.stats().operations["SubscribeToShard"].calls
            ticking = asyncio.create_task(tick(local))
            async with asyncio.timeout(DEADLINE_S):
                while local.stats().operations["SubscribeToShard"].calls == ended:
                    found += (await feed.next()).records.datas
            ticking.cancel()
        await feed.close()
    assert found == wanted
    assert kinds(events) <= {"ReadFailed"}, "a second one may be refused for five seconds"


@pytest.mark.parametrize("again", ["by subscription", "by polling"])
async def test_a_shard_that_is_split_between_two_subscriptions(local: LocalKinesis, kinesis: Any, again: str) -> None:
    """What is left of it comes, and its children are told, though no subscription was there when it was closed."""
    put(kinesis, b"0")
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), [])
        assert await read(feed, 1) == [b"0"]
        await feed.close()
        put(kinesis, b"1")
        kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
        put(kinesis, b"a child's")
        if again == "by polling":
            local.faults.add(Fault(how="error", operation="SubscribeToShard", code="ResourceInUseException"))
        else:
            local.clock.advance(10)  # the service's five seconds
        found, last = await read_to_end(feed)
        await feed.close()
    assert found == [b"1"]
    assert {child.shard_id for child in last.children} == {"shardId-000000000001", "shardId-000000000002"}


@pytest.mark.parametrize("operation", ["SubscribeToShard", "SubscribeToShardEvent"])
async def test_a_key_of_kms_that_is_asked_too_often_is_waited_for(
    local: LocalKinesis, kinesis: Any, operation: str
) -> None:
    put(kinesis, b"0")
    events: list[FeedEvent] = []
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), events)
        throttled = Fault(how="error", operation=operation, code="KMSThrottlingException", message="slower", count=1)
        local.faults.add(throttled)
        put(kinesis, b"1")
        assert await read(feed, 2) == [b"0", b"1"]
        await feed.close()
    assert [event.error_code for event in events if isinstance(event, ReadFailed)] in ([], ["KMSThrottlingException"])


async def test_a_key_of_kms_that_may_not_be_used_is_an_error_that_names_it(local: LocalKinesis, kinesis: Any) -> None:
    """By polling, which finds out whether the records can be read at all."""
    put(kinesis, b"0")
    events: list[FeedEvent] = []
    for operation in ("SubscribeToShard", "GetRecords"):
        denied = Fault(how="error", operation=operation, code="KMSAccessDeniedException", message="no key")
        local.faults.add(denied)
    async with source_of(local) as source:
        feed = fan_out(source, await source.register("billing"), events)
        with pytest.raises(AccessDeniedError, match="GetRecords: KMSAccessDeniedException: no key"):
            await read(feed, 1)
        await feed.close()


async def test_a_subscription_is_not_asked_for_within_five_seconds_of_the_one_before(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS would refuse it. (Here the five are half a one.) The shard is polled meanwhile."""
    begun_s: list[float] = []
    again_after_s = 0.5
    assert SubscriptionTimes().again_after_s == 5.0
    async with source_of(local) as source:
        subscribe = source.subscribe

        def noted(*arguments: Any) -> Any:
            begun_s.append(feed._subscribed_s)  # when it was decided: a busy machine may take its time
            return subscribe(*arguments)

        monkeypatch.setattr(source, "subscribe", noted)
        times = SubscriptionTimes(renew_after_s=0.1, renew_jitter_s=0.0, again_after_s=again_after_s)
        feed = fan_out(source, await source.register("billing"), [], times=times)
        ticking = asyncio.create_task(tick(local))
        for number in range(10**6):
            if len(begun_s) > 2:
                break
            await asyncio.to_thread(put, kinesis, b"%d" % number)
            assert await read(feed, 1) == [b"%d" % number]
        ticking.cancel()
        await feed.close()
    assert all(after - before >= again_after_s for before, after in pairwise(begun_s))
