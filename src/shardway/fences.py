"""A fence keeps late writers out of a database of the program's own: so a store holds each record once.

A consumer delivers at least once. Two things make a record stand once in a table of SQLite or PostgreSQL, whatever the
consumer's ``concurrency`` is, and both are in the transaction that writes the rows:

- The fence's table has, for each shard, the highest token that has written (`Batch.token`). A worker with a lower token
  owned the shard before: `StaleOwnerError` ends its transaction.
- The row's key is the position of its record (`row_key`), so a record that comes again meets its own row.

A program that keeps only the last position of a shard, and refuses lower ones, is right only while one batch of the
shard is handled at a time (``OneByOne()``, the default). With ``by_key`` and ``unordered`` a later record may be stored
before an earlier one, and the last position would hide the earlier one.

The rule of the token is Kleppmann's fencing token (Designing Data-Intensive Applications, chapter 8).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shardway.errors import OptionError, StaleOwnerError

if TYPE_CHECKING:
    import sqlite3

    from shardway.model import Record

__all__ = ["ROW_KEY_COLUMNS", "PostgresFence", "RowKey", "SqliteFence", "StaleOwnerError", "row_key"]

TABLE = "shard_fences"
"""The name of a fence's table, unless the program gives another one."""

ROW_KEY_COLUMNS = (
    "stream TEXT NOT NULL, shard_id TEXT NOT NULL, sequence_number TEXT NOT NULL, "
    "sub_sequence_number INTEGER NOT NULL, part INTEGER NOT NULL, "
    "PRIMARY KEY (stream, shard_id, sequence_number, sub_sequence_number, part)"
)
"""The columns of a `RowKey` with their primary key, for the end of a ``CREATE TABLE`` in SQLite and PostgreSQL."""

SEQUENCE_DIGITS = 56
"""The most digits of a sequence number (AWS API reference, Record): texts of this length sort as the numbers do."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


class RowKey(NamedTuple):
    """The position of a record, as the key of its row: one for each record, and the same whenever the record comes."""

    stream: str
    """The stream's name or ARN, as the consumer was given it: a program that changes it has other keys."""
    shard_id: str
    sequence_number: str
    """The sequence number with leading zeros, 56 digits: these texts sort as the numbers do."""
    sub_sequence_number: int
    """The 0-based index inside an aggregate; 0 for a plain record."""
    part: int
    """The 0-based index among the parts of the record, where ``split`` makes some; else 0."""


class Owned(Protocol):
    """The part of a `Batch` or a `Delivered` record that a fence asks for."""

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as it was given."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""

    @property
    def token(self) -> int:
        """The number that grows with every owner of the shard."""


def row_key(record: Record) -> RowKey:
    """Return the key of the row that a record, or a `Part` of one, becomes."""
    sequence = f"{record.sequence_number:0{SEQUENCE_DIGITS}d}"
    part = getattr(record, "part", 0)
    return RowKey(record.stream, record.shard_id, sequence, record.sub_sequence_number, part)


class SqliteFence:
    """The fence of one application in an SQLite database, for connections of Python's module ``sqlite3``.

    ::

        fence = SqliteFence("billing")
        fence.make(connection)
        ...
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            fence.check(connection, batch)
            rows = [(record.data, *row_key(record)) for record in batch]
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
    """

    def __init__(self, application: str, *, table: str = TABLE) -> None:
        """``application``: the consumer's. Several applications may have one ``table``. Raises OptionError for a name
        that is none of a table.
        """
        self.application = application
        self.table = _check_name(table)

    def make(self, connection: sqlite3.Connection) -> None:
        """Make the fence's table, if it is not there."""
        connection.execute(_table_statement(self.table, "INTEGER"))

    def check(self, connection: sqlite3.Connection, batch: Owned) -> None:
        """Let a batch (or a `Delivered` record) pass, and every later owner's; call it first in the transaction that
        writes the batch's rows.

        Raises StaleOwnerError when a later owner of the shard has written, and ValueError where no transaction is open:
        then the check would end before the rows are written.
        """
        statement = (
            f"INSERT INTO {self.table} VALUES (?, ?, ?, ?) ON CONFLICT (application, stream, shard_id) "  # noqa: S608 - the name was checked
            f"DO UPDATE SET token = max({self.table}.token, excluded.token) RETURNING token"
        )
        values = (self.application, batch.stream, batch.shard_id, batch.token)
        ((token,),) = connection.execute(statement, values).fetchall()
        if not connection.in_transaction:
            raise ValueError('no transaction is open: execute "BEGIN IMMEDIATE" before the check')
        _refuse_stale(batch, token)


class PostgresFence:
    """The fence of one application in a PostgreSQL database, for connections of ``asyncpg``.

    ::

        fence = PostgresFence("billing")
        await fence.make(connection)
        ...
        async with pool.acquire() as connection, connection.transaction():
            await fence.check(connection, batch)
            rows = [(record.data, *row_key(record)) for record in batch]
            await connection.executemany(
                "INSERT INTO orders VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING", rows
            )

    Batches of one owner write side by side: they share the row of their shard. The first batch of a new owner waits for
    the transactions of the former one.
    """

    def __init__(self, application: str, *, table: str = TABLE) -> None:
        """``application``: the consumer's. Several applications may have one ``table``. Raises OptionError for a name
        that is none of a table.
        """
        self.application = application
        self.table = _check_name(table)

    async def make(self, connection: Any) -> None:
        """Make the fence's table, if it is not there. Several processes may do so at once."""
        # Two sessions that make one table at once can meet in PostgreSQL's catalogue: one of them fails.
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", self.table)
            await connection.execute(_table_statement(self.table, "BIGINT"))

    async def check(self, connection: Any, batch: Owned) -> None:
        """Let a batch (or a `Delivered` record) pass, and every later owner's; call it first in the transaction that
        writes the batch's rows.

        Raises StaleOwnerError when a later owner of the shard has written, and ValueError where no transaction is open:
        then the check would end before the rows are written. Under REPEATABLE READ and SERIALIZABLE it raises
        asyncpg's SerializationError where another owner comes in between.
        """
        if not connection.is_in_transaction():
            raise ValueError("no transaction is open: call the check inside of `async with connection.transaction()`")
        place = (self.application, batch.stream, batch.shard_id)
        # The row is locked for sharing: batches of one owner run side by side, and the next owner waits for them. A
        # lock that is shared is never raised to an exclusive one: two batches that did so would wait for each other.
        where = "WHERE application = $1 AND stream = $2 AND shard_id = $3"
        known = await connection.fetchval(f"SELECT token FROM {self.table} {where}", *place)  # noqa: S608 - the name was checked
        if known is None or known < batch.token:
            await connection.execute(
                f"INSERT INTO {self.table} AS fence VALUES ($1, $2, $3, $4) "  # noqa: S608 - the same
                "ON CONFLICT (application, stream, shard_id) DO UPDATE SET token = EXCLUDED.token "
                "WHERE fence.token < EXCLUDED.token",
                *place,
                batch.token,
            )
        token = await connection.fetchval(f"SELECT token FROM {self.table} {where} FOR SHARE", *place)  # noqa: S608 - the same
        _refuse_stale(batch, token)


def _check_name(table: str) -> str:
    if not isinstance(table, str) or not _NAME.fullmatch(table):
        raise OptionError("table is a name of letters, digits and underscores, at most 63")
    return table


def _table_statement(table: str, number: str) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {table} (application TEXT NOT NULL, stream TEXT NOT NULL, "
        f"shard_id TEXT NOT NULL, token {number} NOT NULL, PRIMARY KEY (application, stream, shard_id))"
    )


def _refuse_stale(batch: Owned, token: int) -> None:
    """Raise StaleOwnerError where ``token``, the highest that has written, is another owner's."""
    if token > batch.token:
        raise StaleOwnerError(batch.stream, batch.shard_id, token=batch.token, latest=token)
