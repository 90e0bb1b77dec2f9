"""Copies a stream into a database, every record once: whatever is delivered twice, or late, is refused there.

``python examples/consumers/orders_to_sqlite.py STREAM DATABASE [--produce N]`` puts N records first, and consumes with
plain threads until it is ended by SIGTERM or Ctrl-C. Its leases are in the same database, so it needs no DynamoDB.

The rule, which holds for any number of batches of a shard at a time: in the transaction that writes the rows, a fence
refuses a batch whose token is lower than one that has written, as it comes from a former owner of the shard; and the
key of a row is the position of its record, so a record that comes again meets its own row.
"""

from __future__ import annotations

import argparse
import sqlite3
import threading

from shardway import Batch, LeaseOptions, SyncConsumer, SyncProducer, by_key
from shardway.fences import ROW_KEY_COLUMNS, SqliteFence, row_key
from shardway.leases import SqliteLeaseTable

APPLICATION = "orders-to-sqlite"


class Copy:
    """The database, for one thread at a time."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self.database.execute(f"CREATE TABLE IF NOT EXISTS orders (data BLOB, {ROW_KEY_COLUMNS})")
        self.fence = SqliteFence(APPLICATION)
        self.fence.make(self.database)
        self.one_at_a_time = threading.Lock()

    def store(self, batch: Batch[bytes]) -> None:
        """Write what is new of a batch. Raises StaleOwnerError for one that comes too late: it is not settled then."""
        rows = [(record.data, *row_key(record)) for record in batch.records]
        with self.one_at_a_time, self.database:
            self.database.execute("BEGIN IMMEDIATE")
            self.fence.check(self.database, batch)
            self.database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)


def main() -> None:
    """Produce if told to, copy, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stream")
    parser.add_argument("database")
    parser.add_argument("--produce", type=int, default=0, metavar="N", help="put so many records first")
    arguments = parser.parse_args()
    if arguments.produce:
        with SyncProducer(arguments.stream) as producer:
            orders = [(f"customer-{number % 7}", b"order %d" % number) for number in range(arguments.produce)]
            producer.put_many(orders).wait()
    copy = Copy(arguments.database)
    with SyncConsumer(
        arguments.stream,
        application=APPLICATION,
        starting_position="TRIM_HORIZON",
        # All workers run on one machine, so one that is silent for three seconds is dead.
        leases=LeaseOptions(table=SqliteLeaseTable(arguments.database), failover_s=3.0),
    ) as consumer:
        consumer.close_on_signals()
        consumer.run_batches(copy.store, concurrency=by_key(16))
    (count,) = copy.database.execute("SELECT count(*) FROM orders").fetchone()
    print(f"{count} orders are in {arguments.database}")


if __name__ == "__main__":
    main()
