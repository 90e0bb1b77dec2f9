"""Consumers that share what was made before a fork, or one id: ``python twin_process.py ENDPOINT LEASES OUTPUT START
HOW``.

START is TRIM_HORIZON, LATEST or a time as ISO 8601 writes it. HOW is ``fork``: one consumer, made before it, runs in
three processes; else it is the worker id. Each record that a process is given is a line of OUTPUT; ``started`` comes
out when a process reads.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
from typing import Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.log.pace import PollingOptions
from shardway.options import LeaseOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.stores.sqlite import SqliteLeaseTable

CHILDREN = 3
NAMED_STARTS = ("TRIM_HORIZON", "LATEST")


async def read(consumer: Consumer[Any], output: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(batch: Any) -> None:
        for record in batch:
            os.write(descriptor, b"%b\n" % record.data)

    async with consumer:
        consumer.close_on_signals()
        os.write(1, f"started {consumer.worker_id}\n".encode())  # at once, whatever others print
        await consumer.run_batches(handle)


def main(endpoint_url: str, leases: str, output: str, start: str, how: str) -> None:
    consumer = Consumer(
        "orders",
        application="twins",
        worker_id=None if how == "fork" else how,
        connection=ConnectionOptions(
            endpoint_url=endpoint_url, region="us-east-1", credentials=Credentials("local", "local")
        ),
        starting_position=start if start in NAMED_STARTS else dt.datetime.fromisoformat(start),
        leases=LeaseOptions(table=SqliteLeaseTable(leases, busy_timeout_s=10.0)),
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
    )
    if how != "fork" or all(os.fork() for _ in range(CHILDREN - 1)):
        asyncio.run(read(consumer, output))
        while how == "fork":
            try:
                os.wait()
            except ChildProcessError:
                return
    else:
        asyncio.run(read(consumer, output))


if __name__ == "__main__":
    main(*sys.argv[1:])
