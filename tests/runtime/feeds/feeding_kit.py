"""What the tests of feeds share: a stream of one shard, a source over the real wire, a reader that stops in time."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.record_source import KinesisSource
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.log.feed_cursor import FeedCursor
from shardway.core.log.pace import PollingOptions
from shardway.core.log.user_records import ShardView
from shardway.model import HASH_KEY_MAX, StreamName
from shardway.runtime.feeds.fan_out import FanOutFeed, Registration, SubscriptionGate, SubscriptionTimes
from shardway.runtime.feeds.polling import PollingFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shardway.core.log.feed_cursor import PageMeaning
    from shardway.events import FeedEvent
    from shardway.local import LocalKinesis

STREAM = "orders"
SHARD_ID = "shardId-000000000000"
SHARD = ShardView(STREAM, SHARD_ID, 0, HASH_KEY_MAX)
POLL = PollingOptions(interval_s=0.02, idle_interval_s=0.05)
FAN_OUT = SubscriptionTimes(again_after_s=0.1, failures_max=2, return_after_s=0.3)
DEADLINE_S = 20.0
"""Far more than anything here takes."""


@asynccontextmanager
async def source_of(local: LocalKinesis, **changes: Any) -> AsyncIterator[KinesisSource]:
    settings = ConnectionOptions(
        endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local"), **changes
    )
    source = KinesisSource(StreamName(STREAM), settings)
    try:
        yield source
    finally:
        await source.close()


def polling(
    source: KinesisSource, events: list[FeedEvent], after: Checkpoint = Checkpoint.TRIM_HORIZON, **options: Any
) -> PollingFeed:
    times = {name: options.pop(name, None) for name in ("timestamp_s", "read_until_s")}
    cursor = FeedCursor(SHARD, after, **times)
    return PollingFeed(source, cursor, rng=random.Random(1), on_event=events.append, **{"options": POLL, **options})


def fan_out(
    source: KinesisSource,
    consumer_arn: str,
    events: list[FeedEvent],
    after: Checkpoint = Checkpoint.TRIM_HORIZON,
    times: SubscriptionTimes = FAN_OUT,
    **options: Any,
) -> FanOutFeed:
    find = options.pop("find_consumer", None)
    return FanOutFeed(
        polling(source, events, after, **options), Registration(consumer_arn, SubscriptionGate(100.0), times, find)
    )


async def read(feed: PollingFeed | FanOutFeed, count: int) -> list[bytes]:
    """So many records, or what came up to the shard's end."""
    found: list[bytes] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            taken = await feed.next()
            found += taken.records.datas
            if taken.ended:
                break
    return found


async def read_to_end(feed: PollingFeed | FanOutFeed) -> tuple[list[bytes], PageMeaning]:
    found: list[bytes] = []
    async with asyncio.timeout(DEADLINE_S):
        while True:
            taken = await feed.next()
            found += taken.records.datas
            if taken.ended:
                return found, taken


async def tick(local: LocalKinesis) -> None:
    """The service's time runs 200 times as fast: its subscriptions say soon that they live, and end."""
    while True:
        local.clock.advance(10)
        await asyncio.sleep(0.05)


def kinds(events: list[FeedEvent]) -> set[str]:
    return {type(event).__name__ for event in events}


def is_subscribed(feed: FanOutFeed) -> bool:
    """False while the shard is polled, or a subscription is under way."""
    return feed._subscription is not None and not feed._has_left
