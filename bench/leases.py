"""Measures what leases cost in DynamoDB: writes per shard and hour beside the KCL's, and reads per worker.

Two workers share eight shards at a failover time of 10 s, in two applications at the same time. The stream of one
application is silent. The other application settles 25 records a shard and second, batch by batch, with the default
cadence. Every call goes through the local Kinesis to DynamoDB Local and is counted on the way. In steady state
UpdateItem writes nothing but the leases, and PutItem writes the workers' own rows. The peer's figures were measured on
the real KCL 2.7.2, on the same DynamoDB Local, with a checkpoint after each batch under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from bench._consuming import FAILOVER_S, consumer
from bench._dynamo import dynamodb
from bench._form import judge, options, report, say, wanted
from bench._producing import Programs
from bench.wire import set_environment
from shardway.testing import LocalKinesis

if TYPE_CHECKING:
    from argparse import Namespace

    from bench._form import Result
    from shardway.local.counters import Stats
    from shardway.local.spawned import SpawnedKinesis
    from shardway.runtime.consumer.consumer import Consumer

SHARDS, WORKERS = 8, 2
RATE_PER_S = 200
SETTLE_S = 15.0
SECONDS = 24 * FAILOVER_S / 2
"""The seconds of the measurement, which hold a whole number of renewals."""
KCL_PER_HOUR = {"writes_idle": 1_100, "writes_loaded": 3_205}
GOALS = {"writes_idle": 0.67, "writes_loaded": 0.25}
PEER = "KCL 2.7.2, measured before"
READS = ("Scan", "GetItem", "Query")


async def measure(service: SpawnedKinesis) -> tuple[Stats, float, int]:
    """Return what both applications asked of DynamoDB in a while of steady state, the seconds of that while, and the
    number of batches that were settled in it.
    """
    settled = 0

    async def follow(one: Consumer[bytes]) -> None:
        nonlocal settled
        async for batch in one:
            with batch:
                settled += 1

    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        following = []
        for name in GOALS:
            for _ in range(WORKERS):
                one = await stack.enter_async_context(
                    consumer(service.endpoint_url, service.endpoint_url, name, name, tag=name)
                )
                following.append(group.create_task(follow(one)))
        await asyncio.sleep(SETTLE_S)
        await asyncio.to_thread(service.reset_stats)
        began_s, before = time.monotonic(), settled
        await asyncio.sleep(SECONDS)
        stats = await asyncio.to_thread(service.stats)
        took_s = time.monotonic() - began_s
        batches = settled - before
        for task in following:
            task.cancel()
    return stats, took_s, batches


def results(stats: Stats, took_s: float, batches: int, asked: Namespace) -> list[Result]:
    """Return the figures per hour, and print those that have no goal."""
    hours = took_s / 3600
    found = []
    for name, goal in GOALS.items():
        counts = stats.tags.get(name, {})
        calls = {operation: count.calls for operation, count in counts.items()}
        writes = calls.get("UpdateItem", 0) + calls.get("DeleteItem", 0)
        own = calls.get("PutItem", 0) / hours / WORKERS
        reads = ", ".join(f"{operation} {calls.get(operation, 0) / hours / WORKERS:,.0f}" for operation in READS)
        say(f"{name}: {writes} lease writes in {took_s:.0f} s; per worker and hour {own:,.0f} of its own row; {reads}")
        if wanted(name, asked):
            found.append(
                judge(name, [writes / hours / SHARDS], [KCL_PER_HOUR[name]], unit="writes/shard/h", goal=goal,
                      sense="at_most", peer_name=PEER)
            )  # fmt: skip
    say(f"{batches / took_s / SHARDS:.1f} batches were settled per shard and second under load")
    return found


def main() -> None:
    asked = options(__doc__ or "")
    set_environment()
    with (
        dynamodb() as leases,
        LocalKinesis.spawn(streams=dict.fromkeys(GOALS, SHARDS), limits=True, dynamodb_endpoint_url=leases) as service,
        Programs() as programs,
    ):
        programs.start(
            "timed", endpoint_url=service.endpoint_url, stream="writes_loaded", rate_per_s=RATE_PER_S,
            seconds=SETTLE_S + SECONDS + 10,
        )  # fmt: skip
        told = asyncio.run(measure(service))
    report("leases", results(*told, asked), as_json=asked.json)


if __name__ == "__main__":
    main()
