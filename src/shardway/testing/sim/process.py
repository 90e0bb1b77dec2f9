"""A simulated process is the real consumer with a loop, a clock and connections of its own."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shardway.errors import CheckpointError, ShardwayError
from shardway.events import HandoffWaits, ShardGivenUp
from shardway.model import StartingPosition
from shardway.policies import DeadLettersTo, PendingChoice
from shardway.runtime.dead_letters.writers import CallableLetters
from shardway.testing.sim.loop import VirtualLoop, drop
from shardway.testing.sim.plan import Service
from shardway.testing.sim.recorded_consumer import SimulatedConsumer, positions_of, recorded_batches
from shardway.testing.sim.services.link import Link
from shardway.testing.sim.services.stream_wire import SimulatedSource, StreamWire, wall_clock
from shardway.testing.sim.services.table import TableConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.core.ledger.letter import Letter
    from shardway.model import Position
    from shardway.options.consumer import ConsumerOptions
    from shardway.policies import FoundPending
    from shardway.runtime.consumer.consumer import Consumer
    from shardway.runtime.shard.batch import Batch
    from shardway.testing.sim.plan import Seek
    from shardway.testing.sim.simulator import Simulator

APPLICATION = "simulated"
LETTER_TIMEOUT_S = 5.0
START_AGAIN_S = 1.0
"""Seconds after which the process starts again when a start failed, as a service manager would do it."""


class Process:
    """One worker of the simulation ``world``. ``name`` is unique, ``worker_id`` may be a former process's."""

    def __init__(
        self,
        name: str,
        worker_id: str,
        world: Simulator,
        program: Callable[[Consumer[Any], Process], Awaitable[object]],
    ) -> None:
        plan = world.plan
        self.name = name
        self.worker_id = worker_id
        self.history = world.history
        self.rng = random.Random(f"{plan.seed} {name}")
        """The random numbers for what the program leaves to chance."""
        self.handle_s = plan.handle_s
        """The most seconds that a batch takes to be handled; faults change it."""
        self.slow_s: float | None = None
        """Seconds that each batch takes while a fault makes it slow; None while there is no such fault."""
        self.lingers_s = 1.5
        """The most seconds that a program which works in two phases waits before it commits."""
        self.failing = plan.failing
        """The chance that a handler is to fail."""
        self.broken = False
        """True while every handler fails."""
        self.alive = True
        """False once the process has crashed."""
        self.leaving = False
        self.jumped_s = 0.0
        rate = self.rng.uniform(1.0 - plan.drift, 1.0 + plan.drift)
        self.loop = VirtualLoop(world.time, rate=rate, offset_s=self.rng.uniform(0.0, 10_000.0))
        self.loop.on_error = self._on_error
        self.links = {
            service: Link(service.value, self.loop, random.Random(f"{plan.seed} {name} {service}"))
            for service in Service
        }
        self.batch_class = recorded_batches(self)
        self._streams = {stream.name: stream for stream in world.streams}
        self._table = world.table
        self._service_time = world.service_time
        self._options = world.options
        self._program = program
        self._leave = asyncio.Event()
        self._wall = wall_clock(self.loop, world.service_time(), lambda: self.jumped_s)
        self._dead_tasks: list[asyncio.Task[Any]] = []
        self.consumer: Consumer[Any] | None = None
        self.main = self.loop.create_task(self._main())

    @property
    def here(self) -> bool:
        """True while the process works, or could."""
        return self.alive and not self.main.done()

    @property
    def arrives_until_s(self) -> float:
        """The time at which the last of what the process has sent arrives."""
        return max(link.arrives_until_s for link in self.links.values())

    def handling_s(self) -> float:
        """Return how many seconds the handler of the next batch is to take."""
        return self.rng.uniform(0.0, self.handle_s) if self.slow_s is None else self.slow_s

    def fails(self) -> bool:
        """Return whether the handler of the next batch is to fail."""
        return self.broken or (self.failing > 0 and self.rng.random() < self.failing)

    def key_of(self, located: Any) -> str:
        """Return the key of the lease of a batch's shard, or of anything else's that names a stream and a shard."""
        return self._streams[located.stream].key_of(located.shard_id)

    def put_out(self, batch: Batch[Any], name: str) -> bool:
        """Put out a batch's outputs, in a transaction of this name. Return False where it was given up meanwhile."""
        return self.alive and self.history.transactions.put_out(
            self.name, self.key_of(batch), batch.token, name, positions_of(batch, ())
        )

    def has_sought(self, batch: Batch[Any]) -> bool:
        """Return whether the program has sought in the batch's tenure."""
        return self.history.was_sought(self.key_of(batch), batch.token)

    # --- what happens to it ---------------------------------------------------------------------

    def leave(self) -> None:
        """Have the process get SIGTERM: it stops in order."""
        self.leaving = True
        self.loop.call_soon(self._leave.set)

    def seek(self, fault: Seek) -> None:
        """Have the program seek a shard, as soon as the process does anything."""
        self.loop.call_soon(self._seek, fault)

    def _seek(self, fault: Seek) -> None:
        held = [] if self.consumer is None else sorted(self.consumer.statistics().shards, key=self.key_of)
        if self.consumer is None or not held:
            return
        shard = held[int(fault.choice * len(held))]
        (reader,) = self.consumer._session.shards.find((shard,))
        story = self.history.shards[self.key_of(shard)]
        came = sorted({position for position, _ in story.delivered})
        to: Position | StartingPosition
        if fault.to in ("TRIM_HORIZON", "LATEST") or not came:
            to = StartingPosition.TRIM_HORIZON if fault.to == "TRIM_HORIZON" else StartingPosition.LATEST
            place: Position | str | float = to.kind
        elif fault.to == "POSITION":
            place = to = came[int(fault.where * len(came))]
        else:
            place = story.arrived[came[int(fault.where * len(came))]]
            to = StartingPosition.at_timestamp(dt.datetime.fromtimestamp(place, dt.UTC))
        was_over = reader.is_over
        try:
            self.consumer.seek(shard, to)
        except CheckpointError:  # A checkpoint is pending: the program may seek when that is committed.
            return
        if not was_over:
            # A machine that has slept takes the service's time for earlier than it is, until the service answers.
            known_s = min(self._service_time(), self.consumer._session.streams[shard.stream].source.now_s)
            self.history.sought(self.name, self.key_of(shard), reader.token, place, known_s)

    def crash(self) -> None:
        """Have the process get SIGKILL: it does nothing any more; what it has sent arrives."""
        self.alive = False
        self.loop.freeze()
        self._dead_tasks = list(asyncio.all_tasks(self.loop))
        for link in self.links.values():
            link.closed = True

    def dispose(self) -> None:
        """Drop the process, as the simulation is over."""
        if self.alive:
            self.crash()
        drop(self.loop, sorted(self._dead_tasks, key=lambda task: task is self.main))

    # --- its main program -----------------------------------------------------------------------

    async def _main(self) -> None:
        try:
            await self._work()
        except Exception as error:
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            if self.alive:
                self.history.fault("a worker ends", f"{self.name}: {type(error).__name__}: {error}")

    async def _work(self) -> None:
        while not self._leave.is_set():
            consumer = self.consumer = self._consumer()
            try:
                await consumer.start()
            except ShardwayError as error:
                await consumer.close()
                if not error.retryable:
                    raise
                await asyncio.sleep(START_AGAIN_S)
                continue
            await self._run(consumer)

    async def _run(self, consumer: Consumer[Any]) -> None:
        running = asyncio.ensure_future(self._program(consumer, self))
        leaving = asyncio.create_task(self._leave.wait())
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await consumer.close()
            running.cancel()
        leaving.cancel()
        try:
            await running
        except asyncio.CancelledError:
            return
        except BaseException:
            await consumer.close()
            raise
        else:
            if not self._leave.is_set():
                self.history.fault("a worker ends", f"{self.name}: its program came to an end")
                await consumer.close()

    def _consumer(self) -> Consumer[Any]:
        def link_rng(what: str) -> random.Random:
            return random.Random(f"{self.rng.random()} {what}")

        sources = [
            SimulatedSource(name, StreamWire(stream.model, self.links[Service.STREAM], self._wall, link_rng(name)))
            for name, stream in self._streams.items()
        ]
        leases = TableConnection(
            self._table,
            self.links[Service.TABLE],
            self.links[Service.WORKERS],
            link_rng("table"),
            request_timeout_s=min(2.0, self._options.leases.failover_s / 5),
        )
        return SimulatedConsumer(
            self,
            sources if len(sources) > 1 else sources[0],
            application=APPLICATION,
            worker_id=self.worker_id,
            rng=link_rng("consumer"),
            on_event=self._on_event,
            **self._own_options(leases).arguments(),
        )

    def _own_options(self, table: TableConnection) -> ConsumerOptions:
        """Return the options with leases over this process's connection, dead letters that the history hears of, and
        transactions that it knows.
        """
        options = replace(self._options, leases=replace(self._options.leases, table=table))
        if isinstance(options.dead_letters, DeadLettersTo):
            options = replace(options, dead_letters=DeadLettersTo(self._bury))
        if options.checkpoints.on_pending is not None:
            return options
        return replace(options, checkpoints=replace(options.checkpoints, on_pending=self._on_pending))

    async def _bury(self, letter: Letter) -> None:
        """Write a dead letter to where the options say, and to the history, over a connection that may fail."""
        given = self._options.dead_letters
        assert isinstance(given, DeadLettersTo)
        await CallableLetters(given.write).write(letter)
        key, history = self.key_of(letter), self.history
        await self.links[Service.LETTERS].call(
            lambda: history.letter_written(self.name, key, letter.position, letter.part, letter.data), LETTER_TIMEOUT_S
        )

    def _on_pending(self, found: FoundPending) -> PendingChoice:
        name = (found.state or b"").decode()
        done = self.alive and self.history.transactions.is_put_out(self.key_of(found), name, found.position)
        return PendingChoice.COMMIT if done else PendingChoice.ABANDON

    def _on_event(self, event: Any) -> None:
        if not self.alive:
            return
        key = self.key_of(event) if hasattr(event, "shard_id") and event.stream in self._streams else None
        self.history.event(event, key)
        if key is not None and isinstance(event, ShardGivenUp):
            self.history.gave_up(self.name, key, event.cool_down_s / self.loop.rate)
        if key is not None and isinstance(event, HandoffWaits) and event.waits_for in ("handlers", "callers"):
            self.history.drain_waits(self.name, key, event.left_s / self.loop.rate, self.handle_s)

    def _on_error(self, context: dict[str, Any]) -> None:
        if self.alive:
            error = context.get("exception")
            what = f"{self.name}: {context.get('message')}: {type(error).__name__}: {error}"
            self.history.fault("an error that is not handled", what)
