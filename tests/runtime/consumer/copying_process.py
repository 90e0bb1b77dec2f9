"""One worker of the copier, in a process: ``python copying_process.py ENDPOINT LEASES OUTPUT START FAILOVER_S``.

LEASES is the path of an SQLite file, or a PostgreSQL server's URL. OUTPUT is the path of a database, or
``stream:NAME``. START is TRIM_HORIZON, LATEST, or a time in epoch seconds. The database keeps, for each shard, the
highest fencing token and the last position, in one transaction with the rows: it refuses late writers, and writes
nothing twice. To a stream each record is written stamped with its token and position, in order per shard of the source:
there the reader tells late writers and duplicates (`copying_kit.once`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import signal
import sqlite3
import sys
from typing import TYPE_CHECKING, Any, Protocol

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.log.pace import PollingOptions
from shardway.model import OutRecord, StartingPosition
from shardway.options import BufferOptions, LeaseOptions, ProducerOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.producer.producer import Producer
from shardway.stores.postgres import PostgresLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    from shardway.runtime.shard.batch import Batch

STREAM = "orders"
SCHEMA = """
CREATE TABLE IF NOT EXISTS shards (shard_id TEXT PRIMARY KEY, token INTEGER, position TEXT);
CREATE TABLE IF NOT EXISTS copies (data TEXT, shard_id TEXT, token INTEGER, pid INTEGER);
CREATE TABLE IF NOT EXISTS deliveries (data TEXT, shard_id TEXT, token INTEGER);
"""
DIGITS = 60
"""Sequence numbers are compared as text of this length."""
TO_STREAM = "stream:"


class Output(Protocol):
    """Where copies go."""

    async def store(self, batch: Batch[Any]) -> None:
        """All of a batch is written when this returns."""


class Database:
    """Refuses late writers itself."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        # A connection has one transaction, and the shards' handlers run side by side.
        self._one_at_a_time = asyncio.Lock()

    async def store(self, batch: Batch[Any]) -> None:
        async with self._one_at_a_time:
            await asyncio.to_thread(self._store, batch)

    def _store(self, batch: Batch[Any]) -> None:
        database = self._database
        with database:
            database.execute("BEGIN IMMEDIATE")
            query = "SELECT token, position FROM shards WHERE shard_id = ?"
            token, position = database.execute(query, (batch.shard_id,)).fetchone() or (0, "")
            if batch.token < token:
                raise RuntimeError("a late writer")
            for record in batch.records:
                place = str(record.sequence_number).zfill(DIGITS)
                database.execute("INSERT INTO deliveries VALUES (?, ?, ?)", (record.data, batch.shard_id, batch.token))
                if place > position:
                    row = (record.data, batch.shard_id, batch.token, os.getpid())
                    database.execute("INSERT INTO copies VALUES (?, ?, ?, ?)", row)
                    position = place
            database.execute("INSERT OR REPLACE INTO shards VALUES (?, ?, ?)", (batch.shard_id, batch.token, position))


class Stamped:
    """A stream, which takes what any process writes. The order of a key is kept, and the source's shard is the key."""

    def __init__(self, producer: Producer[Any]) -> None:
        self._producer = producer

    async def store(self, batch: Batch[Any]) -> None:
        stamped = [
            OutRecord(
                json.dumps([batch.shard_id, batch.token, record.sequence_number, record.data.decode()]).encode(),
                batch.shard_id,
            )
            for record in batch.records
        ]
        await asyncio.gather(*(self._producer.put(record) for record in stamped))


def table_at(leases: str) -> PostgresLeaseTable | SqliteLeaseTable:
    """The lease table of a PostgreSQL server, by its URL, or in an SQLite file."""
    return PostgresLeaseTable(leases) if leases.startswith("postgresql:") else SqliteLeaseTable(leases)


def start_of(text: str) -> StartingPosition | str:
    if text in ("TRIM_HORIZON", "LATEST"):
        return text
    return StartingPosition.at_timestamp(dt.datetime.fromtimestamp(float(text), dt.UTC))


async def main(endpoint_url: str, leases: str, output: str, start: str, failover_s: str) -> None:
    wire = ConnectionOptions(endpoint_url=endpoint_url, region="us-east-1", credentials=Credentials("local", "local"))
    consumer = Consumer(
        STREAM,
        application="copier",
        connection=wire,
        starting_position=start_of(start),
        leases=LeaseOptions(table=table_at(leases), failover_s=float(failover_s)),
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
        buffer=BufferOptions(batch_records_max=20),
    )
    async with contextlib.AsyncExitStack() as stack:
        to: Output
        if output.startswith(TO_STREAM):
            # A record that expired, and was put again, would come behind later ones: a duplicate for the reader.
            options = ProducerOptions(ordered_by_key=True, record_ttl_s=3600.0)
            name = output.removeprefix(TO_STREAM)
            to = Stamped(await stack.enter_async_context(Producer(name, options=options, connection=wire)))
        else:
            to = Database(output)
        await stack.enter_async_context(consumer)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(consumer.close()))
        print("started", flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await consumer.run_batches(to.store)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
