"""Programs such as people write with a consumer, which simulations run."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from shardway.errors import CheckpointError
from shardway.policies import ByKey
from shardway.runtime.consumer.concurrency import OneByOne, Unordered
from shardway.testing.sim.history.shard_story import BAD

if TYPE_CHECKING:
    from shardway.runtime.consumer.collection import Collection
    from shardway.runtime.consumer.concurrency import Concurrency
    from shardway.runtime.consumer.consumer import Consumer
    from shardway.runtime.consumer.shards import Shard
    from shardway.runtime.shard.batch import Batch
    from shardway.testing.sim.history.shard_story import Stint
    from shardway.testing.sim.process import Process


class HandlerError(Exception):
    """The handler of a simulation fails because it is told to."""


class BadRecordError(Exception):
    """No handler can handle the record."""


def check(record: Any) -> None:
    """Raise BadRecordError for a record that is bad, or a part of such a record."""
    if record.data.endswith(BAD):
        raise BadRecordError("it cannot be handled")


async def handle(batch: Batch[Any] | Collection, process: Process) -> None:
    """Take some time, and fail if that is the process's lot, or the records'."""
    handling_s = process.handling_s()
    if handling_s:
        await asyncio.sleep(handling_s)
    if process.fails():
        raise HandlerError("told to fail")
    for record in batch.records:
        check(record)


async def batches(consumer: Consumer[Any], process: Process) -> None:
    """Handle one batch after the other, of all shards."""
    async for batch in consumer:
        with batch:
            await handle(batch, process)


async def shards(consumer: Consumer[Any], process: Process) -> None:
    """Handle each shard in a task of its own."""

    async def follow(shard: Shard[Any]) -> None:
        async for batch in shard:
            with batch:
                await handle(batch, process)

    async with asyncio.TaskGroup() as group:
        async for shard in consumer.shards():
            group.create_task(follow(shard))


async def run(consumer: Consumer[Any], process: Process) -> None:
    """Have the consumer drive a function."""
    await consumer.run_batches(lambda batch: handle(batch, process))


async def any_order(consumer: Consumer[Any], process: Process) -> None:
    """Handle each record in a task, and settle it when that is done."""

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
    """Leave the iteration every now and then, also with a batch that is not settled."""
    while True:
        async for batch in consumer:
            if process.rng.random() < 0.05:
                break
            with batch:
                await handle(batch, process)
        else:
            return


async def only_the_last(consumer: Consumer[Any], process: Process) -> None:
    """Settle through the last record of each batch."""
    async for batch in consumer:
        await asyncio.sleep(process.handling_s())
        batch.settle_through(len(batch) - 1)


async def by_key(consumer: Consumer[Any], process: Process) -> None:
    """Have the consumer drive a function, partition keys side by side."""
    busy: set[tuple[str, Stint, str | None]] = set()

    async def one_of_a_key(batch: Batch[Any]) -> None:
        shard = process.key_of(batch)
        one = shard, process.history.shards[shard].stint(batch.token), batch.records[0].partition_key
        if one in busy:
            process.history.fault("a key side by side", f"{process.name}: {shard}")
        busy.add(one)
        try:
            await handle(batch, process)
        finally:
            busy.discard(one)

    await consumer.run_batches(one_of_a_key, concurrency=ByKey(slots_max=4))


async def unordered(consumer: Consumer[Any], process: Process) -> None:
    """Have the consumer drive a function, record by record, in no order."""

    async def one(record: Any) -> None:
        await asyncio.sleep(process.handling_s() / 4)
        if process.fails():
            raise HandlerError("told to fail")
        check(record.record)

    await consumer.run_records(one, concurrency=Unordered(slots_max=4))


async def two_phase(consumer: Consumer[Any], process: Process) -> None:
    """Put out each batch by a transaction, whose name is prepared with the checkpoint; some are given up."""

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
            except CheckpointError as error:
                # What a seek has brought back from before the checkpoint was put out, or passed over.
                if error.goes_back and process.has_sought(batch):
                    batch.ack()
                else:
                    batch.nack(delay_s=0.5)

    async with asyncio.TaskGroup() as group:
        async for shard in consumer.shards():
            group.create_task(follow(shard))


async def late_orders(consumer: Consumer[Any], process: Process) -> None:
    """Have the consumer drive a function some time after its start, and in another order every now and then."""
    rng = process.rng
    await asyncio.sleep(rng.uniform(0.0, 3.0))
    while True:
        orders: list[Concurrency] = [ByKey(slots_max=3), Unordered(slots_max=3), OneByOne()]
        order = rng.choice(orders)
        running = asyncio.ensure_future(consumer.run_batches(lambda batch: handle(batch, process), concurrency=order))
        try:
            done, _ = await asyncio.wait((running,), timeout=rng.uniform(2.0, 15.0))
        finally:
            running.cancel()
        if done:
            return await running
        await asyncio.wait((running,))
        process.history.left(process.name)


async def pauses(consumer: Consumer[Any], process: Process) -> None:
    """Handle one batch after the other, and pause one shard, or all, for a while every now and then."""

    async def steer() -> None:
        rng = process.rng
        while True:
            await asyncio.sleep(rng.uniform(0.5, 5.0))
            held = consumer.statistics().shards
            consumer.pause(*([rng.choice(held)] if held and rng.random() < 0.5 else []))
            await asyncio.sleep(rng.uniform(0.2, 4.0))
            consumer.resume()

    steering = asyncio.create_task(steer())
    try:
        await batches(consumer, process)
    finally:
        steering.cancel()


async def collects(consumer: Consumer[Any], process: Process) -> None:
    """Handle records of one key together."""
    rng = process.rng
    groups = consumer.collect(
        lambda record: record.partition_key, records=rng.choice([2, 5]), age_s=rng.choice([0.5, 5.0])
    )
    async with contextlib.aclosing(groups):
        async for group in groups:
            with group:
                await handle(group, process)


async def getmany(consumer: Consumer[Any], process: Process) -> None:
    """Ask for what there is of all shards, in a loop that ends with the consumer."""
    while not consumer.closed:
        wait_s = process.rng.uniform(0.0, 2.0)
        for batch in await consumer.getmany(process.rng.choice([5, 1_000]), wait_s=wait_s):
            with batch:
                await handle(batch, process)


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
    "late_orders": late_orders,
    "pauses": pauses,
    "collects": collects,
    "getmany": getmany,
}
