"""Counts orders by customer: any number of these processes share the stream, and a record that fails is tried again.

``python examples/consumers/count_orders.py STREAM [--produce N]`` puts N orders first, and consumes until it is ended
by SIGTERM or Ctrl-C. Then it prints what it counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from dataclasses import dataclass

from shardway import (
    Consumer,
    Delivered,
    Producer,
    ProducerOptions,
    by_key,
    deserializers,
    log_events,
)


@dataclass
class Order:
    """What a record holds, as JSON."""

    number: int
    customer: str


async def produce(stream: str, count: int) -> None:
    """Put orders, in order for each customer."""
    orders = [
        (f"customer-{number % 7}", json.dumps({"number": number, "customer": f"customer-{number % 7}"}).encode())
        for number in range(count)
    ]
    async with Producer(stream, options=ProducerOptions(ordered_by_key=True)) as producer:
        await (await producer.put_many(orders)).settled()


async def consume(stream: str) -> Counter[str]:
    """Count until the process is told to end."""
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}

    async def handle(record: Delivered[Order]) -> None:
        order = record.value
        # by_key: the orders of one customer come one after another, those of others meanwhile.
        assert last.get(order.customer, -1) < order.number
        last[order.customer] = order.number
        counts[order.customer] += 1
        if sum(counts.values()) % 100 == 0:
            print(f"{sum(counts.values())} orders", flush=True)

    async with Consumer(
        stream,
        application="count-orders",
        deserializer=deserializers.json(Order),
        starting_position="TRIM_HORIZON",
        on_event=log_events(),
    ) as consumer:
        consumer.close_on_signals()
        await consumer.run_records(handle, concurrency=by_key(16))
    return counts


def main() -> None:
    """Produce if told to, consume, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stream")
    parser.add_argument("--produce", type=int, default=0, metavar="N", help="put so many orders first")
    arguments = parser.parse_args()
    if arguments.produce:
        asyncio.run(produce(arguments.stream, arguments.produce))
    counts = asyncio.run(consume(arguments.stream))
    print(json.dumps(counts, sort_keys=True))


if __name__ == "__main__":
    main()
