"""Decode records in threads of their own, beside the console's event loop.

A record may take seconds to decode, and any producer can put such records. On the event loop they would hold all
visitors; in the loop's own threads, which also write the audit log, a few visitors could hold the others. Records are
looked at part by part, so that a bound of time that ends a page fires between two records.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from shardway.inspect import SeenRecord

T = TypeVar("T")

THREADS_MAX = 2
PART_S = 0.05
"""Seconds for which a thread looks at records before another page has its turn."""
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
        while found := await self.call(lambda: _part(left, look)):
            yield found

    def close(self) -> None:
        """Take no more work. A thread ends with the record that it looks at."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _part(left: Iterator[SeenRecord], look: Callable[[SeenRecord], T]) -> list[T]:
    found: list[T] = []
    end_s = time.monotonic() + PART_S
    for record in left:
        found.append(look(record))
        if len(found) >= PART_RECORDS_MAX or time.monotonic() >= end_s:
            break
    return found
