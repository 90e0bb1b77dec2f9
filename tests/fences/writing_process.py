"""One worker that writes into a database behind a fence, in a process of its own:
``python writing_process.py ENDPOINT LEASES STORE CONCURRENCY START``.

LEASES is the path of an SQLite file. STORE is the path of another, or a PostgreSQL server's URL. CONCURRENCY is
``OneByOne``, ``by_key`` or ``unordered``. START is TRIM_HORIZON, LATEST or a time as ISO 8601
writes it. Each handler waits a random moment, so that later records are written before earlier ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import asyncpg

from shardway import Batch, BufferOptions, Consumer, LeaseOptions, OneByOne, PollingOptions, by_key, unordered
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.fences import ROW_KEY_COLUMNS, PostgresFence, SqliteFence, row_key
from shardway.leases import SqliteLeaseTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.runtime.consumer.concurrency import Concurrency

APPLICATION = "writer"
CHOICES: dict[str, Concurrency] = {"OneByOne": OneByOne(), "by_key": by_key(16), "unordered": unordered(16)}
# Without a unique key of their own, rows that are written twice are counted twice.
ROWS = f"CREATE TABLE IF NOT EXISTS orders (data TEXT, {ROW_KEY_COLUMNS})"
PAUSE_S = 0.03
NAMED_STARTS = ("TRIM_HORIZON", "LATEST")


def to_sqlite(path: str) -> Callable[[Batch[bytes]], Awaitable[None]]:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    fence = SqliteFence(APPLICATION)
    one_at_a_time = asyncio.Lock()
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(ROWS)
    fence.make(connection)

    def write(batch: Batch[bytes]) -> None:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            fence.check(connection, batch)
            rows = [(record.data.decode(), *row_key(record)) for record in batch.records]
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)

    async def store(batch: Batch[bytes]) -> None:
        await asyncio.sleep(random.uniform(0, PAUSE_S))
        async with one_at_a_time:  # A connection has one transaction.
            await asyncio.to_thread(write, batch)

    return store


async def to_postgres(dsn: str) -> Callable[[Batch[bytes]], Awaitable[None]]:
    pool = await asyncpg.create_pool(dsn, max_size=20)
    fence = PostgresFence(APPLICATION)
    async with pool.acquire() as connection:
        await fence.make(connection)
        with contextlib.suppress(asyncpg.UniqueViolationError):  # Another process makes it at this moment.
            await connection.execute(ROWS)

    async def store(batch: Batch[bytes]) -> None:
        await asyncio.sleep(random.uniform(0, PAUSE_S))
        async with pool.acquire() as connection, connection.transaction():
            await fence.check(connection, batch)
            rows: list[Any] = [(record.data.decode(), *row_key(record)) for record in batch.records]
            await connection.executemany(
                "INSERT INTO orders VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING", rows
            )

    return store


async def main(endpoint_url: str, leases: str, store: str, concurrency: str, start: str) -> None:
    consumer = Consumer(
        "orders",
        application=APPLICATION,
        connection=ConnectionOptions(
            endpoint_url=endpoint_url, region="us-east-1", credentials=Credentials("local", "local")
        ),
        starting_position=start if start in NAMED_STARTS else dt.datetime.fromisoformat(start),
        leases=LeaseOptions(table=SqliteLeaseTable(leases), failover_s=2.0),
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
        buffer=BufferOptions(batch_records_max=20),
    )
    to = await to_postgres(store) if store.startswith("postgresql:") else to_sqlite(store)
    async with consumer:
        consumer.close_on_signals()
        print("started", flush=True)
        await consumer.run_batches(to, concurrency=CHOICES[concurrency])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
