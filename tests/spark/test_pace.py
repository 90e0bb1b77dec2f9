"""How often the driver looks: with the trigger while there is data, and at most once a second while there is none."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from shardway.core.hashkeys import hash_key
from shardway.local.faults import Fault
from shardway.model import StartingPosition
from shardway.spark.driver.cut_lag import TOO_NEAR_BATCHES, CutLag
from shardway.spark.driver.pace import BUSY_INTERVAL_S, Pace
from shardway.spark.driver.planner import Planner, PlanOptions
from shardway.spark.options.read_options import ReadOptions
from tests.spark.planning import World

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 200


def ticks(every_s: float, seed: int) -> Iterator[float]:
    """A trigger's times: each a little late, as a machine is."""
    rng = random.Random(seed)
    for number in range(int(SECONDS / every_s)):
        yield 1000.0 + number * every_s + rng.uniform(0.0, 0.1 * every_s)


def looks(times: Iterator[float], interval_s: float) -> list[float]:
    pace, found = Pace(), []
    for now_s in times:
        if pace.due(now_s):
            pace.note_look(now_s, interval_s)
            found.append(now_s)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every_s", [BUSY_INTERVAL_S, 1.0, 1.5, 10.0])
def test_a_trigger_sets_the_pace_while_there_is_data(every_s: float, seed: int) -> None:
    assert looks(ticks(every_s, seed), BUSY_INTERVAL_S) == list(ticks(every_s, seed))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("every_s", "interval_s"), [(0.014, 0.5), (0.3, 0.5), (0.014, 1.0), (0.5, 1.0), (1.0, 1.0)])
def test_no_more_than_the_interval_allows(every_s: float, interval_s: float, seed: int) -> None:
    found = looks(ticks(every_s, seed), interval_s)
    assert len(found) <= SECONDS / interval_s + 1
    assert len(found) >= SECONDS / max(interval_s, every_s) / 1.5


async def test_a_busy_shard_is_asked_with_each_plan_and_a_quiet_one_once_a_second(world: World) -> None:
    await world.create(2)
    now_s = 0.0
    planner = Planner(
        world.client,
        world.stream,
        StartingPosition.TRIM_HORIZON,
        PlanOptions.of(ReadOptions()),
        monotonic=lambda: now_s,
    )
    await planner.begin(None)
    await planner.plan()
    world.local.clock.advance(600)
    now_s += 10
    await planner.plan()
    hot = hash_key("hot")
    quiet, busy = (  # what delays a call counts it
        world.local.faults.add(Fault(how="delay", delay_s=0.001, operation="GetRecords", shard=shard.shard_id))
        for shard in sorted(planner.lineage.shards.values(), key=lambda s: s.first_hash_key <= hot <= s.last_hash_key)
    )
    batches = 0
    for _ in range(40):
        await world.put(3, key="hot")
        world.local.clock.advance(2)  # the time of answers is told in whole seconds
        await world.client.describe_stream_summary(world.stream)
        now_s += 0.5
        before = planner.offset
        batches += await planner.plan() is not before
    assert batches >= 39  # the first time both were quiet, and not due
    assert quiet.hits <= 20 + 1  # in 20 seconds
    assert batches <= busy.hits <= batches + 2


def test_the_cut_comes_nearer_while_nearly_all_shards_have_a_record_behind_it() -> None:
    lag = CutLag(500)
    lag.note_batch(0, 0)
    assert lag.ms == 500  # nothing was found
    steps = []
    for _ in range(7):
        lag.note_batch(10, 1)
        steps.append(lag.ms)
    assert steps == [250, 125, 62, 31, 15, 15, 15]
    near = CutLag(10)
    near.note_batch(1, 0)
    assert near.ms == 10


def test_the_cut_keeps_away_for_a_while_from_where_shards_were_silent() -> None:
    lag = CutLag(500)
    while lag.ms > 31:
        lag.note_batch(10, 0)
    lag.note_batch(10, 2)
    assert lag.ms == 124
    for _ in range(TOO_NEAR_BATCHES):
        lag.note_batch(10, 0)
    assert lag.ms == 62
    lag.note_batch(10, 0)
    assert lag.ms == 31


def test_the_cut_is_back_after_two_batches_when_a_stream_becomes_sparse() -> None:
    lag = CutLag(500)
    for _ in range(10):
        lag.note_batch(10, 0)
    steps = []
    for _ in range(4):
        lag.note_batch(10, 9)
        steps.append(lag.ms)
    assert steps == [60, 240, 500, 500]
    lag.note_batch(10, 0)
    assert lag.ms == 500  # and it stays there for a while


def test_a_writer_that_pauses_is_found_silent_seldom() -> None:
    lag, silent = CutLag(500), 0
    for _ in range(10 * TOO_NEAR_BATCHES):
        found = lag.ms < 100  # its shards have a record behind a cut that is a tenth of a second away, and none before
        silent += found
        lag.note_batch(4, 4 if found else 0)
    assert silent <= 11
