"""Programs that people write with a consumer, for simulations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.runtime.consumer.consumer import Consumer
    from penstock.runtime.shard.batch import Batch
    from penstock.testing.sim.process import Process


class HandlerError(Exception):
    """The handler of a simulation fails because it is told to."""


async def handle(batch: Batch[Any], process: Process) -> None:
    """Take some time, and fail if that is the process's lot."""
    handling_s = process.handling_s()
    if handling_s:
        await asyncio.sleep(handling_s)
    if process.fails():
        raise HandlerError("told to fail")


async def batches(consumer: Consumer, process: Process) -> None:
    """One batch after the other, of all shards."""
    async for batch in consumer:
        async with batch:
            await handle(batch, process)


async def shards(consumer: Consumer, process: Process) -> None:
    """A task for each shard."""

    async def follow(reader: object) -> None:
        async for batch in reader:  # type: ignore[attr-defined]
            async with batch:
                await handle(batch, process)

    async with asyncio.TaskGroup() as group:
        async for reader in consumer.shards():
            group.create_task(follow(reader))


async def run(consumer: Consumer, process: Process) -> None:
    """The consumer drives a function."""
    await consumer.run(lambda batch: handle(batch, process))


async def any_order(consumer: Consumer, process: Process) -> None:
    """A task per record, settled when it is done."""

    async def settle(batch: Batch[Any], index: int) -> None:
        await asyncio.sleep(process.handling_s())
        if process.fails():
            batch.nack(index, delay_s=process.rng.uniform(0.0, 1.0))
        else:
            batch.ack(index)

    async with asyncio.TaskGroup() as group:
        async for batch in consumer:
            for index in range(len(batch)):
                group.create_task(settle(batch, index))


async def leaves_early(consumer: Consumer, process: Process) -> None:
    """Leaves the iteration every now and then, also with a batch that it did not settle."""
    while True:
        async for batch in consumer:
            if process.rng.random() < 0.05:
                break
            async with batch:
                await handle(batch, process)
        else:
            return


async def only_the_last(consumer: Consumer, process: Process) -> None:
    """Settles through the last record of each batch."""
    async for batch in consumer:
        await asyncio.sleep(process.handling_s())
        batch.settle_through(len(batch) - 1)


PROGRAMS = {
    "batches": batches,
    "shards": shards,
    "run": run,
    "any_order": any_order,
    "leaves_early": leaves_early,
    "only_the_last": only_the_last,
}
