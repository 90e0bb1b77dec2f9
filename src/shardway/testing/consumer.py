"""`TestConsumer` is a consumer for users' tests, over a stream and leases in memory; it has a twin for threads."""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from shardway.core.leases import writes
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.log.pace import PollingOptions
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.events import BatchFailed, RecordsSkipped
from shardway.model import Position, Record, StartingPosition
from shardway.options.consumer import CheckpointOptions
from shardway.options.leases import LeaseOptions
from shardway.options.times import WorkerTimes
from shardway.policies import DeadLettersTo
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.consumer.session import ConsumerSession
from shardway.runtime.consumer.sync_consumer import SyncConsumer
from shardway.runtime.consumer.worker_run import new_worker_id
from shardway.runtime.shard.batch import Batch
from shardway.stores.memory import MemoryLeaseTable
from shardway.tasks import awaited, give_up, spawn
from shardway.testing.memory_stream import MemoryStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from shardway.core.assignment.views import LeaseView, WorkerView
    from shardway.core.ledger.letter import Letter
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.testing.memory_stream import Given, Put


# --- time that is let pass ------------------------------------------------------------------------
# This part lets time pass on an event loop of asyncio, without waiting for it.

RESTS_MAX = 10_000
"""The number of turns of the loop that are given to what is ready, before time goes on all the same."""
VIRTUAL_STEP_S = 0.05
MOMENT_S = 0.002
VIRTUAL_MOMENT_S = 0.25


class PassingTime:
    """The time of a loop, which can be told to jump.

    It jumps from one timer to the next, so all that is due meanwhile happens at its time and in its order. What waits
    for the outside (a thread, a socket) is not waited for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop
        self._real_s = loop.time
        self._jumped_s = 0.0
        self._is_virtual = hasattr(loop, "virtual")
        self._jumps = not self._is_virtual and _is_of_asyncio(loop)
        if self._jumps:
            loop.time = self._now_s  # type: ignore[method-assign]

    async def pass_time(self, seconds: float) -> None:
        """Let ``seconds`` pass, with all that happens in them. Raises RuntimeError on loops of other kinds."""
        if self._is_virtual:
            await asyncio.sleep(seconds)
            return
        if not self._jumps:
            kind = type(self._loop).__name__
            raise RuntimeError(f"time can be let pass on an event loop of asyncio's own, not on a {kind}")
        end_s = self._loop.time() + seconds
        while (left_s := end_s - self._loop.time()) > 0:
            await self.step(left_s)
        await self._rest()

    async def step(self, seconds_max: float = float("inf")) -> None:
        """Let what is ready be done, then go on to what is due next, by at most ``seconds_max``. On other loops, wait a
        little.
        """
        if not self._jumps:
            await asyncio.sleep(min(VIRTUAL_STEP_S if self._is_virtual else MOMENT_S, seconds_max))
            return
        await self._rest()
        due_s = min((timer.when() for timer in self._loop._scheduled if not timer.cancelled()), default=float("inf"))
        jump_s = min(due_s - self._loop.time(), seconds_max)
        if 0 < jump_s < float("inf"):
            self._jumped_s += jump_s
        await asyncio.sleep(0)

    async def moment(self) -> None:
        """Wait a little, as a clock would have it, before looking again."""
        await asyncio.sleep(VIRTUAL_MOMENT_S if self._is_virtual else MOMENT_S)

    async def _rest(self) -> None:
        """Wait until no other task is ready."""
        for _ in range(RESTS_MAX):
            await asyncio.sleep(0)
            if not self._loop._ready:
                return

    def _now_s(self) -> float:
        return self._real_s() + self._jumped_s


def _is_of_asyncio(loop: asyncio.AbstractEventLoop) -> bool:
    """True for a loop whose clock can be changed, and whose timers can be looked at."""
    return isinstance(loop, asyncio.BaseEventLoop)


_ON: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, PassingTime] = weakref.WeakKeyDictionary()


def passing_time() -> PassingTime:
    """Return the passing time of the running loop, which is made once for each loop."""
    loop = asyncio.get_running_loop()
    found = _ON.get(loop)
    if found is None:
        found = _ON[loop] = PassingTime(loop)
    return found


# --- another consumer -----------------------------------------------------------------------------
# A test may want another consumer of the application: it has the shards that it is to have, and no others.

OTHER = "another-worker"
"""The id of the consumer that gets what is handed over."""
THIEF = "a-worker-that-took-it"
"""The id of a worker that took a lease and shows itself in no other row."""


class Whereabouts:
    """The strategy of both consumers: every shard belongs to the one that is tested, but for those that are to be
    elsewhere.
    """

    def __init__(self, here: str) -> None:
        self.here = here
        self.other: set[str] = set()
        """Shards for the other consumer."""
        self.lost: set[str] = set()
        """Shards that neither of the two consumers may take back."""

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], _preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """See `shardway.core.assignment.strategies.Strategy`."""
        present: Any = {worker.id for worker in workers}
        wanted = {
            lease.key: OTHER if lease.key in self.other else self.here for lease in leases if lease.key not in self.lost
        }
        return {key: worker for key, worker in wanted.items() if worker in present}


# --- the consumer ---------------------------------------------------------------------------------

POLLING = PollingOptions(interval_s=0.001, idle_interval_s=0.002)
"""The options of polling: intervals are short, as a read of the stream waits by itself where nothing is."""
WAIT_S = 0.02
CLOSE_S = 1.0


class UnsettledError(AssertionError):
    """The records that were fed were not all settled, and nothing happens any more."""


@dataclass(frozen=True)
class Retried:
    """Records that a handler has failed for."""

    shard_id: str
    position: Position
    """The position of the first of these records."""
    records: int
    attempt: int
    """How many times the records were delivered by then."""
    error_type: str
    next_step: str
    """The next step: ``Redelivery``, ``Halve``, or the policy's end: one of ``DeadLetters``, ``Skip``, ``Stop``,
    ``GiveUp``.
    """


class TestConsumer(Consumer[Any]):
    """A `Consumer` that needs no server: what it is fed goes through the same code, with the same batches, policies,
    deserializers and callbacks.

    ::

        async with TestConsumer([{"order": 17}, {"order": 18}]) as consumer:
            await my_program(consumer)
        assert consumer.unsettled == []

    With records given here, the consumer closes by itself once all of them are settled, skipped or dead-lettered: the
    loop of a program that is tested ends then. It reads by polling, from the oldest record on, with short intervals and
    a checkpoint for each settled batch, unless ``checkpoints`` say otherwise; dead letters are kept in `dead_letters`,
    and written nowhere else but to a function of the program's.
    """

    __test__ = False  # no class of tests, for pytest

    def __init__(  # noqa: PLR0913 - options of a public class, by name
        self,
        records: Iterable[Given] = (),
        *,
        stream: MemoryStream | str = "orders",
        shards: int = 1,
        application: str = "test",
        leases: MemoryLeaseTable | LeaseOptions | None = None,
        starting_position: StartingPosition = StartingPosition.TRIM_HORIZON,
        ends: bool | None = None,
        patience_s: float = 10.0,
        skip_waits: bool = False,
        worker_id: str | None = None,
        on_event: Callable[[Any], None] | None = None,
        rng: random.Random | None = None,
        **options: Any,
    ) -> None:
        """``records``: see `feed`. ``stream``: the stream to go on with (a name makes a new one, with ``shards``
        shards), and ``leases`` the table to go on with, or options of leases as in production. ``ends``: close when all
        that was fed is settled; by default if ``records`` are given. When nothing is settled for ``patience_s`` of real
        time then, leaving the ``async with`` block raises UnsettledError. ``skip_waits``: whenever nothing is to be
        done, let time pass until something is; it is not for handlers that wait for the outside. All other options are
        those of `Consumer`.
        """
        given = list(records)
        self.stream = MemoryStream(stream, shards=shards) if isinstance(stream, str) else stream
        leases = leases if isinstance(leases, LeaseOptions) else LeaseOptions(table=leases)
        table = leases.table if isinstance(leases.table, MemoryLeaseTable) else MemoryLeaseTable()
        self.lease_table = table
        self.events: list[Any] = []
        """All events that were emitted so far."""
        self.dead_letters: list[Letter] = []
        """The dead letters of the records that were given up, in the order in which they were."""
        worker_id = worker_id or new_worker_id()
        self._options = {"application": application, **options}
        self._whereabouts = Whereabouts(worker_id)
        self._tell_user = on_event
        self._ends = bool(given) if ends is None else ends
        self._patience_s = patience_s
        self._skip_waits = skip_waits
        self._starting_position = starting_position
        self._time: PassingTime | None = None
        self._ending: asyncio.Task[None] | None = None
        self._ended_by: list[BaseException] = []
        self._other: Consumer[bytes] | None = None
        self._seen: tuple[int, dict[str, Position]] = (-1, {})
        self._newest: dict[str, ShardReader] = {}
        self._errors: deque[BaseException] = deque(maxlen=1)
        self._batch_class = _batch_class(self._errors)
        super().__init__(
            self.stream.source(),
            worker_id=worker_id,
            on_event=self._heard,
            rng=rng or random.Random(0),
            application=application,
            **self._at_test_pace(leases, options),
        )
        self.feed(*given)

    def _session_of(self, spec: ConsumerSpec) -> ConsumerSession:
        return ConsumerSession(spec, may_leave_loop=False, on_reader=self._watch)

    def _watch(self, reader: ShardReader) -> None:
        """Keep the newest reader of each shard, and what a handler raised last."""
        take = reader.delivery.take

        def taken(records_max: int | None = None) -> Batch[Any] | None:
            batch = take(records_max)
            if batch is not None:
                batch.__class__ = self._batch_class
            return batch

        reader.delivery.take = taken  # type: ignore[method-assign]
        self._newest[reader.shard_id] = reader

    # --- what a test does -----------------------------------------------------------------------

    def feed(self, *records: Given, key: str | None = None, shard: str | None = None) -> list[Put]:
        """Write records into the stream: bytes, texts, values to be written as JSON, OutRecords, Records. ``key``:
        their partition key; ``shard``: the shard that they are to go to. Return where they are, in their order.
        """
        return self.stream.put(*records, key=key, shard=shard)

    def split(self, shard: str | None = None) -> list[str]:
        """End a shard, which goes on as two. Return their ids. Its records are still to be read, before theirs."""
        return self.stream.split(shard)

    def merge(self, left: str, right: str) -> str:
        """End two neighbours, which go on as one. Return its id."""
        return self.stream.merge(left, right)

    async def lose(self, shard: str | None = None) -> None:
        """Have another worker take a shard's lease, as from one that fell silent. This returns when the consumer has
        noticed, which takes up to half of the failover time: that much time passes.
        """
        reader = self._held(shard)
        while True:
            row = await self.lease_table.get(reader.shard_id)
            assert row is not None
            if isinstance(await self.lease_table.write(writes.take(row, THIEF)), writes.Done):
                break
        await self._until(lambda: reader.is_over, f"{reader.shard_id} to be lost")
        self._whereabouts.lost.add(reader.shard_id)

    async def hand_over(self, shard: str | None = None) -> None:
        """Let another consumer have a shard, as when one more is started. This returns when the other one has it: what
        is in flight is settled by then, or the drain's deadline has passed. The other one settles nothing, so all comes
        back with `get_back`.
        """
        reader = self._held(shard)
        if self._other is None:
            self._other = Consumer(
                self.stream.source(),
                application=self.application,
                worker_id=OTHER,
                rng=random.Random(1),
                **self.options.arguments(),
            )
            await self._other.start()
        self._whereabouts.other.add(reader.shard_id)
        await self._until(lambda: self._owner(reader.shard_id) == OTHER, f"{reader.shard_id} to be handed over")
        await self._until(lambda: reader.is_over, f"{reader.shard_id} to be let go")

    async def get_back(self, shard: str) -> None:
        """Have a shard again that was lost or handed over. This returns when the consumer holds it; that is after the
        failover time for a lost one.
        """
        self._whereabouts.lost.discard(shard)
        self._whereabouts.other.discard(shard)
        await self._until(
            lambda: any(one.shard_id == shard for one in self._session.turns.held), f"{shard} to come back"
        )

    async def pass_time(self, seconds: float) -> None:
        """Let time pass without waiting: for this consumer and its stream, and for all else on this event loop."""
        await self._passing().pass_time(seconds)

    async def settled(self, timeout_s: float | None = None) -> None:
        """Wait until all that was fed is settled, skipped or dead-lettered, but for what is elsewhere; and
        checkpointed, unless the options have a cadence other than ``Prompt()``. Raises UnsettledError when nothing was
        settled for ``timeout_s``, by default the consumer's ``patience_s``.
        """
        await self._all_settled(self._patience_s if timeout_s is None else timeout_s)

    def successor(self, records: Iterable[Given] = (), **changes: Any) -> TestConsumer:
        """Return another consumer on the same stream and leases: it goes on where this one's checkpoints are."""
        options = {"starting_position": self._starting_position, **self._options, **changes}
        return TestConsumer(records, stream=self.stream, leases=self.lease_table, **options)

    # --- what a test looks at -------------------------------------------------------------------

    @property
    def checkpoints(self) -> dict[str, Position | str]:
        """The checkpoint that the lease table holds for each shard: a position, or a word such as SHARD_END."""
        return {
            row.key: row.checkpoint.position if row.checkpoint.is_position else row.checkpoint.text
            for row in self.lease_table.rows()
        }

    @property
    def unsettled(self) -> list[Record]:
        """The records that were delivered and are not settled: they come again, here or to the next owner."""
        out = {
            (shard, position)
            for shard, reader in self._newest.items()
            for position in reader.ledger.progress.unsettled()
        }
        return [one for one in self.stream.records() if (one.shard_id, _position(one)) in out]

    @property
    def not_checkpointed(self) -> list[Record]:
        """The records that another consumer would get if this one died now."""
        rows = {row.key: row.checkpoint for row in self.lease_table.rows()}
        return [one for one in self.stream.records() if not _covers(rows.get(one.shard_id), _position(one))]

    @property
    def retried(self) -> list[Retried]:
        """The records of each failure of a handler."""
        return [
            Retried(one.shard_id, one.position, one.records, one.attempt, one.error_type, one.next_step)
            for one in self.events
            if isinstance(one, BatchFailed)
        ]

    @property
    def skipped(self) -> list[RecordsSkipped]:
        """The events of records that were settled without having been processed."""
        return [one for one in self.events if isinstance(one, RecordsSkipped)]

    @property
    def elsewhere(self) -> set[str]:
        """The shards that are lost, or handed over."""
        return self._whereabouts.lost | self._whereabouts.other

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """See `Consumer.start`."""
        self._time = passing_time()
        await super().start()
        if self._ends:
            self._ending = spawn(self._close_when_settled(), self._ended_by.append)

    async def close(self) -> None:
        """See `Consumer.close`. A handler that has records gets a second of real time to settle them; then the test's
        time passes the drain's deadline.
        """
        closing = awaited(super().close())
        try:
            await asyncio.wait((closing,), timeout=CLOSE_S)
            while not closing.done():
                await self._passing().step()
            closing.result()
        finally:
            if not closing.done():
                await give_up(closing)
        if self._other is not None:
            self._whereabouts.other.clear()
            await self._other.close()

    async def __aenter__(self) -> TestConsumer:
        await super().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unsettled = await self.end()
        if unsettled is not None and error is None:
            raise unsettled

    async def end(self) -> BaseException | None:
        """Close, and return the UnsettledError for which the consumer has closed by itself, if it has."""
        ending = self._ending
        if ending is not None and not ending.done():
            if not self._session.closing.is_begun:
                ending.cancel()
            await asyncio.wait((ending,))
        await self.close()
        return self._ended_by[0] if self._ended_by else None

    async def _close_when_settled(self) -> None:
        try:
            await self._all_settled(self._patience_s)
        except UnsettledError:
            self.pause()
            self._session.turns.take_back()  # else the drain would wait for it once more
            raise
        finally:
            await self.close()

    async def _all_settled(self, patience_s: float) -> None:
        """Wait until all is settled. Raises UnsettledError when nothing is settled for ``patience_s``."""
        before, since_s = None, time.monotonic()
        while left := self._left():
            if left != before:
                before, since_s = left, time.monotonic()
            elif time.monotonic() - since_s > patience_s:
                raise UnsettledError(self._complaint(patience_s)) from (self._errors[-1] if self._errors else None)
            if self._skip_waits:
                await self._passing().step()
            else:
                await self._passing().moment()

    def _complaint(self, patience_s: float) -> str:
        safe = self._safe()
        unsettled = [one for one in self.stream.records() if not _covers(safe.get(one.shard_id), _position(one))]
        shown = ", ".join(
            f"{one.shard_id} {one.sequence_number}/{one.sub_sequence_number}" for one in unsettled[:5]
        ) + (", ..." if len(unsettled) > 5 else "")
        failures = [event for event in self.events if isinstance(event, BatchFailed)]
        failed = ""
        if failures:
            last = failures[-1]
            failed = (
                f" The handler failed {len(failures)} times, last with {last.error_type} ({last.error_at}), which is "
                "the cause of this. What fails is tried again until it succeeds, unless the options say otherwise."
            )
        return (
            f"{len(unsettled)} records are not settled, and nothing was settled for {patience_s:g} s: {shown}.{failed} "
            f"{len(self.unsettled)} of them were delivered: leave their batch's `async with` block, or call `ack` or "
            "`settle_through`. What waits for another try needs time: pass_time(), or skip_waits=True."
        )

    # --- parts ----------------------------------------------------------------------------------

    def _at_test_pace(self, leases: LeaseOptions, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with short intervals, and nothing that goes outside."""
        letters = options.get("dead_letters")
        return {
            "checkpoints": CheckpointOptions(cadence=Prompt()),
            **options,
            "polling": POLLING,
            "leases": replace(leases, table=self.lease_table, strategy=self._whereabouts),
            "starting_position": self._starting_position,
            "fan_out": None,
            "dead_letters": None
            if letters is None
            else DeadLettersTo(lambda letter: self._write_letter(letter, letters)),
            "_times": WorkerTimes.of(leases.failover_s, wait_interval_s=WAIT_S),
        }

    async def _write_letter(self, letter: Letter, choice: Any) -> None:
        if isinstance(choice, DeadLettersTo):
            written = choice.write(letter)
            if hasattr(written, "__await__"):
                await written
        self.dead_letters.append(letter)

    def _heard(self, event: Any) -> None:
        self.events.append(event)
        if self._tell_user is not None:
            self._tell_user(event)

    def _held(self, shard: str | None) -> ShardReader:
        held = list(self._session.turns.held)
        if shard is None and len(held) == 1:
            return held[0]
        for reader in held:
            if reader.shard_id == shard:
                return reader
        what = "say which shard" if shard is None else f"{shard} is not held"
        raise ValueError(f"{what}; held are {', '.join(one.shard_id for one in held) or 'none'}")

    def _owner(self, shard: str) -> str | None:
        return next((row.owner for row in self.lease_table.rows() if row.key == shard), None)

    def _safe(self) -> dict[str, Checkpoint]:
        """Return how far each shard is settled, and stored too if that happens at once."""
        found = {row.key: row.checkpoint for row in self.lease_table.rows()}
        prompt = isinstance(self.options.checkpoints.cadence, Prompt)
        for reader in self._session.turns.held:
            stored, settled = found.get(reader.shard_id), reader.ledger.progress.safe
            is_stored_at_once = prompt and reader.checkpointing.pending is None
            found[reader.shard_id] = min(settled, stored) if is_stored_at_once and stored is not None else settled
        return found

    def _left(self) -> dict[str, Checkpoint | None]:
        """Return the shards that have records which are not settled, and how far they are."""
        if self._seen[0] != self.stream.changes:
            self._seen = (self.stream.changes, self.stream.ends())
        safe = self._safe()
        return {
            shard: safe.get(shard)
            for shard, end in self._seen[1].items()
            if shard not in self.elsewhere and not _covers(safe.get(shard), end)
        }

    def _passing(self) -> PassingTime:
        if self._time is None:
            raise RuntimeError("the consumer is not started: use it in an async with statement")
        return self._time

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Let time pass until a condition holds."""
        since_s = time.monotonic()
        while not condition():
            if time.monotonic() - since_s > self._patience_s:
                raise TimeoutError(f"waited for {what}, and nothing came")
            await self._passing().step()


def _batch_class(errors: deque[BaseException]) -> type[Batch[Any]]:
    """Return a class of batches that keep what their handler raised last."""

    class HeardBatch(Batch[Any]):
        __slots__ = ()

        def fail(self, error: BaseException, *indices: int) -> bool:
            errors.append(error)
            return super().fail(error, *indices)

    return HeardBatch


def _position(record: Record) -> Position:
    return Position(record.sequence_number, record.sub_sequence_number)


def _covers(checkpoint: Checkpoint | None, position: Position) -> bool:
    """True where a checkpoint says that this record is done."""
    return checkpoint is not None and (checkpoint.is_end or checkpoint >= Checkpoint.at(position))


# --- for threads ----------------------------------------------------------------------------------

R = TypeVar("R")
CALLBACKS = ("on_shards_assigned", "on_shards_ended", "on_shards_revoked", "on_shards_lost")


class SyncTestConsumer(SyncConsumer[Any]):
    """A `SyncConsumer` that needs no server. Arguments, what a test may do, and what it may look at are those of
    `TestConsumer`.

    ::

        with SyncTestConsumer([{"order": 17}, {"order": 18}]) as consumer:
            my_program(consumer)
        assert consumer.unsettled == []
    """

    __test__ = False  # no class of tests, for pytest

    def __init__(self, records: Iterable[Given] = (), *, application: str = "test", **options: Any) -> None:
        self._options = {"application": application, **options}
        for name in CALLBACKS:
            if (callback := options.get(name)) is not None:
                options[name] = self._in_thread(callback)
        self.tested = TestConsumer(records, application=application, **options)
        """The consumer on the loop; use it only for what is not here."""
        super().__init__(self.tested.stream.source(), application=application)

    def _session_of(self, _: ConsumerSpec) -> ConsumerSession:
        return self.tested._session

    # --- what a test does -----------------------------------------------------------------------

    def feed(self, *records: Given, key: str | None = None, shard: str | None = None) -> list[Put]:
        """See `TestConsumer.feed`."""
        return self._look(lambda: self.tested.feed(*records, key=key, shard=shard))

    def split(self, shard: str | None = None) -> list[str]:
        """See `TestConsumer.split`."""
        return self._look(lambda: self.tested.split(shard))

    def merge(self, left: str, right: str) -> str:
        """See `TestConsumer.merge`."""
        return self._look(lambda: self.tested.merge(left, right))

    def lose(self, shard: str | None = None) -> None:
        """See `TestConsumer.lose`."""
        self._thread.run(self.tested.lose(shard))

    def hand_over(self, shard: str | None = None) -> None:
        """See `TestConsumer.hand_over`."""
        self._thread.run(self.tested.hand_over(shard))

    def get_back(self, shard: str) -> None:
        """See `TestConsumer.get_back`."""
        self._thread.run(self.tested.get_back(shard))

    def pass_time(self, seconds: float) -> None:
        """See `TestConsumer.pass_time`."""
        self._thread.run(self.tested.pass_time(seconds))

    def settled(self, timeout_s: float | None = None) -> None:
        """See `TestConsumer.settled`."""
        self._thread.run(self.tested.settled(timeout_s))

    def successor(self, records: Iterable[Given] = (), **changes: Any) -> SyncTestConsumer:
        """See `TestConsumer.successor`."""
        place = {"stream": self.tested.stream, "leases": self.tested.lease_table}
        return SyncTestConsumer(records, **{**self._options, **place, **changes})

    # --- what a test looks at -------------------------------------------------------------------

    @property
    def checkpoints(self) -> dict[str, Position | str]:
        """See `TestConsumer.checkpoints`."""
        return self._look(lambda: self.tested.checkpoints)

    @property
    def unsettled(self) -> list[Record]:
        """See `TestConsumer.unsettled`."""
        return self._look(lambda: self.tested.unsettled)

    @property
    def not_checkpointed(self) -> list[Record]:
        """See `TestConsumer.not_checkpointed`."""
        return self._look(lambda: self.tested.not_checkpointed)

    @property
    def retried(self) -> list[Retried]:
        """See `TestConsumer.retried`."""
        return self._look(lambda: self.tested.retried)

    @property
    def skipped(self) -> list[RecordsSkipped]:
        """See `TestConsumer.skipped`."""
        return self._look(lambda: self.tested.skipped)

    @property
    def dead_letters(self) -> list[Letter]:
        """See `TestConsumer.dead_letters`."""
        return self._look(lambda: list(self.tested.dead_letters))

    @property
    def events(self) -> list[Any]:
        """See `TestConsumer.events`."""
        return self._look(lambda: list(self.tested.events))

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """See `TestConsumer.start`."""
        self._thread.run(self.tested.start())

    def close(self) -> None:
        """See `TestConsumer.close`."""
        try:
            self._unless_closed(lambda: self._thread.run(self.tested.close()))
        finally:
            super().close()

    def __enter__(self) -> SyncTestConsumer:
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unsettled = self._unless_closed(lambda: self._thread.run(self.tested.end()))
        super().__exit__(kind, error, trace)
        if unsettled is not None and error is None:
            raise unsettled

    def _look(self, work: Callable[[], R]) -> R:
        """Do work on the loop; once that is closed, in the caller's thread."""
        return work() if self._thread.is_closed else self._call(work)
