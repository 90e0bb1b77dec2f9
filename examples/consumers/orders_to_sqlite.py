"""Copies a stream into a database, every record once: whatever is delivered twice, or late, is refused there.

``python examples/consumers/orders_to_sqlite.py STREAM DATABASE [--produce N]`` puts N records first, and consumes with
plain threads until it is ended by SIGTERM or Ctrl-C. Its leases are in the same database, so it needs no DynamoDB.

The rule: with the rows of a batch, and in their transaction, the database keeps for each shard the highest fencing
token and the last position. A batch with a lower token comes from a former owner of the shard; a record up to that
position is there already.
"""

from __future__ import annotations

import argparse
import sqlite3
import threading

from penstock import Batch, LeaseOptions, SyncConsumer, SyncProducer
from penstock.leases import SqliteLeaseTable

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (shard_id TEXT, position TEXT, data BLOB, PRIMARY KEY (shard_id, position));
CREATE TABLE IF NOT EXISTS shards (shard_id TEXT PRIMARY KEY, token INTEGER, position TEXT);
"""


class LateWriterError(Exception):
    """Another process owns the shard by now."""


class Copy:
    """The database, for one thread at a time."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self.database.executescript(SCHEMA)
        self.one_at_a_time = threading.Lock()

    def store(self, batch: Batch[bytes]) -> None:
        """Write what is new of a batch. Raises for one that comes too late: then it is not settled, either."""
        with self.one_at_a_time, self.database:
            self.database.execute("BEGIN IMMEDIATE")
            found = self.database.execute("SELECT token, position FROM shards WHERE shard_id = ?", (batch.shard_id,))
            token, last = found.fetchone() or (0, "")
            if batch.token < token:
                raise LateWriterError(f"{batch.shard_id} is another's")
            for record in batch.records:
                position = f"{record.sequence_number:060d}/{record.sub_sequence_number:06d}"
                if position > last:
                    order = (batch.shard_id, position, record.data)
                    self.database.execute("INSERT INTO orders VALUES (?, ?, ?)", order)
                    last = position
            shard = (batch.shard_id, batch.token, last)
            self.database.execute("INSERT OR REPLACE INTO shards VALUES (?, ?, ?)", shard)


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
        application="orders-to-sqlite",
        starting_position="TRIM_HORIZON",
        # All workers run on one machine, so one that is silent for three seconds is dead.
        leases=LeaseOptions(table=SqliteLeaseTable(arguments.database), failover_s=3.0),
    ) as consumer:
        consumer.close_on_signals()
        consumer.run_batches(copy.store)
    (count,) = copy.database.execute("SELECT count(*) FROM orders").fetchone()
    print(f"{count} orders are in {arguments.database}")


if __name__ == "__main__":
    main()
