"""Read the tables of applications, wherever they are: DynamoDB, SQLite, PostgreSQL. Nothing is written or made."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from shardway.aws.calls import reading
from shardway.aws.dynamodb import DynamoClient
from shardway.core.assignment.kcl import COORDINATOR_KEY, METRICS_KEY
from shardway.core.leases.membership import worker_rows
from shardway.core.leases.row import KEY, listing_of
from shardway.errors import NotFoundError, OptionError
from shardway.inspect.applications import (
    COORDINATOR_SUFFIX,
    METRICS_SUFFIX,
    SUFFIXES,
    WORKERS_SUFFIX,
    ApplicationFound,
    ApplicationRows,
    TableView,
)
from shardway.stores.dsn import server_address
from shardway.stores.sql import (
    APPLICATION,
    LEASE_COLUMNS,
    POSTGRES,
    SQLITE,
    WORKER_COLUMNS,
    Statements,
    lease_attributes,
    worker_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.inspect.inspector import Inspector

TABLES_MAX = 10_000
"""The tables of DynamoDB that a listing takes."""
BUSY_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 20.0


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Where applications keep their leases."""

    kind: str = "dynamodb"
    """``dynamodb``, ``sqlite`` or ``postgresql``."""
    location: str = ""
    """A file's path, or a server's URL, which may hold a password; empty for DynamoDB."""
    table: str | None = None
    """The lease table; None: in DynamoDB the application's name, else ``leases``."""

    @classmethod
    def parse(cls, text: str, table: str | None = None) -> Store:
        """Return the store that a text names: ``dynamodb``, ``sqlite:FILE`` or ``postgresql://...``. Raises
        OptionError.
        """
        if text == "dynamodb":
            return cls(table=table)
        if text.startswith("sqlite:") and len(text) > len("sqlite:"):
            return cls(kind="sqlite", location=text.removeprefix("sqlite:"), table=table)
        if text.startswith(("postgresql:", "postgres:")):
            server_address(text)
            return cls(kind="postgresql", location=text, table=table)
        # What else is given may be a URL with a password.
        shown = repr(text) if text.isidentifier() else "this"
        raise OptionError(f"{shown} is no store: dynamodb, sqlite:FILE or postgresql://HOST/DATABASE")

    @property
    def place(self) -> str:
        """Where it is, for messages: without a password."""
        return str(server_address(self.location)) if self.kind == "postgresql" else self.location

    def __repr__(self) -> str:
        return f"Store(kind={self.kind!r}, location={self.place!r}, table={self.table!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return what `repr` shows: what msgspec makes for Rich shows each field as it is."""
        return [("kind", self.kind), ("location", self.place), ("table", self.table)]


async def applications_in(store: Store, inspector: Inspector) -> list[ApplicationFound]:
    """Return the applications that have leases in the store. Raises ShardwayError."""
    if store.kind == "dynamodb":
        return await _dynamodb_applications(inspector)
    found: dict[str, int] = {}
    leases, _ = await _sql_rows(store)
    for row in leases:
        name = str(row.get(APPLICATION) or "")
        found[name] = found.get(name, 0) + 1
    table = store.table or "leases"
    return [
        ApplicationFound(name=name, store=store.kind, table=table, workers_table=True, leases=count)
        for name, count in sorted(found.items())
    ]


async def rows_of(application: str, store: Store, inspector: Inspector) -> ApplicationRows:
    """Return all rows of an application. Raises NotFoundError where the application has none, and OptionError for a
    table of another kind.
    """
    if store.kind == "dynamodb":
        return await _dynamodb_rows(store.table or application, inspector)
    leases, workers = await _sql_rows(store)
    mine = [row for row in leases if row.get(APPLICATION) in (application, None)]
    if not mine:
        names = sorted({str(row.get(APPLICATION)) for row in leases})
        raise NotFoundError(
            "ResourceNotFoundException",
            f"the application {application!r} has no leases in {store.place}; there are: "
            + (", ".join(names) or "none"),
            operation=store.kind,
        )
    return ApplicationRows(
        listing=listing_of(lease_attributes(_padded(row, LEASE_COLUMNS)) for row in mine),
        workers=worker_rows(
            worker_attributes(_padded(row, WORKER_COLUMNS))
            for row in workers
            if row.get(APPLICATION) in (application, None)
        ),
    )


# --- DynamoDB -------------------------------------------------------------------------------------


async def _dynamodb_applications(inspector: Inspector) -> list[ApplicationFound]:
    names = await inspector.shown("the list of tables", "dynamodb", _list_tables(inspector)) or []
    found, there = [], set(names)
    for name in names:
        if name.endswith(SUFFIXES) and any(name.removesuffix(one) in there for one in SUFFIXES):
            continue
        described = await inspector.shown(f"the table {name}", "dynamodb", _describe(inspector, name))
        if described is None or _hash_keys(described) != [KEY]:
            continue
        found.append(
            ApplicationFound(
                name=name,
                store="dynamodb",
                table=name,
                workers_table=name + WORKERS_SUFFIX in there,
                coordinator_table=name + COORDINATOR_SUFFIX in there,
                leases=described.get("ItemCount"),
            )
        )
    return found


async def _list_tables(inspector: Inspector) -> list[str]:
    """Return the names of the tables. ListTables takes no table's name, unlike the other calls of `DynamoClient`, so
    the call goes by the wire.
    """
    names: list[str] = []
    parameters: dict[str, Any] = {}
    while len(names) < TABLES_MAX:
        body = await inspector.wire.call("dynamodb", "ListTables", msgspec.json.encode(parameters))
        with reading("ListTables"):
            answer = msgspec.json.decode(body, type=dict[str, Any])
            names += map(str, answer["TableNames"])
        last = answer.get("LastEvaluatedTableName")
        if not last:
            break
        parameters = {"ExclusiveStartTableName": last}
    return names


async def _dynamodb_rows(table: str, inspector: Inspector) -> ApplicationRows:
    described = await inspector.shown(f"the settings of {table}", "dynamodb", _describe(inspector, table))
    if described is not None and (keys := _hash_keys(described)) != [KEY]:
        raise OptionError(f"the table {table} has the key {keys}, not [{KEY!r}]: it is no lease table")
    client = DynamoClient(inspector.wire)
    scanned = await inspector.shown(f"the leases in {table}", "dynamodb", client.scan(table, consistent=False))

    found: list[str] = []

    async def beside(suffix: str) -> list[dict[str, Any]] | None:
        with contextlib.suppress(NotFoundError):
            rows = await inspector.shown(
                f"the table {table}{suffix}", "dynamodb", client.scan(table + suffix, consistent=False)
            )
            found.append(suffix)
            return None if rows is None else list(rows)
        return None

    workers, states, metrics = await asyncio.gather(*map(beside, (WORKERS_SUFFIX, COORDINATOR_SUFFIX, METRICS_SUFFIX)))
    return ApplicationRows(
        listing=listing_of(scanned or ()),
        workers=worker_rows(workers or ()),
        states=None if states is None else {str(one.get(COORDINATOR_KEY)): one for one in states},
        metrics=None if metrics is None else {str(one.get(METRICS_KEY)): one for one in metrics},
        tables=[] if described is None else [_table_view(described)],
        listed=scanned is not None,
        beside=sorted(found),
    )


async def _describe(inspector: Inspector, table: str) -> dict[str, Any]:
    answer = await DynamoClient(inspector.wire).call("DescribeTable", {"TableName": table})
    with reading(f"DescribeTable of {table}"):
        found: dict[str, Any] = answer["Table"]
        return found


def _hash_keys(described: Mapping[str, Any]) -> list[str]:
    with reading("DescribeTable"):
        return [one["AttributeName"] for one in described["KeySchema"]]


def _table_view(described: Mapping[str, Any]) -> TableView:
    with reading("DescribeTable"):
        capacity = described.get("ProvisionedThroughput") or {}
        provisioned = described.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED") == "PROVISIONED"
        return TableView(
            name=described["TableName"],
            status=described["TableStatus"],
            billing="provisioned" if provisioned else "on demand",
            read_units=capacity.get("ReadCapacityUnits") if provisioned else None,
            write_units=capacity.get("WriteCapacityUnits") if provisioned else None,
            items=described.get("ItemCount"),
            indexes={
                one["IndexName"]: one.get("IndexStatus", "") for one in described.get("GlobalSecondaryIndexes") or ()
            },
        )


# --- SQL ------------------------------------------------------------------------------------------


async def _sql_rows(store: Store) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return all rows of leases and of workers, by column names."""
    table = store.table or "leases"
    Statements(table, SQLITE if store.kind == "sqlite" else POSTGRES)  # raises for what names no table
    if store.kind == "sqlite":
        return await asyncio.to_thread(_sqlite_rows, store.location, table)
    return await _postgres_rows(store, table)


def _sqlite_rows(path: str, table: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if not Path(path).is_file():
        raise OptionError(f"there is no file {path}")
    address = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            connection.row_factory = sqlite3.Row
            return _sqlite_table(connection, table, needed=True), _sqlite_table(connection, f"{table}-Workers")
    except sqlite3.Error as fault:
        raise OptionError(f"{path} cannot be read: {fault}") from fault


def _sqlite_table(connection: sqlite3.Connection, table: str, *, needed: bool = False) -> list[dict[str, Any]]:
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [table]).fetchone()
    if there is None and not needed:
        return []
    if there is None:
        raise OptionError(f"there is no table {table} in the file: name the lease table (--lease-table)")
    return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')]  # noqa: S608 - its form is checked


async def _postgres_rows(store: Store, table: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    try:
        import asyncpg
    except ImportError as fault:
        raise OptionError("PostgreSQL needs the package asyncpg: pip install 'shardway[postgres]'") from fault
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            connection = await asyncpg.connect(store.location)
            try:
                async with connection.transaction(readonly=True):
                    found = []
                    for name in (table, f"{table}-Workers"):
                        rows = await connection.fetch(f'SELECT * FROM "{name}"')  # noqa: S608 - its form is checked
                        found.append([dict(row) for row in rows])
            finally:
                connection.terminate()
    except TimeoutError:
        raise OptionError(f"{store.place} has not answered within {ANSWER_TIMEOUT_S:g} s") from None
    except Exception as fault:  # asyncpg raises many kinds of errors, some of which it does not document.
        raise OptionError(f"{store.place} cannot be read: {fault or type(fault).__name__}") from fault
    return found[0], found[1]


def _padded(row: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with None for each column that its table lacks, as tables of earlier versions lack some."""
    return {**dict.fromkeys((column.name for column in columns.values()), None), **row}
