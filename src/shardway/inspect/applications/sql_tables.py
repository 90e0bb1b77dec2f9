"""Read the tables of an application in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from shardway.errors import OptionError
from shardway.stores.sql import (
    POSTGRES,
    SQLITE,
    Statements,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.inspect.applications.stores import Store


BUSY_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 20.0


async def sql_rows(store: Store) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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


def padded(row: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with None for each column that its table lacks, as tables of earlier versions lack some."""
    return {**dict.fromkeys((column.name for column in columns.values()), None), **row}
