"""Tables that an earlier version has made: what they lack is added when they are opened, and what they hold stays."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import Checkpoint, Done, LeaseRow, writes
from shardway.core.leases.worker_row import WorkerRow
from shardway.errors import AccessDeniedError, OptionError
from shardway.stores.postgres import PostgresLeaseTable
from shardway.stores.sql import LEASE_COLUMNS
from shardway.stores.sqlite import SqliteLeaseTable
from tests.stores.lease_kit import done, full_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from shardway.ports import LeaseTable

WORKERS = 8
ADDED = (
    'has to run ALTER TABLE "older" ADD COLUMN read_until_ms BIGINT; '
    '.*ALTER TABLE "older-Workers" ADD COLUMN leaving TEXT'
)
NAME = "older"


def older(name: str, number: str, real: str, blob: str) -> list[str]:
    """Without the columns that were added later, with a lease and a worker."""
    return [
        f'CREATE TABLE "{name}" (application TEXT NOT NULL, lease_key TEXT NOT NULL, lease_owner TEXT, '
        f"lease_counter {number} NOT NULL, "
        f"checkpoint TEXT NOT NULL, checkpoint_sub_sequence_number {number} NOT NULL, pending_checkpoint TEXT, "
        f"pending_checkpoint_sub_sequence_number {number}, pending_checkpoint_state {blob}, "
        f"owner_switches_since_checkpoint {number} NOT NULL, parent_shard_ids TEXT, child_shard_ids TEXT, "
        "starting_hash_key TEXT, ending_hash_key TEXT, stream_name TEXT, shard_id TEXT, "
        f"throughput_kbps {real}, checkpoint_owner TEXT, entity_type TEXT, "
        "PRIMARY KEY (application, lease_key))",
        f'CREATE TABLE "{name}-Workers" (application TEXT NOT NULL, worker_id TEXT NOT NULL, '
        f"counter {number} NOT NULL, failover_millis {number} NOT NULL, "
        "version TEXT, held TEXT, wanted TEXT, given TEXT, warm TEXT, PRIMARY KEY (application, worker_id))",
        f'INSERT INTO "{name}" (application, lease_key, lease_owner, lease_counter, checkpoint, '
        "checkpoint_sub_sequence_number, owner_switches_since_checkpoint, parent_shard_ids) "
        "VALUES ('billing', 'a', 'w1', 5, 'LATEST', 0, 1, '[\"p\"]')",
        f'INSERT INTO "{name}-Workers" (application, worker_id, counter, failover_millis, held) '
        "VALUES ('billing', 'w1', 3, 10000, '[\"a\"]')",
    ]


class Database:
    """One that has tables of an earlier version: ``run`` SQL, ``open`` the lease table, ``columns`` of a table."""

    def __init__(
        self, run: Callable[[str], Awaitable[list[Any]]], opener: Callable[[str], LeaseTable], columns_of: str
    ) -> None:
        self.run = run
        self._opener = opener
        self._columns_of = columns_of
        self.opened: list[LeaseTable] = []

    def open(self, name: str = NAME, application: str = "billing") -> LeaseTable:
        self.opened.append(self._opener(name))
        table: Any = self.opened[-1]
        return table.of(application)  # type: ignore[no-any-return]

    async def columns(self, name: str) -> list[str]:
        return [row[0] for row in await self.run(self._columns_of.format(name))]


@contextlib.asynccontextmanager
async def _sqlite(path: Path) -> AsyncIterator[Database]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:

        async def run(text: str) -> list[Any]:
            return connection.execute(text).fetchall()

        yield Database(
            run,
            lambda name: SqliteLeaseTable(path, name, busy_timeout_s=20.0),
            "SELECT name FROM pragma_table_info('{}')",
        )


@contextlib.asynccontextmanager
async def _postgres(connect: dict[str, Any]) -> AsyncIterator[Database]:
    import asyncpg

    schema = f"s{uuid.uuid4().hex[:8]}"
    there = {**connect, "server_settings": {"search_path": schema}}
    connection = await asyncpg.connect(**there)
    await connection.execute(f"CREATE SCHEMA {schema}")

    async def run(text: str) -> list[Any]:
        return list(await connection.fetch(text))

    yield Database(
        run,
        lambda name: PostgresLeaseTable(name=name, request_timeout_s=20.0, **there),
        f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name = '{{}}'",
    )
    await connection.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("stores"))])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        made, kinds = _sqlite(tmp_path / "leases.sqlite"), ("INTEGER", "REAL", "BLOB")
    else:
        made, kinds = _postgres(request.getfixturevalue("postgres")), ("BIGINT", "DOUBLE PRECISION", "BYTEA")
    async with made as one:
        for text in older(NAME, *kinds):
            await one.run(text)
        yield one
        for table in one.opened:
            await table.close()


OLD = LeaseRow(key="a", owner="w1", counter=5, checkpoint=Checkpoint.LATEST, switches=1)


async def test_workers_that_open_it_together_add_what_it_lacks(database: Database) -> None:
    tables = [database.open() for _ in range(WORKERS)]
    await asyncio.gather(*(one.ensure() for one in tables))
    old = await tables[0].get("a")
    assert old == replace(OLD, parents=frozenset({"p"}))
    assert await tables[1].workers() == [WorkerRow(worker_id="w1", counter=3, failover_s=10.0, held=frozenset({"a"}))]
    row = replace(full_row("b"), read_until_ms=1_700_000_000_123)
    assert await tables[2].create(row) == Done(row)
    assert await tables[3].get("b") == row
    worker = WorkerRow(worker_id="w2", failover_s=5.0, leases_max=3, avoids=frozenset({"a"}), stream="arn:orders")
    assert isinstance(await tables[4].put_worker(worker), Done)
    assert worker in await tables[5].workers()
    assert done(await tables[6].write(writes.renew(old))).counter == 6


async def test_a_worker_that_still_reads_it_with_the_earlier_version_goes_on(database: Database) -> None:
    """Its statements name their columns, or read whatever there is."""
    asking = f"SELECT * FROM \"{NAME}\" WHERE lease_key = 'a'"
    changing = f"UPDATE \"{NAME}\" SET lease_counter = lease_counter + 1 WHERE lease_key = 'a' RETURNING *"
    columns = len((await database.run(asking))[0])
    await database.run(changing)
    table = database.open()
    await table.ensure()
    assert len((await database.run(asking))[0]) > columns
    assert len(await database.run(changing)) == 1
    found = await table.get("a")
    assert found is not None
    assert found.counter == 7


async def test_an_application_that_opens_it_too_sees_its_own_rows_alone(database: Database) -> None:
    await database.open().ensure()
    audit = database.open(application="audit")
    await audit.ensure()
    assert (await audit.scan()).rows == []
    assert await audit.workers() == []
    assert len((await database.open().scan()).rows) == 1


async def test_a_table_that_does_not_say_whose_its_rows_are_is_refused_and_not_changed(database: Database) -> None:
    columns = "lease_key TEXT PRIMARY KEY, lease_counter INTEGER, checkpoint TEXT"
    await database.run(f'CREATE TABLE "alone" ({columns})')
    with pytest.raises(OptionError, match="the table alone has no column application: it holds no leases"):
        await database.open("alone").ensure()
    assert sorted(await database.columns("alone")) == ["checkpoint", "lease_counter", "lease_key"]


async def test_a_table_that_lacks_nothing_is_left_as_it_is(database: Database) -> None:
    table = database.open()
    await table.ensure()
    before = [await database.columns(name) for name in (NAME, f"{NAME}-Workers")]
    await table.ensure()
    assert [await database.columns(name) for name in (NAME, f"{NAME}-Workers")] == before
    assert len(set(before[0])) == len(before[0]) == 1 + len(LEASE_COLUMNS)


async def test_a_table_of_something_else_is_refused_and_not_changed(database: Database) -> None:
    await database.run("CREATE TABLE orders (lease_key TEXT PRIMARY KEY, amount INTEGER)")
    with pytest.raises(OptionError, match="the table orders has no column application: it holds no leases"):
        await database.open("orders").ensure()
    assert sorted(await database.columns("orders")) == ["amount", "lease_key"]


@pytest.mark.xdist_group("stores")
async def test_a_role_that_may_not_add_a_column_says_what_is_missing(postgres: dict[str, Any]) -> None:
    role = f"r{uuid.uuid4().hex[:8]}"
    async with _postgres(postgres) as database:
        for text in older(NAME, "BIGINT", "DOUBLE PRECISION", "BYTEA"):
            await database.run(text)
        schema = (await database.run("SELECT current_schema()"))[0][0]
        await database.run(f"CREATE ROLE {role} LOGIN")
        await database.run(f"GRANT ALL ON SCHEMA {schema} TO {role}")
        await database.run(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
        settings = {"search_path": schema}
        stranger = PostgresLeaseTable(
            name=NAME, request_timeout_s=20.0, **{**postgres, "user": role, "server_settings": settings}
        ).of("billing")
        with pytest.raises(AccessDeniedError, match=ADDED):
            await stranger.ensure()
        await database.open().ensure()
        await stranger.ensure()
        assert (await stranger.scan()).rows == [replace(OLD, parents=frozenset({"p"}))]
        await stranger.close()
        for table in database.opened:
            await table.close()
