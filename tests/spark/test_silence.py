"""Long silences: the service answers them with many empty pages, which are progress and no end.

A page of the local service crosses a minute here, so that an hour is sixty of them.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shardway.core.hashkeys import hash_key
from shardway.errors import DataLossError, StalledError
from shardway.local.faults import Fault
from shardway.model import StartingPosition
from shardway.spark.driver import cut_wait
from shardway.spark.driver import planner as planning_module
from shardway.spark.driver.cut_wait import STANDING_LOOKS_MIN, STANDING_S, WAIT_MAX_S, CutWait
from shardway.spark.driver.planner import Planner
from shardway.spark.lookahead import shard_probe
from shardway.spark.lookahead.lookahead import KnownRecord, Lookahead
from shardway.spark.offsets import StreamOffset
from shardway.spark.positions import SILENCE_MARGIN_MS, Kind, ShardPosition
from shardway.spark.ranges import EndKind
from tests.spark.planning import World, assert_exact, assert_in_step

MINUTE_S = 60
HOUR_S = 3600
PAGES = 20
"""Empty pages that a look follows here: an hour's silence takes several of them."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """No limit holds here, so the driver need not keep to one; looks are short, so that silence takes several."""
    monkeypatch.setattr(shard_probe, "CALLS_PER_S", 1e6)
    world.local.set_limits(page_span_s=MINUTE_S)


async def begun(world: World, stored: StreamOffset | None = None, **settings: object) -> Planner:
    planner = world.planner(StartingPosition.TRIM_HORIZON, **{"crossing_pages_max": PAGES, **settings})
    await planner.begin(None if stored is None else StreamOffset.from_dict(stored.to_dict()))
    return planner


async def two_shards(world: World) -> tuple[str, str]:
    """A stream of two shards, and a key for each."""
    await world.create(2)
    return key_of_each_half()


def key_of_each_half() -> tuple[str, str]:
    """Of the hash keys: a key for each shard of two, or of a shard that is split."""
    return "key-0", next(f"key-{n}" for n in range(1, 100) if hash_half(f"key-{n}") != hash_half("key-0"))


def hash_half(key: str) -> bool:
    return hash_key(key) < 1 << 127


async def one_each_ten_minutes(world: World, key: str, count: int) -> None:
    for _ in range(count):
        await world.put(1, key=key)
        world.local.clock.advance(10 * MINUTE_S)


# --- nothing is left out ---------------------------------------------------------------------------------------------


async def test_a_live_query_comes_over_a_night_of_silence(world: World) -> None:
    await world.create(1)
    await world.put(5)
    planner = await begun(world)
    batches = await world.drain(planner)
    stored = planner.offset
    world.local.clock.advance(10 * HOUR_S)
    await world.put(5)
    world.local.clock.advance(HOUR_S)
    planner = await begun(world, stored)
    stored = planner.offset
    for _ in range(100):
        offset = await world.plan_settled(planner)
        if offset is not stored and offset.starts:
            batches.append(await world.read_batch(planner, offset))
            break
    assert_exact(world, batches)


async def test_a_run_up_to_a_fixed_end_does_not_end_in_a_silence(world: World) -> None:
    await world.create(2)
    await world.put(10)
    world.local.clock.advance(15 * HOUR_S)
    await world.put(10)
    world.local.clock.advance(3 * HOUR_S)
    planner = await begun(world)
    assert_exact(world, await world.finish(planner))


async def test_a_batch_read_takes_what_lies_behind_silences(world: World) -> None:
    await world.create(2)
    for _ in range(4):
        await world.put(3)
        world.local.clock.advance(4 * HOUR_S)
    await world.split(0)
    world.local.clock.advance(3 * HOUR_S)
    await world.put(3)
    world.local.clock.advance(HOUR_S)
    planner = await begun(world)
    await world.client.describe_stream_summary(world.stream)
    offset = await planner.plan_whole(planner.service_ms())
    assert_exact(world, [await world.read_batch(planner, offset)])


@pytest.mark.parametrize("restart_every", [0, 1, 3])
async def test_sparse_records_come_once_however_often_the_query_is_made_anew(world: World, restart_every: int) -> None:
    await two_shards(world)
    for number in range(12):
        await world.put(1 + number % 3)
        world.local.clock.advance((number % 5) * 31 * MINUTE_S + 7)
        if number == 6:
            await world.split(1)
    planner = await begun(world)
    batches = []
    until_ms = await world.now_ms(planner)
    before = planner.offset
    for number in range(1, 500):
        offset = await planner.plan(until_ms=until_ms)
        if offset is before:
            break
        before = offset
        if offset.starts:
            batches.append(await world.read_batch(planner, offset))
        if restart_every and number % restart_every == 0:
            planner = await begun(world, offset)
            before = planner.offset
    assert_exact(world, batches)


async def test_a_closed_shard_is_followed_over_its_silence_to_its_children(world: World) -> None:
    await world.create(1)
    await world.put(4)
    world.local.clock.advance(6 * HOUR_S)
    await world.split(0)
    world.local.clock.advance(6 * HOUR_S)
    await world.put(4)
    world.local.clock.advance(HOUR_S)
    planner = await begun(world)
    assert_exact(world, await world.finish(planner))


async def test_a_burst_is_cut_off_behind_its_last_record_however_long_the_silence_behind_it(world: World) -> None:
    await world.create(1)
    await world.put(500, size=1000)
    world.local.clock.advance(12 * HOUR_S)
    planner = await begun(world)
    batches = await world.drain(planner)
    assert_exact(world, batches)


# --- how far it came is kept -----------------------------------------------------------------------------------------


async def test_how_far_a_shard_has_come_survives_in_the_offset_and_the_next_process_goes_on_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning_module, "CROSSING_KEPT_S", 0.0)
    await world.create(1)
    await world.put(5)
    planner = await begun(world)
    await world.drain(planner)
    stored = planner.offset
    assert stored is not None
    world.local.clock.advance(10 * HOUR_S)
    witnesses = []
    for _ in range(100):
        planner = await begun(world, stored)  # a process that is killed after each plan
        stored = await world.plan_settled(planner)
        if not planner.waits.shards:
            break
        assert not stored.starts
        (position,) = stored.shards.values()
        assert position.kind is Kind.SINCE
        witnesses.append(position.witness_ms)
    assert 20 <= len(witnesses) <= 60, "each goes on where the one before had come"
    assert witnesses == sorted(set(witnesses))
    assert planner.losses.count == 0


async def test_an_iterator_that_expires_in_a_silence_is_asked_for_again_at_how_far_it_had_come(world: World) -> None:
    await world.create(1)
    await world.put(5)
    planner = await begun(world)
    batches = await world.drain(planner)
    world.local.clock.advance(2 * HOUR_S)
    await world.put(1)
    planner = await begun(world, planner.offset)
    stored = planner.offset
    for _ in range(60):
        offset = await world.plan_settled(planner)
        if offset is not stored and offset.starts:
            batches.append(await world.read_batch(planner, offset))
            break
        world.local.clock.advance(6 * MINUTE_S)  # longer than an iterator lives, shorter than a look comes
    assert_exact(world, batches)


async def test_an_offset_that_stands_behind_a_record_goes_on(world: World) -> None:
    await world.create(1)
    await world.put(5)
    planner = await begun(world)
    await world.drain(planner)
    assert planner.offset is not None
    last = max(row for row in [int(n.sequence_number or 0) for n in planner.offset.shards.values()])
    old = planner.offset.to_dict()
    position = ShardPosition(Kind.AFTER, int(world.local.clock.now() * 1000), last)
    old["shards"] = {"0": position.encode()}
    world.written.clear()
    world.local.clock.advance(10 * HOUR_S)
    await world.put(5)
    planner = await begun(world, StreamOffset.from_dict(old))
    assert_exact(world, await world.finish(planner))


async def test_silence_at_the_beginning_of_a_stream_is_no_loss_after_a_restart(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies before the first page of an old stream was trimmed before the query began."""
    monkeypatch.setattr(planning_module, "CROSSING_KEPT_S", 0.0)
    await world.create(1)
    world.local.clock.advance(40 * HOUR_S)
    await world.put(5)
    stored = None
    batches = []
    for _ in range(100):
        planner = await begun(world, stored)
        stored = await world.plan_settled(planner)
        if stored.starts:
            batches.append(await world.read_batch(planner, stored))
            break
    assert_exact(world, batches)
    assert planner.losses.count == 0


# --- what is trimmed is told -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 5])
async def test_records_that_are_trimmed_before_a_silence_are_told(world: World, more: int) -> None:
    await world.create(1)
    stored = await world.half_planned(world.planner(crossing_pages_max=PAGES))
    assert [p.kind for p in stored.shards.values()] == [Kind.NEXT]
    world.local.clock.advance(40 * HOUR_S)
    world.written.clear()
    await world.put(more)
    world.local.clock.advance(2 * HOUR_S)
    with pytest.raises(DataLossError, match="records were lost"):
        await world.finish(await begun(world, stored))
    lenient = await begun(world, stored, fail_on_data_loss=False)
    assert_exact(world, await world.finish(lenient))
    assert lenient.losses.count == 1
    again = await begun(world, lenient.offset, fail_on_data_loss=True)
    await world.finish(again)
    assert again.losses.count == 1, "what was told is not told again after a restart"


async def test_a_look_that_the_retention_overtakes_in_a_silence_is_told(world: World) -> None:
    await world.create(1)
    planner = await begun(world)
    await world.plan_settled(planner)
    await world.put(1)
    planner = await begun(world, planner.offset)
    await world.drain(planner)
    world.local.clock.advance(20 * HOUR_S)
    planner = await begun(world, planner.offset)
    await world.plan_settled(planner)
    assert planner.waits.shards
    world.local.clock.advance(25 * HOUR_S)
    with pytest.raises(DataLossError, match="may have been lost"):
        await world.plan_settled(planner)


# --- the cut of all shards waits -------------------------------------------------------------------------------------


async def test_the_cut_of_all_shards_waits_for_the_slowest(world: World) -> None:
    """After an outage the rows of a busy and of a silent shard come in step: no row more than a look later."""
    busy, silent = await two_shards(world)
    await world.put(1, key=busy)
    await world.put(1, key=silent)
    planner = await begun(world)
    await world.drain(planner)
    stored = planner.offset
    await one_each_ten_minutes(world, busy, 72)
    await world.put(1, key=silent)
    world.local.clock.advance(MINUTE_S)
    planner = await begun(world, stored)
    numbers: list[int] = []
    latest_row = 0
    for _ in range(200):
        offset = await world.plan_settled(planner)
        rows = await world.read_batch(planner, offset) if offset is not stored and offset.starts else []
        stored = offset
        fresh = sorted(int(row.data[:8]) for row in rows)
        assert not fresh or fresh[0] > latest_row, "a row that is older than all of the batch before"
        latest_row = max([latest_row, *fresh])
        numbers += fresh
        if len(numbers) == 73:
            break
        assert planner.lag_ms() > 0
    assert numbers == list(range(2, 75))


async def test_a_shard_that_falls_silent_within_a_backlog_holds_the_cut_back(world: World) -> None:
    busy, silent = await two_shards(world)
    await world.put(3, key=silent)
    await one_each_ten_minutes(world, busy, 60)
    await world.put(3, key=silent)
    world.local.clock.advance(MINUTE_S)
    planner = await begun(world)
    batches = await world.drain(planner)
    assert_exact(world, batches)
    assert_in_step(batches)


async def test_children_behind_a_silence_are_waited_for(world: World) -> None:
    await world.create(1)
    await world.put(5)
    await world.split(0)
    left, right = key_of_each_half()
    await one_each_ten_minutes(world, left, 30)
    await world.put(1, key=right)
    world.local.clock.advance(MINUTE_S)
    planner = await begun(world)
    batches = await world.drain(planner)
    assert_exact(world, batches)
    assert_in_step(batches)


def test_the_wait_is_for_those_that_move_and_has_an_end() -> None:
    wait = CutWait()
    assert wait.note_looks({"a": 100, "b": 50}, 0.0).until_ms == 50
    for look in range(1, STANDING_LOOKS_MIN + 1):
        waits = wait.note_looks({"a": 100 + look, "b": 50}, look * STANDING_S / 2)
    assert (waits.until_ms, waits.shards, waits.left_out) == (100 + look, ("a",), ("b",))
    assert wait.stands("b", look * STANDING_S / 2)
    assert wait.note_looks({"a": 200, "b": 60}, 100.0).left_out == (), "it moves again"
    waits = wait.note_looks({"a": 201, "b": 61}, WAIT_MAX_S)
    assert (waits.until_ms, waits.left_out) == (None, ("a", "b"))
    assert not wait.stands("a", WAIT_MAX_S)
    assert wait.note_looks({}, WAIT_MAX_S + 1).left_out == ()
    assert wait.note_looks({"a": 300}, WAIT_MAX_S + 2).shards == ("a",), "another silence is another wait"


async def test_a_shard_that_stands_still_is_left_out_of_a_live_cut_and_is_an_error_before_a_fixed_end(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cut_wait, "STANDING_S", 0.0)
    busy, silent = await two_shards(world)
    await world.put(1, key=busy)
    await world.put(1, key=silent)
    planner = await begun(world)
    await world.drain(planner)
    world.local.clock.advance(10 * HOUR_S)
    (silent_id,) = set(await world.open_shards()) - {await shard_of(world, busy)}

    async def nothing(probe: shard_probe.ShardProbe, *_: Any, **__: Any) -> object:
        look = await original(probe, *_, **__)
        return Lookahead(stands=True) if probe.shard_id == silent_id else look

    original = shard_probe.ShardProbe._open_at
    monkeypatch.setattr(shard_probe.ShardProbe, "_open_at", nothing)
    await world.put(3, key=busy)
    late = await begun(world, planner.offset)
    with caplog.at_level(logging.WARNING, "shardway.spark"):
        for _ in range(100):
            offset = await world.plan_settled(late)
            if offset.starts and offset is not planner.offset and len(await world.read_batch(late, offset)) == 3:
                break
    assert late.waits.left_out == (silent_id,)
    assert caplog.text.count(f"shard {silent_id}: its next record was searched for long") == 1
    with pytest.raises(StalledError, match=f"shard {silent_id}: the service gave only empty pages"):
        await world.finish(await begun(world, planner.offset))


async def shard_of(world: World, key: str) -> str:
    shards = await world.client.list_shards(world.stream)
    return next(s.shard_id for s in shards if s.first_hash_key <= hash_key(key) <= s.last_hash_key)


async def test_faults_while_a_silence_is_crossed(world: World) -> None:
    await world.create(2)
    await world.put(10)
    world.local.clock.advance(8 * HOUR_S)
    await world.put(10)
    for how in ("expired_iterator", "server_error", "throttle", "reset"):
        world.local.faults.add(Fault(how=how, operation="GetRecords", probability=0.05, seed=3))
    planner = await begun(world)
    assert_exact(world, await world.finish(planner))


def test_a_time_that_is_kept_lies_a_little_before_the_place() -> None:
    position = ShardPosition(Kind.AFTER, 1_000, 7)
    assert position.idle_until(1_001 + SILENCE_MARGIN_MS) == ShardPosition(Kind.SINCE, 1_001, 7)
    assert position.idle_until(1_000 + SILENCE_MARGIN_MS) == position


def test_a_lookahead_that_has_crossed_the_cut_ends_behind_its_last_record() -> None:
    seen = KnownRecord(5, 1_000, 1, 1)
    look = Lookahead([seen], reached_ms=9_000)
    bound = look.bound(9_000)
    assert bound is not None
    assert (bound.kind, bound.sequence_number) == (EndKind.INCLUSIVE, 5)
    assert look.behind(bound).reached_ms == 9_000
    assert look.bound(9_001) is None
