"""`TestConsumer` is a consumer for users' tests, over a stream and leases in memory."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shardway.core.leases import Done, writes
from shardway.core.log.pace import PollingOptions
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.events import BatchFailed, RecordsSkipped
from shardway.model import StartingPosition
from shardway.options.consumer import CheckpointOptions
from shardway.options.leases import LeaseOptions
from shardway.options.times import WorkerTimes
from shardway.policies import DeadLettersTo
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.consumer.session import ConsumerSession
from shardway.runtime.consumer.worker_run import new_worker_id
from shardway.stores.memory import MemoryLeaseTable
from shardway.tasks import awaited, give_up, spawn
from shardway.testing.consumer.passing_time import passing_time
from shardway.testing.consumer.progress import Progress, Retried, UnsettledError
from shardway.testing.consumer.readers import Readers
from shardway.testing.consumer.whereabouts import OTHER, THIEF, Whereabouts
from shardway.testing.streams.memory_stream import MemoryStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from shardway.core.ledger.letter import Letter
    from shardway.model import Position, Record
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.testing.consumer.passing_time import PassingTime
    from shardway.testing.streams.controls import Put
    from shardway.testing.streams.given import Given

POLLING = PollingOptions(interval_s=0.001, idle_interval_s=0.002)
"""The options of polling: intervals are short, as a read of the stream waits by itself where nothing is."""
WAIT_S = 0.02
CLOSE_S = 1.0


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
        self._end_task: asyncio.Task[None] | None = None
        self._ended_by: list[BaseException] = []
        self._other_consumer: Consumer[bytes] | None = None
        self._readers = Readers()
        super().__init__(
            self.stream.source(),
            worker_id=worker_id,
            on_event=self._hear,
            rng=rng or random.Random(0),
            application=application,
            **self._at_test_pace(leases, options),
        )
        self._progress = Progress(
            self.stream, table, self._readers, lambda: self._session.turns.held, self.options.checkpoints
        )
        self.feed(*given)

    def _session_of(self, spec: ConsumerSpec) -> ConsumerSession:
        return ConsumerSession(spec, may_leave_loop=False, on_reader=self._readers.watch)

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
        reader = self._held_reader(shard)
        while True:
            row = await self.lease_table.get(reader.shard_id)
            assert row is not None
            if isinstance(await self.lease_table.write(writes.take(row, THIEF)), Done):
                break
        await self._pass_until(lambda: reader.is_over, f"{reader.shard_id} to be lost")
        self._whereabouts.lost.add(reader.shard_id)

    async def hand_over(self, shard: str | None = None) -> None:
        """Let another consumer have a shard, as when one more is started. This returns when the other one has it: what
        is in flight is settled by then, or the drain's deadline has passed. The other one settles nothing, so all comes
        back with `get_back`.
        """
        reader = self._held_reader(shard)
        if self._other_consumer is None:
            self._other_consumer = Consumer(
                self.stream.source(),
                application=self.application,
                worker_id=OTHER,
                rng=random.Random(1),
                **self.options.arguments(),
            )
            await self._other_consumer.start()
        self._whereabouts.other.add(reader.shard_id)
        await self._pass_until(
            lambda: self._progress.owner(reader.shard_id) == OTHER, f"{reader.shard_id} to be handed over"
        )
        await self._pass_until(lambda: reader.is_over, f"{reader.shard_id} to be let go")

    async def get_back(self, shard: str) -> None:
        """Have a shard again that was lost or handed over. This returns when the consumer holds it; that is after the
        failover time for a lost one.
        """
        self._whereabouts.lost.discard(shard)
        self._whereabouts.other.discard(shard)
        await self._pass_until(
            lambda: any(one.shard_id == shard for one in self._session.turns.held), f"{shard} to come back"
        )

    async def pass_time(self, seconds: float) -> None:
        """Let time pass without waiting: for this consumer and its stream, and for all else on this event loop."""
        await self._passing_time().pass_time(seconds)

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
        return self._progress.unsettled()

    @property
    def not_checkpointed(self) -> list[Record]:
        """The records that another consumer would get if this one died now."""
        return self._progress.not_checkpointed()

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
            self._end_task = spawn(self._close_when_settled(), self._ended_by.append)

    async def close(self) -> None:
        """See `Consumer.close`. A handler that has records gets a second of real time to settle them; then the test's
        time passes the drain's deadline.
        """
        closing = awaited(super().close())
        try:
            await asyncio.wait((closing,), timeout=CLOSE_S)
            while not closing.done():
                await self._passing_time().step()
            closing.result()
        finally:
            if not closing.done():
                await give_up(closing)
        if self._other_consumer is not None:
            self._whereabouts.other.clear()
            await self._other_consumer.close()

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
        """Close, and return the UnsettledError that made the consumer close by itself, if it did."""
        ending = self._end_task
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
        while left := self._progress.left(self.elsewhere):
            if left != before:
                before, since_s = left, time.monotonic()
            elif time.monotonic() - since_s > patience_s:
                failures = [event for event in self.events if isinstance(event, BatchFailed)]
                raise UnsettledError(self._progress.complaint(patience_s, failures)) from self._readers.error
            if self._skip_waits:
                await self._passing_time().step()
            else:
                await self._passing_time().moment()

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

    def _hear(self, event: Any) -> None:
        self.events.append(event)
        if self._tell_user is not None:
            self._tell_user(event)

    def _held_reader(self, shard: str | None) -> ShardReader:
        held = list(self._session.turns.held)
        if shard is None and len(held) == 1:
            return held[0]
        for reader in held:
            if reader.shard_id == shard:
                return reader
        what = "say which shard" if shard is None else f"{shard} is not held"
        raise ValueError(f"{what}; held are {', '.join(one.shard_id for one in held) or 'none'}")

    def _passing_time(self) -> PassingTime:
        if self._time is None:
            raise RuntimeError("the consumer is not started: use it in an async with statement")
        return self._time

    async def _pass_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let time pass until a condition holds."""
        since_s = time.monotonic()
        while not condition():
            if time.monotonic() - since_s > self._patience_s:
                raise TimeoutError(f"waited for {what}, and nothing came")
            await self._passing_time().step()
