"""A lease table in PostgreSQL, over asyncpg (``pip install shardway[postgres]``), is for processes of several machines.

Leases are as safe as what the server says it has committed: with asynchronous replication a failover can take back
writes that were confirmed, and with them a lease that was renewed or a checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from inspect import signature
from typing import TYPE_CHECKING, Any

from shardway.core.leases import Done, Kind, LeaseRow, Outcome, Refused, Unknown, Write, lease_row
from shardway.core.leases.listing import Listing, listing_of
from shardway.core.leases.worker_row import WorkerRow, worker_rows
from shardway.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ServiceError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.stores.dsn import server_address
from shardway.stores.sql import POSTGRES, Statement, Statements, lease_attributes, worker_attributes
from shardway.tasks import on_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable

CONNECTIONS_MAX = 4
READ_ATTEMPTS_MAX = 5
READ_PAUSE_S = 0.1
"""The pause before the first retry, in seconds; it doubles with each."""
CLOSE_TIMEOUT_S = 2.0

_PASSING_STATES = ("08", "40", "53", "55", "57", "58", "XX000", "25006", "0A000")
"""The beginnings of SQLSTATE after which repeating makes sense: connection, rollback, resources, locks, operator,
system, the server's own faults, a server that only reads, as after a failover, and a statement that was prepared before
the table's columns changed. It is unknown whether a write was made (PostgreSQL, Appendix A).
"""
_RACES = ("23505", "42P07", "42710", "42701")
"""The answers of PostgreSQL to CREATE TABLE IF NOT EXISTS, or ADD COLUMN, when another worker sends it at the same
time.
"""
_KINDS: dict[str, type[ServiceError]] = {
    "42P01": NotFoundError,
    "3D000": NotFoundError,
    "42501": AccessDeniedError,
    "28000": AccessDeniedError,
    "28P01": AccessDeniedError,
    "53": ThrottledError,
}


class _OfLoop:
    """The connections of one event loop: a connection belongs to its loop."""

    def __init__(self) -> None:
        self.pool: Any = None
        self.opening = asyncio.Lock()

    async def close(self) -> None:
        pool, self.pool = self.pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await pool.close()
        except Exception:
            # The server, or a connection, does not take the goodbye: there is nothing left that could fail.
            pool.terminate()


class _Connections:
    """The connections that are open, for all applications together."""

    def __init__(self) -> None:
        self._loops: dict[asyncio.AbstractEventLoop, _OfLoop] = {}
        self._lock = threading.Lock()

    def of_this_loop(self) -> _OfLoop:
        """Return the connections of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for gone in [one for one in self._loops if one.is_closed()]:
                del self._loops[gone]
            return self._loops.setdefault(loop, _OfLoop())

    def take(self, *, of_all: bool) -> list[tuple[asyncio.AbstractEventLoop, _OfLoop]]:
        """Return the connections to close, of the running loop or of all loops; they are forgotten here."""
        running = asyncio.get_running_loop()
        with self._lock:
            return [(one, self._loops.pop(one)) for one in list(self._loops) if of_all or one is running]


class PostgresLeaseTable:
    """Keeps leases in the tables ``name`` and ``name-Workers`` of the first schema that the server looks into.

    ``dsn`` is a URL, in which each special character of the password is percent-encoded, or empty: then libpq's
    environment variables count (PGHOST, PGUSER, PGPASSWORD, ...). Further arguments go to ``asyncpg.create_pool``, such
    as ``ssl``, ``password``, or ``statement_cache_size=0`` behind a pooler. Raises OptionError for a URL that cannot be
    read, without quoting it. Any event loop may use the table: each has connections of its own, which it closes by
    `leave_loop` before it ends. The object is the part of the application that it is first given to; other applications
    get one of their own, by `of`.
    """

    any_loop = True

    def __init__(self, dsn: str = "", name: str = "leases", *, request_timeout_s: float = 2.0, **connect: Any) -> None:
        try:
            import asyncpg
        except ImportError as fault:
            raise OptionError("PostgreSQL needs the package asyncpg: pip install 'shardway[postgres]'") from fault
        if request_timeout_s <= 0:
            raise OptionError("request_timeout_s must be more than 0")
        known = {*signature(asyncpg.create_pool).parameters, *signature(asyncpg.connect).parameters}
        if unknown := sorted(set(connect) - known):
            raise OptionError(f"neither PostgresLeaseTable nor asyncpg's create_pool knows {', '.join(unknown)}")
        self._address = server_address(dsn) if dsn else None
        self.name = name
        self._statements = Statements(name, POSTGRES)
        self._request_timeout_s = request_timeout_s
        self._driver = asyncpg
        self._connect = {
            "dsn": dsn or None,
            "min_size": 0,
            "max_size": CONNECTIONS_MAX,
            "reset": _do_nothing,
            **connect,
        }
        self._connections = _Connections()

    def __repr__(self) -> str:
        return f"PostgresLeaseTable({str(self._address or '')!r}, {self.name!r})"

    def of(self, application: str) -> PostgresLeaseTable:
        """See `shardway.ports.ForApplications`. All parts share the connections, and close together."""
        if not self._statements.application:
            self._statements = Statements(self.name, POSTGRES, application)
        if self._statements.application == application:
            return self
        one = copy.copy(self)
        one._statements = Statements(self.name, POSTGRES, application)
        return one

    async def ensure(self) -> None:
        """See `shardway.ports.LeaseTable`."""
        for text in self._statements.make():
            try:
                await self._read(Statement(text, []))
            except ServiceError as fault:
                if fault.code not in _RACES:
                    raise
                await self._read(Statement(text, []))  # The other has made it by now.
        while texts := await self._additions():
            try:
                await self._read(Statement(texts[0], []))
            except AccessDeniedError as fault:
                all_of_them = "; ".join(texts)
                raise AccessDeniedError(
                    fault.code,
                    f"{fault.service_message}; an earlier version made the table: its owner has to run {all_of_them}",
                    operation="PostgreSQL",
                ) from fault
            except ServiceError as fault:
                if fault.code not in _RACES:
                    raise

    async def _additions(self) -> list[str]:
        # The columns are asked for first: adding what is there would still wait for every reader of the table.
        found = [await self._read(statement) for statement in self._statements.columns()]
        return self._statements.additions(found)

    async def create(self, row: LeaseRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._change(self._statements.create(row), row.key))

    async def write(self, write: Write) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        deletes = write.kind is Kind.DELETE
        return await self._outcome(self._change(self._statements.write(write), write.key, deletes))

    async def get(self, key: str) -> LeaseRow | None:
        """See `shardway.ports.LeaseTable`."""
        return _row(await self._read(self._statements.get(key)))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """See `shardway.ports.LeaseTable`."""
        return listing_of(lease_attributes(one) for one in await self._read(self._statements.scan()))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""

        async def put() -> Outcome:
            return Done(None) if await self._execute(self._statements.put_worker(row)) else Refused(None)

        return await self._outcome(put())

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """See `shardway.ports.LeaseTable`."""
        return worker_rows(worker_attributes(one) for one in await self._read(self._statements.workers()))

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """See `shardway.ports.LeaseTable`."""

        async def delete() -> Outcome:
            await self._execute(self._statements.delete_worker(worker_id, counter))
            return Refused(None) if await self._execute(self._statements.get_worker(worker_id)) else Done(None)

        return await self._outcome(delete())

    async def close(self) -> None:
        """See `shardway.ports.LeaseTable`. It closes the connections of other loops that run, too."""
        running = asyncio.get_running_loop()
        for loop, one in self._connections.take(of_all=True):
            if loop is running:
                await one.close()
            elif loop.is_running():
                await on_loop(loop, one.close)

    async def leave_loop(self) -> None:
        """Close the connections of the running loop alone."""
        for _, one in self._connections.take(of_all=False):
            await one.close()

    # --- calls ------------------------------------------------------------------------------------

    async def _change(self, statement: Statement, key: str, deletes: bool = False) -> Outcome:
        found = await self._execute(statement)
        if not found:
            return Refused(_row(await self._execute(self._statements.get(key))))
        return Done(None if deletes else _row(found))

    async def _outcome(self, change: Awaitable[Outcome]) -> Outcome:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await change
        except TimeoutError:
            return Unknown(f"no answer within {self._request_timeout_s:g} s")
        except (ServiceError, TransportError) as fault:
            if not fault.retryable:
                raise
            return Unknown(fault.code if isinstance(fault, ServiceError) else type(fault).__name__)

    async def _read(self, statement: Statement) -> list[Any]:
        pause_s = READ_PAUSE_S
        for _ in range(READ_ATTEMPTS_MAX - 1):
            try:
                return await self._execute(statement)
            except (ServiceError, TransportError) as fault:
                if not fault.retryable:
                    raise
            await asyncio.sleep(pause_s)
            pause_s *= 2
        return await self._execute(statement)

    async def _execute(self, statement: Statement) -> list[Any]:
        try:
            pool = await self._open()
            async with asyncio.timeout(self._request_timeout_s):
                return await self._fetch(pool, statement)
        except ShardwayError:
            raise
        except Exception as fault:
            raise self._translate(fault) from fault

    async def _fetch(self, pool: Any, statement: Statement) -> list[Any]:
        connection = await pool.acquire()
        try:
            found = list(await connection.fetch(statement.text, *statement.values))
        except BaseException as fault:
            # asyncpg may have heard of the end by now, and refuses each call then: the first error, or a cancellation,
            # is what the caller has to see.
            with contextlib.suppress(Exception):
                if not self._is_usable_after(fault):
                    # The answer may come yet. And a server that does not answer would not answer to a cancellation
                    # either, which giving the connection back waits for.
                    connection.terminate()
                await pool.release(connection)
            raise
        await pool.release(connection)
        return found

    def _is_usable_after(self, fault: BaseException) -> bool:
        """Tell whether the connection goes on after an error. After FATAL the server closes it, and asyncpg may take
        another statement before it hears of that; the server's classes 08 and 57P mean the same from a pooler.
        """
        if not isinstance(fault, self._driver.PostgresError):
            return False
        severity = fault.severity_en or fault.severity
        return severity == "ERROR" and not (fault.sqlstate or "08").startswith(("08", "57P"))

    def _translate(self, fault: Exception) -> ShardwayError:
        """Return our error for any of asyncpg's. Each error that asyncpg does not document (its protocol's state, a
        TypeError of an answer at the wrong time) says only that no whole answer came: the statement may have been done.
        """
        driver = self._driver
        if isinstance(fault, driver.ClientConfigurationError | driver.UnsupportedClientFeatureError):
            return OptionError(f"PostgreSQL, table {self.name}: asyncpg cannot connect as it was told: {fault}")
        misfit = isinstance(fault, driver.InterfaceError) and isinstance(fault, ValueError)
        if misfit or isinstance(fault, driver.DataError | UnicodeEncodeError):
            # The text of asyncpg, or the server's, quotes the value.
            return InvalidArgumentError(
                getattr(fault, "sqlstate", None) or "22000",
                f"a value does not fit into its column of the table {self.name}",
                operation="PostgreSQL",
            )
        if isinstance(fault, driver.PostgresError):
            return _service_error(fault)
        return TransportError(f"PostgreSQL, table {self.name}: {fault or type(fault).__name__}")

    async def _open(self) -> Any:
        here = self._connections.of_this_loop()
        async with here.opening:
            if here.pool is None:
                here.pool = await self._driver.create_pool(timeout=self._request_timeout_s, **self._connect)
            return here.pool


async def _do_nothing(connection: Any) -> None:
    """Do nothing: statements leave nothing behind on a connection, and a reset by the server would cost a round trip
    each.
    """


def _row(found: list[Any]) -> LeaseRow | None:
    return lease_row(lease_attributes(found[0])) if found else None


def _service_error(fault: Any) -> ServiceError:
    code = fault.sqlstate or ""
    kind = _KINDS.get(code) or _KINDS.get(code[:2])
    if kind is None:
        kind = UnavailableError if code.startswith(_PASSING_STATES) else InvalidArgumentError
    return kind(code, str(fault), operation="PostgreSQL")
