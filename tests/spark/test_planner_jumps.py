"""Where the planner could stop for ever, end too early, or tell of a loss that is none: clocks that jump, shards that
go while the query runs, streams that are being made.
"""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.errors import DataLossError
from shardway.local.embedded import LocalKinesis
from shardway.local.faults import Fault
from shardway.model import StartingPosition, StreamName
from shardway.spark.driver.planner import Planner
from shardway.spark.offsets import StreamOffset
from shardway.spark.options.caps import Caps
from shardway.spark.positions import Kind
from tests.spark.planning import World, assert_exact, assert_parents_first

HOUR_S = 3600
QUIET_THEN_BUSY = [(50, 3, 1_000), (50, 12, 6_000), (50, 12, 10_000), (120, 12, 6_000)]
"""Seconds of few records, seconds of as many as a shard takes, and the cap: a sample of the first says little."""


async def half_read(world: World, *, fail: bool = True) -> Planner:
    """A planner of a shard with 100 records read and 100 seen but unread."""
    await world.create(1)
    planner = world.planner(fail_on_data_loss=fail)
    await world.half_planned(planner, 100)
    world.written.clear()
    return planner


async def put_unseen(world: World, count: int) -> None:
    """By another client: the planner's learns nothing of the service's time."""
    settings = ConnectionOptions(region=world.local.region, endpoint_url=world.local.endpoint_url)
    async with Wire(settings) as wire:
        await World(world.local, KinesisClient(wire), world.stream).put(count)


async def test_a_shard_found_empty_before_its_parent_is_read_does_not_hold_its_children(world: World) -> None:
    """The first cut that is tried reaches over an empty generation; the batch is cut before it."""
    await world.create(1)
    await world.put(1200)
    world.local.clock.advance(HOUR_S)
    for target in (2, 3):
        scaling = {"StreamName": "orders", "TargetShardCount": target, "ScalingType": "UNIFORM_SCALING"}
        await world.client.call("UpdateShardCount", scaling)
    await world.put(300)
    planner = world.planner(poll_interval_s=1e6)
    await planner.begin(None)
    batches = await world.finish(planner)
    assert len(batches) == 2
    assert_exact(world, batches)
    assert_parents_first(planner, batches)


@pytest.mark.parametrize(("quiet_s", "busy_s", "cap"), QUIET_THEN_BUSY)
async def test_no_offset_has_a_child_that_ended_before_its_parents(
    world: World, quiet_s: int, busy_s: int, cap: int
) -> None:
    """A cut that turns out too large is given up; it had looked at an empty generation behind the batch that is taken.
    A process that goes on from the offset would take the children of that for the next to read.
    """
    await world.create(2)
    for second in range(quiet_s + busy_s):
        await world.put(3 if second < quiet_s else 1000)
        world.local.clock.advance(1)
    for _ in range(2):
        for at in range(len(await world.open_shards())):
            await world.split(2 * at)
    for _ in range(5):
        await world.put(500)
        world.local.clock.advance(1)
    planner = world.planner(poll_interval_s=1e6, caps=Caps(cap, None))
    await planner.begin(None)
    until_ms, before, batches = await world.now_ms(planner), planner.offset, []
    while (offset := await planner.plan(until_ms=until_ms)) is not before:
        ended = {shard_id for shard_id, position in offset.shards.items() if position.kind is Kind.ENDED}
        for shard_id in ended:
            unread = set(planner.lineage.parents(shard_id)) & set(offset.shards) - ended
            assert not unread, f"{shard_id} is stored as ended, and {unread} is not read yet"
        batches.append(await world.read_batch(planner, offset))
        before = offset
    assert_exact(world, batches)
    assert_parents_first(planner, batches)


async def test_reshards_before_a_frozen_end_are_known_at_it(world: World) -> None:
    """The shards were listed long before the end was frozen: what was closed since must not count as caught up with."""
    await world.create(2)
    planner = world.planner(poll_interval_s=1e6)
    await planner.begin(None)
    await world.plan_settled(planner)
    await world.put(50)
    await world.split(0)
    await world.merge(1)
    await world.put(50)
    batches = await world.finish(planner)
    assert_exact(world, batches)


@pytest.mark.parametrize("fail", [True, False])
async def test_the_retention_overtakes_a_shard_that_was_idle(world: World, fail: bool) -> None:
    await world.create(1)
    await world.put(10)
    planner = world.planner(fail_on_data_loss=fail)
    await planner.begin(None)
    await world.drain(planner)
    world.local.clock.advance(25 * HOUR_S)
    world.written.clear()
    await world.put(10)
    if fail:
        with pytest.raises(DataLossError, match="may have been lost"):
            await world.plan_settled(planner)
    else:
        assert_exact(world, await world.drain(planner))
        assert planner.losses.count == 1


@pytest.mark.parametrize("fail", [True, False])
async def test_the_retention_overtakes_a_shard_while_this_machine_stood_still(world: World, fail: bool) -> None:
    """As a virtual machine that was stopped and goes on: only the next answer tells how late it is."""
    await world.create(1)
    await world.put(10)
    planner = world.planner(fail_on_data_loss=fail)
    await planner.begin(None)
    await world.drain(planner)
    before = planner.offset
    world.local.clock.advance(20 * HOUR_S)
    await put_unseen(world, 5)
    world.local.clock.advance(25 * HOUR_S)
    await put_unseen(world, 10)
    world.local.clock.advance(3)
    world.written.clear()
    if fail:
        with pytest.raises(DataLossError, match="may have been lost"):
            await planner.plan()
    else:
        assert await planner.plan() is not before
        assert planner.losses.count == 1


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("more", [0, 10])
async def test_the_retention_overtakes_records_that_were_seen(world: World, fail: bool, more: int) -> None:
    planner = await half_read(world, fail=fail)
    world.local.clock.advance(25 * HOUR_S)
    await world.put(more)
    if fail:
        with pytest.raises(DataLossError, match="records were lost"):
            await world.plan_settled(planner)
    else:
        assert_exact(world, await world.drain(planner))
        assert planner.losses.count == 1


@pytest.mark.parametrize("fail", [True, False])
async def test_a_shard_goes_between_two_listings(world: World, fail: bool) -> None:
    planner = await half_read(world, fail=fail)
    await world.split(0)
    world.local.clock.advance(25 * HOUR_S)
    await world.put(10)
    if fail:
        with pytest.raises(DataLossError, match="the shard is gone"):
            await world.plan_settled(planner)
    else:
        assert_exact(world, await world.drain(planner))
        assert planner.losses.count == 1


async def test_an_iterator_that_expires_unused_is_asked_for_again(world: World) -> None:
    await world.create(1)
    await world.put(300)
    planner = world.planner()
    await planner.begin(None)
    world.local.faults.add(Fault(how="expired_iterator", operation="GetRecords", count=2))
    assert_exact(world, await world.drain(planner))


async def test_a_stream_that_is_being_made_is_waited_for() -> None:
    with LocalKinesis(stream_settle_s=3600.0) as local:
        settings = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, user_agent_tag="driver")
        async with Wire(settings) as wire:
            world = World(local, KinesisClient(wire), StreamName("orders"))
            await world.create(2)
            planner = world.planner()
            beginning = asyncio.create_task(planner.begin(None))
            while "DescribeStreamSummary" not in str(local.stats()):
                await asyncio.sleep(0.01)
            local.clock.advance(3600)
            await beginning
            await world.put(10)
            assert_exact(world, await world.drain(planner))


async def test_a_batch_read_takes_a_large_tail_as_a_whole(world: World) -> None:
    await world.create(1)
    await world.put(60, size=100_000)
    world.local.clock.advance(10)
    planner = world.planner()
    await planner.begin(None)
    await world.client.describe_stream_summary(world.stream)
    offset = await planner.plan_whole(planner.service_ms())
    assert len(await world.read_batch(planner, offset)) == 60


async def test_a_child_that_waits_longer_than_the_retention_after_the_start_is_no_loss(world: World) -> None:
    await world.create(1)
    start = StartingPosition.at_timestamp(dt.datetime.fromtimestamp(world.local.clock.now() - 1, dt.UTC))
    for _ in range(20):
        await world.put(20)
        world.local.clock.advance(HOUR_S)
    await world.split(0)
    await world.put(20)
    world.local.clock.advance(HOUR_S)
    planner = world.planner(start)
    await planner.begin(None)
    await world.client.describe_stream_summary(world.stream)
    offset = await planner.plan(until_ms=int((world.local.clock.now() - 10 * HOUR_S) * 1000))
    batches = [await world.read_batch(planner, offset)]
    world.local.clock.advance(8 * HOUR_S)
    late = world.planner(start)
    await late.begin(StreamOffset.from_dict(offset.to_dict()))
    batches += await world.drain(late)
    assert_exact(world, batches)
