"""The world that the guide's pictures show: a busy stream, and applications that are well, that hang, and that died."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import boto3

from shardway.local import LocalKinesis
from shardway.tasks import logged, thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.local.spawned import SpawnedKinesis

RECORDS_PER_S, MINUTES = 100, 65
WORKER = """
import asyncio, sys
from shardway import Consumer

async def main():
    application, worker, hangs = sys.argv[1:]
    async with Consumer(
        "orders", application=application, worker_id=worker, starting_position="TRIM_HORIZON"
    ) as consumer:
        number = 0
        async for batch in consumer:
            with batch:
                number += 1
                if hangs == "hangs" and number > 20:
                    await asyncio.Event().wait()

asyncio.run(main())
"""
WORKERS = [
    ("billing", "billing-a", ""), ("billing", "billing-b", ""), ("fraud-check", "fraud-a", "hangs"),
    ("search-index", "search-a", ""), ("search-index", "search-b", ""),
]  # fmt: skip
DIES = "search-index"


def order(number: int, rng: random.Random) -> bytes:
    """An order, as a shop may write it."""
    items = [{"sku": f"sku-{rng.randrange(400)}", "quantity": rng.randrange(1, 4)} for _ in range(rng.randrange(1, 4))]
    body = {
        "id": f"ord-{number:07}",
        "customer": {"id": rng.randrange(5_000), "tier": rng.choice(["gold", "basic", "plus"])},
        "amount": round(rng.uniform(3, 400), 2),
        "currency": rng.choice(["EUR", "USD", "GBP"]),
        "items": items,
    }
    return json.dumps(body).encode()


@contextlib.contextmanager
def busy_world(warm_s: float) -> Iterator[SpawnedKinesis]:
    """Run the world until the ``with`` block ends. It begins after ``warm_s`` seconds, half of them with a dead
    application.
    """
    with LocalKinesis.spawn(streams={"orders": 4, "clicks": 2, "payments": 1}) as local:
        environment = {**os.environ, **local.environment()}
        made: dict[str, Any] = {
            "endpoint_url": local.endpoint_url, "region_name": local.region, "aws_access_key_id": "local",
            "aws_secret_access_key": "local",
        }  # fmt: skip
        kinesis, cloudwatch = boto3.client("kinesis", **made), boto3.client("cloudwatch", **made)
        _tell_cloudwatch(cloudwatch)
        stop = threading.Event()
        writer = thread(lambda: _put(kinesis, stop), "picture-puts", logged("the writer of the pictures failed"))
        workers = [
            (name, subprocess.Popen([sys.executable, "-c", WORKER, name, worker, how], env=environment))
            for name, worker, how in WORKERS
        ]
        try:
            stop.wait(warm_s / 2)
            for name, worker in workers:
                if name == DIES:
                    worker.kill()
            stop.wait(warm_s / 2)
            yield local
        finally:
            stop.set()
            writer.join(30)
            for _, worker in workers:
                worker.kill()
                worker.wait(30)
            kinesis.close()
            cloudwatch.close()


def _put(kinesis: Any, stop: threading.Event) -> None:
    rng, number = random.Random(4), 0
    while not stop.wait(0.25):
        count = RECORDS_PER_S // 4
        records = [
            {"Data": order(number + at, rng), "PartitionKey": f"customer-{rng.randrange(900)}"} for at in range(count)
        ]
        number += count
        kinesis.put_records(StreamName="orders", Records=records)
        kinesis.put_record(StreamName="clicks", Data=b'{"page": "/"}', PartitionKey=str(rng.random()))


def _tell_cloudwatch(client: Any) -> None:
    """Give CloudWatch the figures of the last hour, which AWS would have counted."""
    minute_s, rng = int(time.time()) // 60 * 60, random.Random(4)
    for number in range(MINUTES, 0, -1):
        rates = {"orders": RECORDS_PER_S + 25 * math.sin(number / 7), "clicks": 9.0 if number % 27 < 6 else 4.0}
        data = [
            {
                "MetricName": metric,
                "Dimensions": [{"Name": "StreamName", "Value": stream}],
                "Timestamp": dt.datetime.fromtimestamp(minute_s - 60 * number, dt.UTC),
                "Value": 60 * size * rate * rng.uniform(0.95, 1.05),
            }
            for stream, rate in rates.items()
            for metric, size in (("IncomingRecords", 1.0), ("IncomingBytes", 190.0))
        ]
        client.put_metric_data(Namespace="AWS/Kinesis", MetricData=data)
