"""The lease table of a simulation: rows in memory, seen by each process through its own connection.

Writes behave as DynamoDB's do for `penstock.aws.lease_table`: sent once, the row read by a call of its own after a
refusal, no answer in time is an unknown outcome. Reads are repeated.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.aws.retry import RetryPolicy
from penstock.core.leases import Done, Refused, Unknown
from penstock.core.leases.listing import Listing
from penstock.errors import PenstockError, ServiceError
from penstock.stores.memory import MemoryLeaseTable

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

    from penstock.core.leases import LeaseRow, Outcome, Write
    from penstock.core.leases.membership import WorkerRow
    from penstock.testing.sim.history import History
    from penstock.testing.sim.loop import VirtualTime
    from penstock.testing.sim.network import Link

T = TypeVar("T")

READS = RetryPolicy()
READ_TIMEOUT_S = 5.0
VERSIONS_MAX_AGE_S = 10.0


class SimulatedTable:
    """What all processes share, with the recent past of each row for reads that are not consistent."""

    def __init__(self, time: VirtualTime, history: History) -> None:
        self.rows = MemoryLeaseTable("leases")
        self._time = time
        self._history = history
        self._leases: dict[str, list[tuple[float, LeaseRow | None]]] = {}
        self._workers: dict[str, list[tuple[float, WorkerRow | None]]] = {}

    def create(self, row: LeaseRow) -> Outcome:
        """Also tells the history."""
        outcome = now(self.rows.create(row))
        if isinstance(outcome, Done):
            self._history.row_written(None, row, "created")
            self._keep(self._leases, row.key, row)
        return outcome

    def write(self, write: Write) -> Outcome:
        """Also tells the history."""
        before = now(self.rows.get(write.key))
        outcome = now(self.rows.write(write))
        if isinstance(outcome, Done):
            self._history.row_written(before, outcome.row, write.kind.value)
            self._keep(self._leases, write.key, outcome.row)
        return outcome

    def put_worker(self, row: WorkerRow) -> Outcome:
        """A worker shows itself."""
        self._keep(self._workers, row.worker_id, row)
        return now(self.rows.put_worker(row))

    def delete_worker(self, worker_id: str, counter: int | None) -> Outcome:
        """It is not there any more."""
        outcome = now(self.rows.delete_worker(worker_id, counter=counter))
        if isinstance(outcome, Done):
            self._keep(self._workers, worker_id, None)
        return outcome

    def get(self, key: str) -> LeaseRow | None:
        """As it is."""
        return now(self.rows.get(key))

    def scan(self, stale_s: float, rng: random.Random) -> Listing:
        """All leases, each as it is, or as it was at some time not more than ``stale_s`` ago; in any order."""
        rows = now(self.rows.scan()).rows if not stale_s else self._past(self._leases, stale_s, rng)
        rng.shuffle(rows)
        return Listing(rows, {}, ())

    def workers(self, stale_s: float, rng: random.Random) -> list[WorkerRow]:
        """The same of the workers."""
        rows = now(self.rows.workers()) if not stale_s else self._past(self._workers, stale_s, rng)
        rng.shuffle(rows)
        return rows

    def _keep(self, kept: dict[str, list[tuple[float, Any]]], key: str, row: Any) -> None:
        versions = kept.setdefault(key, [])
        old_s = self._time.now_s - VERSIONS_MAX_AGE_S
        while len(versions) > 1 and versions[1][0] < old_s:
            versions.pop(0)
        versions.append((self._time.now_s, row))

    def _past(self, kept: dict[str, list[tuple[float, T | None]]], stale_s: float, rng: random.Random) -> list[T]:
        found = []
        for versions in kept.values():
            at_s = self._time.now_s - rng.choice([0.0, rng.uniform(0.0, stale_s)])
            row = next((row for since_s, row in reversed(versions) if since_s <= at_s), None)
            if row is not None:
                found.append(row)
        return found


class TableConnection:
    """The LeaseTable port of one process."""

    name = "leases"

    def __init__(self, table: SimulatedTable, link: Link, rng: random.Random, *, answer_timeout_s: float) -> None:
        self._table = table
        self._link = link
        self._rng = rng
        self._answer_timeout_s = answer_timeout_s

    async def ensure(self) -> None:
        """The table is there; that takes a call to find out."""
        await self._read(lambda: None)

    async def create(self, row: LeaseRow) -> Outcome:
        """See `penstock.ports.LeaseTable`."""
        return await self._outcome(lambda: self._table.create(row), row.key)

    async def write(self, write: Write) -> Outcome:
        """See `penstock.ports.LeaseTable`."""
        return await self._outcome(lambda: self._table.write(write), write.key)

    async def get(self, key: str) -> LeaseRow | None:
        """See `penstock.ports.LeaseTable`."""
        return await self._read(lambda: self._table.get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """See `penstock.ports.LeaseTable`."""
        return await self._read(lambda: self._table.scan(0.0 if consistent else self._link.stale_s, self._rng))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """See `penstock.ports.LeaseTable`."""
        return await self._outcome(lambda: self._table.put_worker(row), None)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """See `penstock.ports.LeaseTable`."""
        return await self._read(lambda: self._table.workers(0.0 if consistent else self._link.stale_s, self._rng))

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """See `penstock.ports.LeaseTable`."""
        return await self._outcome(lambda: self._table.delete_worker(worker_id, counter), None)

    async def close(self) -> None:
        """The table stays."""

    async def _outcome(self, do: Callable[[], Outcome], key: str | None) -> Outcome:
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                outcome = await self._link.call(do, READ_TIMEOUT_S)
                if isinstance(outcome, Refused):
                    return Refused(None if key is None else await self.get(key))
                return outcome
        except TimeoutError:
            return Unknown(f"no answer within {self._answer_timeout_s:g} s")
        except PenstockError as fault:
            return Unknown(fault.code if isinstance(fault, ServiceError) else type(fault).__name__)

    async def _read(self, do: Callable[[], T]) -> T:
        for attempt in range(1, READS.attempts_max + 1):
            try:
                return await self._link.call(do, READ_TIMEOUT_S)
            except PenstockError:
                if attempt == READS.attempts_max:
                    raise
            await asyncio.sleep(READS.wait_s(attempt, self._rng))
        raise AssertionError("the last attempt returns or raises")


def now(does: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        does.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise RuntimeError("the coroutine waits for something")
