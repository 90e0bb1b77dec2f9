"""A lease table that counts the calls to it, and emits an event for a call that fails and is repeated in silence.

It also sees what only all of its answers show: two processes with one worker's id, and workers of another stream or
application that read by the same leases.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.core.leases import Done, Kind, Unknown
from shardway.core.leases.worker_row import WorkerRow, worker_row
from shardway.errors import OptionError, ServiceError, ShardwayError
from shardway.events import LeaseTableFailed, WorkerIdShared
from shardway.ports import SharedWithKcl

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Mapping

    from shardway.core.assignment.kcl.fleet import Coordination, Place
    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.listing import Listing
    from shardway.ports import LeaseTable
    from shardway.telemetry.consumer_meter import ConsumerMeter


T = TypeVar("T")
OWN_ROWS_MAX = 64  # The rows that are remembered: an inconsistent read is never so old.

LOOK_AGAIN_S = 0.5
"""The seconds between looks whether a worker lives that reads another stream by the same leases."""


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
        self._has_looked = not (stream or application)
        self._own_rows = dict[int, WorkerRow]()  # The rows as they will be read back, by counter.
        self._other_counters: set[int] = set()

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
        return await self._time("write", self._table.write(write), stores=write.kind is Kind.CHECKPOINT)

    async def get(self, key: str) -> LeaseRow | None:
        """Read a lease, and count the call."""
        return await self._read("get", self._table.get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """Read all leases, and count the call."""
        return await self._read("scan", self._table.scan(consistent=consistent))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """Write this worker's row, with the stream and application that it reads, and count the call."""
        row = replace(row, stream=self._stream, application=self._application)
        self._own_rows[row.counter] = worker_row(row.attributes())
        self._own_rows.pop(row.counter - OWN_ROWS_MAX, None)
        return await self._time("put_worker", self._table.put_worker(row), stores=False)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """Read the workers' rows, and count the call. Another process with this worker's id shows in them, and at first
        workers of another stream or application. Raises OptionError when there are such.
        """
        rows = await self._read("workers", self._table.workers(consistent=consistent))
        if not self._has_looked:
            await self._meet({row.worker_id: row for row in rows if self._is_stranger(row)})
            self._has_looked = True
        if self._own_rows and len(self._other_counters) < 2:
            worker_id = next(iter(self._own_rows.values())).worker_id
            # One alone may be left from before a crash; a second one shows that another process writes them now.
            self._other_counters.update(
                row.counter for row in rows if row.worker_id == worker_id and not self._is_own(row)
            )
            if len(self._other_counters) > 1:
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
                        f"{self.name}. These leases have no stream in them, so the two would be mixed up: give "
                        f"{self._stream} another application, or let each consumer read a list of both"
                    )

    def _is_own(self, row: WorkerRow) -> bool:
        """True for a row of this worker, also for an old one that an inconsistent read still finds."""
        own = self._own_rows.get(row.counter)
        return row.counter < min(self._own_rows) if own is None else row == own

    async def _read(self, call: str, answer: Awaitable[T]) -> T:
        self._calls[call] += 1
        try:
            return await answer
        except ShardwayError as error:
            if error.retryable:  # An error that is not ends the worker, and is raised.
                self._count_failure(call, error)
            raise

    async def _time(self, call: str, answer: Awaitable[Outcome], *, stores: bool) -> Outcome:
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
            self._count_failure(call, error)
            raise
        # The caller tries again in silence. Without this event, a consumer whose policy lacks UpdateItem would read
        # nothing for ever.
        if isinstance(outcome, Unknown):
            self._on_event(LeaseTableFailed(self.name, call, outcome.reason, outcome.reason))
        return outcome

    def _count_failure(self, call: str, error: Exception) -> None:
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
        self._kcl_table = shared

    async def coordination(self) -> Coordination | None:
        """Read the KCL's coordination, and count the call."""
        return await self._read("coordination", self._kcl_table.coordination())

    async def show_metrics(self, place: Place, row: Mapping[str, Any]) -> Outcome:
        """Show worker metrics to the KCL, and count the call."""
        return await self._write("show_metrics", self._kcl_table.show_metrics(place, row))

    async def withdraw_metrics(self, place: Place, worker_id: str) -> Outcome:
        """Withdraw worker metrics, and count the call."""
        return await self._write("withdraw_metrics", self._kcl_table.withdraw_metrics(place, worker_id))

    async def owned_keys(self, worker_id: str) -> list[str] | None:
        """Read the keys of a worker's leases, and count the call."""
        return await self._read("owned_keys", self._kcl_table.owned_keys(worker_id))


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
