"""A consumer's numbers: what it is and did at one moment; sources and lease tables that count the calls to them, and
report a table that fails; the counts of its parts as snapshots; and the event that reports them at an interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shardway.core.leases import Done, Kind, Unknown
from shardway.core.leases.membership import WorkerRow, worker_row
from shardway.core.ledger.grouping import Part
from shardway.errors import ExpiredIteratorError, OptionError, ServiceError, ShardwayError
from shardway.events import ConsumerMetrics, LeaseTableFailed, WorkerIdShared
from shardway.model import Position
from shardway.options import metrics_for
from shardway.ports import SharedWithKcl
from shardway.runtime.shard.listener import Origin, ShardListener
from shardway.telemetry.consumer_metrics import ConsumerMeter, ShardCounts, ShardLevels, WorkerLevels

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

    from shardway.core.assignment.kcl import Coordination, Place
    from shardway.core.feeding.pages import ReadPage, StreamFacts
    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.row import Checkpoint, Listing
    from shardway.model import IteratorAt, ListedShard
    from shardway.options import MetricsOptions
    from shardway.ports import LeaseTable, RecordSource, Tracer
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.telemetry.consumer_metrics import ConsumerSnapshot


# --- what a consumer is and did at one moment -----------------------------------------------------


class ShardStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that the consumer holds."""

    stream: str
    """The stream's name or ARN, as it was given."""
    shard_id: str
    """The shard's id."""
    token: int
    """The fencing token of its batches."""
    origin: Origin
    """The way in which the shard came to this consumer."""
    paused: bool
    """True between `Consumer.pause` and `resume`."""
    millis_behind_latest: int | None
    """The time by which the last successful read was behind the shard's tip, in milliseconds; None: nothing was read
    yet. The figure stays as it is while reads fail and while a handler hangs, so it is no figure to raise an alarm by.
    """
    since_read_s: float
    """Seconds since the last read that succeeded; before the first one, since the consumer began to read the shard.
    It grows while reads fail, and while the consumer has no room for more records. 0.0 once the shard was read to its
    end.
    """
    oldest_unsettled_s: float | None
    """Seconds since the oldest record that is fetched and not settled arrived in the stream, by the service's time.
    It grows while a handler fails or hangs. None: all that was fetched is settled.
    """
    lag_s: float
    """The age that the oldest record may have that is not settled, fetched or not, in seconds: `oldest_unsettled_s`;
    or, where that is more or there is none, what the last read was behind and the time since. So it grows while reads
    fail, and while a handler fails or hangs.
    """
    retention_used: float | None
    """The part of the stream's retention that ``lag_s`` has used: at 1.0 the record is lost. None: the retention is not
    known.
    """
    is_full: bool
    """True while nothing more is fetched, as there is no room for it before more is settled."""
    settled: Position | None
    """The position up to and with which all records are settled. None: no record is, or all of a shard that has
    ended.
    """
    stored: Position | None
    """The position that is known to be stored as the checkpoint in the lease table."""
    records_delivered: int
    """The number of records that were delivered in this tenure. A record that came again is counted again."""
    batches_delivered: int
    """The number of batches that were delivered in this tenure."""
    records_in_flight: int
    """The number of records that are in flight now."""
    records_held: int
    """The number of records that are fetched and not settled, delivered or not."""
    bytes_held: int
    """The memory that the held records take: their data, and what Python needs for each of them."""
    oldest_in_flight_s: float | None
    """Seconds since the oldest unsettled record was first delivered. None: all that was delivered is settled."""


class ConsumerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a consumer. Counts are since its start."""

    application: str
    """The application's name."""
    worker_id: str
    """The consumer's name among those of the application."""
    shards: tuple[ShardStatistics, ...]
    """The shards that the consumer holds."""
    records_delivered: int
    """The number of records that were delivered. A record that came again is counted again."""
    batches_delivered: int
    """The number of batches that were delivered."""
    leases: int
    """The number of leases of its streams' shards that are not read to their end, with and without an owner, as last
    read.
    """
    leases_by_worker: dict[str, int]
    """The number of those leases that each worker has; one that died has its leases until another worker takes them."""
    leases_free: int
    """The number of those leases that no living worker has, though their shards could be read: those of a dead worker
    count, and the children of a shard that is still read do not.
    """
    source_calls: dict[str, int]
    """The number of calls to the streams, by the names of `shardway.ports.RecordSource`; ``read`` is GetRecords."""
    table_calls: dict[str, int]
    """The number of calls to the lease table, by the names of `shardway.ports.LeaseTable`."""
    events: dict[str, int]
    """The number of events that were emitted, by type."""

    @property
    def millis_behind_latest(self) -> int | None:
        """The highest `ShardStatistics.millis_behind_latest` of all shards. None: no shard was read yet."""
        return max(
            (one.millis_behind_latest for one in self.shards if one.millis_behind_latest is not None), default=None
        )

    @property
    def since_read_s(self) -> float | None:
        """Seconds since the last good read of the shard that has waited longest for one; None: no shard is held."""
        return max((one.since_read_s for one in self.shards), default=None)

    @property
    def oldest_unsettled_s(self) -> float | None:
        """Seconds since the oldest fetched and unsettled record of all shards arrived; None: there is none."""
        ages = (one.oldest_unsettled_s for one in self.shards if one.oldest_unsettled_s is not None)
        return max(ages, default=None)

    @property
    def lag_s(self) -> float | None:
        """The age that the oldest unsettled record of all shards may have, in seconds; None: no shard is held."""
        return max((one.lag_s for one in self.shards), default=None)

    @property
    def retention_used(self) -> float | None:
        """The highest `ShardStatistics.retention_used`; None: none is known."""
        return max((one.retention_used for one in self.shards if one.retention_used is not None), default=None)

    @property
    def records_in_flight(self) -> int:
        """The number of records that are in flight now."""
        return sum(one.records_in_flight for one in self.shards)

    @property
    def bytes_held(self) -> int:
        """The memory of what is fetched and not settled, in bytes; `BufferOptions.buffer_bytes_max` bounds it."""
        return sum(one.bytes_held for one in self.shards)


def shard_statistics(
    reader: ShardReader, now_s: float, service_now_s: float, retention_s: float | None
) -> ShardStatistics:
    """Return the figures of one shard. ``now_s`` is the loop's clock, ``service_now_s`` the service's time (epoch
    seconds).
    """
    ledger = reader.ledger
    first: Any = ledger.oldest_record
    oldest: Any = first.record if isinstance(first, Part) else first
    out_since_s = ledger.out_since_s
    unsettled_s = None if oldest is None else max(0.0, service_now_s - oldest.approximate_arrival_timestamp.timestamp())
    since_read_s = 0.0 if ledger.came_to.is_end else now_s - reader.read_at_s
    unread_s = 0.0 if ledger.came_to.is_end else (reader.millis_behind_latest or 0) / 1000 + since_read_s
    lag_s = max(unread_s, unsettled_s or 0.0)
    return ShardStatistics(
        stream=reader.stream,
        shard_id=reader.shard_id,
        token=reader.token,
        origin=reader.origin,
        paused=reader.paused,
        millis_behind_latest=reader.millis_behind_latest,
        since_read_s=since_read_s,
        oldest_unsettled_s=unsettled_s,
        lag_s=lag_s,
        retention_used=lag_s / retention_s if retention_s else None,
        is_full=ledger.is_full,
        settled=_position(ledger.safe),
        stored=_position(reader.stored),
        records_delivered=reader.records_delivered,
        batches_delivered=reader.batches_delivered,
        records_in_flight=ledger.out,
        records_held=ledger.held.records,
        bytes_held=ledger.held.held_bytes,
        oldest_in_flight_s=None if out_since_s is None else now_s - out_since_s,
    )


def leases_by_worker(rows: Iterable[LeaseRow]) -> tuple[int, dict[str, int]]:
    """Return how many leases there are, and how many each worker has; leases that have ended do not count."""
    count, held = 0, dict[str, int]()
    for row in rows:
        if not row.ended:
            count += 1
            if row.actual_owner is not None:
                held[row.actual_owner] = held.get(row.actual_owner, 0) + 1
    return count, held


def _position(checkpoint: Checkpoint) -> Position | None:
    return checkpoint.position if checkpoint.is_position else None


# --- sources and tables that count the calls to them ----------------------------------------------

T = TypeVar("T")
OWN_ROWS_MAX = 64  # The rows that are remembered: an inconsistent read is never so old.
ITERATORS_MAX = 20_000  # The iterators that are remembered, with their shards.
LOOK_AGAIN_S = 0.5
"""The seconds between looks whether a worker lives that reads another stream by the same leases."""


class CountedSource:
    """A `shardway.ports.RecordSource` that counts: ``calls`` by the names of the calls, ``meter`` how long
    reads took.
    """

    def __init__(
        self, source: RecordSource, calls: Counter[str], meter: ConsumerMeter, tracer: Tracer | None = None
    ) -> None:
        self._source = source
        self._calls = calls
        self._meter = meter
        self._tracer = tracer
        self._shards: dict[str, str] = {}  # The shards by iterator, where that is counted by shard, or traced.

    @property
    def stream(self) -> str:
        """The stream of the source."""
        return self._source.stream

    @property
    def now_s(self) -> float:
        """The service's time, as the source has it."""
        return self._source.now_s

    async def describe(self) -> StreamFacts:
        """Describe the stream, and count the call."""
        self._calls["describe"] += 1
        return await self._source.describe()

    async def shards(self) -> list[ListedShard]:
        """List the shards, and count the call."""
        self._calls["shards"] += 1
        return await self._source.shards()

    async def iterator(self, shard_id: str, at: IteratorAt) -> str:
        """Ask for an iterator, and count the call."""
        self._calls["iterator"] += 1
        found = await self._source.iterator(shard_id, at)
        self._is_of(found, shard_id)
        return found

    async def read(self, iterator: str, records_max: int) -> ReadPage:
        """Read a page, and count the call."""
        self._calls["read"] += 1
        loop, shard_id = asyncio.get_running_loop(), self._shards.pop(iterator, "")
        begun_s = loop.time()
        try:
            page = await self._source.read(iterator, records_max)
        except ExpiredIteratorError:
            self._meter.iterator_expired()
            raise
        took_s = loop.time() - begun_s
        self._meter.read(self._source.stream, shard_id, took_s)
        if self._tracer is not None and page.records:
            self._tracer.received(self._source.stream, shard_id, len(page.records), took_s)
        if shard_id and page.next_iterator is not None:
            self._is_of(page.next_iterator, shard_id)
        return page

    def _is_of(self, iterator: str, shard_id: str) -> None:
        if self._meter.per_shard or self._tracer is not None:
            if len(self._shards) >= ITERATORS_MAX:  # Iterators that were given up for others are still there.
                self._shards.clear()
            self._shards[iterator] = shard_id

    async def register(self, consumer: str) -> str:
        """Register a consumer, and count the call."""
        self._calls["register"] += 1
        return await self._source.register(consumer)

    async def registered(self, consumer: str) -> str | None:
        """Look for a registered consumer, and count the call."""
        self._calls["registered"] += 1
        return await self._source.registered(consumer)

    async def deregister(self, consumer: str) -> None:
        """Deregister a consumer, and count the call."""
        self._calls["deregister"] += 1
        await self._source.deregister(consumer)

    def subscribe(self, consumer_arn: str, shard_id: str, at: IteratorAt) -> AsyncGenerator[ReadPage, None]:
        """Subscribe to a shard, and count the call."""
        self._calls["subscribe"] += 1
        pages = self._source.subscribe(consumer_arn, shard_id, at)
        return pages if self._tracer is None else self._traced(pages, shard_id, self._tracer)

    async def _traced(
        self, pages: AsyncGenerator[ReadPage, None], shard_id: str, tracer: Tracer
    ) -> AsyncGenerator[ReadPage, None]:
        """Trace pages that the service pushes: a span says when a page came, and not how long it took."""
        async with contextlib.aclosing(pages):
            async for page in pages:
                if page.records:
                    tracer.received(self._source.stream, shard_id, len(page.records), 0.0)
                yield page

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()


class CountedTable:
    """A `shardway.ports.LeaseTable` that counts: ``calls`` by the names of the calls. A call that fails, and that the
    worker repeats in silence, is emitted as an event.
    """

    def __init__(
        self,
        table: LeaseTable,
        calls: Counter[str],
        on_event: Callable[[Any], None],
        meter: ConsumerMeter,
        *,
        stream: str = "",
        application: str = "",
    ) -> None:
        """``stream``: the ARN of the stream that is read, where lease keys do not name it. ``application``: its name,
        where the table is for one application, and does not know which.
        """
        self._table = table
        self._calls = calls
        self._on_event = on_event
        self._meter = meter
        self.confirmed_s: float | None = None
        """The time at which a write that renews leases was confirmed last, on the loop's clock."""
        self._stream = stream
        self._application = application
        self._looked = not (stream or application)
        self._own = dict[int, WorkerRow]()  # The rows as they will be read back, by counter.
        self._others: set[int] = set()

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    async def ensure(self) -> None:
        """Ensure that the table is there, and count the call."""
        await self._read("ensure", self._table.ensure())

    async def create(self, row: LeaseRow) -> Outcome:
        """Create a lease, and count the call."""
        return await self._write("create", self._table.create(row))

    async def write(self, write: Write) -> Outcome:
        """Write a lease, and count the call; the write is timed where it renews a lease."""
        if write.kind not in (Kind.RENEW, Kind.CHECKPOINT):
            return await self._write("write", self._table.write(write))
        return await self._timed("write", self._table.write(write), stores=write.kind is Kind.CHECKPOINT)

    async def get(self, key: str) -> LeaseRow | None:
        """Read a lease, and count the call."""
        return await self._read("get", self._table.get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """Read all leases, and count the call."""
        return await self._read("scan", self._table.scan(consistent=consistent))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """Write this worker's row, with the stream and application that it reads, and count the call."""
        row = replace(row, stream=self._stream, application=self._application)
        self._own[row.counter] = worker_row(row.attributes())
        self._own.pop(row.counter - OWN_ROWS_MAX, None)
        return await self._timed("put_worker", self._table.put_worker(row), stores=False)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """Read the workers' rows, and count the call. Another process with this worker's id shows in them, and at first
        workers of another stream or application. Raises OptionError when there are such.
        """
        rows = await self._read("workers", self._table.workers(consistent=consistent))
        if not self._looked:
            await self._meet({row.worker_id: row for row in rows if self._is_stranger(row)})
            self._looked = True
        if self._own and len(self._others) < 2:
            worker_id = next(iter(self._own.values())).worker_id
            # One alone may be left from before a crash; a second one shows that another process writes them now.
            self._others.update(row.counter for row in rows if row.worker_id == worker_id and not self._wrote(row))
            if len(self._others) > 1:
                self._on_event(WorkerIdShared(self.name, worker_id))
        return rows

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """Delete a worker's row, and count the call."""
        return await self._write("delete_worker", self._table.delete_worker(worker_id, counter=counter))

    async def close(self) -> None:
        """Close the table."""
        await self._table.close()

    def _is_stranger(self, row: WorkerRow) -> bool:
        """True for a worker that reads by these leases and should not: both workers would get a part of the records."""
        other_stream = self._stream and row.stream not in ("", self._stream)
        other_application = self._application and row.application not in ("", self._application)
        return bool(row.held and (other_stream or other_application))

    async def _meet(self, strangers: Mapping[str, WorkerRow]) -> None:
        """Wait until it is certain that none of them lives: this consumer would go on where the other one is."""
        waited_s = 0.0
        while waited_s < max((row.failover_s for row in strangers.values()), default=0.0):
            await asyncio.sleep(LOOK_AGAIN_S)
            waited_s += LOOK_AGAIN_S
            for row in await self._read("workers", self._table.workers(consistent=True)):
                if row.worker_id not in strangers or row.counter == strangers[row.worker_id].counter:
                    continue
                if self._application and row.application not in ("", self._application):
                    raise OptionError(
                        f"leases: {row.worker_id} of the application {row.application!r} reads by the leases in "
                        f"{self.name}, and this consumer is of {self._application!r}: the records would be divided "
                        "among both. Give each application a table of its own"
                    )
                if self._stream:
                    raise OptionError(
                        f"application: {row.worker_id} reads another stream, {row.stream}, by the leases in "
                        f"{self.name}, which do not say of which stream they are: give {self._stream} another "
                        "application, or let each consumer read a list of both"
                    )

    def _wrote(self, row: WorkerRow) -> bool:
        """True for a row of this worker, also for an old one that an inconsistent read still finds."""
        own = self._own.get(row.counter)
        return row.counter < min(self._own) if own is None else row == own

    async def _read(self, call: str, answer: Awaitable[T]) -> T:
        self._calls[call] += 1
        try:
            return await answer
        except ShardwayError as error:
            if error.retryable:  # An error that is not ends the worker, and is raised.
                self._failed(call, error)
            raise

    async def _timed(self, call: str, answer: Awaitable[Outcome], *, stores: bool) -> Outcome:
        begun_s, confirmed = asyncio.get_running_loop().time(), False
        try:
            outcome = await self._write(call, answer)
            confirmed = isinstance(outcome, Done)
        finally:
            now_s = asyncio.get_running_loop().time()
            self._meter.wrote(now_s - begun_s, stores=stores, confirmed=confirmed)
            if confirmed:
                self.confirmed_s = now_s
        return outcome

    async def _write(self, call: str, answer: Awaitable[Outcome]) -> Outcome:
        self._calls[call] += 1
        try:
            outcome = await answer
        except Exception as error:
            self._failed(call, error)
            raise
        # The caller tries again in silence. Without this event, a consumer whose policy lacks UpdateItem would read
        # nothing for ever.
        if isinstance(outcome, Unknown):
            self._on_event(LeaseTableFailed(self.name, call, outcome.reason, outcome.reason))
        return outcome

    def _failed(self, call: str, error: Exception) -> None:
        code = error.code if isinstance(error, ServiceError) else type(error).__name__
        reason = str(error) if isinstance(error, ShardwayError) else code
        self._on_event(LeaseTableFailed(self.name, call, code, reason))


class CountedSharedTable(CountedTable):
    """A `CountedTable` for a table that is a `shardway.ports.SharedWithKcl` too."""

    def __init__(
        self,
        table: LeaseTable,
        shared: SharedWithKcl,
        calls: Counter[str],
        on_event: Callable[[Any], None],
        meter: ConsumerMeter,
        *,
        stream: str = "",
        application: str = "",
    ) -> None:
        """``shared`` is the same table."""
        super().__init__(table, calls, on_event, meter, stream=stream, application=application)
        self._shared = shared

    async def coordination(self) -> Coordination | None:
        """Read the KCL's coordination, and count the call."""
        return await self._read("coordination", self._shared.coordination())

    async def show_metrics(self, place: Place, row: Mapping[str, Any]) -> Outcome:
        """Show worker metrics to the KCL, and count the call."""
        return await self._write("show_metrics", self._shared.show_metrics(place, row))

    async def withdraw_metrics(self, place: Place, worker_id: str) -> Outcome:
        """Withdraw worker metrics, and count the call."""
        return await self._write("withdraw_metrics", self._shared.withdraw_metrics(place, worker_id))

    async def owned_keys(self, worker_id: str) -> list[str] | None:
        """Read the keys of a worker's leases, and count the call."""
        return await self._read("owned_keys", self._shared.owned_keys(worker_id))


def counted_table(
    table: LeaseTable,
    calls: Counter[str],
    on_event: Callable[[Any], None],
    meter: ConsumerMeter,
    *,
    stream: str = "",
    application: str = "",
) -> CountedTable:
    """Return a table that counts, and can do what the other can: a worker looks for KCL workers where there may
    be any.
    """
    if isinstance(table, SharedWithKcl):
        return CountedSharedTable(table, table, calls, on_event, meter, stream=stream, application=application)
    return CountedTable(table, calls, on_event, meter, stream=stream, application=application)


# --- snapshots, and the event that reports them ---------------------------------------------------

log = logging.getLogger("shardway.telemetry")


class Metering(ShardListener):
    """Counts for one consumer, and calls its subscriber on any thread where that may be: an exporter has `at_once`."""

    def __init__(self, options: MetricsOptions, on_event: Callable[[Any], None] | None) -> None:
        self.interval_s, per_shard = metrics_for(options, on_event)
        self.meter = ConsumerMeter(0.0, per_shard=per_shard)
        self._at_once: Callable[[Any], object] | None = getattr(on_event, "at_once", None)
        self.on_loop: Callable[[Any], object] | None = (
            on_event if self._at_once is None else getattr(on_event, "on_loop", None)
        )
        """The function that is called on the program's loop."""
        self._settled: dict[ShardReader, tuple[int, int]] = {}  # The records that are settled, and their data bytes.
        self._collecting = threading.RLock()
        self._epoch_s = 0.0
        self._begun = False

    def count(self, event: Any) -> None:
        """Hand an event to the subscriber. The caller holds no lock."""
        if self._at_once is not None:
            try:
                self._at_once(event)
            except Exception as error:  # A subscriber never ends the work.
                log.error("on_event: at_once raised %s for a %s", type(error).__name__, type(event).__name__)

    def begin(self, service_now_s: float) -> None:
        """Begin to count by the service's time, as the consumer starts: what was emitted before counts, too."""
        if not self._begun:
            self._begun = True
            self._epoch_s = service_now_s - asyncio.get_running_loop().time()
            self.meter.begins(service_now_s)

    def hold(self, reader: ShardReader) -> None:
        """Count what is read of this shard."""
        reader.counts = ShardCounts(self.meter, reader.stream, reader.shard_id)
        self._settled[reader] = 0, 0
        reader.listen(self)

    def over(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        with self._collecting:
            self._collect((reader,))
            self._settled.pop(reader, None)
        if reader.lost is not None:
            self.meter.lost()

    def snapshot(self, found: ConsumerStatistics, loop_now_s: float, confirmed_s: float | None) -> ConsumerSnapshot:
        """Return the numbers since the start."""
        self._collect(list(self._settled))
        now_s = self._epoch_s + loop_now_s
        return self.meter.snapshot(now_s, found.worker_id, _levels(found, now_s, loop_now_s, confirmed_s))

    def interval(
        self,
        found: ConsumerStatistics,
        streams: Iterable[str],
        confirmed_s: float | None,
        *,
        last: bool = False,
        failed: bool = False,
    ) -> ConsumerMetrics:
        """Return the numbers that are new since the last interval. ``last``: the consumer has ended. ``failed``: an
        error has ended it.
        """
        self._collect(list(self._settled))
        loop_now_s = asyncio.get_running_loop().time()
        now_s = self._epoch_s + loop_now_s
        levels = _levels(found, now_s, loop_now_s, confirmed_s)
        if last:
            levels = WorkerLevels(at_s=now_s, left=True, failed=failed)
        snapshot = self.meter.interval(now_s, found.worker_id, levels)
        return ConsumerMetrics(", ".join(streams), found.application, found.worker_id, snapshot)

    def _collect(self, readers: Iterable[ShardReader]) -> None:
        """Count what was settled. That is not counted as it happens: it happens with each record."""
        with self._collecting:
            for reader in readers:
                before = self._settled.get(reader)
                if before is not None:
                    # Where another thread asks while the reader goes on, the reader's figures may be a moment apart:
                    # none goes back, and the next look has the rest.
                    records, size = max(before[0], reader.records_settled), max(before[1], reader.bytes_settled)
                    self.meter.settled(records - before[0], size - before[1])
                    self._settled[reader] = records, size


def _levels(found: ConsumerStatistics, now_s: float, loop_now_s: float, confirmed_s: float | None) -> WorkerLevels:
    return WorkerLevels(
        at_s=now_s,
        shards=tuple(
            ShardLevels(
                stream=one.stream,
                shard_id=one.shard_id,
                millis_behind_latest=one.millis_behind_latest,
                since_read_s=one.since_read_s,
                oldest_unsettled_s=one.oldest_unsettled_s,
                lag_s=one.lag_s,
                retention_used=one.retention_used,
                records_held=one.records_held,
                bytes_held=one.bytes_held,
                records_in_flight=one.records_in_flight,
                oldest_in_flight_s=one.oldest_in_flight_s,
                is_full=one.is_full,
            )
            for one in found.shards
        ),
        leases=found.leases,
        leases_free=found.leases_free,
        workers=len(found.leases_by_worker),
        renewed_ago_s=None if confirmed_s is None else loop_now_s - confirmed_s,
    )
