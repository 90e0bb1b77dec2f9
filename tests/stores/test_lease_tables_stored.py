"""Whole tables that earlier versions have filled, in SQLite and PostgreSQL: today's code reads them, and goes on."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import writes
from shardway.stores.postgres import PostgresLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable
from tests.stored_kit import APPLICATION, NAME, VERSIONS, WORKERS, fixture, leases, lines_of, shard
from tests.stores.lease_kit import done

if TYPE_CHECKING:
    from pathlib import Path

each_version = pytest.mark.parametrize("version", VERSIONS)


async def _read_and_go_on(table: Any) -> None:
    await table.ensure()
    rows = sorted((await table.scan()).rows, key=lambda row: row.key)
    assert rows == leases()
    assert sorted(await table.workers(), key=lambda row: row.worker_id) == sorted(
        WORKERS, key=lambda row: row.worker_id
    )
    row = await table.get(shard(1))
    assert done(await table.write(writes.renew(row))).counter == 13
    await table.close()


@each_version
async def test_a_file_of_sqlite(version: str, tmp_path: Path) -> None:
    path = tmp_path / "leases.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(fixture(version, "leases_sqlite.sql").decode())
    await _read_and_go_on(SqliteLeaseTable(path, NAME).of(APPLICATION))


@each_version
@pytest.mark.xdist_group("stores")
async def test_tables_of_postgresql(version: str, postgres: dict[str, Any]) -> None:
    """By the very statements that the version sent."""
    import asyncpg

    schema = f"s{uuid.uuid4().hex[:8]}"
    there = {**postgres, "server_settings": {"search_path": schema}}
    connection = await asyncpg.connect(**there)
    await connection.execute(f"CREATE SCHEMA {schema}")
    for text, values in lines_of(version, "leases_postgres.jsonl"):
        given = [base64.b64decode(one["base64"]) if isinstance(one, dict) else one for one in values]
        await connection.execute(text, *given)
    await connection.close()
    table = PostgresLeaseTable(name=NAME, request_timeout_s=20.0, **there).of(APPLICATION)
    await _read_and_go_on(table)
