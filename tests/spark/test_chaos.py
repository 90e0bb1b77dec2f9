"""Random histories with everything at once: reshards, silence, throttling, faults, restarts, replays.

Each seed is one history. Nothing here depends on how fast anything is, but the limits per shard are in force, as they
are at AWS.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.local.embedded import LocalKinesis
from shardway.model import StreamName
from shardway.spark.driver.planner import PlanOptions
from shardway.spark.options.caps import Caps
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.task import connections
from tests.spark.chaos import Chaos

SEEDS = 16
SEEDS_SLOW = 300
TOGETHER = 16
"""Histories that run at the same time: they wait for their services' limits most of theirs."""


async def history(seed: int) -> None:
    """One history from beginning to end."""
    rng = random.Random(seed)
    options = replace(
        PlanOptions.of(ReadOptions()),
        caps=rng.choice([Caps(), Caps(50, None), Caps(1000, None), Caps(None, 300_000)]),
        tasks_max=rng.choice([1, 3, 100]),
        poll_interval_s=rng.choice([0.0, 0.05, 1e6]),
        listing_interval_s=rng.choice([0.0, 60.0]),
    )
    with LocalKinesis(seed=seed) as local:
        span_s = random.Random(f"pages {seed}").choice([3_600, 1_800, 900])  # of the log: empty pages over a silence
        local.set_limits(per_shard=True, put_records_per_s=1e9, put_bytes_per_s=1e12, page_span_s=span_s)

        def wire(tag: str) -> Wire:
            return Wire(ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, user_agent_tag=tag))

        async with wire("test") as writing, wire("driver") as driving:
            chaos = Chaos(local, KinesisClient(writing), KinesisClient(driving), StreamName("orders"), rng, options)
            await chaos.create(rng.randint(1, 3))
            for _ in range(rng.randint(4, 25)):
                step = rng.choices(
                    [chaos.put, chaos.reshard, chaos.wait, chaos.plan, chaos.resume, None], [6, 2, 4, 4, 2, 2]
                )[0]
                if step is None:
                    chaos.trouble()
                else:
                    await step()
            await chaos.finish()
            chaos.check()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_every_record_comes_once_and_in_order_whatever_happens(seed: int) -> None:
    await history(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_many_more_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", TOGETHER)  # else a task's connection could be closed

    async def noted(seed: int) -> None:
        try:
            await history(seed)
        except Exception as error:
            error.add_note(f"in the history of seed {seed}")
            raise

    seeds = range(SEEDS, SEEDS + SEEDS_SLOW)
    for at in range(0, SEEDS_SLOW, TOGETHER):
        connections.close_connections()
        async with asyncio.TaskGroup() as group:
            for seed in seeds[at : at + TOGETHER]:
                group.create_task(noted(seed))
    connections.close_connections()
