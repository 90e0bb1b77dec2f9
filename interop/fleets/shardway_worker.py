"""One worker of ours in a process of its own, with the arguments and the lines of the KCL's (`Worker.java`)."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.model import StartingPosition
from shardway.options import LeaseOptions
from shardway.runtime.consumer.consumer import Consumer

if TYPE_CHECKING:
    from shardway.runtime.consumer.shards import Shard


def say(event: str, **more: Any) -> None:
    print(json.dumps({"at_ms": time.time_ns() // 1_000_000, "event": event, **more}), flush=True)


def halt_without_input() -> None:
    """End this process when the one that started it is gone."""
    while os.read(0, 1024):  # not sys.stdin, whose lock would be missed when this process ends by itself
        pass
    os._exit(3)


async def follow(held: Shard[bytes], tenure: int) -> None:
    shard = held.shard_id
    say("start", shard=shard, tenure=tenure, **{"from": str(held.settled)})
    async for batch in held:
        with batch:
            records = [
                [
                    str(record.sequence_number),
                    record.sub_sequence_number,
                    int(record.approximate_arrival_timestamp.timestamp() * 1000),
                    int(record.data),
                ]
                for record in batch
            ]
            say("records", shard=shard, tenure=tenure, token=batch.token, records=records)
    say("left", shard=shard, tenure=tenure)


def start_of(text: str) -> StartingPosition | str:
    """TRIM_HORIZON, LATEST, or a time in epoch milliseconds."""
    if not text.isdigit():
        return text
    return StartingPosition.at_timestamp(dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC))


async def main(options: dict[str, str]) -> None:
    failover_s = float(options["failover_s"])
    wire = ConnectionOptions(
        endpoint_url=options["kinesis"], region="us-east-1", credentials=Credentials("local", "local")
    )
    table = DynamoLeaseTable(
        options["application"],
        ConnectionOptions(
            endpoint_url=options["dynamodb"], region="us-east-1", credentials=Credentials("local", "local")
        ),
        LeaseOptions(request_timeout_s=failover_s / 5),
    )
    consumer = Consumer(
        options["stream"],
        application=options["application"],
        worker_id=options["worker"],
        starting_position=start_of(options["start"]),
        leases=LeaseOptions(table=table, failover_s=failover_s, kcl_report_interval_s=float(options["kcl_report_s"])),
        connection=wire,
        on_event=lambda event: say("event", kind=type(event).__name__, text=str(event)),
    )
    say("process")
    closing: list[asyncio.Future[Any]] = []
    async with consumer:
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, lambda: closing.append(asyncio.ensure_future(consumer.close()))
        )
        async with asyncio.TaskGroup() as group:
            tenure = 0
            async for reader in consumer.shards():
                tenure += 1
                group.create_task(follow(reader, tenure))
    await asyncio.gather(*closing)
    await table.close()
    say("stopped")


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    threading.Thread(target=halt_without_input, daemon=True).start()
    asyncio.run(main(dict(argument.split("=", 1) for argument in sys.argv[1:])))
