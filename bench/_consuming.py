"""Runs consumers in processes of their own, as benchmarks start them: ``python -m bench._consuming WHAT {...}``.

Each program takes its arguments as one JSON object. `idle`, `hangs` and `latency` print lines with a JSON object each.
`worker` runs until SIGTERM, and writes what it delivers into a file that outlives a SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bench._dynamo import table
from bench._form import cpu_s
from bench._producing import resident_bytes, wire
from shardway.core.shard.checkpoints.cadence import Prompt, Riding
from shardway.model import StartingPosition
from shardway.options import BufferOptions, CheckpointOptions, FanOutOptions, LeaseOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.stores.memory import MemoryLeaseTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from shardway.model import Record
    from shardway.runtime.shard.batch import Batch

FAILOVER_S = 10.0
QUIET_S = 5.0
"""The seconds without a further record after which `hangs` expects no more."""


@contextlib.asynccontextmanager
async def consumer(
    kinesis: str, dynamodb: str, stream: str, application: str, *, worker_id: str | None = None, fan_out: bool = False,
    prompt: bool = False, starting_position: StartingPosition = StartingPosition.LATEST, tag: str = "",
    http2: bool = False,
) -> AsyncIterator[Consumer[Any]]:  # fmt: skip
    """Open a consumer with the default options, on a lease table in DynamoDB, and close both at the end."""
    leases = table(dynamodb, application, tag=tag)
    reached = msgspec.structs.replace(wire(kinesis), http2="subscriptions" if http2 else "off", http2_cleartext=http2)
    try:
        async with Consumer(
            stream,
            application=application,
            worker_id=worker_id,
            connection=reached,
            starting_position=starting_position,
            leases=LeaseOptions(table=leases, failover_s=FAILOVER_S),
            checkpoints=CheckpointOptions(cadence=Prompt() if prompt else Riding()),
            fan_out=FanOutOptions() if fan_out else None,
        ) as one:
            yield one
    finally:
        await leases.close()


# --- shards without records -----------------------------------------------------------------------------


async def idle(kinesis: str, dynamodb: str, stream: str, shards: int, settle_s: float, seconds: float) -> None:
    """Hold all shards of a stream while no records come. Print the cores and the bytes of memory that this costs in
    ``seconds``, which begin when the consumer has rested for ``settle_s``.
    """
    async with consumer(kinesis, dynamodb, stream, "idle") as one:
        began_s = time.monotonic()
        held = 0
        async for _ in one.shards():
            held += 1
            if held == shards:
                break
        held_s = time.monotonic() - began_s
        await asyncio.sleep(settle_s)
        say(started=True, held_s=held_s)
        cpu, began_s = cpu_s(), time.monotonic()
        await asyncio.sleep(seconds)
        took_s = time.monotonic() - began_s
        say(core=(cpu_s() - cpu) / took_s, resident=resident_bytes("VmRSS"), most=resident_bytes("VmHWM"))
        os._exit(0)  # the lease table ends with the benchmark, so the thousand shards need not be given back


async def hangs(kinesis: str, stream: str, buffer_bytes_max: int) -> None:
    """Read a backlog that no handler ever takes, until nothing more comes, and print the bytes by which the process
    grew.
    """
    one = Consumer(
        stream,
        application="hangs",
        starting_position="TRIM_HORIZON",
        leases=MemoryLeaseTable(),
        buffer=BufferOptions(buffer_bytes_max=buffer_bytes_max),
        connection=wire(kinesis),
    )
    async with one:
        before, counted = resident_bytes("VmRSS"), -1
        while (held := one.statistics().bytes_held) != counted or not held:
            counted = held
            await asyncio.sleep(QUIET_S)
        most = resident_bytes("VmHWM") - before
        say(grown=resident_bytes("VmRSS") - before, most=most, held=held, shards=len(one.statistics().shards))
        os._exit(0)


# --- put to handler -------------------------------------------------------------------------------------


async def latency(
    kinesis: str, dynamodb: str, stream: str, fan_out: bool, http2: bool, from_s: float, until_s: float
) -> None:
    """Print how old the records of `bench._producing timed` are when they are delivered, in seconds. Those count that
    were put from ``from_s`` on and before ``until_s`` (epoch seconds).
    """
    ages_s: list[float] = []
    name = f"latency-{fan_out}-{http2}".lower()
    async with consumer(kinesis, dynamodb, stream, name, fan_out=fan_out, http2=http2) as one:
        iterating = aiter(one)
        say(started=True)
        while time.time() < until_s:
            try:
                async with asyncio.timeout(until_s + 1.0 - time.time()):
                    batch = await anext(iterating)
            except TimeoutError:
                break
            with batch:
                now_s = time.time()
                put_s = [json.loads(record.data)["put_s"] for record in batch]
                ages_s += [now_s - at_s for at_s in put_s if from_s <= at_s < until_s]
    say(ages_s=ages_s)


# --- a worker that is deployed, and killed --------------------------------------------------------------

DELIVERY = struct.Struct("<dHHQI")
"""The head of a delivery. It has the seconds of the system's monotonic clock, the worker and the shard as numbers, the
token, and the number of records that follow.
"""
RECORD = struct.Struct("<I24s")
"""A record of a delivery: the record's own number, and its sequence number."""


class Delivered(NamedTuple):
    """One batch that was delivered to a handler."""

    at_s: float
    worker: int
    shard: int
    token: int
    numbers: tuple[int, ...]
    sequence_numbers: tuple[int, ...]


def written(batch: Batch[Record], worker: int) -> bytes:
    """Return the delivery of a batch by a worker as bytes. A record's data begin with its number, in decimal."""
    at_s = time.monotonic()
    records = [RECORD.pack(int(record.data[:10]), record.sequence_number.to_bytes(24, "little")) for record in batch]
    shard = int(batch.shard_id.rpartition("-")[2])
    return DELIVERY.pack(at_s, worker, shard, batch.token, len(records)) + b"".join(records)


def deliveries(path: Path, start: int = 0) -> tuple[list[Delivered], int]:
    """Return the deliveries that workers have written into a file behind the byte ``start``, and the byte to go on
    from.
    """
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    found, at = [], 0
    while at + DELIVERY.size <= len(data):
        at_s, worker, shard, token, count = DELIVERY.unpack_from(data, at)
        end = at + DELIVERY.size + count * RECORD.size
        if end > len(data):
            break
        pairs = list(RECORD.iter_unpack(data[at + DELIVERY.size : end]))
        numbers = tuple(number for number, _ in pairs)
        found.append(
            Delivered(at_s, worker, shard, token, numbers, tuple(int.from_bytes(one, "little") for _, one in pairs))
        )
        at = end
    return found, start + at


async def worker(
    kinesis: str,
    dynamodb: str,
    stream: str,
    application: str,
    number: int,
    path: str,
    fan_out: bool,
    prompt: bool,
) -> None:
    """Read until SIGTERM, and write each batch to the file ``path`` when it is delivered to the handler. Each delivery
    is one write.
    """
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with consumer(
        kinesis, dynamodb, stream, application, worker_id=f"worker-{number:03d}", fan_out=fan_out, prompt=prompt,
        starting_position=StartingPosition.TRIM_HORIZON,
    ) as one:  # fmt: skip

        async def handle(batch: Batch[Record]) -> None:
            os.write(out, written(batch, number))

        running = asyncio.create_task(one.run_batches(handle))
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        await one.close()
        await running


def say(**result: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(result), flush=True)


PROGRAMS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "idle": idle,
    "hangs": hangs,
    "latency": latency,
    "worker": worker,
}


if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](**json.loads(sys.argv[2])))
