"""The lease table of a simulation has its rows in memory; each process sees them through its own connection.

Writes behave as DynamoDB's do for `shardway.aws.dynamodb`: they are sent once, after a refusal the row is read by a
call of its own, and no answer in time is an unknown outcome. Reads are repeated.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.aws.calls.retry import RetryPolicy
from shardway.core.leases import Done, Refused, Unknown
from shardway.core.leases.listing import Listing
from shardway.errors import ServiceError, ShardwayError
from shardway.stores.memory import MemoryLeaseTable

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.testing.sim.history.history import History
    from shardway.testing.sim.services.link import Link
    from shardway.testing.sim.virtual_time import VirtualTime

T = TypeVar("T")

READS = RetryPolicy()
READ_TIMEOUT_S = 5.0
VERSIONS_MAX_AGE_S = 75.0


class SimulatedTable:
    """The table that all processes share, with the recent past of each row for reads that are not consistent."""

    def __init__(self, time: VirtualTime, history: History) -> None:
        self.rows = MemoryLeaseTable("leases")
        self._time = time
        self._history = history
        self._leases: dict[str, list[tuple[float, LeaseRow | None]]] = {}
        self._workers: dict[str, list[tuple[float, WorkerRow | None]]] = {}

    def now_s(self) -> float:
        """Return the time of the state that a consistent read shows: now."""
        return self._time.now_s

    def create(self, row: LeaseRow) -> Outcome:
        """Create a lease, and tell the history."""
        outcome = now(self.rows.create(row))
        if isinstance(outcome, Done):
            self._history.row_written(None, row, "created")
            self._keep(self._leases, row.key, row)
        return outcome

    def write(self, write: Write) -> Outcome:
        """Write to a lease, and tell the history."""
        before = now(self.rows.get(write.key))
        outcome = now(self.rows.write(write))
        if isinstance(outcome, Done):
            self._history.row_written(before, outcome.row, write.kind.value)
            self._keep(self._leases, write.key, outcome.row)
        return outcome

    def put_worker(self, row: WorkerRow) -> Outcome:
        """Write a worker's row, which shows the worker to others."""
        outcome = now(self.rows.put_worker(row))
        if isinstance(outcome, Done):
            self._keep(self._workers, row.worker_id, row)
        return outcome

    def delete_worker(self, worker_id: str, counter: int | None) -> Outcome:
        """Delete a worker's row: the worker is not there any more."""
        outcome = now(self.rows.delete_worker(worker_id, counter=counter))
        if isinstance(outcome, Done):
            self._keep(self._workers, worker_id, None)
        return outcome

    def get(self, key: str) -> LeaseRow | None:
        """Return a lease as it is."""
        return now(self.rows.get(key))

    def scan(self, at_s: Callable[[], float], rng: random.Random) -> Listing:
        """Return all leases, each as it was at a time; in any order."""
        rows = _past_rows(self._leases, at_s)
        rng.shuffle(rows)
        return Listing(rows, {}, {})

    def workers(self, at_s: Callable[[], float], rng: random.Random) -> list[WorkerRow]:
        """Return all workers' rows, each as it was at a time; in any order."""
        rows = _past_rows(self._workers, at_s)
        rng.shuffle(rows)
        return rows

    def _keep(self, kept: dict[str, list[tuple[float, Any]]], key: str, row: Any) -> None:
        versions = kept.setdefault(key, [])
        old_s = self._time.now_s - VERSIONS_MAX_AGE_S
        while len(versions) > 1 and versions[1][0] < old_s:
            versions.pop(0)
        versions.append((self._time.now_s, row))


def _past_rows(kept: dict[str, list[tuple[float, T | None]]], at_s: Callable[[], float]) -> list[T]:
    found = []
    for versions in kept.values():
        then_s = at_s()
        row = next((row for since_s, row in reversed(versions) if since_s <= then_s), None)
        if row is not None:
            found.append(row)
    return found


class TableConnection:
    """The LeaseTable port of one process."""

    name = "leases"

    def __init__(
        self, table: SimulatedTable, leases: Link, workers: Link, rng: random.Random, *, request_timeout_s: float
    ) -> None:
        """``leases`` and ``workers`` are links to the two tables."""
        self._table = table
        self._leases = leases
        self._workers = workers
        self._rng = rng
        self._request_timeout_s = request_timeout_s

    async def ensure(self) -> None:
        """Find out, by a call each, that the tables are there."""
        await asyncio.gather(self._read(self._leases, lambda: None), self._read(self._workers, lambda: None))

    async def create(self, row: LeaseRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._leases, lambda: self._table.create(row), row.key)

    async def write(self, write: Write) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._leases, lambda: self._table.write(write), write.key)

    async def get(self, key: str) -> LeaseRow | None:
        """See `shardway.ports.LeaseTable`."""
        return await self._read(self._leases, lambda: self._table.get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """See `shardway.ports.LeaseTable`."""
        at_s = self._table.now_s if consistent else self._leases.reads_at_s
        return await self._read(self._leases, lambda: self._table.scan(at_s, self._rng))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._workers, lambda: self._table.put_worker(row), None)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """See `shardway.ports.LeaseTable`."""
        at_s = self._table.now_s if consistent else self._workers.reads_at_s
        return await self._read(self._workers, lambda: self._table.workers(at_s, self._rng))

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._workers, lambda: self._table.delete_worker(worker_id, counter), None)

    async def close(self) -> None:
        """Do nothing: the table stays."""

    async def _outcome(self, link: Link, do: Callable[[], Outcome], key: str | None) -> Outcome:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                outcome = await link.call(do, READ_TIMEOUT_S)
                if isinstance(outcome, Refused):
                    return Refused(None if key is None else await self.get(key))
                return outcome
        except TimeoutError:
            return Unknown(f"no answer within {self._request_timeout_s:g} s")
        except ShardwayError as fault:
            return Unknown(fault.code if isinstance(fault, ServiceError) else type(fault).__name__)

    async def _read(self, link: Link, do: Callable[[], T]) -> T:
        for attempt in range(1, READS.attempts_max + 1):
            try:
                return await link.call(do, READ_TIMEOUT_S)
            except ShardwayError:
                if attempt == READS.attempts_max:
                    raise
            await asyncio.sleep(READS.wait_s(attempt, self._rng))
        raise AssertionError("the last attempt returns or raises")


def now(does: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        does.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise RuntimeError("the coroutine waits for something")
