"""The core that `Consumer` and `SyncConsumer` are faces of: it opens streams, shares their shards with other workers,
and delivers what is read. The shards that may have records for the program take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import uuid
from collections import Counter, deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shardway.core.given import lacks, not_callable, not_of, shown
from shardway.core.leases.row import Checkpoint
from shardway.core.log.buffer import Buffer
from shardway.errors import CheckpointError, ConsumerClosedError, OptionError
from shardway.events import KeysIgnored, LoopBlocked, StopBegun, StopWaits
from shardway.model import Position, StartingPosition
from shardway.options import CALLBACKS, LATEST_WINS_BY_KEY, FanOutOptions, MetricsOptions, consumer_options, start_of
from shardway.policies import ByKey, DeadLettersTo, DeadLettersToStream
from shardway.ports import ForApplications
from shardway.runtime.background import emits_failure
from shardway.runtime.clocks import OwnTimeLoop, YieldBudget
from shardway.runtime.consumer.concurrency import OneByOne, Unordered, order_of, promised
from shardway.runtime.consumer.counted_source import CountedSource
from shardway.runtime.consumer.counted_table import counted_table
from shardway.runtime.consumer.handlers import drive
from shardway.runtime.consumer.lifecycle import Lifecycle, ShardChange
from shardway.runtime.consumer.metering import Metering
from shardway.runtime.consumer.statistics import ConsumerStatistics, leases_by_worker
from shardway.runtime.consumer.streams import OpenStream
from shardway.runtime.dead_letters.writers import open_letters
from shardway.runtime.feeds.deserializing import Deserializer
from shardway.runtime.feeds.fan_out import SubscriptionGate
from shardway.runtime.shard.batch import Delivered
from shardway.runtime.shard.checkpointing import Checkpointing
from shardway.runtime.shard.listener import Callers, ShardListener
from shardway.runtime.threads.host import PING_S, SameLoop, watch_own
from shardway.runtime.threads.loop_thread import CALLER
from shardway.runtime.threads.own_thread import OwnThread
from shardway.runtime.worker.holding import Readers
from shardway.runtime.worker.worker import Worker
from shardway.tasks import failure_of, spawn
from shardway.telemetry.log import log_events
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from shardway.events.consumer_snapshot import ConsumerSnapshot
    from shardway.policies import DeadLetterChoice, OrderPolicy
    from shardway.ports import LeaseTable, RecordSource, Tracer
    from shardway.runtime.consumer.concurrency import Concurrency
    from shardway.runtime.consumer.counted_table import CountedTable
    from shardway.runtime.consumer.shards import Located
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.driver import ShardDriver
    from shardway.runtime.shard.pending import PendingCheckpoint
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.runtime.threads.host import Host
    from shardway.tasks import Heard


R = TypeVar("R")
T = TypeVar("T")
STOP_TOLD_S = 1.0
"""The interval of the events that say what a consumer that is being stopped waits for."""
STOP_TOLD_SHARDS_MAX = 10
"""The most shards that such an event names, with the number of their records in flight."""
OWN = ("worker_id", "connection", "metrics", "tracing", "rng", "on_event", *CALLBACKS)
"""The arguments that are no `ConsumerOptions`."""
CLOSED = "{application}: the consumer is closed and delivers no more records: leave the loop that asks for them"
FAILURES_MAX = 100
"""The most errors of shards that wait to be raised; further ones are not kept."""


class ConsumerCore:
    """The core of one consumer. It belongs to the event loop that `start` runs on. A call that has the name of a call
    of `Consumer` does what is described there.
    """

    may_be_apart = True
    """False: the consumer's own work runs on the program's loop, whatever the options say."""
    _has_thread = False
    _is_paused = False
    _loop: asyncio.AbstractEventLoop | None = None
    _watching: asyncio.Task[None] | None = None
    _telling: asyncio.Task[None] | None = None
    _counted: CountedTable | None = None
    _own_table: LeaseTable | None = None
    _worker: Worker | None = None
    _running: asyncio.Task[None] | None = None
    _closing: asyncio.Future[None] | None = None

    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        application: str,
        deserializer: Callable[[bytes], Any] | None,
        arguments: Mapping[str, Any],
    ) -> None:
        """``arguments``: the arguments that a consumer is given by name, `ConsumerArguments`. Raises OptionError."""
        given = dict(arguments)
        own = {name: given.pop(name, None) for name in OWN}
        _check_types({"stream": stream, "application": application, "deserializer": deserializer, **own})
        self.application = application
        self.worker_id = own["worker_id"] or ""  # `start` draws it: before a fork several processes would share it
        self.options = consumer_options(given)
        self._of_several = isinstance(stream, list | tuple)
        self._given: Sequence[Any] = stream if self._of_several else [stream]  # type: ignore[assignment]
        _check(application, self._given)
        self._connection: ConnectionOptions | None = own["connection"]
        self._deserializer = deserializer
        self._on_event, self._log = own["on_event"], log_events()
        self._metering = Metering(own["metrics"] or MetricsOptions(), self._on_event)
        tracing: Tracer | None = own["tracing"]
        self._tracer = None if tracing is None else tracing.for_application(application)
        self._rng: random.Random | None = own["rng"]
        self._order: OrderPolicy | None = None  # It counts only with `_has_order`: None is an order that options name.
        self._has_order = False
        self.home: Host = SameLoop()
        """The home in which the consumer's own work runs."""
        self.ready = Ready()
        """The shards that the consumer holds."""
        self._breath = YieldBudget()
        callbacks = {change: own[change.value] for change in ShardChange}
        told = {change: callback for change, callback in callbacks.items() if callback is not None}
        self._lifecycle = Lifecycle(told, self.ready, self._emit)
        self._streams: dict[str, OpenStream] = {}
        self._source_calls, self._table_calls, self._events = Counter[str](), Counter[str](), Counter[str]()
        self._leave_loop: Callable[[], Awaitable[None]] | None = None

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """See `Consumer.start`."""
        if self._running is not None or self.is_closing:
            raise RuntimeError("a consumer is started once: make another one")
        self._loop = asyncio.get_running_loop()
        self._has_thread = CALLER.get() is not None
        self.worker_id = self.worker_id or new_worker_id()
        is_apart = self._can_be_apart()
        self.home = self._lifecycle.home = OwnThread() if is_apart else SameLoop(self._loop)
        self.ready.lives(self.home)
        if is_apart:
            self._breath.turns = 1
        await self.home.run(self._begin)

    @property
    def _is_programs(self) -> bool:
        """True where the loop is the program's: neither one with a time of its own, nor that of a `SyncConsumer`,
        which is apart.
        """
        return self.may_be_apart and not self._has_thread and not isinstance(self._loop, OwnTimeLoop)

    def _can_be_apart(self) -> bool:
        """Say whether the work may run apart: streams and leases of the user's own making may belong to the user's
        loop.
        """
        letters, table = self.options.dead_letters, self.options.leases.table
        is_ours = all(isinstance(given, str) for given in self._given) and (
            table is None or isinstance(table, str) or getattr(table, "any_loop", False)
        )
        if isinstance(letters, DeadLettersToStream):
            is_ours = is_ours and isinstance(letters.stream, str)
        return self._is_programs and self.options.own_thread and is_ours

    async def _begin(self) -> None:
        rng = random.Random() if self._rng is None else self._rng
        gate = SubscriptionGate((self.options.fan_out or FanOutOptions()).subscriptions_per_s)
        bounds = self.options.buffer
        buffer = Buffer(bounds.buffer_bytes_max, shard_bytes_max=bounds.shard_buffer_bytes_max, lock=self.home.lock)
        for given in self._given:
            source = CountedSource(self._source(given), self._source_calls, self._metering.meter, self._tracer)
            self._streams[source.stream] = OpenStream(
                source, self.options, gate, rng=rng, on_event=self._emit, buffer=buffer
            )
        await asyncio.gather(*(stream.open(self._fan_out_name) for stream in self._streams.values()))
        for arn, count in Counter(stream.facts.arn for stream in self._streams.values()).items():
            if count > 1:
                raise OptionError(f"stream: {arn} comes twice, by different names")
        self._check_keys(promised(self.options.order))
        for stream in self._streams.values():
            if stream.facts.ignores_keys:
                self._emit(KeysIgnored(stream.name))
        await self._share(rng)

    async def _share(self, rng: random.Random) -> None:
        from shardway.wiring import lease_table_for

        table = self.options.leases.table
        if table is None or isinstance(table, str):
            table = self._own_table = lease_table_for(self.application, self._connection, self.options.leases)
        elif isinstance(self.home, OwnThread):
            self._leave_loop = getattr(table, "leave_loop", None)
        of_this = isinstance(table, ForApplications)
        if isinstance(table, ForApplications):
            table = table.of(self.application)
        arn = "" if self._of_several else next(iter(self._streams.values())).facts.arn
        self._counted = counted_table(
            table,
            self._table_calls,
            self._emit,
            self._metering.meter,
            stream=arn,
            application="" if of_this else self.application,
        )
        self._worker = Worker(
            self.worker_id,
            self._counted,
            self.options,
            readers=Readers(
                [stream.part(of_several=self._of_several) for stream in self._streams.values()],
                self.options,
                open_letters(self._letters(), self._connection),
                rng=rng,
                on_event=self._emit,
            ),
            rng=rng,
            on_event=self._emit,
            on_reader=self.on_reader,
        )
        if self._is_programs:
            self._watch()
        follows = "its shards are let go, and the error is raised where records are asked for"
        self._running = spawn(self._worker.run(), self._failed("sharing shards with other workers", follows))
        self._running.add_done_callback(lambda _: self.ready.stirred.set())
        self._metering.begin(next(iter(self._streams.values())).source.now_s)
        failed = self._failed("telling its numbers", "statistics() and metrics() still tell them")
        self._telling = spawn(self._tell_numbers(), failed)

    def _letters(self) -> DeadLetterChoice | None:
        """Return where dead letters go: a function of the user's is called on the user's loop."""
        choice = self.options.dead_letters
        if not isinstance(choice, DeadLettersTo):
            return choice
        return DeadLettersTo(lambda letter: self.home.outside(partial(choice.write, letter)))

    def _watch(self) -> None:
        """Look out for a program that blocks its event loop."""
        if self.is_closing:
            return
        after_s = self.options.leases.failover_s / 4
        if isinstance(self.home, OwnThread):
            watching = self.home.watch(after_s, self._blocked, self._abandoned)
        else:
            watching = watch_own(after_s, self._stood_still)
        loop = asyncio.get_running_loop()
        failed = self._failed(
            "watching the program's event loop", "it is begun again", lambda _: loop.call_later(PING_S, self._watch)
        )
        self._watching = spawn(watching, failed)

    def _failed(self, work: str, what_follows: str, then: Callable[[BaseException], object] | None = None) -> Heard:
        return emits_failure(self._emit, (", ".join(self._streams) or self.application, None), work, what_follows, then)

    def _blocked(self, seconds: float, over: bool) -> None:
        self._emit(
            LoopBlocked(
                self.application, seconds, not over, "leases, checkpoints and pages go on in a thread of their own"
            )
        )

    def _stood_still(self, seconds: float) -> None:
        self._emit(LoopBlocked(self.application, seconds, False, "no lease was renewed and nothing was read meanwhile"))

    def _abandoned(self) -> None:
        """End the consumer, as the user's loop is closed, and this was not: no handler runs any more here, so other
        workers take over.
        """
        ending = spawn(self._end(), self._failed("the end of the consumer", "leases are free when they expire"))
        ending.add_done_callback(lambda _: asyncio.get_running_loop().stop())

    async def close(self) -> None:
        """See `Consumer.close`."""
        self.ready.closes()
        self._close_soon()
        assert self._closing is not None
        await asyncio.shield(self._closing)

    @property
    def is_closing(self) -> bool:
        """True once the consumer has begun to close."""
        return self._closing is not None

    @property
    def closed(self) -> bool:
        """See `Consumer.closed`."""
        return self.is_closing and self._running is None

    async def _close(self) -> None:
        try:
            await self.home.run(self._end)
        finally:
            await self.home.close()
            self.ready.stirred.set()

    async def _end(self) -> None:
        waits = spawn(self._emit_waits(), self._failed("telling what a stop waits for", "the stop goes on"))
        try:
            await self._end_all()
        finally:
            waits.cancel()

    async def _emit_waits(self) -> None:
        begun_s = self._now_s
        most_s = self.options.handoff.drain_deadline_s + self.options.times.close_grace_s
        while True:
            await asyncio.sleep(STOP_TOLD_S)
            since_s = self._now_s - begun_s
            held = sorted(
                ((reader.ledger.out, f"{reader.stream}/{reader.shard_id}") for reader in list(self.ready.held)),
                key=lambda one: (-one[0], one[1]),
            )
            self._emit(
                StopWaits(
                    self.application,
                    len(held),
                    sum(records for records, _ in held),
                    since_s,
                    max(0.0, most_s - since_s),
                    tuple(f"{shard}: {records}" for records, shard in held[:STOP_TOLD_SHARDS_MAX]),
                )
            )

    async def _end_all(self) -> None:
        worker, running, failed = self._worker, self._running, self._has_failed
        drain_s, grace_s = self.options.handoff.drain_deadline_s, self.options.times.close_grace_s
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()
        try:
            if worker is not None and running is not None and not running.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(drain_s + grace_s):
                        await worker.stop()
        finally:
            if running is not None:
                if not running.done():
                    await asyncio.wait((running,), timeout=grace_s)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            self._running = None
            if self._telling is not None:
                self._telling.cancel()
                self._tell_interval(last=True, failed=failed)
            await self._lifecycle.close(min(drain_s, grace_s))
            for stream in self._streams.values():
                await stream.close()
            if self._own_table is not None:
                await self._own_table.close()
            elif self._leave_loop is not None:
                await self._leave_loop()
            self.ready.stirred.set()

    async def deregister(self) -> None:
        """See `Consumer.deregister`."""
        for given in self._given:
            source = self._source(given)
            try:
                await source.deregister(self._fan_out_name)
            finally:
                if isinstance(given, str):
                    await source.close()

    @property
    def _fan_out_name(self) -> str:
        """The name under which the streams know the application."""
        fan_out = self.options.fan_out
        return (fan_out and fan_out.consumer_name) or self.application

    def _source(self, given: str | RecordSource) -> RecordSource:
        """Return the stream itself. ``connection`` may be meant for the lease table alone."""
        from shardway.wiring import source_for

        return source_for(given, self._connection if isinstance(given, str) else None)

    def close_by_signal(self, signal_name: str) -> None:
        """Emit that a signal has asked for the end, and begin to close."""
        self._emit(StopBegun(self.application, signal_name))
        self._close_soon()

    def _close_soon(self) -> None:
        """Begin to close, once: a signal asks for it, and then the end of the block that it ends."""
        if self._closing is None:
            follows = "the error is raised by close(), and leases that are left are free when they expire"
            self._closing = spawn(self._close(), self._failed("closing the consumer", follows))

    # --- reading --------------------------------------------------------------------------------

    async def batches(self) -> AsyncGenerator[Batch[Any], None]:
        """See `Consumer.__aiter__`."""
        try:
            with self.ready.asking.lasts() as asked:
                while True:
                    await self._breath.take()
                    seen = self.ready.stirred.count
                    batch = self.ready.take()
                    if batch is not None:
                        yield batch
                        asked()
                    elif not await self._more(seen):
                        return
        finally:
            self.ready.take_back()

    async def records(self) -> AsyncGenerator[Delivered[Any], None]:
        """See `Consumer.records`."""
        async with contextlib.aclosing(self.batches()) as batches:
            async for batch in batches:
                for index in range(len(batch)):
                    if self._breath.is_due:
                        await self._breath.take()
                    if not batch._may_go_on(index):
                        break
                    yield Delivered(batch, index)

    async def getmany(self, records_max: int = 10_000, wait_s: float | None = None) -> list[Batch[Any]]:
        """See `Consumer.getmany`."""
        if records_max < 1:
            raise ValueError("records_max must be at least 1")
        if wait_s is not None and self.closed:  # An empty list would say that there is nothing yet, for ever.
            raise ConsumerClosedError(CLOSED.format(application=self.application))
        loop, found, left = asyncio.get_running_loop(), list[Any](), records_max
        end_s = None if wait_s is None else loop.time() + wait_s
        with self.home.lock:
            self.ready.asking.once()
        await self._breath.take()
        while True:
            seen = self.ready.stirred.count
            try:
                batch = self.ready.take(left) if left > 0 else None
            except Exception as error:
                if not found:
                    raise
                self.ready.failed(error)  # What was taken comes first.
                return found
            if batch is not None:
                found.append(batch)
                left -= len(batch)
            elif found:
                return found
            elif end_s is not None and loop.time() >= end_s:
                self._raise_failed()
                return found
            elif not await self._more(seen, end_s):
                return found

    async def readers(self) -> AsyncGenerator[ShardReader, None]:
        """See `Consumer.shards`."""
        offered: list[ShardReader] = []
        try:
            while True:
                await self._breath.take()
                seen = self.ready.stirred.count
                reader = self.ready.unread()
                if reader is not None:
                    offered = [one for one in offered if not one.is_over and one is not reader]
                    offered.append(reader)
                    yield reader
                elif not await self._more(seen):
                    return
        finally:
            for reader in offered:
                if not reader.delivery.is_iterated:
                    self.ready.left(reader)

    async def run(
        self,
        handler: Callable[[Any], object],
        concurrency: Concurrency | None,
        handlers_max: int | None,
        *,
        each_record: bool,
    ) -> None:
        """See `Consumer.run_batches` and `Consumer.run_records`."""
        given = {"handler": handler, "concurrency": concurrency, "handlers_max": handlers_max}
        kinds: dict[str, tuple[type | str, ...]] = {"concurrency": (OneByOne, ByKey, Unordered), "handlers_max": (int,)}
        if faults := not_of(given, kinds, optional=kinds) + not_callable(given, ("handler",)):
            raise OptionError(faults)
        self._check_keys(promised(self.options.order, concurrency))
        concurrency = concurrency or OneByOne()
        if handlers_max is not None and handlers_max < 1:
            raise ValueError("handlers_max must be at least 1")
        order = order_of(concurrency)
        if order is not None or self._has_order:
            # After a run with another order, `OneByOne` goes back to that of the options.
            order = self.options.order if order is None else order
            if isinstance(order, ByKey) and self.options.settling.latest_wins:
                raise OptionError(LATEST_WINS_BY_KEY)
            self._order, self._has_order = order, True
            self.home.ask(self._reorder_all)
        async with contextlib.aclosing(self.readers()) as readers:
            await drive(
                readers,
                handler,
                concurrency=concurrency,
                each_record=each_record,
                handlers_max=handlers_max,
            )

    # --- checkpoints in two phases ---------------------------------------------------------------

    async def prepare(self, batch: Batch[Any], state: bytes | None = None, *, index: int = -1) -> PendingCheckpoint:
        """See `Consumer.prepare`."""
        record = batch.records[index]
        at = Position(record.sequence_number, record.sub_sequence_number)
        return await self._checkpointing(batch).prepare(at, state)

    async def commit(self, pending: PendingCheckpoint) -> None:
        """See `Consumer.commit`."""
        await self._checkpointing(pending).commit(pending)

    async def abandon(self, pending: PendingCheckpoint) -> None:
        """See `Consumer.abandon`."""
        await self._checkpointing(pending).abandon(pending)

    def pending(self, shard: str | Located) -> PendingCheckpoint | None:
        """See `Consumer.pending`."""
        (reader,) = self.ready.named((shard,))
        return reader.checkpointing.pending

    def _checkpointing(self, given: Batch[Any] | PendingCheckpoint) -> Checkpointing:
        driver = cast("ShardDriver", given._reader)
        if driver.home is not self.home:
            raise CheckpointError(
                f"{given.stream}, {given.shard_id}: another consumer has handed this out: ask that one"
            )
        return Checkpointing(driver)

    # --- steering -------------------------------------------------------------------------------

    def pause(self, *shards: str | Located) -> None:
        """See `Consumer.pause`."""
        self._is_paused = self._is_paused or not shards
        for reader in self.ready.named(shards):
            reader.delivery.pause()

    def resume(self, *shards: str | Located) -> None:
        """See `Consumer.resume`."""
        self._is_paused = self._is_paused and bool(shards)
        for reader in self.ready.named(shards):
            reader.delivery.pause(False)

    def seek(self, shard: str | Located, to: Position | StartingPosition) -> None:
        """See `Consumer.seek`."""
        (reader,) = self.ready.named((shard,))
        to = start_of(to)
        if faults := not_of({"to": to}, {"to": (Position, StartingPosition)}):
            raise OptionError(faults)
        if isinstance(to, StartingPosition):
            after, start = Checkpoint.parse(to.kind), to
        else:
            after, start = Checkpoint.at(to), self.options.starting_position
        self.home.ask(lambda: self._seek(reader, after, start))

    def _seek(self, reader: ShardReader, after: Checkpoint, start: StartingPosition) -> None:
        # The time in the lease says since when its own place counts, and nothing of the place that is sought. LATEST is
        # the moment of this call: the first call of the feed may come to the service much later.
        stream = self._streams[reader.stream]
        since_ms = stream.start_ms(after) if after == Checkpoint.LATEST else None
        sought = replace(reader.row, checkpoint=after, read_until_ms=since_ms)
        reader.seek(stream.promote(stream.feed(sought, start)), after)

    def position(self, shard: str | Located) -> Position | None:
        """See `Consumer.position`."""
        (reader,) = self.ready.named((shard,))
        with self.home.lock:
            return reader.settled.position if reader.settled.is_position else None

    def statistics(self) -> ConsumerStatistics:
        """See `Consumer.statistics`."""
        return self._looked_at(self._statistics)

    def metrics(self) -> ConsumerSnapshot:
        """See `Consumer.metrics`."""
        return self._looked_at(lambda: self._metering.snapshot(self._statistics(), self._now_s, self._confirmed_s))

    def _looked_at(self, look: Callable[[], R]) -> R:
        while True:
            try:
                with self.home.lock:
                    return look()
            except RuntimeError as error:  # On one loop without a lock, what changes meanwhile is looked at again.
                if "changed size" not in str(error) and "mutated" not in str(error):
                    raise

    @property
    def _now_s(self) -> float:
        return 0.0 if self._loop is None else self._loop.time()

    @property
    def _confirmed_s(self) -> float | None:
        return None if self._counted is None else self._counted.confirmed_s

    async def _tell_numbers(self) -> None:
        failed = False
        while not failed:
            await asyncio.sleep(self._metering.interval_s)
            failed = self._has_failed
            self._tell_interval(last=failed, failed=failed)

    def _tell_interval(self, *, last: bool, failed: bool) -> None:
        found = self._statistics()
        self._emit(self._metering.interval(found, self._streams, self._confirmed_s, last=last, failed=failed))

    @property
    def _has_failed(self) -> bool:
        """True when an error has ended the worker; the program may have seen it, or not."""
        return self._running is not None and self._running.done() and failure_of(self._running) is not None

    def _statistics(self) -> ConsumerStatistics:
        now_s = self._now_s
        readers = list(self.ready.held)
        worker = self._worker
        leases, held = leases_by_worker([] if worker is None else list(worker.leases()))
        return ConsumerStatistics(
            application=self.application,
            worker_id=self.worker_id,
            shards=tuple(self._streams[reader.stream].statistics(reader, now_s) for reader in readers),
            records_delivered=self.ready.records_before + sum(reader.delivery.records_delivered for reader in readers),
            batches_delivered=self.ready.batches_before + sum(reader.delivery.batches_delivered for reader in readers),
            leases=leases,
            leases_by_worker=held,
            leases_free=0 if worker is None else worker.leases_without_owner(),
            source_calls=dict(self._source_calls),
            table_calls=dict(self._table_calls),
            events=dict(self._events),
        )

    # --- parts ----------------------------------------------------------------------------------

    async def _more(self, seen: int, end_s: float | None = None) -> bool:
        """Wait until there may be something to take; False: nothing more will come. Raises the error that ended the
        worker.
        """
        self._raise_failed()
        if self._running is None:
            if not self.is_closing:
                raise RuntimeError("the consumer is not started: use it in an `async with` statement, or await start()")
            return False
        wait_s = None if end_s is None else max(0.0, end_s - asyncio.get_running_loop().time())
        await self.ready.stirred.wait(seen, wait_s)
        self._breath.rested()
        return True

    def _raise_failed(self) -> None:
        """Raise the error that ended the worker, if one has."""
        running = self._running
        if running is not None and running.done() and (error := failure_of(running)) is not None:
            raise error

    def on_reader(self, reader: ShardReader) -> None:
        """Take up a shard that the worker begins to hold."""
        reader.lives(self.home)
        reader.delivery.breath.turns = self._breath.turns
        if self._deserializer is not None:
            reader.delivery.deserializer = Deserializer(
                self._deserializer, self.options.unreadable, stream=reader.stream, shard_id=reader.shard_id
            )
        self._reorder(reader)
        reader.driver.paused = self._is_paused
        self._metering.hold(reader)
        reader.driver.tracer = self._tracer
        self.ready.hold(reader)
        self._lifecycle.follow(reader)

    def _reorder_all(self) -> None:
        for reader in list(self.ready.held):
            self._reorder(reader)

    def _reorder(self, reader: ShardReader) -> None:
        if self._has_order:
            reader.use_order(self._order)

    def _check_keys(self, mode: str | None) -> None:
        """Raise OptionError where a mode was chosen for its order, and a stream ignores partition keys. None: no mode
        was.
        """
        ignoring = [name for name, stream in self._streams.items() if stream.facts.ignores_keys]
        if ignoring and mode is not None and not self.options.accept_ignored_keys:
            raise OptionError(
                f"{mode}: {', '.join(ignoring)} spreads records over its shards whatever their partition keys (record "
                "distribution AUTO), so the records of a key have no order: choose AnyOrder() or unordered(), name no "
                "order at all, or say accept_ignored_keys=True: each shard is in its own order then"
            )

    def _emit(self, event: Any) -> None:
        with self.home.lock:  # Records are settled by any thread, which emits without the lock.
            self._events[type(event).__name__] += 1
            self._metering.meter.count(event)
        if self._on_event is None:
            self._log(event)
            return
        self._metering.count(event)
        if (on_loop := self._metering.on_loop) is None:
            return
        is_told = self.home.outside_soon(partial(self._hand_event, on_loop, event))
        if self.home.is_blocked or not is_told:
            self._log(event)  # The user's function would hear of it late.

    def _hand_event(self, on_event: Callable[[Any], object], event: Any) -> None:
        try:
            on_event(event)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler({"message": "on_event raised", "exception": error})


def _check(application: str, streams: Sequence[Any]) -> None:
    """Raise OptionError for an application or streams that can't be."""
    faults = [] if application else ["application: there is no name"]
    names = [one for one in streams if isinstance(one, str)]
    faults += [] if streams else ["stream: the list is empty"]
    faults += [f"stream: {name!r} comes twice" for name, count in Counter(names).items() if count > 1]
    if faults:
        raise OptionError(faults)


def _check_types(given: dict[str, Any]) -> None:
    """Raise OptionError for arguments of wrong types, before anything is made of them."""
    kinds: dict[str, tuple[type | str, ...]] = {
        "application": (str,), "worker_id": (str,), "connection": (ConnectionOptions,), "rng": (random.Random,),
        "metrics": (MetricsOptions,),
    }  # fmt: skip
    faults = not_of(given, kinds, optional=("worker_id", "connection", "rng", "metrics"))
    faults += not_callable(given, ("deserializer", "on_event", *CALLBACKS))
    stream = given["stream"]
    for one in stream if isinstance(stream, list | tuple) else [stream]:
        if not isinstance(one, str) and lacks(one, ("stream", "shards", "read")):
            faults.append(f"stream is a name, an ARN, a RecordSource or a list of them, not {shown(one)}")
    if faults:
        raise OptionError(faults)


def new_worker_id() -> str:
    """Return a worker's id that is unique among all processes: host, process, and chance."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


# --- whose turn it is -----------------------------------------------------------------------------


class Ready(ShardListener):
    """The shards that take turns. `stirred` is set whenever it is worth to look again."""

    def __init__(self) -> None:
        self.lives(SameLoop())
        self.asking = Callers()
        """The callers that take records of whichever shard."""
        self.held: dict[ShardReader, bool] = {}
        """The shards that are held; True: the shard's records are offered."""
        self.records_before = 0
        """The number of records that were delivered by shards that are held no more."""
        self.batches_before = 0
        self._turns: dict[ShardReader, None] = {}  # The shards in the order of their turns.
        self._unread: dict[ShardReader, None] = {}
        self._failures: deque[BaseException] = deque(maxlen=FAILURES_MAX)  # The shards' own iterations raise these.
        self._errors: deque[BaseException] = deque(maxlen=FAILURES_MAX)

    def lives(self, home: Host) -> None:
        """Set where the shards' readers run, before there are any; the callers that take may be on another loop."""
        self._lock = home.lock
        self.stirred = home.signal()

    def hold(self, reader: ShardReader) -> None:
        """Hold a shard; its records are not offered before `add`."""
        self.held[reader] = False
        reader.listen(self)

    def add(self, reader: ShardReader) -> None:
        """Offer a shard's records, and the shard itself."""
        if reader in self.held:
            self.held[reader] = True
            self._unread[reader] = None
            self.stir(reader)

    def failed(self, error: BaseException) -> None:
        """Keep an error, which the next call that asks for records or shards raises."""
        self._errors.append(error)
        self.stirred.set()

    def take(self, records_max: int | None = None) -> Batch[Any] | None:
        """Return the next batch of whichever shard has one; None: no shard has. Raises what ended the reading of a
        shard, once each.
        """
        self._raise()
        while True:
            with self._lock:
                reader = next(iter(self._turns), None)
                if reader is None:
                    return None
                del self._turns[reader]
            batch = reader.delivery.take(records_max)
            if batch is not None:
                with self._lock:
                    self.stir(reader)  # Its turn comes again after the others'.
                return batch
            self._raise()

    def _raise(self) -> None:
        with self._lock:
            for waiting in (self._errors, self._failures):
                if waiting:
                    raise waiting.popleft()

    def unread(self) -> ShardReader | None:
        """Return a shard that the program does not iterate; None: there is none. Raises what is not the failure of one
        shard.
        """
        with self._lock:
            if self._errors:
                raise self._errors.popleft()
            reader = next(iter(self._unread), None)
            if reader is not None:
                del self._unread[reader]
            return reader

    def named(self, shards: Sequence[str | Located]) -> list[ShardReader]:
        """Return shards by id, or by anything that has a stream and a shard's id: a batch, a record, an
        `AssignedShard`; all where none is named. Raises KeyError.
        """
        if not shards:
            return list(self.held)
        found = []
        for shard in shards:
            readers = [
                reader
                for reader in list(self.held)
                if shard == reader.shard_id
                or (not isinstance(shard, str) and (shard.stream, shard.shard_id) == (reader.stream, reader.shard_id))
            ]
            named = shard if isinstance(shard, str) else f"{shard.stream}, {shard.shard_id}"
            if not readers:
                raise KeyError(f"{named}: this consumer does not hold the shard (any more)")
            if len(readers) > 1:
                raise KeyError(f"{named}: several streams have a shard of this id; name it by a batch or AssignedShard")
            found += readers
        return found

    def closes(self) -> None:
        """Note that the current caller has closed the consumer: it takes nothing more."""
        with self._lock:
            for asking in (self.asking, *(reader.driver.asking for reader in self.held)):
                asking.closes()

    def take_back(self) -> None:
        """Deliver again what is in flight: the program has left the iteration of all shards."""
        for reader in list(self.held):
            reader.delivery.take_back()

    @property
    def is_asked(self) -> bool:
        """See `ShardListener`."""
        return bool(self.asking)

    def left(self, reader: ShardReader) -> None:
        """See `ShardListener.left`: if the shard is still held, it is offered anew."""
        with self._lock:
            if reader in self.held:
                self._unread[reader] = None
                self.stirred.set()

    def stir(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        is_offered = self.held.get(reader)
        if reader.is_over:
            self._drop(reader)
        elif is_offered:
            self._turns.setdefault(reader)
        if is_offered:
            self.stirred.set()

    def _drop(self, reader: ShardReader) -> None:
        if self.held.pop(reader, None) is not None:
            # A program that takes batches of all shards never comes to `unread`, and one that iterates shards never to
            # `take`: the reader would stay there, with all that it holds.
            self._turns.pop(reader, None)
            self._unread.pop(reader, None)
            self.records_before += reader.delivery.records_delivered
            self.batches_before += reader.delivery.batches_delivered
            if reader.failure is not None:
                self._failures.append(reader.failure)
                self.stirred.set()
