"""Leases are kept as rows of a relational table: here are the columns, and the statements that SQLite and PostgreSQL
share.

A conditional write is one UPDATE whose WHERE is the condition and which returns the row. It is atomic in both
databases: an UPDATE that had to wait for the row's lock checks its condition again when it gets the lock.

One table serves several applications: the application's name is part of each key. A table keeps the columns that it was
made with; what a later version needs beside them is added when that version opens the table.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.leases import Kind
from shardway.core.leases import row as names
from shardway.core.leases import worker_row as members
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.leases import LeaseRow, Write
    from shardway.core.leases.worker_row import WorkerRow

TEXT, NUMBER, REAL, BYTES, TEXTS = "text", "number", "real", "bytes", "texts"
"""The kinds of columns. A set of texts is a JSON array."""


APPLICATION = "application"
"""The column with the application's name: it is not an attribute of a row, but says whose the row is."""


class Column(NamedTuple):
    """A column for one of the KCL's attributes."""

    name: str
    kind: str
    required: bool = False


LEASE_COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        names.KEY: Column("lease_key", TEXT, True),
        names.OWNER: Column("lease_owner", TEXT),
        names.COUNTER: Column("lease_counter", NUMBER, True),
        names.CHECKPOINT: Column("checkpoint", TEXT, True),
        names.SUB: Column("checkpoint_sub_sequence_number", NUMBER, True),
        names.PENDING: Column("pending_checkpoint", TEXT),
        names.PENDING_SUB: Column("pending_checkpoint_sub_sequence_number", NUMBER),
        names.PENDING_STATE: Column("pending_checkpoint_state", BYTES),
        names.SWITCHES: Column("owner_switches_since_checkpoint", NUMBER, True),
        names.PARENTS: Column("parent_shard_ids", TEXTS),
        names.CHILDREN: Column("child_shard_ids", TEXTS),
        names.FIRST_HASH_KEY: Column("starting_hash_key", TEXT),
        names.LAST_HASH_KEY: Column("ending_hash_key", TEXT),
        names.STREAM: Column("stream_name", TEXT),
        names.SHARD_ID: Column("shard_id", TEXT),
        names.THROUGHPUT: Column("throughput_kbps", REAL),
        names.CHECKPOINT_OWNER: Column("checkpoint_owner", TEXT),
        names.ENTITY: Column("entity_type", TEXT),
        names.READ_UNTIL: Column("read_until_ms", NUMBER),
        names.PROCESS: Column("process", TEXT),
        names.OF_STREAM: Column("of_stream", TEXT),
    }
)
WORKER_COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        members.WORKER_ID: Column("worker_id", TEXT, True),
        names.COUNTER: Column("counter", NUMBER, True),
        members.FAILOVER_MILLIS: Column("failover_millis", NUMBER, True),
        members.VERSION: Column("version", TEXT),
        members.HELD: Column("held", TEXTS),
        members.WANTED: Column("wanted", TEXTS),
        members.GIVEN: Column("given", TEXT),
        members.WARM: Column("warm", TEXTS),
        members.LEAVING: Column("leaving", TEXT),
        members.LEASES_MAX: Column("leases_max", NUMBER),
        members.AVOIDS: Column("avoids", TEXTS),
        members.STREAM: Column("stream", TEXT),
        members.PROCESS: Column("process", TEXT),
        members.WRITTEN_MILLIS: Column("written_ms", NUMBER),
        members.UNSETTLED: Column("unsettled", TEXT),
    }
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_NAME_CHARS_MAX = 55
"""The most characters of a table's name: PostgreSQL's names have 63 bytes; the workers' table adds eight."""


class Dialect(NamedTuple):
    """The differences between the two databases."""

    types: Mapping[str, str]
    place: str
    """The place of a parameter: ``?``, or ``$`` that is followed by its number."""
    same: str
    """The operator of an equality that holds between two NULLs, too."""
    columns_of: str
    """The query for a table's columns, as ``name``; the table is a parameter."""


SQLITE = Dialect(
    {TEXT: "TEXT", NUMBER: "INTEGER", REAL: "REAL", BYTES: "BLOB", TEXTS: "TEXT"},
    "?",
    "IS",
    "SELECT name FROM pragma_table_info(?)",
)
POSTGRES = Dialect(
    {TEXT: "TEXT", NUMBER: "BIGINT", REAL: "DOUBLE PRECISION", BYTES: "BYTEA", TEXTS: "TEXT"},
    "$",
    "IS NOT DISTINCT FROM",
    "SELECT attname AS name FROM pg_attribute"
    " WHERE attrelid = to_regclass(quote_ident($1)) AND attnum > 0 AND NOT attisdropped",
)


class Statement(NamedTuple):
    """A statement in SQL, with the values that go into its places."""

    text: str
    values: list[Any]


class Statements:
    """The statements for one application's part of a table of leases, and of its table of workers. Raises OptionError
    for a bad name.
    """

    def __init__(self, table: str, dialect: Dialect, application: str = "") -> None:
        if not _NAME.fullmatch(table) or len(table) > _NAME_CHARS_MAX:
            raise OptionError(
                f"{table!r} cannot name a lease table: a letter, then letters, digits, '_', '.' or '-', "
                f"{_NAME_CHARS_MAX} at most"
            )
        self._tables = ((table, LEASE_COLUMNS), (f"{table}-Workers", WORKER_COLUMNS))
        self._leases, self._workers = [f'"{name}"' for name, _ in self._tables]
        self._dialect = dialect
        self.table = table
        self.application = application

    # The texts are put together from the names of columns and tables, never from values.

    def make(self) -> list[str]:
        """Return the statements that make both tables unless they are there."""
        return [self._make(f'"{name}"', columns) for name, columns in self._tables]

    def columns(self) -> list[Statement]:
        """Return the statements that ask for the columns of both tables, as ``name``."""
        return [Statement(self._dialect.columns_of, [name]) for name, _ in self._tables]

    def additions(self, found: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
        """Return the statements that add what both tables lack, by the columns that they have: an earlier version may
        have made them. Ask again before the next one is made, as others may have been first.

        Raises OptionError for a table that is none of ours.
        """
        texts = []
        for (table, columns), rows in zip(self._tables, found, strict=True):
            there = {row["name"] for row in rows}
            required = [APPLICATION, *(column.name for column in columns.values() if column.required)]
            if wrong := [name for name in required if name not in there]:
                raise OptionError(f"the table {table} has no column {wrong[0]}: it holds no leases; name another table")
            texts += [
                f'ALTER TABLE "{table}" ADD COLUMN {column.name} {self._dialect.types[column.kind]}'
                for column in columns.values()
                if column.name not in there
            ]
        return texts

    def create(self, row: LeaseRow) -> Statement:
        """Return the statement that adds a lease; it returns the row, or nothing if the key is there."""
        known = {name: value for name, value in row.attributes().items() if name in LEASE_COLUMNS}
        values = {APPLICATION: self.application, **_encode_row(LEASE_COLUMNS, known)}
        return Statement(self._insert(self._leases, values) + " ON CONFLICT DO NOTHING RETURNING *", [*values.values()])

    def write(self, write: Write) -> Statement:
        """Return the statement of a conditional write; it returns the row (of a delete: as it was), or nothing."""
        values: list[Any] = []
        changes = self._pairs(write.changes, " = ", ", ", values)
        # The key is compared by plain equalities: only those find the row by the index.
        values.append(self.application)
        key = f"{APPLICATION} = {self._place(len(values))} AND "
        key += self._pairs(((names.KEY, write.key),), " = ", "", values)
        expects = [(name, value) for name, value in write.expects if name != names.KEY]
        where = " AND ".join([key, self._pairs(expects, f" {self._dialect.same} ", " AND ", values) or "TRUE"])
        if write.kind is Kind.DELETE:
            return Statement(f"DELETE FROM {self._leases} WHERE {where} RETURNING *", values)  # noqa: S608
        return Statement(f"UPDATE {self._leases} SET {changes} WHERE {where} RETURNING *", values)  # noqa: S608

    def get(self, key: str) -> Statement:
        """Return the statement that reads one lease."""
        text = f"SELECT * FROM {self._leases} WHERE {self._own_rows} AND lease_key = {self._place(2)}"  # noqa: S608
        return Statement(text, [self.application, key])

    def scan(self) -> Statement:
        """Return the statement that reads all leases."""
        return Statement(f"SELECT * FROM {self._leases} WHERE {self._own_rows}", [self.application])  # noqa: S608

    def put_worker(self, row: WorkerRow) -> Statement:
        """Return the statement that writes a worker's row, unless a newer one of the same process is there. It returns
        the worker's id if it has written.
        """
        columns = [column.name for column in WORKER_COLUMNS.values()]
        given = _encode_row(WORKER_COLUMNS, row.attributes())
        values = {APPLICATION: self.application, **{name: given.get(name) for name in columns}}
        changes = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
        kept = self._workers
        # A comparison with NULL, which stands for no process, is neither true nor false: so COALESCE.
        older = f"COALESCE({kept}.process <> excluded.process OR {kept}.counter <= excluded.counter, TRUE)"
        text = (
            f"{self._insert(kept, values)} ON CONFLICT ({APPLICATION}, worker_id) "
            f"DO UPDATE SET {changes} WHERE {older} RETURNING worker_id"
        )
        return Statement(text, [*values.values()])

    def workers(self) -> Statement:
        """Return the statement that reads all workers' rows."""
        return Statement(f"SELECT * FROM {self._workers} WHERE {self._own_rows}", [self.application])  # noqa: S608

    def delete_worker(self, worker_id: str, counter: int | None) -> Statement:
        """Return the statement that removes a worker's row, if its counter is the one that is given."""
        text = f"DELETE FROM {self._workers} WHERE {self._own_rows} AND worker_id = {self._place(2)}"  # noqa: S608
        if counter is None:
            return Statement(text, [self.application, worker_id])
        return Statement(f"{text} AND counter = {self._place(3)}", [self.application, worker_id, counter])

    def get_worker(self, worker_id: str) -> Statement:
        """Return the statement that reads one worker's row."""
        text = f"SELECT * FROM {self._workers} WHERE {self._own_rows} AND worker_id = {self._place(2)}"  # noqa: S608
        return Statement(text, [self.application, worker_id])

    @property
    def _own_rows(self) -> str:
        """The first condition of a statement: the row is of this application."""
        return f"{APPLICATION} = {self._place(1)}"

    def _place(self, number: int) -> str:
        return self._dialect.place if self._dialect.place == "?" else f"{self._dialect.place}{number}"

    def _make(self, table: str, columns: Mapping[str, Column]) -> str:
        lines = [
            f"{column.name} {self._dialect.types[column.kind]}" + (" NOT NULL" if column.required else "")
            for column in columns.values()
        ]
        key = next(iter(columns.values())).name
        kept = f"{APPLICATION} {self._dialect.types[TEXT]} NOT NULL, {', '.join(lines)}"
        return f"CREATE TABLE IF NOT EXISTS {table} ({kept}, PRIMARY KEY ({APPLICATION}, {key}))"

    def _insert(self, table: str, values: Mapping[str, Any]) -> str:
        places = ", ".join(self._place(number) for number in range(1, len(values) + 1))
        return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})"  # noqa: S608

    def _pairs(self, of: Sequence[tuple[str, Any]], sign: str, between: str, values: list[Any]) -> str:
        parts = []
        for name, value in of:
            column = LEASE_COLUMNS[name]
            values.append(_encode(column, value))
            parts.append(f"{column.name}{sign}{self._place(len(values))}")
        return between.join(parts)


def lease_attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Plain attributes of a lease from a row by column names. Columns that Shardway does not know are left out."""
    return _decode_row(LEASE_COLUMNS, row)


def worker_attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Plain attributes of a worker from a row by column names."""
    return _decode_row(WORKER_COLUMNS, row)


def _encode_row(columns: Mapping[str, Column], attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {columns[name].name: _encode(columns[name], value) for name, value in attributes.items()}


def _encode(column: Column, value: Any) -> Any:
    return json.dumps(sorted(value)) if column.kind == TEXTS and value is not None else value


def _decode_row(columns: Mapping[str, Column], row: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: row[column.name] for name, column in columns.items() if row[column.name] is not None}
    for name, column in columns.items():
        if column.kind == TEXTS and name in found:
            found[name] = _texts(found[name])
    return found


def _texts(stored: Any) -> frozenset[str] | None:
    """Return a set of texts, or None for what is no such set: then this row alone cannot be read."""
    try:
        found = json.loads(stored)
    except (TypeError, ValueError, RecursionError):
        return None
    return frozenset(found) if isinstance(found, list) and all(isinstance(one, str) for one in found) else None
