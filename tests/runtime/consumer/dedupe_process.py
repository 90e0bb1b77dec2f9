"""A worker that leaves out duplicates, in a process of its own: ``python dedupe_process.py ENDPOINT LEASES OUTPUT
START``, which is TRIM_HORIZON, LATEST or a time as ISO 8601 writes it.

Each record that it is given is a line of OUTPUT, written before the record is settled: its data and its number.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
from typing import Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.log.pace import PollingOptions
from shardway.core.shard.duplicates import Deduplicate
from shardway.options import BufferOptions, LeaseOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.stores.sqlite import SqliteLeaseTable

NAMED_STARTS = ("TRIM_HORIZON", "LATEST")


async def main(endpoint_url: str, leases: str, output: str, start: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    consumer = Consumer(
        "orders",
        application="dedupe",
        connection=ConnectionOptions(
            endpoint_url=endpoint_url, region="us-east-1", credentials=Credentials("local", "local")
        ),
        starting_position=start if start in NAMED_STARTS else dt.datetime.fromisoformat(start),
        leases=LeaseOptions(table=SqliteLeaseTable(leases), failover_s=2.0),
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
        buffer=BufferOptions(batch_records_max=5),
        deduplicate=Deduplicate(key=lambda record: record.data, wait=True),
    )

    async def handle(batch: Any) -> None:
        for record in batch:
            os.write(descriptor, b"%b %d\n" % (record.data, record.sequence_number))
        await asyncio.sleep(0.01)

    async with consumer:
        print("started", flush=True)
        await consumer.run_batches(handle)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
