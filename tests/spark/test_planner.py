"""The planner before a real local stream: each record in exactly one range, whatever happens to the shards."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.errors import ShardwayError
from shardway.local import LocalKinesis
from shardway.model import StartingPosition, StreamName
from shardway.spark.driver.grouping import chains_of
from shardway.spark.driver.planner import Planner, PlanOptions
from shardway.spark.offsets import StreamOffset
from shardway.spark.options.caps import Caps
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.positions import Kind
from shardway.spark.ranges import EndKind
from tests.spark.planning import World, assert_exact, assert_parents_first


async def begun(world: World, start: StartingPosition = StartingPosition.TRIM_HORIZON, **settings: Any) -> Planner:
    planner = world.planner(start, **settings)
    await planner.begin(None)
    return planner


async def test_an_empty_stream_has_a_first_offset_and_then_no_more(world: World) -> None:
    await world.create(2)
    planner = await begun(world)
    first = await world.plan_settled(planner)
    assert first.starts == {}
    assert await world.plan_settled(planner) is first


async def test_what_was_written_before_the_start_is_read_once(world: World) -> None:
    await world.create(3)
    await world.put(1200)
    planner = await begun(world)
    batches = await world.drain(planner)
    assert_exact(world, batches)


async def test_later_records_come_in_later_batches(world: World) -> None:
    await world.create(2)
    planner = await begun(world)
    batches = []
    for _ in range(4):
        await world.put(50)
        batches += await world.drain(planner)
    assert_exact(world, batches)


async def test_a_batch_is_cut_at_one_time_for_all_shards(world: World) -> None:
    await world.create(2)
    planner = await begun(world)
    await world.put(100)
    world.local.clock.advance(10)
    await world.put(100)
    await world.client.describe_stream_summary(world.stream)
    offset = await planner.plan(until_ms=int(world.local.clock.now() * 1000) - 5000)
    assert {p.kind for p in offset.shards.values()} == {Kind.NEXT}
    rows = await world.read_batch(planner, offset)
    assert sorted(row.data for row in rows) == world.written[:100]


async def test_latest_means_the_time_of_the_start(world: World) -> None:
    await world.create(2)
    await world.put(100)
    world.local.clock.advance(5)
    planner = await begun(world, StartingPosition.LATEST)
    world.written.clear()
    first = await planner.plan()
    assert first.starts == {}
    await world.put(70)
    resumed = world.planner(StartingPosition.LATEST)
    await resumed.begin(StreamOffset.from_dict(first.to_dict()))
    batches = await world.drain(resumed)
    assert_exact(world, batches)


@pytest.mark.parametrize("behind_s", [600.0, 4.0])
async def test_latest_means_the_service_s_time_where_this_machine_s_clock_is_ahead(behind_s: float) -> None:
    with LocalKinesis(clock_start_s=time.time() - behind_s) as local:
        given = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)
        async with Wire(given) as maker, Wire(given) as fresh:
            world = World(local, KinesisClient(maker), StreamName("orders"))
            await world.create(2)
            world.client = KinesisClient(fresh)  # It has had no answer yet.
            planner = world.planner(StartingPosition.LATEST)
            await planner.begin(None)
            first = await planner.plan()
            assert {kept.kind for kept in first.shards.values()} == {Kind.SINCE}
            assert all(kept.witness_ms <= local.clock.now() * 1000 for kept in first.shards.values())
            await world.put(70)
            assert_exact(world, await world.drain(planner))


async def test_a_start_at_a_time_takes_what_arrived_from_then_on(world: World) -> None:
    await world.create(2)
    await world.put(100)
    world.local.clock.advance(60)
    moment = dt.datetime.fromtimestamp(world.local.clock.now() - 5, dt.UTC)
    world.written.clear()
    await world.split(0)
    await world.put(40)
    planner = await begun(world, StartingPosition.at_timestamp(moment))
    assert_exact(world, await world.drain(planner))


@pytest.mark.parametrize("microseconds", [0, 400, 500, 999])
async def test_a_start_between_two_milliseconds_takes_the_one_that_it_is_in(world: World, microseconds: int) -> None:
    """Arrival times are cut off to milliseconds: a start that was rounded up lay behind a record of its own time."""
    await world.create(1)
    await world.put(1)
    shard_id = (await world.open_shards())[0]
    there = {"ShardId": shard_id, "StreamName": "orders", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = (await world.client.call("GetShardIterator", there))["ShardIterator"]
    page = await world.client.call("GetRecords", {"ShardIterator": iterator})
    arrived_ms = round(page["Records"][0]["ApproximateArrivalTimestamp"] * 1000)
    moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=arrived_ms, microseconds=microseconds)
    world.local.clock.advance(60)
    planner = await begun(world, StartingPosition.at_timestamp(moment))
    assert_exact(world, await world.drain(planner))


async def test_a_split_and_a_merge_in_the_backlog_are_one_batch(world: World) -> None:
    await world.create(2)
    for act in (world.split, world.merge):
        await world.put(100)
        await act(0)
    await world.put(100)
    planner = await begun(world)
    batches = await world.drain(planner)
    assert len(batches) == 1
    assert_exact(world, batches)
    assert_parents_first(planner, batches)


async def test_the_diamond_of_a_split_and_a_merge_is_one_chain(world: World) -> None:
    await world.create(1)
    await world.put(30)
    await world.split(0)
    await world.put(30)
    await world.merge(0)
    await world.put(30)
    planner = await begun(world)
    offset = await world.plan_settled(planner)
    chains = chains_of(planner.ranges(offset), planner.lineage)
    assert [[one.shard_id[-1] for one in chain] for chain in chains] == [["0", "1", "2", "3"]]
    assert [one.end_kind for one in chains[0]][:3] == [EndKind.SHARD_END] * 3


async def test_empty_generations_are_passed_over(world: World) -> None:
    await world.create(1)
    await world.put(10)
    for _ in range(3):
        await world.split(0)
        await world.merge(0)
    await world.put(10)
    planner = await begun(world)
    batches = await world.drain(planner)
    assert_exact(world, batches)


async def test_an_offset_is_enough_to_go_on_in_another_process(world: World) -> None:
    await world.create(2)
    batches = []
    stored: StreamOffset | None = None
    for step in range(5):
        await world.put(60)
        if step == 2:
            await world.split(1)
        planner = world.planner()
        await planner.begin(stored)
        offset = await world.plan_settled(planner)
        batches.append(await world.read_batch(planner, offset))
        stored = StreamOffset.from_dict(offset.to_dict())
        assert stored == offset
    assert_exact(world, batches)


async def test_the_same_offset_gives_the_same_ranges_again(world: World) -> None:
    await world.create(2)
    await world.put(200)
    planner = await begun(world)
    offset = await world.plan_settled(planner)
    ranges = planner.ranges(offset)
    await world.put(100)
    await world.split(0)
    other = world.planner()
    stored = StreamOffset.from_dict(offset.to_dict())
    await other.begin(stored)
    assert other.ranges(stored) == ranges


async def test_a_silent_shard_gets_an_inclusive_end(world: World) -> None:
    await world.create(1)
    await world.put(500, size=1000)
    world.local.clock.advance(3600)
    planner = await begun(world)
    offset = await world.plan_settled(planner)
    (only,) = planner.ranges(offset)
    assert only.end_kind is EndKind.INCLUSIVE
    assert len(await world.read_range(only)) == 500


async def test_capped_batches_stay_near_their_cap(world: World) -> None:
    await world.create(2)
    for _ in range(40):
        await world.put(250)
        world.local.clock.advance(60)  # beside it, what a put really takes is nothing
    planner = await begun(world, caps=Caps(1000, None))
    batches = await world.drain(planner)
    assert_exact(world, batches)
    assert max(len(batch) for batch in batches) <= 1500
    assert len(batches) <= 20


async def test_a_cap_in_bytes_holds_as_well(world: World) -> None:
    await world.create(2)
    for _ in range(20):
        await world.put(50, size=10_000)
        world.local.clock.advance(60)  # beside it, what a put really takes is nothing
    planner = await begun(world, caps=Caps(None, 2_000_000))
    batches = await world.drain(planner)
    assert_exact(world, batches)
    assert max(sum(len(row.data) for row in batch) for batch in batches) <= 3_000_000


async def test_silence_in_a_capped_backlog_is_one_step(world: World) -> None:
    await world.create(2)
    await world.client.call("IncreaseStreamRetentionPeriod", {"StreamName": "orders", "RetentionPeriodHours": 168})
    await world.put(500)
    world.local.clock.advance(3 * 86_400)
    await world.put(500)
    planner = await begun(world, caps=Caps(200, None))
    batches = await world.drain(planner)
    assert_exact(world, batches)
    assert len(batches) <= 12


async def test_a_large_backlog_is_cut_at_a_reshard(world: World) -> None:
    """Four shards, then eight: two chains for eight tasks' worth of data would leave slots idle."""
    await world.create(1)
    for _ in range(60):
        await world.put(50, size=20_000)
        world.local.clock.advance(1)
    await world.split(0)
    world.local.clock.advance(1)
    for _ in range(60):
        await world.put(50, size=20_000)
        world.local.clock.advance(1)
    planner = await begun(world)
    batches = await world.drain(planner)
    assert [len({row.shard_id for row in batch}) for batch in batches] == [1, 2]
    assert_exact(world, batches)


async def test_a_stream_that_does_not_exist_is_named(world: World) -> None:
    planner = Planner(world.client, StreamName("nowhere"), StartingPosition.LATEST, PlanOptions.of(ReadOptions()))
    with pytest.raises(ShardwayError, match=r"there is no stream nowhere in region us-east-1"):
        await planner.begin(None)


async def test_an_endpoint_that_tells_no_time_has_this_machines(world: World) -> None:
    world.client.wire.clock.__init__()  # type: ignore[misc]
    assert not world.client.clock.known
    planner = world.planner()
    assert 0 < planner.service_ms_upper() - planner.service_ms() < 60_000


STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 40)),
    st.tuples(st.just("split"), st.integers(0, 5)),
    st.tuples(st.just("merge"), st.integers(0, 5)),
    # A jump of a second or less could hide in the whole seconds of a Date header; no service's clock does that.
    st.tuples(st.just("wait"), st.sampled_from([5, 30, 1000, 20_000])),
    st.tuples(st.just("plan"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)
"""What happens to a stream and to the query that reads it."""


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
@given(shards=st.integers(1, 3), steps=st.lists(STEPS, max_size=25), rows=st.sampled_from([None, 20]))
async def test_any_history_is_read_exactly(
    world: World, shards: int, steps: list[tuple[str, int]], rows: int | None
) -> None:
    name = f"history-{world.local.clock.now()}"
    world = World(world.local, world.client, StreamName(name))
    await world.create(shards)
    await world.client.call("IncreaseStreamRetentionPeriod", {"StreamName": name, "RetentionPeriodHours": 8760})
    caps = Caps(rows, None)
    planner = await begun(world, caps=caps)
    batches = []
    for step, number in steps:
        if step == "put":
            await world.put(number)
        elif step == "split":
            await world.split(number)
        elif step == "merge":
            await world.merge(number)
        elif step == "wait":
            world.local.clock.advance(number)
        elif step == "plan":
            before = planner.offset
            offset = await world.plan_settled(planner)
            if offset is not before:
                batches.append(await world.read_batch(planner, offset))
        elif planner.offset is not None:
            stored = StreamOffset.from_dict(planner.offset.to_dict())
            planner = world.planner(caps=caps)
            await planner.begin(stored)
    if planner.offset is not None:  # all the rest in one go, by a planner that polls no tip twice
        stored = StreamOffset.from_dict(planner.offset.to_dict())
        planner = world.planner(caps=caps, poll_interval_s=1e6)
        await planner.begin(stored)
        batches += await world.finish(planner)
    else:
        batches += await world.drain(planner)
    assert_exact(world, batches)
    assert_parents_first(planner, batches)
