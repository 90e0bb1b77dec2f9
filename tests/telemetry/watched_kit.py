"""Consumers in virtual time, on the local Kinesis's model, watched only through the page that Prometheus scrapes."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shardway.core.log.pace import PollingOptions
from shardway.errors import AccessDeniedError
from shardway.events import ConsumerMetrics, ProducerMetrics
from shardway.leases import MemoryLeaseTable
from shardway.local.model import KinesisModel
from shardway.model import StartingPosition
from shardway.options import ConsumerOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.telemetry import prometheus_page
from shardway.telemetry.exporting import Totals
from shardway.testing.sim.loop import VirtualLoop, drop
from shardway.testing.sim.services.link import Link
from shardway.testing.sim.services.stream import ServiceTime
from shardway.testing.sim.services.stream_wire import SimulatedSource, StreamWire, wall_clock
from shardway.testing.sim.virtual_time import VirtualTime
from tests.options_kit import options_of
from tests.runtime.consumer.faulty_tables import FaultyTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.events import Event
    from shardway.runtime.shard.batch import Batch

STREAM, APPLICATION = "orders", "billing"
SCRAPE_S = 15
TELLS_S = 15.0
PUT_EVERY_S = 10.0
HOUR_S = 3600.0


class Page:
    """What `PrometheusExporter` serves, in virtual time."""

    metrics_interval_s = TELLS_S
    metrics_per_shard = False

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._totals = Totals()

    def at_once(self, event: Event) -> None:
        if isinstance(event, ConsumerMetrics | ProducerMetrics):
            self._totals.add(event, self._now_s())

    __call__ = at_once

    def text(self) -> str:
        found = self._totals.points(self._now_s())
        return prometheus_page.encode([point for point, _ in found]).decode()


class OddWire(StreamWire):
    """Every call meets ``error``, while there is one."""

    error: Exception | None = None

    async def call(self, *given: Any, **more: Any) -> bytes:
        if self.error is not None:
            await asyncio.sleep(0.01)
            raise self.error
        return await super().call(*given, **more)


class OddTable(FaultyTable):
    """The same."""

    any_loop = False
    error: Exception | None = None

    async def _read(self, answer: Any) -> Any:
        if self.error is not None:
            answer.close()
            raise self.error
        return await super()._read(answer)

    async def _write(self, answer: Any) -> Any:
        if self.error is not None:
            answer.close()
            raise self.error
        return await super()._write(answer)


class HandlerError(Exception):
    """What a handler that fails raises."""


class WatchedProcess:
    """One worker, with a handler that works, fails or hangs."""

    def __init__(self, world: Watched, name: str, options: ConsumerOptions, *, catches: bool) -> None:
        self.name = name
        self.fails = False
        self.hangs = False
        self.is_alive = True
        self.is_target = True
        """Prometheus is told to scrape it."""
        self.loop = VirtualLoop(world.time)
        self.page = Page(world.service)
        wall = wall_clock(self.loop, world.service(), lambda: 0.0)
        self.wire = OddWire(world.model, Link(name, self.loop, random.Random(name)), wall, random.Random(name))
        self.table = OddTable(world.leases)
        self._options = options
        self._catches = catches
        self.consumer = self._consumer()
        self.main = self.loop.create_task(self._work())

    def _consumer(self) -> Consumer[bytes]:
        return Consumer(
            SimulatedSource(STREAM, self.wire), application=APPLICATION, rng=random.Random(self.name),
            on_event=self.page,
            **self._options.arguments() | {"leases": replace(self._options.leases, table=self.table)},
        )  # fmt: skip

    async def _work(self) -> None:
        try:
            async with self.consumer:
                await self.consumer.run_batches(self._handle)
        except AccessDeniedError:
            if not self._catches:
                raise
            self._again = asyncio.Event()
            await self._again.wait()
            self.consumer = self._consumer()
            await self._work()

    def work_again(self) -> None:
        """The program that went on without its consumer makes another one."""
        self.loop.call_soon(self._again.set)

    async def _handle(self, batch: Batch[bytes]) -> None:
        while self.hangs:
            await asyncio.sleep(1.0)
        if self.fails:
            raise HandlerError

    def stop(self) -> None:
        """SIGTERM; its deployment takes it away."""
        self.is_target = False
        self.loop.call_soon(lambda: self.loop.create_task(self.consumer.close()))

    def kill(self) -> None:
        """SIGKILL."""
        self.is_alive = False
        self.loop.freeze()


class Watched:
    """A stream, an application's lease table, processes, and what Prometheus scrapes of them."""

    def __init__(self, *, shards: int = 1) -> None:
        self.time = VirtualTime()
        self.service = ServiceTime(self.time)
        self.model = KinesisModel(clock=self.service, rng=random.Random(1))
        self.leases = MemoryLeaseTable()
        self.processes: list[WatchedProcess] = []
        self.puts = True
        self._names = 0
        self._samples: dict[str, dict[int, str]] = {}
        self._scrapes = 0
        self._ask("CreateStream", StreamName=STREAM, ShardCount=shards)
        self.time.after(0.0, self._put)
        self.time.after(0.0, self._scrape)

    def start(self, *, catches: bool = False, **settings: Any) -> WatchedProcess:
        """A process joins."""
        self._names += 1
        polling = PollingOptions(interval_s=10.0, idle_interval_s=10.0)
        quiet = {"polling": polling, "look_interval_s": 5.0, "failover_s": 30.0}
        given: dict[str, Any] = {"starting_position": StartingPosition.TRIM_HORIZON, **quiet, **settings}
        process = WatchedProcess(self, f"w{self._names}", options_of(**given), catches=catches)
        self.processes.append(process)
        return process

    def run(self, minutes: float) -> None:
        """Let time pass."""
        self.time.run(self.time.now_s + minutes * 60)

    @property
    def now_min(self) -> int:
        """Minutes since the beginning."""
        return int(self.time.now_s // 60)

    def close(self) -> None:
        """It is over."""
        for process in self.processes:
            process.loop.freeze()
            drop(process.loop, list(asyncio.all_tasks(process.loop)))

    def series(self, names: set[str]) -> list[dict[str, str]]:
        """All that was scraped of these, as promtool takes it: a value for each scrape; where there is none any more,
        what Prometheus makes of that.
        """
        found = []
        for key, samples in sorted(self._samples.items()):
            if key.partition("{")[0] in names:
                values = [samples.get(at, "stale" if at - 1 in samples else "_") for at in range(self._scrapes)]
                found.append({"series": key, "values": " ".join(values)})
        return found

    def _scrape(self) -> None:
        at = self._scrapes
        self._scrapes += 1
        for process in self.processes:
            if not process.is_target:
                continue
            target = f'instance="{process.name}",job="shardway"'
            is_there = process.is_alive and not process.main.done()
            self._samples.setdefault(f"up{{{target}}}", {})[at] = "1" if is_there else "0"
            for line in process.page.text().splitlines() if is_there else ():
                if not line.startswith("#") and "_bucket{" not in line:
                    key, _, value = line.rpartition(" ")
                    self._samples.setdefault(f"{key[:-1]},{target}}}", {})[at] = value
        self.time.after(SCRAPE_S, self._scrape)

    def _put(self) -> None:
        if self.puts:
            self.put(1)
        self.time.after(PUT_EVERY_S, self._put)

    def put(self, records: int) -> None:
        """Write so many."""
        entries = [
            {"Data": base64.b64encode(b"x").decode(), "PartitionKey": f"{self.time.now_s}-{number}"}
            for number in range(records)
        ]
        self._ask("PutRecords", StreamName=STREAM, Records=entries)

    def reshard(self) -> None:
        """The first shard becomes two."""
        shard_id, middle = "shardId-000000000000", str(2**124)
        self._ask("SplitShard", StreamName=STREAM, ShardToSplit=shard_id, NewStartingHashKey=middle)

    def _ask(self, operation: str, **request: Any) -> None:
        self.model.handle(operation, json.dumps(request).encode())
