"""The driver's calls on a stream are limited in number, and are repeated for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from shardway.aws.calls.retry import RetryPolicy
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import GetRecordsPage
from shardway.core.service_clock import ServiceClock
from shardway.model import IteratorAt, StreamName
from shardway.tasks import awaited, give_up

T = TypeVar("T")
CROSSING_PAGES_MAX = 100
"""The most empty pages that one look follows over a silence, some 20 s at 5 calls a second; the next look goes on from
there.
"""
ATTEMPTS_MAX = 100_000
"""More attempts than there is time for: the time alone decides how long a call is repeated."""


def patience(outage_s: float) -> RetryPolicy:
    """Return how the driver repeats its calls: for ``outage_s``, with pauses of at most 3 s."""
    return RetryPolicy(attempts_max=ATTEMPTS_MAX, base_s=0.1, cap_s=3.0, deadline_s=outage_s)


def earliest_ms(clock: ServiceClock, now_s: float) -> int:
    """Return the service's time, at least, in epoch milliseconds; this machine's, if no answer ever had a Date."""
    return int((clock.lower(now_s) if clock.known else now_s) * 1000)


def latest_ms(clock: ServiceClock, now_s: float) -> int:
    """Return the service's time, at most, in epoch milliseconds; this machine's, if no answer ever had a Date."""
    return int((clock.upper(now_s) if clock.known else now_s) * 1000) + 1


class StreamCalls:
    """Makes the driver's calls on a stream for the probes of all its shards: ``concurrency`` at once, each repeated for
    a while.
    """

    __slots__ = (
        "_concurrency",
        "client",
        "crossing_pages_max",
        "entry_bytes_max",
        "monotonic",
        "retry",
        "sample_bytes_max",
        "stream",
    )

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamName,
        concurrency: asyncio.Semaphore,
        *,
        retry: RetryPolicy,
        crossing_pages_max: int = CROSSING_PAGES_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.stream = stream
        self.crossing_pages_max = crossing_pages_max
        self.monotonic = monotonic
        self.retry = retry
        self.sample_bytes_max = 64 * 1024
        """The most bytes that one look should bring, once the size of the shard's records is known."""
        self.entry_bytes_max = 0
        """The most bytes of records that are kept as they came, for each shard."""
        self._concurrency = concurrency

    async def iterator(self, shard_id: str, at: IteratorAt) -> str:
        """Return an iterator of a shard."""
        async with self._concurrency:
            return await self.client.get_shard_iterator(self.stream, shard_id, at, retry=self.retry)

    async def page(self, iterator: str, limit: int) -> tuple[GetRecordsPage, int]:
        """Return a page, and the service's time (at least; epoch milliseconds) when it was asked for."""
        async with self._concurrency:
            asked_s = self.client.wire.now()
            page = await self.client.get_records(iterator, limit=limit, stream=self.stream, retry=self.retry)
        # The clock is the one that the answer has put right: the machine's may have been set forward meanwhile.
        return page, earliest_ms(self.client.clock, asked_s)

    def service_ms(self) -> int:
        """Return the service's time, at least, in epoch milliseconds."""
        return earliest_ms(self.client.clock, self.client.wire.now())

    def service_ms_upper(self) -> int:
        """Return the service's time, at most, in epoch milliseconds."""
        return latest_ms(self.client.clock, self.client.wire.now())


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time, and return the results of all, in order. When one fails the others are ended
    first: nothing of a plan that failed may write into the book while the next plan is made.
    """
    tasks = [awaited(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await give_up(*tasks)
