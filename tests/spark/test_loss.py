"""What was lost is told, what was only silent is not: decided on the driver, before anything is read."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shardway.errors import DataLossError, OptionError
from shardway.model import StartingPosition, StreamName
from shardway.spark.driver.planner import Planner
from shardway.spark.offsets import StreamOffset
from shardway.spark.positions import Kind
from tests.spark.planning import World, assert_exact

HOUR_S = 3600


async def planned(world: World, stored: StreamOffset | None = None, **settings: Any) -> Planner:
    planner = world.planner(StartingPosition.TRIM_HORIZON, **settings)
    await planner.begin(None if stored is None else StreamOffset.from_dict(stored.to_dict()))
    return planner


async def caught_up(world: World, planner: Planner) -> StreamOffset:
    await world.drain(planner)
    assert planner.offset is not None
    return planner.offset


async def test_a_trimmed_record_that_was_next_is_lost(world: World) -> None:
    await world.create(1)
    stored = await world.half_planned(world.planner())
    assert [p.kind for p in stored.shards.values()] == [Kind.NEXT]
    world.local.clock.advance(25 * HOUR_S)
    await world.put(10)
    late = await planned(world, stored)
    with pytest.raises(DataLossError, match=r"stream orders, shard shardId-000000000000: records were lost: \d+"):
        await world.plan_settled(late)


async def test_without_failing_exactly_the_rest_is_read_and_the_loss_is_counted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.create(1)
    stored = await world.half_planned(world.planner())
    world.local.clock.advance(25 * HOUR_S)
    world.written.clear()
    await world.put(10)
    late = await planned(world, stored, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, "shardway.spark"):
        batches = await world.drain(late)
    assert_exact(world, batches)
    assert late.losses.count == 1
    assert "records were lost" in caplog.text


async def test_a_long_stop_may_have_lost_records(world: World) -> None:
    await world.create(1)
    await world.put(10)
    stored = await caught_up(world, await planned(world))
    world.local.clock.advance(30 * HOUR_S)
    with pytest.raises(DataLossError, match="records may have been lost"):
        await world.plan_settled(await planned(world, stored))
    lenient = await planned(world, stored, fail_on_data_loss=False)
    await world.plan_settled(lenient)
    assert lenient.losses.count == 1


async def test_losses_that_were_passed_over_stay_in_the_offset(world: World) -> None:
    await world.create(1)
    await world.put(10)
    stored = await caught_up(world, await planned(world))
    assert "losses" not in stored.to_dict()
    for count in (1, 2):
        world.local.clock.advance(30 * HOUR_S)
        await world.put(10)
        lenient = await planned(world, stored, fail_on_data_loss=False)
        stored = StreamOffset.from_dict((await world.plan_settled(lenient)).to_dict())
        assert (lenient.losses.count, stored.losses) == (count, count)


async def test_a_stop_shorter_than_the_retention_loses_nothing(world: World) -> None:
    await world.create(2)
    await world.put(10)
    stored = await caught_up(world, await planned(world))
    world.local.clock.advance(23 * HOUR_S)
    world.written.clear()
    await world.put(10)
    planner = await planned(world, stored)
    assert_exact(world, await world.drain(planner))
    assert planner.losses.count == 0


async def test_a_record_that_is_still_there_at_the_edge_of_the_retention_is_no_loss(world: World) -> None:
    await world.create(1)
    await world.put(10)
    planner = await planned(world)
    stored = await caught_up(world, planner)
    world.local.clock.advance(24 * HOUR_S - 300)
    await world.put(5)
    world.written[:] = world.written[10:]
    late = await planned(world, stored)
    assert_exact(world, await world.drain(late))


async def test_silence_longer_than_the_retention_is_no_loss_while_running(world: World) -> None:
    await world.create(2)
    await world.put(10)
    planner = await planned(world)
    await caught_up(world, planner)
    for _ in range(30):
        world.local.clock.advance(HOUR_S)
        await planner.plan()
    world.written.clear()
    await world.put(10)
    assert_exact(world, await world.drain(planner))
    assert planner.losses.count == 0


@pytest.mark.slow
async def test_silence_longer_than_the_retention_is_no_loss_with_a_restart(world: World) -> None:
    """The times of idle shards are written down by empty batches, four in each retention."""
    await world.create(2)
    await world.put(10)
    planner = await planned(world)
    before = await caught_up(world, planner)
    empty = 0
    for _ in range(30):
        world.local.clock.advance(HOUR_S)
        await world.client.describe_stream_summary(world.stream)
        offset = await planner.plan()
        if offset is not before:
            assert offset.starts == {}
            empty += 1
        before = offset
    assert 4 <= empty <= 6
    world.written.clear()
    world.local.clock.advance(5 * HOUR_S)
    await world.put(10)
    late = await planned(world, before)
    assert_exact(world, await world.drain(late))
    assert late.losses.count == 0


async def test_a_shard_that_is_gone_unread_is_lost(world: World) -> None:
    await world.create(1)
    await world.put(10)
    planner = await planned(world)
    stored = await caught_up(world, planner)
    await world.put(10)
    await world.split(0)
    world.local.clock.advance(50 * HOUR_S)
    world.written.clear()
    await world.put(10)
    assert "shardId-000000000000" not in [s.shard_id for s in await world.client.list_shards(world.stream)]
    late = world.planner()
    with pytest.raises(DataLossError, match=r"shardId-000000000000.*the shard is gone"):
        await late.begin(StreamOffset.from_dict(stored.to_dict()))
    lenient = await planned(world, stored, fail_on_data_loss=False)
    assert_exact(world, await world.drain(lenient))
    assert lenient.losses.count >= 1


async def test_a_stream_made_again_is_told_and_read_from_its_beginning(world: World) -> None:
    await world.create(2)
    await world.put(10)
    stored = await caught_up(world, await planned(world))
    await world.client.call("DeleteStream", {"StreamName": "orders"})
    world.local.clock.advance(5)
    await world.create(2)
    world.written.clear()
    await world.put(10)
    with pytest.raises(DataLossError, match="deleted and made again"):
        await planned(world, stored)
    lenient = await planned(world, stored, fail_on_data_loss=False)
    assert_exact(world, await world.drain(lenient))
    assert lenient.losses.count == 1


@pytest.mark.parametrize("listing_interval_s", [0.0, 60.0])
async def test_a_stream_made_again_while_running_is_told(world: World, listing_interval_s: float) -> None:
    await world.create(1)
    planner = await planned(world, listing_interval_s=listing_interval_s, fail_on_data_loss=False)
    await world.put(10)
    await caught_up(world, planner)
    await world.client.call("DeleteStream", {"StreamName": "orders"})
    world.local.clock.advance(5)
    await world.create(1)
    world.written.clear()
    await world.put(10)
    assert_exact(world, await world.drain(planner))
    assert planner.losses.count == 1


async def test_a_batch_that_runs_again_after_its_start_was_trimmed_is_told(world: World) -> None:
    await world.create(1)
    await world.put(10)
    world.local.clock.advance(2 * HOUR_S)
    await world.put(10)
    planner = await planned(world)
    batch = await world.plan_settled(planner)
    world.local.clock.advance(23 * HOUR_S)
    late = await planned(world, batch)
    ranges = late.ranges(batch)
    assert [one.at_risk for one in ranges] == [True]
    with pytest.raises(DataLossError, match="is trimmed"):
        await late.readable(ranges)
    lenient = await planned(world, batch, fail_on_data_loss=False)
    assert await lenient.readable(ranges) == ranges
    assert lenient.losses.count == 1


async def test_a_checkpoint_of_another_stream_is_refused(world: World) -> None:
    await world.create(1)
    stored = await caught_up(world, await planned(world))
    other = World(world.local, world.client, StreamName("payments"))
    await other.create(1)
    with pytest.raises(OptionError, match=r"belongs to arn:.*stream/orders, the options name arn:.*stream/payments"):
        await planned(other, stored)
