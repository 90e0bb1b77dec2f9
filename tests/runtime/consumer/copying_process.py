"""One worker of the copier, in a process of its own: ``python copying_process.py ENDPOINT LEASES OUTPUT``.

It writes what it reads into a database that keeps, for each shard, the highest fencing token and the last position, in
one transaction with the rows: a late writer is refused, and what was written is not written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

from penstock.aws.settings import Credentials, WireSettings
from penstock.core.feeding.poll_pace import PollTimes
from penstock.model import StartAt
from penstock.runtime.consumer.consumer import Consumer
from penstock.runtime.consumer.settings import WorkerSettings
from penstock.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    from penstock.runtime.consumer.batch import Batch

STREAM = "orders"
SCHEMA = """
CREATE TABLE IF NOT EXISTS shards (shard_id TEXT PRIMARY KEY, token INTEGER, position TEXT);
CREATE TABLE IF NOT EXISTS copies (data TEXT, shard_id TEXT, token INTEGER, pid INTEGER);
CREATE TABLE IF NOT EXISTS deliveries (data TEXT, shard_id TEXT, token INTEGER);
"""
DIGITS = 60
"""Sequence numbers are compared as text of this length."""


def store(database: sqlite3.Connection, batch: Batch[Any], pid: int) -> None:
    """Write what is new of a batch; raises for a late writer."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        found = database.execute("SELECT token, position FROM shards WHERE shard_id = ?", (batch.shard_id,)).fetchone()
        token, position = found or (0, "")
        if batch.token < token:
            raise RuntimeError("a late writer")
        for record in batch.records:
            place = str(record.sequence_number).zfill(DIGITS)
            database.execute("INSERT INTO deliveries VALUES (?, ?, ?)", (record.data, batch.shard_id, batch.token))
            if place > position:
                row = (record.data, batch.shard_id, batch.token, pid)
                database.execute("INSERT INTO copies VALUES (?, ?, ?, ?)", row)
                position = place
        database.execute("INSERT OR REPLACE INTO shards VALUES (?, ?, ?)", (batch.shard_id, batch.token, position))


async def main(endpoint_url: str, leases: str, output: str) -> None:
    import os

    database = sqlite3.connect(output, timeout=30, isolation_level=None, check_same_thread=False)
    consumer = Consumer(
        STREAM,
        application="copier",
        leases=SqliteLeaseTable(leases),
        settings=WorkerSettings(
            failover_s=2.0,
            look_interval_s=0.2,
            wait_interval_s=0.03,
            start_at=StartAt.TRIM_HORIZON,
            polling=PollTimes(interval_s=0.05, idle_interval_s=0.1),
            batch_records_max=20,
        ),
        wire=WireSettings(endpoint_url=endpoint_url, region="us-east-1", credentials=Credentials("local", "local")),
    )

    one_at_a_time = asyncio.Lock()  # a connection has one transaction, and the shards' handlers run side by side

    async def handle(batch: Batch[Any]) -> None:
        async with one_at_a_time:
            await asyncio.to_thread(store, database, batch, os.getpid())

    async with consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(consumer.close()))
        print("started", flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await consumer.run(handle)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
