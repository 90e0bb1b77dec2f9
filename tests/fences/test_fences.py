"""A store of the program's own has each record once, whatever the concurrency, and refuses a former owner."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Batch, OptionError, OutRecord, Part, Record, ShardwayError, SyncProducer, by_key
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.dead_letters import DeadLettersToFile
from shardway.fences import ROW_KEY_COLUMNS, PostgresFence, SqliteFence, StaleOwnerError, row_key
from shardway.local import LocalKinesis
from shardway.testing import TestConsumer
from tests.stores import postgres_server
from tests.stores.sqlite_leases import leases_in

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 90.0
RECORDS = 300
KEYS = 40
BEFORE_S = 60.0


@dataclass
class Owner:
    """What a fence asks of a batch."""

    token: int
    stream: str = "orders"
    shard_id: str = "shardId-000000000000"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        yield connection


@pytest.fixture(scope="module")
def server() -> Iterator[postgres_server.PostgresServer]:
    pytest.importorskip("asyncpg")
    try:
        with postgres_server.started() as found:
            yield found
    except postgres_server.UnavailableError as reason:
        pytest.skip(str(reason))


# --- the rule that holds for one batch at a time ---


async def test_the_last_position_alone_hides_records_that_come_side_by_side() -> None:
    """The condition that the guide names: with `by_key` a store that refuses lower positions loses records."""
    last, stored = (0, 0), 0

    async def store(batch: Batch[Any]) -> None:
        nonlocal last, stored
        await asyncio.sleep(0.001 * (hash(batch.records[0].partition_key) % 5))
        for record in batch.records:
            if (record.sequence_number, record.sub_sequence_number) > last:
                last, stored = (record.sequence_number, record.sub_sequence_number), stored + 1

    given = [OutRecord(b"%d" % number, f"key-{number % KEYS}") for number in range(RECORDS)]
    async with TestConsumer(given, ends=True) as consumer:
        await consumer.run_batches(store, concurrency=by_key(16))
        assert consumer.unsettled == []
    assert stored < RECORDS


# --- SQLite ---


def test_sqlite_refuses_a_former_owner_and_takes_back_what_it_wrote(database: sqlite3.Connection) -> None:
    fence = SqliteFence("billing")
    fence.make(database)
    fence.make(database)  # the table is there by now
    database.execute(f"CREATE TABLE orders (data TEXT, {ROW_KEY_COLUMNS})")

    def write(token: int, number: int) -> None:
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO orders VALUES ('x', 'orders', 'shard', ?, 0, 0)", (str(number),))
            fence.check(database, Owner(token))

    write(5, 1)
    write(5, 2)
    write(7, 3)
    with pytest.raises(StaleOwnerError, match="token 7 has written, and this one has token 5") as refused:
        write(5, 4)
    assert (refused.value.token, refused.value.latest) == (5, 7)
    assert isinstance(refused.value, ShardwayError)
    write(7, 5)
    assert [number for (number,) in database.execute("SELECT sequence_number FROM orders ORDER BY 1")] == list("1235")


def test_each_application_and_shard_has_its_own_tokens(database: sqlite3.Connection) -> None:
    billing, audit = SqliteFence("billing"), SqliteFence("audit")
    billing.make(database)
    with database:
        database.execute("BEGIN")
        billing.check(database, Owner(9))
        audit.check(database, Owner(1))
        billing.check(database, Owner(1, shard_id="shardId-000000000001"))
        billing.check(database, Owner(1, stream="returns"))
        with pytest.raises(StaleOwnerError):
            billing.check(database, Owner(8))


@pytest.mark.parametrize("level", [None, "", "IMMEDIATE"])
def test_a_check_that_would_end_before_the_rows_are_written_is_refused(tmp_path: Path, level: Any) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=level)) as connection:
        fence = SqliteFence("billing")
        fence.make(connection)
        if level is None:
            with pytest.raises(ValueError, match="no transaction is open"):
                fence.check(connection, Owner(1))
        else:  # Python begins one by itself.
            fence.check(connection, Owner(1))
            assert connection.in_transaction


# --- PostgreSQL ---


@pytest.mark.xdist_group("stores")
async def test_postgres_refuses_a_former_owner(server: postgres_server.PostgresServer) -> None:
    import asyncpg

    one, other = await asyncpg.connect(**server.connect), await asyncpg.connect(**server.connect)
    fence = PostgresFence("billing", table="fences_of_one_test")
    await asyncio.gather(fence.make(one), fence.make(other))
    with pytest.raises(ValueError, match="no transaction is open"):
        await fence.check(one, Owner(1))
    async with one.transaction():
        await fence.check(one, Owner(5))
    async with one.transaction(), other.transaction():  # Batches of one owner hold up no other.
        await fence.check(one, Owner(5))
        await asyncio.wait_for(fence.check(other, Owner(5)), DEADLINE_S)
    late = one.transaction()
    await late.start()
    await fence.check(one, Owner(5))
    order = []

    async def next_owner() -> None:
        async with other.transaction():
            await fence.check(other, Owner(7))
            order.append("next owner")

    waiting = asyncio.create_task(next_owner())
    waiters = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    while not await one.fetchval(waiters):
        assert not waiting.done()
    order.append("former owner")
    await late.commit()
    await waiting
    assert order == ["former owner", "next owner"]
    with pytest.raises(StaleOwnerError, match="token 7 has written"):
        async with one.transaction():
            await fence.check(one, Owner(5))
    await one.close()
    await other.close()


@pytest.mark.xdist_group("stores")
async def test_many_first_batches_of_an_owner_write_side_by_side(server: postgres_server.PostgresServer) -> None:
    """They all find no row, or a lower token, at the same time: none waits for another for ever."""
    import asyncpg

    fence = PostgresFence("billing", table="fences_of_many")
    pool = await asyncpg.create_pool(min_size=16, max_size=16, **server.connect)
    async with pool.acquire() as connection:
        await fence.make(connection)

    async def write(token: int) -> None:
        async with pool.acquire() as connection, connection.transaction():
            await fence.check(connection, Owner(token))
            await fence.check(connection, Owner(token))

    for token in (1, 2, 3):
        await asyncio.wait_for(asyncio.gather(*(write(token) for _ in range(48))), DEADLINE_S)
    await pool.close()


# --- keys and names ---


async def test_the_key_of_a_row_is_the_records_position(tmp_path: Path) -> None:
    seen: list[Record] = []
    given = [OutRecord(b"a,b", "key"), OutRecord(b"c", "key")]
    letters = DeadLettersToFile(path=str(tmp_path / "letters"))
    split: Any = {"split": lambda record: record.data.split(b","), "dead_letters": letters}
    async with TestConsumer(given, ends=True, **split) as consumer:
        async for batch in consumer:
            with batch:
                seen += batch.records
    keys = [row_key(record) for record in seen]
    assert all(isinstance(record, Part) for record in seen)
    assert [key.part for key in keys] == [0, 1, 0]
    assert keys == sorted(set(keys))
    assert {len(key.sequence_number) for key in keys} == {56}
    assert [int(key.sequence_number) for key in keys] == [record.sequence_number for record in seen]


@pytest.mark.parametrize("name", ["", "a b", "x; DROP TABLE y", "1a", "ä", "a" * 64, 5])
@pytest.mark.parametrize("kind", [SqliteFence, PostgresFence])
def test_a_table_has_a_plain_name(kind: Any, name: Any) -> None:
    with pytest.raises(OptionError, match="letters, digits and underscores"):
        kind("billing", table=name)


# --- whole fleets ---


class Fleet:
    """Processes that write into one store; what still runs at the end is killed."""

    def __init__(self, endpoint_url: str, leases: Path, store: str, concurrency: str, start: str) -> None:
        self._leases = leases
        self._arguments = [endpoint_url, str(leases), store, concurrency, start]
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        program = str(Path(__file__).with_name("writing_process.py"))
        process = subprocess.Popen([sys.executable, program, *self._arguments], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        return process

    def until_it_has_leases(self, count: int) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while len(leases_in(self._leases, "writer")) < count:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def rows_of(store: str) -> list[str]:
    if not store.startswith("postgresql:"):
        with contextlib.closing(sqlite3.connect(store, timeout=30)) as connection:
            return [data for (data,) in connection.execute("SELECT data FROM orders")]

    async def ask() -> list[str]:
        import asyncpg

        connection = await asyncpg.connect(store)
        try:
            return [row["data"] for row in await connection.fetch("SELECT data FROM orders")]
        finally:
            await connection.close()

    return asyncio.run(ask())


STORES = [
    pytest.param("sqlite", "by_key"),
    pytest.param("postgres", "by_key", marks=pytest.mark.xdist_group("stores")),
    pytest.param("sqlite", "OneByOne", marks=pytest.mark.slow),
    pytest.param("sqlite", "unordered", marks=pytest.mark.slow),
    pytest.param("postgres", "OneByOne", marks=[pytest.mark.slow, pytest.mark.xdist_group("stores")]),
    pytest.param("postgres", "unordered", marks=[pytest.mark.slow, pytest.mark.xdist_group("stores")]),
]


@pytest.mark.parametrize(("store", "concurrency"), STORES)
def test_each_record_is_stored_once_under_kills_and_a_rollout(
    store: str, concurrency: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = str(tmp_path / "store.db")
    if store == "postgres":
        place = request.getfixturevalue("server").dsn
        asyncio.run(_emptied(place))
    with LocalKinesis(streams={"orders": 2}) as local:
        connection = ConnectionOptions(
            endpoint_url=local.endpoint_url, region="us-east-1", credentials=Credentials("local", "local")
        )
        since = dt.datetime.fromtimestamp(local.clock.now() - BEFORE_S, dt.UTC).isoformat()
        starts = ("TRIM_HORIZON", since, "LATEST")
        start = starts[zlib.crc32(f"{store} {concurrency}".encode()) % len(starts)]  # It is the same in each run.
        fleet = Fleet(local.endpoint_url, tmp_path / "leases.db", place, concurrency, start)
        try:
            with SyncProducer("orders", connection=connection) as producer:

                def put(first: int) -> None:
                    pairs = [(f"key-{number % KEYS}", b"%d" % number) for number in range(first, first + RECORDS)]
                    producer.put_many(pairs).wait()

                if start != "LATEST":
                    put(0)
                killed, replaced = fleet.start(), fleet.start()
                if start == "LATEST":
                    fleet.until_it_has_leases(2)
                    put(0)
                _until(place, RECORDS // 3)
                killed.kill()
                put(RECORDS)
                fleet.start()
                _until(place, RECORDS)
                replaced.send_signal(signal.SIGTERM)  # The rollout: another version takes its place.
                put(2 * RECORDS)
                fleet.start()
                _until(place, 3 * RECORDS)
                assert replaced.wait(DEADLINE_S) == 0
        finally:
            fleet.end()
    assert Counter(rows_of(place)) == Counter(str(number) for number in range(3 * RECORDS))


def _until(place: str, count: int) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while len(rows_of(place)) < count:
        assert time.monotonic() < deadline_s, f"{len(rows_of(place))} of {count}"
        time.sleep(0.02)


async def _emptied(dsn: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    await connection.execute("DROP TABLE IF EXISTS orders, shard_fences")
    await connection.close()
