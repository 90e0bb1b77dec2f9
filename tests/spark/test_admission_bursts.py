"""Bursts that no sample shows: within what the service lets be written, no batch is larger than its bound."""

from __future__ import annotations

import random

import pytest

from shardway.spark.options.caps import Caps
from tests.spark.planning import World, assert_exact

BOUND = 3
"""Times the cap, as the page says."""
SHARD_PER_S = 1000
"""What AWS takes of a shard each second."""


async def written(world: World, pace: list[tuple[int, int]], key: str | None = None) -> None:
    """So many seconds of so many records, one after the other; what a second has comes in one moment."""
    for seconds, per_s in pace:
        for _ in range(seconds if per_s else 1):
            await world.put(per_s, key=key)
            world.local.clock.advance(1 if per_s else seconds)


async def sizes(world: World, caps: Caps) -> list[int]:
    planner = world.planner(caps=caps)
    await planner.begin(None)
    batches = await world.drain(planner)
    assert_exact(world, batches)
    return [len(batch) for batch in batches]


@pytest.mark.parametrize(
    "pace",
    [
        [(520, 1), (20, SHARD_PER_S)],
        [(260, 2), (3000, 0), (20, SHARD_PER_S), (600, 0), (30, 1)],
        [(100, 1), (5, SHARD_PER_S), (600, 1), (5, SHARD_PER_S), (100, 10), (5, SHARD_PER_S)],
    ],
)
async def test_a_burst_after_a_quiet_time(world: World, pace: list[tuple[int, int]]) -> None:
    await world.create(1)
    await written(world, pace)
    cap = 1000
    found = await sizes(world, Caps(cap, None))
    print(f"\nbatches of {sum(found)} rows under a cap of {cap}: {found}")
    assert max(found) <= BOUND * cap


async def test_a_burst_in_bytes(world: World) -> None:
    await world.create(1)
    for _ in range(200):
        await world.put(1, size=100)
        world.local.clock.advance(1)
    for _ in range(20):
        await world.put(10, size=100_000)
        world.local.clock.advance(1)
    found = await sizes(world, Caps(None, 1_000_000))
    assert max(found) <= 200 + BOUND * 10


async def test_one_hot_shard_among_quiet_ones(world: World) -> None:
    await world.create(4)
    for _ in range(6):
        await world.put(40)
        await written(world, [(5, 1), (4, SHARD_PER_S)], key="hot")
    found = await sizes(world, Caps(2000, None))
    assert max(found) <= BOUND * 2000
    assert len(found) <= 4 * 24_000 / 2000


@pytest.mark.parametrize("seed", range(6))
async def test_any_pace(world: World, seed: int) -> None:
    rng = random.Random(seed)
    shards = rng.choice([1, 2, 3])
    await world.create(shards)
    for _ in range(12):
        key = rng.choice([None, "one", "two"])
        most = SHARD_PER_S * (shards if key is None else 1)
        pace = rng.choice([(rng.randint(1, 40), rng.randint(1, 5)), (rng.randint(1, 4), most // 2), (3, most // 4)])
        await written(world, [pace, (rng.choice([1, 30, 2000]), 0)], key=key)
    cap = rng.choice([100, 1000, 3000])
    found = await sizes(world, Caps(cap, None))
    print(f"\nbatches of {sum(found)} rows in {shards} shards under a cap of {cap}: {found}")
    assert max(found) <= max(BOUND * cap, SHARD_PER_S * shards)
