"""A fetcher gets the pages of a range from the service, on the event loop.

A call that fails is repeated until nothing came for too long.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from shardway.aws.calls.retry import NEVER
from shardway.aws.kinesis.client import KinesisClient
from shardway.core.pacing import Backoff
from shardway.errors import (
    ExpiredIteratorError,
    InvalidArgumentError,
    NotFoundError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.spark.task.range_cursor import RangeCursor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.model import StreamName

T = TypeVar("T")

BACKOFF_BASE_S = 0.2
BACKOFF_CAP_S = 5.0
"""The longest pause in seconds: after an answer of 10 MiB the service refuses a shard's calls for up to 5 s (AWS API
reference, GetRecords).
"""
CALL_S = 0.2
"""Seconds for one call: a shard takes 5 GetRecords calls a second, from all its readers together."""
READ_BYTES_PER_S = 2 * 2**20
"""The bytes per second at which a shard is read, by all its readers together."""
ITERATOR_AGE_S = 60.0
"""Seconds after which an iterator is replaced by one at the last record read, to notice if the retention has overtaken
it.
"""


class Answer(NamedTuple):
    """The body of a GetRecords answer, not decoded; None where the shard does not exist any more."""

    body: bytes | None
    spent_s: float
    """Seconds that the answer took, with all pauses and repetitions."""


class ShardPace:
    """Keeps the calls on one shard within its limits, from the first refusal on.

    Before that there is no reason to wait: most often no other program reads, and calls are further apart anyway.
    """

    def __init__(self) -> None:
        self._was_refused = False
        self._free_at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the shard's limits have room for the next call."""
        return max(0.0, self._free_at_s - now_s) if self._was_refused else 0.0

    def note_refusal(self) -> None:
        """Take note that the service refused a call because of the shard's limits."""
        self._was_refused = True

    def note_answer(self, now_s: float, answer_bytes: int) -> None:
        """Take note of an answer; its bytes are base64 in JSON, a third more than what the service counts."""
        cost_s = max(CALL_S, answer_bytes * 0.75 / READ_BYTES_PER_S)
        self._free_at_s = max(self._free_at_s, now_s) + cost_s


class Fetcher:
    """Gets pages for the ranges of one chain, one at a time."""

    def __init__(self, client: KinesisClient, stream: StreamName, rng: random.Random | None = None) -> None:
        self._client = client
        self._stream = stream
        self._pace = ShardPace()
        self._answered_at_s = 0.0
        self._backoff = Backoff(base_s=BACKOFF_BASE_S, cap_s=BACKOFF_CAP_S, rng=rng or random.Random())

    async def fetch(self, cursor: RangeCursor, limit: int) -> Answer:
        """Get the page that the cursor stands before, of at most ``limit`` records.

        An iterator that has expired is replaced; refusals, failures of the service and broken connections are repeated
        with jitter. Raises StalledError when that takes too long, and at once what repeating cannot help.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if cursor.pause_s:
            await asyncio.sleep(cursor.pause_s)
        if began_s - self._answered_at_s > ITERATOR_AGE_S:
            cursor.iterator = None

        async def page() -> bytes | None:
            if cursor.iterator is None and not await self._find_iterator(cursor):
                return None
            if wait_s := self._pace.wait_s(loop.time()):
                await asyncio.sleep(wait_s)
            iterator = cursor.iterator
            assert iterator is not None
            body = await self._client.get_records_raw(iterator, limit=limit, stream=self._stream, retry=NEVER)
            self._answered_at_s = loop.time()
            self._pace.note_answer(self._answered_at_s, len(body))
            return body

        body = await self._repeat(page, cursor, began_s)
        self._backoff.reset()
        return Answer(body, loop.time() - began_s)

    async def _find_iterator(self, cursor: RangeCursor) -> bool:
        """Ask for an iterator where the cursor starts. Return False if the shard does not exist any more."""
        try:
            cursor.iterator = await self._iterator(cursor)
        except InvalidArgumentError:
            if not cursor.refuse_sequence_number():
                raise
            cursor.iterator = await self._iterator(cursor)
        except NotFoundError:
            # It is the stream that is not there, or only the shard. If it is the stream, this raises the same error.
            await self._client.describe_stream_summary(self._stream, retry=NEVER)
            return False
        return True

    async def _iterator(self, cursor: RangeCursor) -> str:
        return await self._client.get_shard_iterator(self._stream, cursor.range.shard_id, cursor.start(), retry=NEVER)

    async def _repeat(self, call: Callable[[], Awaitable[T]], cursor: RangeCursor, began_s: float) -> T:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await call()
            except (ThrottledError, UnavailableError, TransportError, ExpiredIteratorError) as error:
                if isinstance(error, ExpiredIteratorError):
                    cursor.iterator = None
                elif isinstance(error, ThrottledError):
                    self._pace.note_refusal()
                cursor.check_time(loop.time() - began_s, error)
                await asyncio.sleep(self._backoff.next_s())
            except ShardwayError as error:
                error.add_note(f"while reading {cursor}")
                raise
