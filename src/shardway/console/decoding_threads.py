"""Decode records in threads of their own, beside the console's event loop.

A record may take seconds to decode, and any producer can put such records. On the event loop they would hold all
visitors; in the loop's own threads, which also write the audit log, a few visitors could hold the others. Records are
looked at part by part, so that a bound of time that ends a page fires between two records.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from shardway.waiting import next_part

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from shardway.inspect import SeenRecord

T = TypeVar("T")

THREADS_MAX = 2
PART_RECORDS_MAX = 500


class DecodingThreads:
    """The threads in which a console decodes records."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="console-decoding")

    async def call(self, work: Callable[[], T]) -> T:
        """Do the work in a thread, and return what it returns. Where the caller is cancelled, work that has begun goes
        on to its end, unheard.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def each(
        self, records: Iterable[SeenRecord], look: Callable[[SeenRecord], T]
    ) -> AsyncGenerator[list[T], None]:
        """Yield what ``look`` makes of the records, in their order, part by part. It is called in a thread, for one
        record after the other.
        """
        left = iter(records)
        while found := await self.call(lambda: next_part(left, look, most=PART_RECORDS_MAX)):
            yield found

    def close(self) -> None:
        """Take no more work. A thread ends with the record that it looks at."""
        self._pool.shutdown(wait=False, cancel_futures=True)
