"""A simulated process: the real consumer with a loop, a clock and connections of its own."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from penstock.core.leases.tenure import Loss, Lost
from penstock.errors import PenstockError
from penstock.model import Position
from penstock.runtime.consumer.consumer import Consumer
from penstock.runtime.shard.batch import Batch
from penstock.testing.sim.kinesis import STREAM, SimulatedSource, StreamWire, wall_clock
from penstock.testing.sim.loop import VirtualLoop, drop
from penstock.testing.sim.network import Link
from penstock.testing.sim.plan import Service
from penstock.testing.sim.table import TableConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.core.leases.tenure import Command
    from penstock.runtime.shard.shard_reader import ShardReader
    from penstock.runtime.worker.settings import WorkerSettings
    from penstock.testing.sim.history import History
    from penstock.testing.sim.kinesis import SimulatedStream
    from penstock.testing.sim.loop import VirtualTime
    from penstock.testing.sim.table import SimulatedTable

APPLICATION = "simulated"
START_AGAIN_S = 1.0
"""After a start that failed: who runs services does so too."""


class SimulatedConsumer(Consumer):
    """A consumer that tells the history what it hands out, and what is settled of it."""

    def __init__(self, process: Process, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._process = process

    def _on_reader(self, reader: ShardReader) -> None:
        process, take, heard = self._process, reader.take, reader.heard

        def recorded(*arguments: Any, **options: Any) -> Batch[Any] | None:
            batch = take(*arguments, **options)
            if batch is not None and process.alive:
                process.history.delivered(process.name, batch.shard_id, batch.token, _positions(batch, ()))
                batch.__class__ = process.batch_class
            return batch

        def told(command: Command) -> None:
            if isinstance(command, Lost) and command.why is Loss.TAKEN and process.alive:
                process.history.lease_lost(process.name, process.worker_id, reader.shard_id, reader.token)
            heard(command)

        reader.take = recorded  # type: ignore[method-assign]
        reader.heard = told  # type: ignore[method-assign]
        super()._on_reader(reader)


def _positions(batch: Batch[Any], indices: Sequence[int]) -> list[Position]:
    records = batch.records if not indices else [batch.records[index] for index in indices]
    return [Position(record.sequence_number, record.sub_sequence_number) for record in records]


def recorded_batches(process: Process) -> type[Batch[Any]]:
    """A Batch that tells the history of this process what is settled."""

    def tell(batch: Batch[Any], positions: list[Position], counts: bool) -> bool:
        if process.alive:
            process.history.settled(process.name, batch.shard_id, batch.token, positions, counts)
        return counts

    class RecordedBatch(Batch[Any]):
        __slots__ = ()

        def ack(self, *indices: int) -> bool:
            return tell(self, _positions(self, indices), super().ack(*indices))

        def settle_through(self, record: Any) -> bool:
            index = record if isinstance(record, int) else list(self.records).index(record)
            last = _positions(self, (index,))[0]
            positions = process.history.handed_out(self.shard_id, self.token, last)
            return tell(self, positions, super().settle_through(record))

        def skip(self, *indices: int, reason: str = "skipped") -> bool:
            return tell(self, _positions(self, indices), super().skip(*indices, reason=reason))

        def dead_letter(self, *indices: int, error: BaseException | None = None) -> bool:
            return tell(self, _positions(self, indices), super().dead_letter(*indices, error=error))

    return RecordedBatch


class Process:
    """One worker of a simulation. ``name`` is unique, ``worker_id`` may be a former process's."""

    def __init__(
        self,
        name: str,
        worker_id: str,
        *,
        seed: int,
        time: VirtualTime,
        stream: SimulatedStream,
        table: SimulatedTable,
        history: History,
        settings: WorkerSettings,
        program: Callable[[Consumer, Process], Awaitable[object]],
        drift: float = 0.0,
        handle_s: float = 0.0,
        failing: float = 0.0,
    ) -> None:
        self.name = name
        self.worker_id = worker_id
        self.history = history
        self.rng = random.Random(f"{seed} {name}")
        """For what the program leaves to chance."""
        self.handle_s = handle_s
        """How long a batch takes to be handled at most; faults change it."""
        self.slow_s: float | None = None
        """While a fault makes each batch take so long."""
        self.failing = failing
        """The chance that a handler is to fail."""
        self.alive = True
        """False once it has crashed."""
        self.leaving = False
        self.jumped_s = 0.0
        rate = self.rng.uniform(1.0 - drift, 1.0 + drift)
        self.loop = VirtualLoop(time, rate=rate, offset_s=self.rng.uniform(0.0, 10_000.0))
        self.loop.on_error = self._on_error
        self.links = {
            service: Link(service.value, self.loop, random.Random(f"{seed} {name} {service}")) for service in Service
        }
        self.batch_class = recorded_batches(self)
        self._stream = stream
        self._table = table
        self._settings = settings
        self._program = program
        self._leave = asyncio.Event()
        self._wall = wall_clock(self.loop, lambda: self.jumped_s)
        self._dead_tasks: list[asyncio.Task[Any]] = []
        self.consumer: Consumer | None = None
        self.main = self.loop.create_task(self._main())

    @property
    def here(self) -> bool:
        """True while it works, or could."""
        return self.alive and not self.main.done()

    def handling_s(self) -> float:
        """How long the handler of the next batch is to take."""
        return self.rng.uniform(0.0, self.handle_s) if self.slow_s is None else self.slow_s

    def fails(self) -> bool:
        """Whether the handler of the next batch is to fail."""
        return self.failing > 0 and self.rng.random() < self.failing

    # --- what happens to it ---------------------------------------------------------------------

    def leave(self) -> None:
        """SIGTERM."""
        self.leaving = True
        self.loop.call_soon(self._leave.set)

    def crash(self) -> None:
        """SIGKILL: it does nothing any more; what it has sent arrives."""
        self.alive = False
        self.loop.freeze()
        self._dead_tasks = list(asyncio.all_tasks(self.loop))
        for link in self.links.values():
            link.closed = True

    def dispose(self) -> None:
        """The simulation is over."""
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
            except PenstockError as error:
                await consumer.close()
                if not error.retryable:
                    raise
                await asyncio.sleep(START_AGAIN_S)
                continue
            await self._run(consumer)

    async def _run(self, consumer: Consumer) -> None:
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

    def _consumer(self) -> Consumer:
        def link_rng(what: str) -> random.Random:
            return random.Random(f"{self.rng.random()} {what}")

        wire = StreamWire(self._stream.model, self.links[Service.STREAM], self._wall, link_rng("wire"))
        leases = TableConnection(
            self._table,
            self.links[Service.TABLE],
            self.links[Service.WORKERS],
            link_rng("table"),
            answer_timeout_s=min(2.0, self._settings.failover_s / 5),
        )
        return SimulatedConsumer(
            self,
            SimulatedSource(wire),
            application=APPLICATION,
            worker_id=self.worker_id,
            leases=leases,
            settings=self._settings,
            rng=link_rng("consumer"),
            on_event=self.history.event,
        )

    def _on_error(self, context: dict[str, Any]) -> None:
        if self.alive:
            error = context.get("exception")
            what = f"{self.name}: {context.get('message')}: {type(error).__name__}: {error}"
            self.history.fault("an error that nobody handles", what)


__all__ = ["APPLICATION", "STREAM", "Process", "SimulatedConsumer"]
