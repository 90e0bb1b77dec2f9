"""A worker as a deployment runs it: ``python watched_process.py ENDPOINT LEASES``.

The first line of its output is the port of its metrics. Each line of its input says what its handler does from then on:
``works``, ``fails``, ``hangs``, ``blocks`` (the event loop, too). Its log goes to standard error, as JSON lines.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

from shardway import ConnectionOptions, Consumer, Credentials, LeaseOptions, PollingOptions, Retry, log_events
from shardway.leases import SqliteLeaseTable
from shardway.options import HandoffOptions
from shardway.statistics import MetricsOptions
from shardway.telemetry import PrometheusExporter, together

STREAM, APPLICATION = "orders", "billing"
FAILOVER_S = 3.0
UNREADY_AFTER_S = 3.0


class OrderError(Exception):
    """What the handler raises."""


class Handler:
    """Does what it was told last."""

    def __init__(self) -> None:
        self.told = "works"

    async def __call__(self, batch: Any) -> None:
        if self.told == "blocks":
            while self.told == "blocks":
                time.sleep(0.05)  # noqa: ASYNC251 - a handler that blocks the event loop
        while self.told == "hangs":
            await asyncio.sleep(0.05)
        if self.told == "fails":
            raise OrderError("the secret of a record")

    def listen(self) -> None:
        """Until the input ends."""
        for line in sys.stdin:
            self.told = line.strip()


async def main(endpoint: str, leases: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    handler = Handler()
    threading.Thread(target=handler.listen, daemon=True).start()
    with PrometheusExporter(0, unready_after_s=UNREADY_AFTER_S) as exporter:
        print(exporter.port, flush=True)
        consumer: Any = Consumer(
            STREAM, application=APPLICATION, starting_position="TRIM_HORIZON",
            leases=LeaseOptions(table=SqliteLeaseTable(leases), failover_s=FAILOVER_S),
            handoff=HandoffOptions(drain_deadline_s=2.0),
            retry=Retry(failures_max=None, base_s=0.05, cap_s=1.0),
            polling=PollingOptions(interval_s=0.2, idle_interval_s=0.2),
            connection=ConnectionOptions(
                endpoint_url=endpoint, region="us-east-1", credentials=Credentials("local", "local")
            ),
            metrics=MetricsOptions(interval_s=0.5),
            on_event=together(log_events(lines="json"), exporter),
        )  # fmt: skip
        async with consumer:
            consumer.close_on_signals()
            await consumer.run_batches(handler)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
