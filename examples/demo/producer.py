"""The demo's producer: a process of its own that writes orders at a steady pace and keeps each customer's order.

usage: python -m examples.demo.producer ENDPOINT_URL REGION STREAM RECORDS RECORDS_PER_SECOND
It prints one line of JSON per round: how many records it has written so far.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from examples.demo.orders import Plan, Put

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.core.aggregation.writer import Aggregator
from shardway.model import StreamName

ENTRIES_MAX = 500
"""Entries of one PutRecords call (AWS API reference, PutRecords)."""
PAUSE_S = 0.05
"""Before what was refused is put again."""


def entry_of(put: Put) -> PutEntry:
    """One Kinesis record. An aggregate is pinned to the shard of its customer's key, where the plain records go."""
    aggregator = Aggregator()
    for data in put.data:
        if not aggregator.add(put.customer, data):
            raise ValueError("a put of the demo's plan does not fit into one aggregate")
    container = aggregator.finish()
    assert container is not None
    return PutEntry(container.data, container.partition_key, str(container.explicit_hash_key))


class Producer:
    """Writes one round after the other. A customer comes once per round, so what is put again overtakes nothing."""

    def __init__(self, client: KinesisClient, stream: StreamName) -> None:
        self._client = client
        self._stream = stream
        self.put_again = 0
        """Kinesis records that were refused and put again."""

    async def write(self, puts: list[Put]) -> None:
        """Write a round; returns when all of it is acknowledged."""
        entries = [entry_of(put) for put in puts]
        calls = [entries[at : at + ENTRIES_MAX] for at in range(0, len(entries), ENTRIES_MAX)]
        await asyncio.gather(*(self._call(part) for part in calls))

    async def _call(self, entries: list[PutEntry]) -> None:
        while entries:
            answer = await self._client.put_records(self._stream, entries)
            entries = [entry for entry, result in zip(entries, answer.records, strict=True) if result.error_code]
            self.put_again += len(entries)
            if entries:
                await asyncio.sleep(PAUSE_S)


async def produce(endpoint_url: str, region: str, stream: str, records: int, records_per_s: float) -> None:
    """Write the whole plan."""
    plan = Plan(records)
    started_s = time.monotonic()
    settings = ConnectionOptions(region=region, endpoint_url=endpoint_url, user_agent_tag="demo-producer")
    async with Wire(settings) as wire:
        producer = Producer(KinesisClient(wire), StreamName(stream))
        for puts in plan.rounds():
            await producer.write(puts)
            taken_s = time.monotonic() - started_s
            written = {
                "written": plan.given_out,
                "aggregates": plan.aggregates,
                "put_again": producer.put_again,
                "seconds": round(taken_s, 3),
            }
            print(json.dumps(written), flush=True)
            await asyncio.sleep(max(0.0, plan.given_out / records_per_s - taken_s))


if __name__ == "__main__":
    url, region_name, stream_name, count, rate = sys.argv[1:]
    asyncio.run(produce(url, region_name, stream_name, int(count), float(rate)))
