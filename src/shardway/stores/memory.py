"""A lease table in this process is for tests, and for applications of one process that need not remember."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

from shardway.core.leases import Done, Kind, LeaseRow, Outcome, Refused, Write, lease_row
from shardway.core.leases.listing import Listing, listing_of
from shardway.core.leases.worker_row import worker_row, worker_rows

if TYPE_CHECKING:
    from shardway.core.leases.worker_row import WorkerRow


class MemoryLeaseTable:
    """Keeps rows in dictionaries, behind a lock: consumers on several threads' loops may share it.

    The object is the part of the application that it is first given to, with what it holds by then; other applications
    get one of their own, by `of`.
    """

    any_loop = True

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._application = ""
        self._lock = threading.Lock()
        self._rows: dict[str, dict[str, Any]] = {}
        self._workers: dict[str, dict[str, Any]] = {}
        self._other_tables: dict[str, MemoryLeaseTable] = {}

    def of(self, application: str) -> MemoryLeaseTable:
        """See `shardway.ports.ForApplications`."""
        with self._lock:
            if not self._application:
                self._application = application
                self._other_tables[application] = self
            if application not in self._other_tables:
                self._other_tables[application] = one = copy.copy(self)
                one._application, one._rows, one._workers = application, {}, {}
            return self._other_tables[application]

    async def ensure(self) -> None:
        """Do nothing: there is nothing to make."""

    async def create(self, row: LeaseRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        with self._lock:
            found = self._rows.get(row.key)
            if found is not None:
                return Refused(lease_row(found))
            self._rows[row.key] = row.attributes()
            return Done(row)

    async def write(self, write: Write) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        with self._lock:
            found = self._rows.get(write.key)
            if found is None:
                return Refused(None)
            if not write.allowed_on(found):
                return Refused(lease_row(found))
            if write.kind is Kind.DELETE:
                del self._rows[write.key]
                return Done(None)
            self._rows[write.key] = after = write.onto(found)
            return Done(lease_row(after))

    async def get(self, key: str) -> LeaseRow | None:
        """See `shardway.ports.LeaseTable`."""
        with self._lock:
            found = self._rows.get(key)
        return None if found is None else lease_row(found)

    async def scan(self, *, consistent: bool = False) -> Listing:
        """See `shardway.ports.LeaseTable`."""
        with self._lock:
            rows = list(self._rows.values())
        return listing_of(rows)

    def rows(self) -> list[LeaseRow]:
        """Return all leases at once, for programs of the same process."""
        with self._lock:
            return [lease_row(found) for found in self._rows.values()]

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        with self._lock:
            found = self._workers.get(row.worker_id)
            if found is not None and worker_row(found).is_newer_than(row):
                return Refused(None)
            self._workers[row.worker_id] = row.attributes()
        return Done(None)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """See `shardway.ports.LeaseTable`."""
        with self._lock:
            rows = list(self._workers.values())
        return worker_rows(rows)

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        with self._lock:
            found = self._workers.get(worker_id)
            if found is not None and counter is not None and worker_row(found).counter != counter:
                return Refused(None)
            self._workers.pop(worker_id, None)
        return Done(None)

    async def leave_loop(self) -> None:
        """Do nothing: nothing of the table belongs to a loop."""

    async def close(self) -> None:
        """Do nothing: the rows stay for as long as the object does."""
