"""Read a shard by enhanced fan-out: pages are pushed to a consumer that is registered already.

A shard has one subscription of each consumer. A new subscription ends the one before, so the consumer should be one
that no other program is using; where two programs fight over a shard, InUseError says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from shardway.aws.kinesis.shapes import GetRecordsPage
from shardway.aws.record_source import KinesisSource
from shardway.core.log.cursor import LogCursor, Policy, latest_s
from shardway.core.log.transitions import NextStep
from shardway.errors import InUseError, ThrottledError, TransportError, UnavailableError
from shardway.inspect.reads.shard_log import refuse_trimmed
from shardway.model import IteratorAt
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from shardway.aws.kinesis.shapes import WireRecord
    from shardway.inspect.reads.ports import Calls


PUSHING = Policy()
AGAIN_S = 1.0
"""Seconds between two attempts. A shard gives a consumer no other subscription for five seconds."""
TRIES_MAX = 10
"""Attempts in a row that may bring nothing."""
SHORT_S = 30.0
"""A subscription lasts five minutes. One that ends sooner than this was taken by another program, or broke off."""
SHORT_MAX = 3
"""Short subscriptions in a row. More of them say that another program reads by the same consumer."""


async def pushed_pages(
    inspector: Calls, consumer_arn: str, shard_id: str, at: IteratorAt
) -> AsyncGenerator[GetRecordsPage, None]:
    """Yield the pages of a shard to its end, as they are pushed; `Inspector.pages` polls for the same. Raises
    ShardwayError, and InUseError where another program reads by the consumer.
    """
    stream = stream_name(consumer_arn.partition("/consumer/")[0])
    source = KinesisSource(stream, inspector.wire.options, inspector.wire)
    log, tries, short = LogCursor(PUSHING, begin=at), 0, 0
    clock = asyncio.get_running_loop().time
    while True:
        place = log.ask()
        if place == IteratorAt.latest():
            place = log.begin = IteratorAt.at_timestamp(latest_s(inspector.now_s))
        began_s = clock()
        try:
            async with contextlib.aclosing(source.subscribe(consumer_arn, shard_id, place)) as events:
                async for event in events:
                    tries = 0
                    step = log.page(event.records, behind_ms=event.millis_behind_latest, is_last=event.is_last)
                    log.continues_at(None if event.continuation is None else int(event.continuation))
                    following = None if event.is_last else "pushed"
                    records = cast("list[WireRecord]", list(event.records))  # a subscription brings such records
                    yield GetRecordsPage(records, following, event.millis_behind_latest)
                    if step.does is NextStep.STOP:
                        return
                    refuse_trimmed(log, at, event.millis_behind_latest, f"{shard_id} of {stream}")
        except (InUseError, ThrottledError, TransportError, UnavailableError):
            tries += 1
            if tries >= TRIES_MAX:
                raise
            await asyncio.sleep(AGAIN_S)
            continue
        short = short + 1 if clock() - began_s < SHORT_S else 0
        if short > SHORT_MAX:
            name = consumer_arn.rpartition("/consumer/")[2].partition(":")[0]
            raise InUseError(
                "ResourceInUseException",
                f"subscriptions to {shard_id} of {stream} end at once: another program reads by the consumer {name}",
                operation="SubscribeToShard",
            )
        await asyncio.sleep(AGAIN_S)
