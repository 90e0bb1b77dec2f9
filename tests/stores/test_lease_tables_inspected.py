"""The read model sees what the stores hold, of this version and of earlier ones, and leaves it as it is."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from shardway.inspect import Inspector, Store
from shardway.stores.postgres import PostgresLeaseTable
from tests.stored_kit import APPLICATION, NAME, VERSIONS, WORKERS, fixture, leases
from tests.stores.lease_kit import full_row, made

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_file_of_sqlite_of_each_version(version: str, tmp_path: Path) -> None:
    path = tmp_path / "leases.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(fixture(version, "leases_sqlite.sql").decode())
    before = path.read_bytes()
    async with Inspector() as inspector:
        report = await inspector.application(APPLICATION, Store.parse(f"sqlite:{path}", NAME))
    found = report.application
    assert [one.key for one in found.leases] == sorted(row.key for row in leases())
    assert {one.worker_id for one in found.workers} >= {row.worker_id for row in WORKERS}
    assert (found.kinds[0], report.calls) == ("Shardway", {})
    assert path.read_bytes() == before


@pytest.mark.xdist_group("stores")
async def test_tables_of_postgresql(postgres: dict[str, Any]) -> None:
    table = PostgresLeaseTable(name="inspected", request_timeout_s=20.0, **postgres).of("billing")
    await table.ensure()
    row = await made(table, full_row())
    await table.close()
    from urllib.parse import quote

    dsn = f"postgresql://{postgres.get('user', '')}@/{postgres.get('database', '')}?host={quote(str(postgres['host']))}"
    if "port" in postgres:
        dsn += f"&port={postgres['port']}"
    async with Inspector() as inspector:
        report = await inspector.application("billing", Store.parse(dsn, "inspected"))
    assert [one.key for one in report.application.leases] == [row.key]
