"""Pace the reads of each shard, within a share of what it gives to all of its readers."""

from __future__ import annotations

import asyncio

from shardway.core.pacing import TokenBucket
from shardway.errors import (
    OptionError,
)
from shardway.inspect.reads.wire import SHARE
from shardway.inspect.values import (
    READ_BYTES_PER_S,
    READ_CALLS_PER_S,
)

PAGE_RECORDS_FIRST, PAGE_RECORDS_MAX = 2_000, 10_000
"""The records that a shard's first GetRecords call asks for, since their size is unknown, and that any call asks for
at most.
"""
PAGE_BYTES = READ_BYTES_PER_S / READ_CALLS_PER_S
"""The bytes that a page is to have at most, if its records are as large as those of the page before. A call may return
10 MiB, but then the shard refuses all of its readers for the next five seconds.
"""


class ShardPaces:
    """How often an inspector may ask each shard, and for how much. ``calls_per_s``: how many of the 5 calls a second
    that a shard allows.
    """

    def __init__(self, calls_per_s: float = READ_CALLS_PER_S * SHARE) -> None:
        if not 0 < calls_per_s <= READ_CALLS_PER_S:
            raise OptionError(
                f"--rate: a shard allows {READ_CALLS_PER_S} read calls a second; choose more than 0 of them"
            )
        self.calls_per_s = calls_per_s
        self.bytes_per_s = READ_BYTES_PER_S * calls_per_s / READ_CALLS_PER_S
        """The bytes a second that may be read from each shard: the same share as that of the calls."""
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}
        self._turns: dict[tuple[str, str, str], asyncio.Lock] = {}
        self._page_records: dict[tuple[str, str], int] = {}

    async def wait_turn(self, stream: str, shard_id: str, operation: str) -> None:
        """Wait until the shard may be asked. Readers of one shard take turns in the order in which they came."""
        bucket, clock = self._bucket(stream, shard_id, operation), asyncio.get_running_loop().time
        async with self._turns.setdefault((stream, shard_id, operation), asyncio.Lock()):
            # Without turns, the reader whose wait began with the last call wakes first each time, and no other reads.
            while not bucket.take(clock(), records=1, payload_bytes=1):
                await asyncio.sleep(bucket.wait_s(clock(), records=1, payload_bytes=1))

    def page_records(self, stream: str, shard_id: str) -> int:
        """Return how many records the next GetRecords call may ask for."""
        return self._page_records.get((stream, shard_id), PAGE_RECORDS_FIRST)

    def note_read(self, stream: str, shard_id: str, records: int, payload_bytes: int) -> None:
        """Note what GetRecords brought. After more bytes than the share allows, the next call waits."""
        now_s = asyncio.get_running_loop().time()
        self._bucket(stream, shard_id, "GetRecords").charge(now_s, payload_bytes=payload_bytes)
        if payload_bytes:
            fitting = int(PAGE_BYTES * records / payload_bytes)
            self._page_records[stream, shard_id] = min(max(fitting, 1), PAGE_RECORDS_MAX)

    def _bucket(self, stream: str, shard_id: str, operation: str) -> TokenBucket:
        key = (stream, shard_id, operation)
        if (found := self._buckets.get(key)) is None:
            found = self._buckets[key] = TokenBucket(
                records_per_s=self.calls_per_s,
                records_burst=1.0,
                bytes_per_s=self.bytes_per_s,
                now_s=asyncio.get_running_loop().time(),
            )
        return found
