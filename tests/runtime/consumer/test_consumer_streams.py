"""What a consumer knows of a stream as a whole, and that it is not what it was once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from shardway.core.leases import LeaseRow
from shardway.local import Fault, LocalKinesis
from shardway.runtime.consumer import streams
from shardway.runtime.feeds.fan_out import SubscriptionGate
from shardway.wiring import source_for
from tests.options_kit import options_of
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, settings, wire

DAY_S = 24 * 3600.0


async def test_a_retention_that_is_changed_while_the_stream_is_read(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the former one, records that are there would count as lost, or lost ones as there."""
    monkeypatch.setattr(streams, "FACTS_AGE_MAX_S", 0.05)
    source = source_for(STREAM, wire(local))
    stream = streams.OpenStream(
        source, options_of(**settings()), SubscriptionGate(), rng=random.Random(1), on_event=print
    )
    try:
        await stream.open("billing")
        assert stream.facts.retention_s == DAY_S
        kinesis.increase_stream_retention_period(StreamName=STREAM, RetentionPeriodHours=72)
        local.faults.add(Fault(how="access_denied", operation="DescribeStreamSummary", count=2))
        feed = stream.open_feed(LeaseRow(key="shardId-000000000000"))
        async with asyncio.timeout(DEADLINE_S):
            while stream.facts.retention_s != 3 * DAY_S:
                await feed.next()
        await feed.close()
    finally:
        await source.close()
