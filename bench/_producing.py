"""Runs producers in processes of their own, as benchmarks start them: ``python -m bench._producing WHAT {...}``.

Each program takes its arguments as one JSON object and prints one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway import Producer, ProducerOptions
from shardway.aws.options import ConnectionOptions
from shardway.errors import BufferFullError
from shardway.model import OutRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from shardway.statistics import ProducerSnapshot

ROOT = Path(__file__).resolve().parents[1]
REGION = "us-east-1"
KEYS = 1000
MIB = 1024 * 1024
LIST_RECORDS = 1000
TICK_S = 0.001
"""The least number of seconds after which a load looks again what is due. A loop's timers are no finer."""


async def ticks(rate_per_s: float, seconds: float) -> AsyncIterator[range]:
    """Yield the numbers of the records that are due now, again and again for ``seconds``, and sleep between."""
    began, given = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        due = int(passed * rate_per_s) + 1
        if due > given:
            yield range(given, due)
            given = due
        next_s = given / rate_per_s - (time.perf_counter() - began)
        await asyncio.sleep(max(TICK_S, next_s))


# --- put to confirmed ---------------------------------------------------------------------------------


async def latency(endpoint_url: str, stream: str, rate_per_s: float, seconds: float) -> dict[str, Any]:
    """Put records of 100 bytes at a steady rate, with the producer's defaults. Await each by itself, and return the
    seconds that each took, ascending.
    """
    latencies: list[float] = []

    async def put(producer: Producer[OutRecord], number: int, began: float) -> None:
        await producer.put(OutRecord(os.urandom(100), f"key-{number % KEYS:04d}"))
        latencies.append(time.perf_counter() - began)

    async with Producer(stream, connection=wire(endpoint_url)) as producer, asyncio.TaskGroup() as group:
        await producer.put(OutRecord(b"the first finds the shards and opens a connection", "key"))
        async for due in ticks(rate_per_s, seconds):
            now = time.perf_counter()
            for number in due:
                group.create_task(put(producer, number, now))
    latencies.sort()
    return {"latencies_s": latencies}


# --- put to wherever it is read -----------------------------------------------------------------------


async def timed(endpoint_url: str, stream: str, rate_per_s: float, seconds: float) -> dict[str, Any]:
    """Put orders of about 100 bytes of JSON at a steady rate, each with the time at which it was put (epoch seconds).
    Return how many were put, and the time at which the program began.
    """
    put = 0
    began_s = time.time()
    async with Producer(stream, connection=wire(endpoint_url)) as producer:
        async for due in ticks(rate_per_s, seconds):
            now_s = time.time()
            orders = [{"order_id": f"order-{n:09d}", "put_s": now_s, "filler": "x" * 40} for n in due]
            await producer.put_many(
                [(f"key-{n % KEYS:04d}", json.dumps(one).encode()) for n, one in zip(due, orders, strict=True)]
            )
            put += len(due)
    return {"put": put, "began_s": began_s}


async def numbered(endpoint_url: str, stream: str, rate_per_s: float) -> dict[str, Any]:
    """Put records of 100 bytes, numbered in decimal from 0 on, at a steady rate until SIGTERM. Aggregate none of them,
    and return how many were put.
    """
    put = 0
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Producer(stream, options=ProducerOptions(aggregation=False), connection=wire(endpoint_url)) as producer:
        async for due in ticks(rate_per_s, math.inf):
            await producer.put_many([(f"key-{n % KEYS:04d}", b"%010d" % n + b"." * 90) for n in due])
            put += len(due)
            if stopping.is_set():
                break
    return {"put": put}


# --- an endpoint that is silent -------------------------------------------------------------------------


def resident_bytes(which: str) -> int:
    """Return the bytes of ``VmRSS``, what this process has in memory now, or of ``VmHWM``, the most it ever had
    (Linux).
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not tell {which}")


async def stalled(endpoint_url: str, style: str, rate_per_s: float, seconds: float) -> dict[str, Any]:
    """Keep putting records of 100 bytes, by ``put_nowait`` or ``put_many``, while the server answers nothing. Print
    the bytes by which the process grew, and the producer's counters.
    """
    options = ProducerOptions(aggregation=True)
    async with Producer("orders", options=options, connection=wire(endpoint_url)) as producer:
        before = resident_bytes("VmRSS")
        put = refused = 0

        async def put_due(due: range) -> None:
            nonlocal put, refused
            records = [OutRecord(os.urandom(100), f"key-{number % KEYS:04d}") for number in due]
            if style == "put_many":
                await producer.put_many(records)
                put += len(due)
                return
            for record in records:
                try:
                    producer.put_nowait(record)
                    put += 1
                except BufferFullError:
                    refused += 1

        with contextlib.suppress(TimeoutError):  # a put_many may still wait for room
            async with asyncio.timeout(seconds + 1):
                async for due in ticks(rate_per_s, seconds):
                    # After a long wait many records are due at once. All in one list would take the measured memory.
                    for start in range(0, len(due), LIST_RECORDS):
                        await put_due(due[start : start + LIST_RECORDS])
        counted = producer.metrics()
        say_and_leave(
            {
                "grown_bytes": resident_bytes("VmHWM") - before,
                "bound_bytes": options.buffer_bytes_max,
                "put": put,
                "refused": refused,
                "expired": counted.user_records_expired,
                "pending": counted.user_records_pending,
                "buffer_bytes": counted.buffer_bytes,
            }
        )
    raise AssertionError("not reached")


def say_and_leave(result: dict[str, Any]) -> None:
    """Print a result and end the process at once. A producer that is closed would wait for answers that may never
    come.
    """
    print(json.dumps(result), flush=True)
    os._exit(0)


# --- two producers at one shard -------------------------------------------------------------------------


async def share(
    endpoint_url: str, stream: str, aggregation: bool, data_bytes: int, from_s: float, until_s: float
) -> dict[str, Any]:
    """Put as much as the producer takes until ``until_s`` (epoch seconds), and print what came of it from ``from_s``
    on.
    """
    # The buffer holds the records of some seconds. In a larger one they would wait for longer than they live.
    options = ProducerOptions(aggregation=aggregation, buffer_bytes_max=4 * MIB, record_bytes_max=MIB)
    async with Producer(stream, options=options, connection=wire(endpoint_url)) as producer:

        async def put_all_the_time() -> None:
            while True:
                number = int.from_bytes(os.urandom(2))
                await producer.put_many([(f"key-{number % KEYS:04d}", os.urandom(data_bytes)) for _ in range(50)])

        putting = asyncio.create_task(put_all_the_time())
        await asyncio.sleep(from_s - time.time())
        first = producer.metrics()
        await asyncio.sleep(until_s - time.time())
        last = producer.metrics()
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        say_and_leave({name: counted(last, name) - counted(first, name) for name in COUNTERS})
    raise AssertionError("not reached")


COUNTERS = ("records_put", "records_refused", "record_bytes_put", "user_records_put", "user_records_expired")


def counted(snapshot: ProducerSnapshot, name: str) -> int:
    """Return one counter of a snapshot."""
    value: int = getattr(snapshot, name)
    return value


# --- starting them --------------------------------------------------------------------------------------


def wire(endpoint_url: str) -> ConnectionOptions:
    """Return the options that reach the server of a benchmark."""
    return ConnectionOptions(region=REGION, endpoint_url=endpoint_url)


class Programs:
    """Programs of this module that run side by side: ``with Programs() as programs: programs.start(...)``. All end
    with the block.
    """

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, what: str, **arguments: Any) -> None:
        """Start one program with these arguments."""
        command = [sys.executable, "-m", "bench._producing", what, json.dumps(arguments)]
        self._running.append(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT))

    def results(self, timeout_s: float) -> list[dict[str, Any]]:
        """Return what the programs print, in the order in which they were started. Raises where one of them fails."""
        told: list[dict[str, Any]] = []
        for process in self._running:
            printed, _ = process.communicate(timeout=timeout_s)
            if process.returncode:
                raise RuntimeError(f"a producer failed with status {process.returncode}: see its message above")
            told.append(json.loads(printed))
        return told

    def __enter__(self) -> Programs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()


PROGRAMS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "latency": latency,
    "stalled": stalled,
    "share": share,
    "timed": timed,
    "numbered": numbered,
}


async def main(what: str, arguments: str) -> None:
    print(json.dumps(await PROGRAMS[what](**json.loads(arguments))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
