"""A page of large aggregates is opened beside the loop: what renews the leases goes on meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation import reader
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.log import user_records
from shardway.core.log.user_records import OPENED_AT_ONCE_BYTES_MAX, aggregate_bytes_of
from shardway.model import HASH_KEY_MAX
from tests.runtime.feeds.feeding_kit import fan_out, polling, source_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local import LocalKinesis
    from shardway.runtime.feeds.fan_out import FanOutFeed
    from shardway.runtime.feeds.polling import PollingFeed

USER_RECORDS = 8_000
AGGREGATES = 10
STEP_RECORDS_MAX = 2 * USER_RECORDS
"""Far fewer than a page has, and more than an aggregate that is opened at once may have."""


def aggregate(first: int) -> bytes:
    return encode_aggregate(
        [(f"key-{one % 50}", b"%09d" % one * 2, None) for one in range(first, first + USER_RECORDS)]
    )


class Opening:
    """Counts the user records that the loop opens in each of its steps, and those that threads open."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.on_loop = self.longest = self.in_threads = 0
        real, here = reader.open_aggregate, threading.get_ident()

        def counted(data: bytes) -> Any:
            found = real(data)
            count = 0 if found is None else len(found)
            if threading.get_ident() == here:
                self.on_loop += count
                self.longest = max(self.longest, self.on_loop)
            else:
                self.in_threads += count
            return found

        patch.setattr(user_records, "open_aggregate", counted)

    async def step(self) -> None:
        while True:
            self.on_loop = 0
            await asyncio.sleep(0)


async def put(kinesis: Any, sizes: int = AGGREGATES) -> list[bytes]:
    datas = [aggregate(one * USER_RECORDS) for one in range(sizes)]
    assert all(len(data) > OPENED_AT_ONCE_BYTES_MAX for data in datas)
    for data in datas:
        await asyncio.to_thread(kinesis.put_record, StreamName="orders", PartitionKey="a", Data=data)
    return [b"%09d" % one * 2 for one in range(sizes * USER_RECORDS)]


def pushed_by(kinesis: Any) -> Callable[[Any], FanOutFeed]:
    arn = kinesis.describe_stream(StreamName="orders")["StreamDescription"]["StreamARN"]
    consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="app")["Consumer"]["ConsumerARN"]
    return lambda source: fan_out(source, consumer, [])


@pytest.mark.parametrize("is_pushed", [False, True])
async def test_no_step_of_the_loop_opens_a_page_of_large_aggregates(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch, is_pushed: bool
) -> None:
    wanted = await put(kinesis)
    make: Callable[[Any], PollingFeed | FanOutFeed] = pushed_by(kinesis) if is_pushed else lambda one: polling(one, [])
    opening = Opening(monkeypatch)
    async with source_of(local) as source:
        feed, got = make(source), list[bytes]()
        stepping = asyncio.create_task(opening.step())
        async with asyncio.timeout(60.0):
            while len(got) < len(wanted):
                got += (await feed.next()).records.datas
        stepping.cancel()
        await feed.close()
    assert got == wanted
    assert opening.longest <= STEP_RECORDS_MAX
    assert opening.in_threads >= len(wanted) // 2


@pytest.mark.parametrize("is_pushed", [False, True])
async def test_a_caller_that_is_cancelled_while_a_page_is_opened_loses_nothing(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch, is_pushed: bool
) -> None:
    wanted = await put(kinesis, 3)
    make: Callable[[Any], PollingFeed | FanOutFeed] = pushed_by(kinesis) if is_pushed else lambda one: polling(one, [])
    real, begun = reader.open_aggregate, threading.Event()

    def told(data: bytes) -> Any:
        begun.set()
        return real(data)

    monkeypatch.setattr(user_records, "open_aggregate", told)
    async with source_of(local) as source:
        feed, got = make(source), list[bytes]()
        async with asyncio.timeout(60.0):
            for _ in range(3):
                begun.clear()
                asking = asyncio.create_task(feed.next())
                while not begun.is_set() and not asking.done():
                    await asyncio.sleep(0.001)
                asking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    got += (await asking).records.datas
            while len(got) < len(wanted):
                got += (await feed.next()).records.datas
        await feed.close()
    assert got == wanted


def test_a_page_without_an_aggregate_is_known_by_one_look() -> None:
    view = user_records.ShardView("orders", "shardId-000000000000", 0, HASH_KEY_MAX)
    assert aggregate_bytes_of([]) == 0
    assert len(user_records.opened(view, [], before=()).records) == 0
