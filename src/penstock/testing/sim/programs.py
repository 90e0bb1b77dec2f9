"""Programs that people write with a consumer, for simulations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.core.ledger.policies import ByKey
from penstock.errors import CheckpointError
from penstock.runtime.consumer.driving import Unordered
from penstock.testing.sim.history import BAD

if TYPE_CHECKING:
    from penstock.runtime.consumer.consumer import Consumer
    from penstock.runtime.consumer.shard import Shard
    from penstock.runtime.shard.batch import Batch
    from penstock.testing.sim.process import Process


class HandlerError(Exception):
    """The handler of a simulation fails because it is told to."""


class BadRecordError(Exception):
    """A record that no handler can handle."""


def check(record: Any) -> None:
    """Raise BadRecordError for one that is bad, or a part of such a one."""
    if record.data.endswith(BAD):
        raise BadRecordError("it cannot be handled")


async def handle(batch: Batch[Any], process: Process) -> None:
    """Take some time, and fail if that is the process's lot, or the records'."""
    handling_s = process.handling_s()
    if handling_s:
        await asyncio.sleep(handling_s)
    if process.fails():
        raise HandlerError("told to fail")
    for record in batch.records:
        check(record)


async def batches(consumer: Consumer[Any], process: Process) -> None:
    """One batch after the other, of all shards."""
    async for batch in consumer:
        with batch:
            await handle(batch, process)


async def shards(consumer: Consumer[Any], process: Process) -> None:
    """A task for each shard."""

    async def follow(shard: Shard[Any]) -> None:
        async for batch in shard:
            with batch:
                await handle(batch, process)

    async with asyncio.TaskGroup() as group:
        async for shard in consumer.shards():
            group.create_task(follow(shard))


async def run(consumer: Consumer[Any], process: Process) -> None:
    """The consumer drives a function."""
    await consumer.run_batches(lambda batch: handle(batch, process))


async def any_order(consumer: Consumer[Any], process: Process) -> None:
    """A task per record, settled when it is done."""

    async def settle(batch: Batch[Any], index: int) -> None:
        await asyncio.sleep(process.handling_s())
        if batch.records[index].data.endswith(BAD):
            batch.dead_letter(index, error=BadRecordError("it cannot be handled"))
        elif process.fails():
            batch.nack(index, delay_s=process.rng.uniform(0.0, 1.0))
        else:
            batch.ack(index)

    async with asyncio.TaskGroup() as group:
        async for batch in consumer:
            for index in range(len(batch)):
                group.create_task(settle(batch, index))


async def leaves_early(consumer: Consumer[Any], process: Process) -> None:
    """Leaves the iteration every now and then, also with a batch that it did not settle."""
    while True:
        async for batch in consumer:
            if process.rng.random() < 0.05:
                break
            with batch:
                await handle(batch, process)
        else:
            return


async def only_the_last(consumer: Consumer[Any], process: Process) -> None:
    """Settles through the last record of each batch."""
    async for batch in consumer:
        await asyncio.sleep(process.handling_s())
        batch.settle_through(len(batch) - 1)


async def by_key(consumer: Consumer[Any], process: Process) -> None:
    """The consumer drives a function, partition keys side by side."""
    busy: set[tuple[str, str, int, str | None]] = set()

    async def one_of_a_key(batch: Batch[Any]) -> None:
        one = batch.stream, batch.shard_id, batch.token, batch.records[0].partition_key
        if one in busy:
            process.history.fault("a key side by side", f"{process.name}: {batch.shard_id}")
        busy.add(one)
        try:
            await handle(batch, process)
        finally:
            busy.discard(one)

    await consumer.run_batches(one_of_a_key, concurrency=ByKey(slots_max=4))


async def unordered(consumer: Consumer[Any], process: Process) -> None:
    """The consumer drives a function, record by record, in no order."""

    async def one(record: Any) -> None:
        await asyncio.sleep(process.handling_s() / 4)
        if process.fails():
            raise HandlerError("told to fail")
        check(record.record)

    await consumer.run_records(one, concurrency=Unordered(slots_max=4))


async def two_phase(consumer: Consumer[Any], process: Process) -> None:
    """Each batch is put out by a transaction, whose name is prepared with the checkpoint; some are given up."""

    async def work(batch: Batch[Any]) -> None:
        name = f"{batch.shard_id} {batch.token} {process.rng.random()}"
        pending = await consumer.prepare(batch, name.encode())
        await asyncio.sleep(process.handling_s())
        if process.rng.random() < 0.05:
            await consumer.abandon(pending)
            batch.nack()
        elif process.put_out(batch, name):
            batch.ack()
            await asyncio.sleep(process.rng.choice([0.0, process.rng.uniform(0.0, process.lingers_s)]))
            await consumer.commit(pending)

    async def follow(shard: Shard[Any]) -> None:
        async for batch in shard:
            try:
                await work(batch)
            except CheckpointError:
                batch.nack(delay_s=0.5)

    async with asyncio.TaskGroup() as group:
        async for shard in consumer.shards():
            group.create_task(follow(shard))


PROGRAMS = {
    "batches": batches,
    "shards": shards,
    "run": run,
    "any_order": any_order,
    "leaves_early": leaves_early,
    "only_the_last": only_the_last,
    "by_key": by_key,
    "unordered": unordered,
    "two_phase": two_phase,
}
