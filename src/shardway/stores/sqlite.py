"""A lease table in an SQLite file is for the processes of one machine.

The file must be on a disk of that machine: SQLite's write-ahead log does not work over a network's file system.
"""

from __future__ import annotations

import asyncio
import copy
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.core.leases import Done, Kind, LeaseRow, Outcome, Refused, Unknown, Write, lease_row
from shardway.core.leases.listing import Listing, listing_of
from shardway.core.leases.worker_row import WorkerRow, worker_rows
from shardway.errors import AccessDeniedError, InvalidArgumentError, NotFoundError, ServiceError, UnavailableError
from shardway.stores.sql import APPLICATION, SQLITE, Statement, Statements, lease_attributes, worker_attributes

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ENSURE_PAUSE_S = 0.02

_PASSING_CODES = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOMEM,
)
"""The primary result codes after which repeating makes sense. It is unknown whether a write was made."""

_KINDS: dict[int, type[ServiceError]] = {
    **dict.fromkeys(_PASSING_CODES, UnavailableError),
    sqlite3.SQLITE_READONLY: AccessDeniedError,
    sqlite3.SQLITE_PERM: AccessDeniedError,
    sqlite3.SQLITE_AUTH: AccessDeniedError,
    sqlite3.SQLITE_CANTOPEN: NotFoundError,
}


class _SharedConnection:
    """The connection that is open, for all applications together."""

    connection: sqlite3.Connection | None = None
    closed = False


class SqliteLeaseTable:
    """Keeps leases in the file ``path``, which `ensure` makes with its tables.

    The object is the part of the application that it is first given to; other applications get one of their own, by
    `of`. ``busy_timeout_s`` is how long a write waits for other processes: a write that takes longer has an unknown
    outcome.
    """

    any_loop = True

    def __init__(self, path: str | os.PathLike[str], name: str = "leases", *, busy_timeout_s: float = 2.0) -> None:
        self.name = name
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._statements = Statements(name, SQLITE)
        # There is one thread: a connection is used by one at a time, and a write that waits does not hold up the loop.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shardway-sqlite")
        self._shared_connection = _SharedConnection()

    def of(self, application: str) -> SqliteLeaseTable:
        """See `shardway.ports.ForApplications`. All parts share the file's connection, and close together."""
        if not self._statements.application:
            self._statements = Statements(self.name, SQLITE, application)
        if self._statements.application == application:
            return self
        one = copy.copy(self)
        one._statements = Statements(self.name, SQLITE, application)
        return one

    async def ensure(self) -> None:
        """See `shardway.ports.LeaseTable`."""

        def make() -> None:
            for text in self._statements.make():
                self._open().execute(text)
            if self._additions():
                self._add_columns()

        # SQLite does not wait when another connection turns the log of a new file on: it refuses at once.
        deadline_s = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                return await self._run(make)
            except UnavailableError:
                if time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(ENSURE_PAUSE_S)

    async def create(self, row: LeaseRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._write(lambda: self._change(self._statements.create(row), row.key))

    async def write(self, write: Write) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        deletes = write.kind is Kind.DELETE
        return await self._write(lambda: self._change(self._statements.write(write), write.key, deletes))

    async def get(self, key: str) -> LeaseRow | None:
        """See `shardway.ports.LeaseTable`."""
        return await self._run(lambda: self._get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """See `shardway.ports.LeaseTable`."""
        return listing_of(
            lease_attributes(one) for one in await self._run(lambda: self._fetch_all(self._statements.scan()))
        )

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""

        def put() -> Outcome:
            return Done(None) if self._fetch_all(self._statements.put_worker(row)) else Refused(None)

        return await self._write(put)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """See `shardway.ports.LeaseTable`."""
        found = await self._run(lambda: self._fetch_all(self._statements.workers()))
        return worker_rows(worker_attributes(one) for one in found)

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """See `shardway.ports.LeaseTable`."""

        def delete() -> Outcome:
            self._fetch_all(self._statements.delete_worker(worker_id, counter))
            return Refused(None) if self._fetch_all(self._statements.get_worker(worker_id)) else Done(None)

        return await self._write(delete)

    async def leave_loop(self) -> None:
        """Do nothing: nothing of the table belongs to a loop."""

    async def close(self) -> None:
        """See `shardway.ports.LeaseTable`."""

        def shut() -> None:
            if self._shared_connection.connection is not None:
                self._shared_connection.connection.close()
                self._shared_connection.connection = None

        if not self._shared_connection.closed:
            self._shared_connection.closed = True
            await self._run(shut)
            self._thread.shutdown(wait=False)

    # --- in the thread ----------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._shared_connection.connection is None:
            # Each statement is a transaction of its own without an isolation level.
            connection = sqlite3.connect(self._path, timeout=self._busy_timeout_s, isolation_level=None)
            try:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
            except BaseException:
                connection.close()
                raise
            self._shared_connection.connection = connection
        return self._shared_connection.connection

    def _additions(self) -> list[str]:
        found = [self._fetch_all(statement) for statement in self._statements.columns()]
        return self._statements.additions(found)

    def _add_columns(self) -> None:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for text in self._additions():  # Others may have been first.
                connection.execute(text)
            connection.execute("COMMIT")
        except BaseException:
            # SQLite rolls back by itself after some errors (a full disk), not after others (a COMMIT that waits).
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _fetch_all(self, statement: Statement) -> list[Any]:
        # All rows are fetched: a statement that returns rows has done its work only then.
        return self._open().execute(statement.text, statement.values).fetchall()

    def _get(self, key: str) -> LeaseRow | None:
        found = self._fetch_all(self._statements.get(key))
        return lease_row(lease_attributes(found[0])) if found else None

    def _change(self, statement: Statement, key: str, deletes: bool = False) -> Outcome:
        found = self._fetch_all(statement)
        if not found:
            return Refused(self._get(key))
        return Done(None if deletes else lease_row(lease_attributes(found[0])))

    async def _write(self, change: Callable[[], Outcome]) -> Outcome:
        try:
            return await self._run(change)
        except ServiceError as fault:
            if not fault.retryable:
                raise
            return Unknown(fault.code)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError as fault:  # The thread ends with the table.
            raise self._misuse_error("SQLITE_MISUSE", "the table is closed") from fault
        try:
            return await running
        except sqlite3.Error as fault:
            raise self._service_error(fault) from fault
        except (OverflowError, UnicodeEncodeError) as fault:  # Their texts may quote the value.
            raise self._misuse_error("SQLITE_MISMATCH", "a value does not fit into its column") from fault

    def _misuse_error(self, code: str, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(code, f"{what}, table {self.name} in {os.fspath(self._path)}", operation="SQLite")

    def _service_error(self, fault: sqlite3.Error) -> ServiceError:
        # An error of Python's module has no code of SQLite's.
        code, number = getattr(fault, "sqlite_errorname", ""), getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        code, what = code or type(fault).__name__, f"{fault}, in {os.fspath(self._path)}"
        if "no such table" in str(fault) or f"no such column: {APPLICATION}" in str(fault):
            return NotFoundError(code, f"{what}: call ensure() first", operation="SQLite")
        kind = _KINDS.get(number & 0xFF, InvalidArgumentError)
        return kind(code, what, operation="SQLite")
