"""What only PostgreSQL has: connections that break, servers that stop, statements that wait."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from shardway import ConnectionOptions, Consumer, Credentials, StartingPosition
from shardway.core.leases import Done, LeaseRow, Refused, Unknown, writes
from shardway.errors import AccessDeniedError, NotFoundError, OptionError, TransportError
from shardway.local import LocalKinesis
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.stores.postgres import PostgresLeaseTable
from shardway.stores.sql import POSTGRES, SQLITE, Statements
from tests.options_kit import arguments_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

asyncpg = pytest.importorskip("asyncpg")

ROW = LeaseRow(key="a", counter=3, owner="w1")
pytestmark = pytest.mark.xdist_group("stores")


@pytest.fixture
async def table(postgres: dict[str, Any]) -> AsyncIterator[PostgresLeaseTable]:
    made = PostgresLeaseTable(name=f"l{uuid.uuid4().hex[:8]}", request_timeout_s=10.0, **postgres)
    await made.ensure()
    yield made
    await made.close()


@pytest.fixture
async def other(postgres: dict[str, Any]) -> AsyncIterator[Any]:
    """Another connection, as an administrator of the server has it."""
    connection = await asyncpg.connect(**postgres)
    yield connection
    await connection.close()


async def test_workers_that_start_together_make_one_table(postgres: dict[str, Any]) -> None:
    name = f"l{uuid.uuid4().hex[:8]}"
    tables = [PostgresLeaseTable(name=name, request_timeout_s=20.0, **postgres) for _ in range(8)]
    await asyncio.gather(*(one.ensure() for one in tables))
    assert isinstance(await tables[0].create(ROW), Done)
    assert await tables[1].get("a") == ROW
    await asyncio.gather(*(one.close() for one in tables))


async def test_a_connection_that_is_cut_while_a_write_waits_leaves_its_outcome_unknown(
    table: PostgresLeaseTable, other: Any
) -> None:
    await table.create(ROW)
    async with other.transaction():
        await other.execute(f'UPDATE "{table.name}" SET lease_counter = lease_counter')  # holds the row's lock
        write = asyncio.create_task(table.write(writes.renew(ROW)))
        cut = 0
        while not cut:
            await asyncio.sleep(0.01)
            cut = await other.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
    outcome = await write
    assert isinstance(outcome, Unknown)
    assert outcome.reason in ("57P01", "08003"), "the server's last word, or that there was none"
    assert isinstance(await table.write(writes.renew(ROW)), Done), "the pool opens another connection"


async def test_a_write_that_waits_too_long_is_not_waited_for(
    table: PostgresLeaseTable, other: Any, postgres: dict[str, Any]
) -> None:
    await table.create(ROW)
    hasty = PostgresLeaseTable(name=table.name, request_timeout_s=0.3, **postgres)
    await hasty.get("a")
    async with other.transaction():
        await other.execute(f'UPDATE "{table.name}" SET lease_counter = lease_counter')
        assert await hasty.write(writes.renew(ROW)) == Unknown("no answer within 0.3 s")
    await hasty.close()


async def test_a_server_that_falls_silent_is_not_waited_for(
    table: PostgresLeaseTable, other: Any, postgres: dict[str, Any]
) -> None:
    """As behind a network that swallows packets: not even a cancellation is answered."""
    await table.create(ROW)
    hasty = PostgresLeaseTable(name=table.name, request_timeout_s=0.5, max_size=1, **postgres)
    found = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
    before = {row[0] for row in await other.fetch(found)}
    await hasty.get("a")
    (served_by,) = {row[0] for row in await other.fetch(found)} - before
    os.kill(served_by, signal.SIGSTOP)
    try:
        async with asyncio.timeout(30):
            assert await hasty.write(writes.renew(ROW)) == Unknown("no answer within 0.5 s")
            assert await hasty.get("a") == ROW, "over a connection of its own"
    finally:
        os.kill(served_by, signal.SIGCONT)
    await hasty.close()


async def test_a_write_that_waits_for_a_rows_lock_looks_at_its_condition_again(
    table: PostgresLeaseTable, other: Any
) -> None:
    await table.create(ROW)
    async with other.transaction():
        await other.execute(f'UPDATE "{table.name}" SET lease_counter = 4, lease_owner = $1', "w2")
        write = asyncio.create_task(table.write(writes.renew(ROW)))
        waiting = 0
        while not waiting:
            await asyncio.sleep(0.01)
            waiting = await other.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    assert await write == Refused(LeaseRow(key="a", counter=4, owner="w2"))


async def test_a_server_that_only_reads_leaves_the_outcome_unknown(
    table: PostgresLeaseTable, postgres: dict[str, Any]
) -> None:
    await table.create(ROW)
    standby = PostgresLeaseTable(
        name=table.name, server_settings={"default_transaction_read_only": "on"}, request_timeout_s=10.0, **postgres
    )
    assert await standby.write(writes.renew(ROW)) == Unknown("25006")
    assert await standby.get("a") == ROW
    await standby.close()


async def test_columns_of_others_are_left_alone(table: PostgresLeaseTable, other: Any) -> None:
    await other.execute(f'ALTER TABLE "{table.name}" ADD COLUMN cost_centre TEXT DEFAULT $$x$$')
    assert await table.create(ROW) == Done(ROW)
    await other.execute(f'UPDATE "{table.name}" SET cost_centre = $$y$$')
    assert isinstance(await table.write(writes.renew(ROW)), Done)
    assert await other.fetchval(f'SELECT cost_centre FROM "{table.name}"') == "y"


async def test_a_write_finds_its_row_by_the_index(table: PostgresLeaseTable, other: Any) -> None:
    statement = Statements(table.name, POSTGRES).write(writes.renew(ROW))
    async with other.transaction():
        await other.execute("SET LOCAL enable_seqscan = off")
        plan = await other.fetch(f"EXPLAIN {statement.text}", *statement.values)
    assert any("Index Scan" in line[0] for line in plan)


async def test_without_a_table_nothing_is_hidden(postgres: dict[str, Any]) -> None:
    table = PostgresLeaseTable(name="nowhere", request_timeout_s=10.0, **postgres)
    with pytest.raises(NotFoundError, match="nowhere"):
        await table.write(writes.renew(ROW))
    with pytest.raises(NotFoundError, match="nowhere"):
        await table.scan()
    await table.close()


async def test_without_permission_nothing_is_hidden(
    table: PostgresLeaseTable, other: Any, postgres: dict[str, Any]
) -> None:
    await other.execute("CREATE ROLE nobody_in_particular LOGIN")
    stranger = PostgresLeaseTable(
        name=table.name, request_timeout_s=10.0, **{**postgres, "user": "nobody_in_particular"}
    )
    with pytest.raises(AccessDeniedError):
        await stranger.write(writes.renew(ROW))
    await stranger.close()


async def test_a_server_that_is_not_there(tmp_path: Any) -> None:
    table = PostgresLeaseTable(host=str(tmp_path), user="shardway", database="postgres", request_timeout_s=1.0)
    assert await table.write(writes.renew(ROW)) == Unknown("TransportError")
    with pytest.raises(TransportError, match="table leases"):
        await table.get("a")
    await table.close()


def test_names_that_would_not_do() -> None:
    for name in ("", 'a"; DROP TABLE b; --', "1st", "x" * 56, "a b"):
        for dialect in (SQLITE, POSTGRES):
            with pytest.raises(OptionError, match="cannot name a lease table"):
                Statements(name, dialect)
    with pytest.raises(OptionError, match="request_timeout_s"):
        PostgresLeaseTable(request_timeout_s=0)


async def test_each_loop_has_connections_of_its_own(table: PostgresLeaseTable, postgres: dict[str, Any]) -> None:
    """A consumer takes the table along to its own thread's loop, and leaves it usable on the program's."""
    watching = await asyncpg.connect(**postgres)
    mine = "select count(*) from pg_stat_activity where application_name = 'leases-of-two-loops'"
    one = PostgresLeaseTable(
        name=table.name, request_timeout_s=10.0, **postgres, server_settings={"application_name": "leases-of-two-loops"}
    )
    assert isinstance(await one.create(ROW), Done)

    async def elsewhere() -> LeaseRow | None:
        try:
            return await one.get("a")
        finally:
            await one.leave_loop()

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == ROW
    assert await watching.fetchval(mine) == 1
    with LoopThread() as other:
        assert await asyncio.to_thread(other.run, one.get("a")) == ROW
        assert await one.get("a") == ROW
        assert await watching.fetchval(mine) == 2
        await one.close()
    while await watching.fetchval(mine):
        pass
    await watching.close()


async def test_a_program_that_blocks_its_loop_keeps_its_leases_here_too(table: PostgresLeaseTable) -> None:
    settings = dict[str, Any](failover_s=1.0, look_interval_s=0.1, starting_position=StartingPosition.TRIM_HORIZON)
    with LocalKinesis(streams={"orders": 1}) as local:
        wire = ConnectionOptions(
            endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
        )
        async with Consumer(
            "orders", application="billing", connection=wire, **arguments_of(leases=table, **settings)
        ) as consumer:
            while not consumer.statistics().shards:
                await asyncio.sleep(0.01)
            (before,) = (await table.scan()).rows
            with LoopThread() as other:
                row = before
                while row.counter < before.counter + 6:  # two failover times, while the program's loop stands still
                    (row,) = other.run(table.scan()).rows
                other.run(table.leave_loop())
            assert row.owner == consumer.worker_id
        (last,) = (await table.scan()).rows
        assert last.owner is None
