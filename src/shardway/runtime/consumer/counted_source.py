"""A source of records that counts the calls to it, times the reads, and traces what comes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from shardway.errors import ExpiredIteratorError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncGenerator

    from shardway.core.log.pages import ReadPage, StreamFacts
    from shardway.model import IteratorAt, ListedShard
    from shardway.ports import RecordSource, Tracer
    from shardway.telemetry.consumer_meter import ConsumerMeter


ITERATORS_MAX = 20_000  # The iterators that are remembered, with their shards.


class CountedSource:
    """A `shardway.ports.RecordSource` that counts: ``calls`` by the names of the calls, ``meter`` how long
    reads took.
    """

    def __init__(
        self, source: RecordSource, calls: Counter[str], meter: ConsumerMeter, tracer: Tracer | None = None
    ) -> None:
        self._source = source
        self._calls = calls
        self._meter = meter
        self._tracer = tracer
        self._shards: dict[str, str] = {}  # The shards by iterator, where that is counted by shard, or traced.

    @property
    def stream(self) -> str:
        """The stream of the source."""
        return self._source.stream

    @property
    def now_s(self) -> float:
        """The service's time, as the source has it."""
        return self._source.now_s

    async def describe(self) -> StreamFacts:
        """Describe the stream, and count the call."""
        self._calls["describe"] += 1
        return await self._source.describe()

    async def shards(self) -> list[ListedShard]:
        """List the shards, and count the call."""
        self._calls["shards"] += 1
        return await self._source.shards()

    async def iterator(self, shard_id: str, at: IteratorAt) -> str:
        """Ask for an iterator, and count the call."""
        self._calls["iterator"] += 1
        found = await self._source.iterator(shard_id, at)
        self._is_of(found, shard_id)
        return found

    async def read(self, iterator: str, records_max: int) -> ReadPage:
        """Read a page, and count the call."""
        self._calls["read"] += 1
        loop, shard_id = asyncio.get_running_loop(), self._shards.pop(iterator, "")
        begun_s = loop.time()
        try:
            page = await self._source.read(iterator, records_max)
        except ExpiredIteratorError:
            self._meter.iterator_expired()
            raise
        took_s = loop.time() - begun_s
        self._meter.read(self._source.stream, shard_id, took_s)
        if self._tracer is not None and page.records:
            self._tracer.received(self._source.stream, shard_id, len(page.records), took_s)
        if shard_id and page.next_iterator is not None:
            self._is_of(page.next_iterator, shard_id)
        return page

    def _is_of(self, iterator: str, shard_id: str) -> None:
        if self._meter.per_shard or self._tracer is not None:
            if len(self._shards) >= ITERATORS_MAX:  # Iterators that were given up for others are still there.
                self._shards.clear()
            self._shards[iterator] = shard_id

    async def register(self, consumer: str) -> str:
        """Register a consumer, and count the call."""
        self._calls["register"] += 1
        return await self._source.register(consumer)

    async def registered(self, consumer: str) -> str | None:
        """Look for a registered consumer, and count the call."""
        self._calls["registered"] += 1
        return await self._source.registered(consumer)

    async def deregister(self, consumer: str) -> None:
        """Deregister a consumer, and count the call."""
        self._calls["deregister"] += 1
        await self._source.deregister(consumer)

    def subscribe(self, consumer_arn: str, shard_id: str, at: IteratorAt) -> AsyncGenerator[ReadPage, None]:
        """Subscribe to a shard, and count the call."""
        self._calls["subscribe"] += 1
        pages = self._source.subscribe(consumer_arn, shard_id, at)
        return pages if self._tracer is None else self._trace(pages, shard_id, self._tracer)

    async def _trace(
        self, pages: AsyncGenerator[ReadPage, None], shard_id: str, tracer: Tracer
    ) -> AsyncGenerator[ReadPage, None]:
        """Trace pages that the service pushes: a span says when a page came, and not how long it took."""
        async with contextlib.aclosing(pages):
            async for page in pages:
                if page.records:
                    tracer.received(self._source.stream, shard_id, len(page.records), 0.0)
                yield page

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()
