"""What only SQLite has: one file for the processes of a machine, locks, and disks."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.core.leases import Done, LeaseRow, Unknown, writes
from shardway.core.leases.worker_row import WorkerRow
from shardway.errors import InvalidArgumentError, NotFoundError
from shardway.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROW = LeaseRow(key="a", counter=3, owner="w1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.sqlite"


@pytest.fixture
async def table(path: Path) -> AsyncIterator[SqliteLeaseTable]:
    made = SqliteLeaseTable(path, busy_timeout_s=0.1)
    await made.ensure()
    yield made
    await made.close()
    await made.close()


async def test_what_was_written_is_there_after_all_have_closed(path: Path) -> None:
    first = SqliteLeaseTable(path)
    await first.ensure()
    await first.create(ROW)
    await first.close()
    second = SqliteLeaseTable(path)
    assert await second.get("a") == ROW
    await second.close()


async def test_a_file_that_another_process_has_locked_leaves_the_outcome_unknown(
    table: SqliteLeaseTable, path: Path
) -> None:
    await table.create(ROW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert await table.write(writes.renew(ROW)) == Unknown("SQLITE_BUSY")
    assert await table.get("a") == ROW, "reading waits for no lock"
    other.execute("COMMIT")
    other.close()
    assert isinstance(await table.write(writes.renew(ROW)), Done)


async def test_a_table_that_many_make_at_once(path: Path) -> None:
    tables = [SqliteLeaseTable(path, busy_timeout_s=20) for _ in range(8)]
    await asyncio.gather(*(one.ensure() for one in tables))
    assert isinstance(await tables[0].create(ROW), Done)
    assert await tables[7].get("a") == ROW
    await asyncio.gather(*(one.close() for one in tables))


async def test_without_a_table_nothing_is_hidden(path: Path) -> None:
    table = SqliteLeaseTable(path)
    with pytest.raises(NotFoundError, match=r"call ensure\(\) first"):
        await table.write(writes.renew(ROW))
    with pytest.raises(NotFoundError, match=r"leases\.sqlite"):
        await table.scan()
    await table.close()


@pytest.fixture
def no_database(path: Path) -> Path:
    path.write_bytes(b"not a database, whatever its name says" * 100)
    return path


async def test_a_file_that_is_no_database(no_database: Path) -> None:
    table = SqliteLeaseTable(no_database)
    with pytest.raises(InvalidArgumentError, match="not a database"):
        await table.ensure()
    await table.close()


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    table = SqliteLeaseTable(tmp_path / "nowhere" / "leases.sqlite")
    with pytest.raises(NotFoundError, match="nowhere"):
        await table.ensure()
    await table.close()


WORKER = """
import asyncio, sys
from shardway.core.leases import Done, writes
from shardway.stores.sqlite import SqliteLeaseTable

async def main(path, me, takes):
    table = SqliteLeaseTable(path, busy_timeout_s=30)
    tokens = []
    while len(tokens) < takes:
        row = await table.get("a")
        outcome = await table.write(writes.take(row, me))
        if isinstance(outcome, Done):
            tokens.append(outcome.row.counter)
    await table.close()
    print(*tokens)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def start(path: Path, name: str, takes: int) -> asyncio.subprocess.Process:
    command = (sys.executable, "-c", WORKER, str(path), name, str(takes))
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def test_processes_that_take_a_lease_from_each_other_share_no_token(path: Path) -> None:
    table = SqliteLeaseTable(path, busy_timeout_s=30)
    await table.ensure()
    await table.create(LeaseRow(key="a"))
    processes = [await start(path, f"w{number}", 25) for number in range(3)]
    said = [(await process.communicate())[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    tokens = sorted(int(token) for text in said for token in text.split())
    assert tokens == list(range(1, 76))
    await table.close()


async def test_a_process_that_is_killed_amid_its_writes_leaves_a_row_that_is_whole(path: Path) -> None:
    table = SqliteLeaseTable(path, busy_timeout_s=30)
    await table.ensure()
    row = LeaseRow(key="a")
    await table.create(row)
    process = await start(path, "w1", 1_000_000)
    try:
        while row.counter < 20:
            found = await table.get("a")
            assert found is not None
            row = found
    finally:
        process.kill()
        await process.communicate()
    left = await table.get("a")
    assert left is not None
    assert left.counter >= 20
    assert isinstance(await table.write(writes.take(left, "w2")), Done)
    await table.close()


async def test_a_value_that_sqlite_cannot_hold_is_told_without_the_value(table: SqliteLeaseTable) -> None:
    for row in (LeaseRow(key="b", counter=1 << 70), LeaseRow(key="\ud800secret")):
        with pytest.raises(InvalidArgumentError, match="does not fit into its column") as told:
            await table.create(row)
        assert "secret" not in str(told.value)
    with pytest.raises(InvalidArgumentError, match="does not fit into its column"):
        await table.get("\ud800secret")


async def test_a_table_that_is_closed_says_so(path: Path) -> None:
    table = SqliteLeaseTable(path)
    await table.ensure()
    await table.close()
    with pytest.raises(InvalidArgumentError, match="the table is closed"):
        await table.scan()


async def test_text_of_another_encoding_is_one_of_our_errors(table: SqliteLeaseTable, path: Path) -> None:
    await table.create(ROW)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE leases SET lease_owner = CAST(x'ff' AS TEXT)")
    with pytest.raises(InvalidArgumentError, match="Could not decode"):
        await table.scan()


@pytest.mark.parametrize("damage", ["x", "5", "[5]", "{}", "[[]]", "[" * 100_000, "null"])
async def test_a_row_whose_list_is_damaged_hides_no_other(table: SqliteLeaseTable, path: Path, damage: str) -> None:
    await table.create(ROW)
    await table.create(LeaseRow(key="b", parents=frozenset({"a"})))
    await table.put_worker(WorkerRow(worker_id="w1", counter=1, failover_s=10.0))
    await table.put_worker(WorkerRow(worker_id="w2", counter=1, failover_s=10.0))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE leases SET parent_shard_ids = ? WHERE lease_key = 'b'", [damage])
        other.execute("UPDATE \"leases-Workers\" SET held = ? WHERE worker_id = 'w2'", [damage])
    found = await table.scan()
    assert [row.key for row in found.rows] == ["a"]
    assert list(found.unreadable) == ["b"]
    assert [row.worker_id for row in await table.workers()] == ["w1"]


async def test_a_number_without_end_hides_no_other_row(table: SqliteLeaseTable, path: Path) -> None:
    await table.create(ROW)
    await table.create(LeaseRow(key="b"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE leases SET checkpoint_sub_sequence_number = 9e999 WHERE lease_key = 'b'")
    found = await table.scan()
    assert ([row.key for row in found.rows], list(found.unreadable)) == (["a"], ["b"])
