"""Sources and lease tables that count what is asked of them; and tell of a table that fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.leases import Done, Kind, Unknown
from penstock.core.leases.membership import WorkerRow, worker_row
from penstock.errors import ExpiredIteratorError, OptionError, PenstockError, ServiceError
from penstock.events import LeaseTableFailed, WorkerIdShared
from penstock.ports import SharedWithKcl

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from penstock.core.assignment.kcl import Coordination, Place
    from penstock.core.feeding.pages import ReadPage, StreamFacts
    from penstock.core.leases import LeaseRow, Outcome, Write
    from penstock.core.leases.row import Listing
    from penstock.model import IteratorAt, Shard
    from penstock.ports import LeaseTable, RecordSource, Tracer
    from penstock.telemetry.consumer_metrics import ConsumerMeter

T = TypeVar("T")
OWN_ROWS_MAX = 64  # remembered: an inconsistent read is never so old
ITERATORS_MAX = 20_000  # remembered, with their shards
LOOK_AGAIN_S = 0.5
"""Between looks at a worker that reads another stream by the same leases: does it live?"""


class CountedSource:
    """A `penstock.ports.RecordSource`; ``calls`` counts by the names of the calls, ``meter`` how long reads took."""

    def __init__(
        self, source: RecordSource, calls: Counter[str], meter: ConsumerMeter, tracer: Tracer | None = None
    ) -> None:
        self._source = source
        self._calls = calls
        self._meter = meter
        self._tracer = tracer
        self._shards: dict[str, str] = {}  # by iterator, where that is counted by shard, or traced

    @property
    def stream(self) -> str:
        """As the source has it."""
        return self._source.stream

    @property
    def now_s(self) -> float:
        """As the source has it."""
        return self._source.now_s

    async def describe(self) -> StreamFacts:
        """Counted."""
        self._calls["describe"] += 1
        return await self._source.describe()

    async def shards(self) -> list[Shard]:
        """Counted."""
        self._calls["shards"] += 1
        return await self._source.shards()

    async def iterator(self, shard_id: str, at: IteratorAt) -> str:
        """Counted."""
        self._calls["iterator"] += 1
        found = await self._source.iterator(shard_id, at)
        self._is_of(found, shard_id)
        return found

    async def read(self, iterator: str, records_max: int) -> ReadPage:
        """Counted."""
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
            if len(self._shards) >= ITERATORS_MAX:  # iterators that were given up for others are still there
                self._shards.clear()
            self._shards[iterator] = shard_id

    async def register(self, consumer: str) -> str:
        """Counted."""
        self._calls["register"] += 1
        return await self._source.register(consumer)

    async def registered(self, consumer: str) -> str | None:
        """Counted."""
        self._calls["registered"] += 1
        return await self._source.registered(consumer)

    async def deregister(self, consumer: str) -> None:
        """Counted."""
        self._calls["deregister"] += 1
        await self._source.deregister(consumer)

    def subscribe(self, consumer_arn: str, shard_id: str, at: IteratorAt) -> AsyncGenerator[ReadPage, None]:
        """Counted."""
        self._calls["subscribe"] += 1
        pages = self._source.subscribe(consumer_arn, shard_id, at)
        return pages if self._tracer is None else self._traced(pages, shard_id, self._tracer)

    async def _traced(
        self, pages: AsyncGenerator[ReadPage, None], shard_id: str, tracer: Tracer
    ) -> AsyncGenerator[ReadPage, None]:
        """The service pushes these pages: a span tells when one came, and not how long it took."""
        async with contextlib.aclosing(pages):
            async for page in pages:
                if page.records:
                    tracer.received(self._source.stream, shard_id, len(page.records), 0.0)
                yield page

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()


class CountedTable:
    """A `penstock.ports.LeaseTable`; ``calls`` counts by what the call is named there. What fails and is tried again by
    the worker, in silence, is told.
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
        """``stream``: the ARN of the one that is read, where lease keys do not name it. ``application``: where the
        table is for one, and does not know which.
        """
        self._table = table
        self._calls = calls
        self._on_event = on_event
        self._meter = meter
        self.confirmed_s: float | None = None
        """When a write that renews leases was confirmed last (the loop's clock)."""
        self._stream = stream
        self._application = application
        self._looked = not (stream or application)
        self._own = dict[int, WorkerRow]()  # as they will be read back, by counter
        self._others: set[int] = set()

    @property
    def name(self) -> str:
        """As the table has it."""
        return self._table.name

    async def ensure(self) -> None:
        """Counted."""
        await self._read("ensure", self._table.ensure())

    async def create(self, row: LeaseRow) -> Outcome:
        """Counted."""
        return await self._write("create", self._table.create(row))

    async def write(self, write: Write) -> Outcome:
        """Counted, and timed where it renews a lease."""
        if write.kind not in (Kind.RENEW, Kind.CHECKPOINT):
            return await self._write("write", self._table.write(write))
        return await self._timed("write", self._table.write(write), stores=write.kind is Kind.CHECKPOINT)

    async def get(self, key: str) -> LeaseRow | None:
        """Counted."""
        return await self._read("get", self._table.get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """Counted."""
        return await self._read("scan", self._table.scan(consistent=consistent))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """Counted; with what is read."""
        row = replace(row, stream=self._stream, application=self._application)
        self._own[row.counter] = worker_row(row.attributes())
        self._own.pop(row.counter - OWN_ROWS_MAX, None)
        return await self._timed("put_worker", self._table.put_worker(row), stores=False)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """Counted; and looked through for another process with this worker's id, and at first for workers of another
        stream or application. Raises OptionError when there are such.
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
        """Counted."""
        return await self._write("delete_worker", self._table.delete_worker(worker_id, counter=counter))

    async def close(self) -> None:
        """Close the table."""
        await self._table.close()

    def _is_stranger(self, row: WorkerRow) -> bool:
        """True for a worker that reads by these leases and should not: both would get a part of the records."""
        other_stream = self._stream and row.stream not in ("", self._stream)
        other_application = self._application and row.application not in ("", self._application)
        return bool(row.held and (other_stream or other_application))

    async def _meet(self, strangers: Mapping[str, WorkerRow]) -> None:
        """Wait until it is certain that none of them lives: this consumer would go on where that one is."""
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
        """True for rows of this worker, also for old ones that an inconsistent read still finds."""
        own = self._own.get(row.counter)
        return row.counter < min(self._own) if own is None else row == own

    async def _read(self, call: str, answer: Awaitable[T]) -> T:
        self._calls[call] += 1
        try:
            return await answer
        except PenstockError as error:
            if error.retryable:  # what is not ends the worker, and is raised
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
        if isinstance(outcome, Unknown):
            self._on_event(LeaseTableFailed(self.name, call, outcome.reason, outcome.reason))
        return outcome

    def _failed(self, call: str, error: Exception) -> None:
        code = error.code if isinstance(error, ServiceError) else type(error).__name__
        reason = str(error) if isinstance(error, PenstockError) else code
        self._on_event(LeaseTableFailed(self.name, call, code, reason))


class CountedSharedTable(CountedTable):
    """The same of one that is a `penstock.ports.SharedWithKcl` too."""

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
        """Counted."""
        return await self._read("coordination", self._shared.coordination())

    async def show_metrics(self, place: Place, row: Mapping[str, Any]) -> Outcome:
        """Counted."""
        return await self._write("show_metrics", self._shared.show_metrics(place, row))

    async def withdraw_metrics(self, place: Place, worker_id: str) -> Outcome:
        """Counted."""
        return await self._write("withdraw_metrics", self._shared.withdraw_metrics(place, worker_id))

    async def owned_keys(self, worker_id: str) -> list[str] | None:
        """Counted."""
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
    """A table that counts, and can do what the other can: a worker looks for KCL workers where there may be any."""
    if isinstance(table, SharedWithKcl):
        return CountedSharedTable(table, table, calls, on_event, meter, stream=stream, application=application)
    return CountedTable(table, calls, on_event, meter, stream=stream, application=application)
