"""A simulated process is the real consumer with a loop, a clock and connections of its own; the programs that people
write with it are here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure.state import Loss
from shardway.core.ledger.parts import Part
from shardway.errors import CheckpointError, ShardwayError
from shardway.events import HandoffWaits, ShardGivenUp
from shardway.model import Position, StartingPosition
from shardway.policies import ByKey, DeadLettersTo, PendingChoice
from shardway.runtime.consumer.concurrency import OneByOne, Unordered
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.consumer.session import ConsumerSession
from shardway.runtime.dead_letters.writers import CallableLetters
from shardway.runtime.shard.batch import Batch
from shardway.testing.sim.history.shard_story import BAD, Stint
from shardway.testing.sim.loop import VirtualLoop, drop
from shardway.testing.sim.plan import Service
from shardway.testing.sim.services import Link, SimulatedSource, StreamWire, TableConnection, wall_clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shardway.core.ledger.letter import Letter
    from shardway.options.consumer import ConsumerOptions
    from shardway.policies import FoundPending
    from shardway.runtime.consumer.collection import Collection
    from shardway.runtime.consumer.concurrency import Concurrency
    from shardway.runtime.consumer.shards import Shard
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.testing.sim.plan import Seek
    from shardway.testing.sim.simulator import Simulator


APPLICATION = "simulated"
LETTER_TIMEOUT_S = 5.0
START_AGAIN_S = 1.0
"""Seconds after which the process starts again when a start failed, as a service manager would do it."""


class SimulatedConsumer(Consumer[Any]):
    """A consumer that tells the history what it delivers, and what is settled of it."""

    def __init__(self, process: Process, *arguments: Any, **options: Any) -> None:
        self._process = process
        super().__init__(*arguments, **options)

    def _session_of(self, spec: ConsumerSpec) -> ConsumerSession:
        return ConsumerSession(spec, on_reader=self._record)

    def _record(self, reader: ShardReader) -> None:
        """Have a reader tell the history what it does."""
        process, driver, delivery = self._process, reader.driver, reader.delivery
        take, heard, take_back = delivery.take, driver.hear, delivery.take_back

        def recorded(*arguments: Any, **options: Any) -> Batch[Any] | None:
            batch = take(*arguments, **options)
            if batch is not None and process.alive:
                by_key = isinstance(reader.ledger.policy.order, ByKey)
                key, parts = process.key_of(batch), _parts(batch, ())
                process.history.delivered(process.name, key, batch.token, _positions(batch, ()), parts, by_key)
                batch.__class__ = process.batch_class
            return batch

        def told(command: tenure_commands.Command) -> None:
            if isinstance(command, tenure_commands.LeaseLost) and command.why is Loss.TAKEN and process.alive:
                process.history.lease_lost(process.name, process.worker_id, process.key_of(reader), reader.token)
            heard(command)

        def taken_back() -> None:
            if process.alive:
                process.history.taken_back(process.key_of(reader))
            take_back()

        delivery.take_back = taken_back  # type: ignore[method-assign]
        delivery.take = recorded  # type: ignore[method-assign]
        driver.hear = told  # type: ignore[method-assign]


def _positions(batch: Batch[Any], indices: Sequence[int]) -> list[Position]:
    records = batch.records if not indices else [batch.records[index] for index in indices]
    return [Position(record.sequence_number, record.sub_sequence_number) for record in records]


def _parts(batch: Batch[Any], indices: Sequence[int]) -> list[int] | None:
    """Return which parts of their records a batch has; None where records are not split."""
    if not isinstance(batch.records[0], Part):
        return None
    records: Sequence[Any] = batch.records if not indices else [batch.records[index] for index in indices]
    return [record.part for record in records]


def recorded_batches(process: Process) -> type[Batch[Any]]:
    """Return a class of batches that tell the history of this process what is settled."""

    def tell(batch: Batch[Any], positions: list[Position], counts: bool, parts: Sequence[int] | None = None) -> bool:
        if process.alive:
            process.history.settled(process.name, process.key_of(batch), batch.token, positions, counts, parts)
        return counts

    class RecordedBatch(Batch[Any]):
        __slots__ = ()

        def fail(self, error: BaseException, *indices: int) -> bool:
            if process.alive:
                process.history.given_back(process.key_of(self), _positions(self, indices), _parts(self, indices))
            return super().fail(error, *indices)

        def dead_letter(self, *indices: int, error: BaseException | None = None) -> bool:
            if process.alive:
                process.history.given_back(process.key_of(self), _positions(self, indices), _parts(self, indices))
            return super().dead_letter(*indices, error=error)

        def ack(self, *indices: int) -> bool:
            return tell(self, _positions(self, indices), super().ack(*indices), _parts(self, indices))

        def nack(self, *indices: int, delay_s: float = 0.0) -> bool:
            if process.alive:
                positions, parts = _positions(self, indices), _parts(self, indices)
                process.history.put_off(process.name, process.key_of(self), self.token, positions, parts)
            return super().nack(*indices, delay_s=delay_s)

        def _left(self, indices: Sequence[int] | None = None) -> bool:
            places = self._delivery.places
            left = range(len(places)) if indices is None else indices
            kept = set(self._ledger._book.not_put_off(self._delivery.ticket, [places[index] for index in left]))
            done = [index for index in left if places[index] in kept]
            counts = super()._left(indices)
            return tell(self, _positions(self, done), counts, _parts(self, done)) if done else counts

        def settle_through(self, record: Any) -> bool:
            index = record if isinstance(record, int) else list(self.records).index(record)
            last = _positions(self, (index,))[0]
            positions = process.history.delivered_by(process.key_of(self), self.token, last)
            return tell(self, positions, super().settle_through(record))

        def skip(self, *indices: int, reason: str = "skipped") -> bool:
            return tell(self, _positions(self, indices), super().skip(*indices, reason=reason), _parts(self, indices))

    return RecordedBatch


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
            self.name, self.key_of(batch), batch.token, name, _positions(batch, ())
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


# --- programs -------------------------------------------------------------------------------------
# Simulations run programs such as people write with a consumer.


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
