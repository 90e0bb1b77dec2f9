"""A consumer in a process of its own: ``python starting_process.py ENDPOINT LEASES OUTPUT HOW``.

It starts at LATEST. Each record that it is given is a line of OUTPUT; with HOW ``hangs`` none is ever settled.
``started`` comes out when it reads.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.log.pace import PollingOptions
from shardway.options import LeaseOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.stores.sqlite import SqliteLeaseTable


async def main(endpoint_url: str, leases: str, output: str, how: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(batch: Any) -> None:
        os.write(descriptor, b"".join(b"%b\n" % record.data for record in batch))
        if how == "hangs":
            await asyncio.Event().wait()

    consumer = Consumer(
        "orders",
        application="billing",
        connection=ConnectionOptions(
            endpoint_url=endpoint_url, region="us-east-1", credentials=Credentials("local", "local")
        ),
        starting_position="LATEST",
        leases=LeaseOptions(table=SqliteLeaseTable(leases, busy_timeout_s=10.0), failover_s=2.0),
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
    )
    async with consumer:
        print("started", flush=True)
        await consumer.run_batches(handle)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
