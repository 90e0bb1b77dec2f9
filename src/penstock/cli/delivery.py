"""Batches of records through a producer, with an account of what became of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from penstock.cli.account import Batch
from penstock.cli.interrupt import StoppedError
from penstock.errors import FlushTimeoutError
from penstock.tasks import awaited, drop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
    from typing import Any

    from penstock.cli.account import Account
    from penstock.cli.interrupt import Stopping
    from penstock.model import OutRecord
    from penstock.runtime.handles import Puts
    from penstock.runtime.producer import Producer

BATCHES_MAX = 256
"""Batches whose outcomes are waited for. With the producer's own buffer, this bounds the memory."""
BATCH_RECORDS_MAX = 500
BATCH_BYTES_MAX = 512 * 1024
"""With `BATCH_RECORDS_MAX`, small enough for the producer to take a batch as a whole or not at all."""


class Batcher:
    """Gathers records into batches that are not too large: so many times the largest one is within the bound."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._records: list[OutRecord] = []
        self._largest_bytes = 0

    def add(self, number: int, record: OutRecord) -> Iterator[Batch]:
        """Add a record; the batch before it, if that is full."""
        largest = max(self._largest_bytes, len(record.data))
        count = len(self._records) + 1
        if count > BATCH_RECORDS_MAX or (count > 1 and count * largest > BATCH_BYTES_MAX):
            yield from self.take()
            largest = len(record.data)
        self._largest_bytes = largest
        self._numbers.append(number)
        self._records.append(record)

    def take(self) -> Iterator[Batch]:
        """What is there, if anything is."""
        if self._records:
            yield Batch(self._numbers, self._records)
            self._numbers, self._records, self._largest_bytes = [], [], 0


class Delivery:
    """Puts batches as fast as the producer takes them, and settles their account in the order they were put."""

    def __init__(self, producer: Producer[Any], account: Account, stopping: Stopping) -> None:
        self._producer = producer
        self._account = account
        self._stopping = stopping
        self._put: deque[tuple[Sequence[int], Puts]] = deque()

    async def run(self, batches: AsyncGenerator[Batch, None], *, flush_s: float) -> None:
        """Put all batches, until the end is asked for, and wait for their outcomes; after a signal for ``flush_s``.

        Every batch that was taken from ``batches`` is in the account at the end.
        """
        try:
            async with contextlib.aclosing(batches), contextlib.aclosing(self._stopping.until_asked(batches)) as wanted:
                async for batch in wanted:
                    await self._put_batch(batch)
        finally:
            # Also after an error: what was taken is not given up for it.
            await self._end(awaited(self._settle_all()), flush_s)

    async def _put_batch(self, batch: Batch) -> None:
        self._account.given += len(batch.records)
        try:
            puts = await self._stopping.unless_asked(self._producer.put_many(batch.records))
        except StoppedError:
            self._account.lose(batch.numbers, "never sent", may_be_written=False)
            return
        self._put.append((batch.numbers, puts))
        while self._put and self._put[0][1].done():
            self._settle_first()
        if len(self._put) >= BATCHES_MAX:
            with contextlib.suppress(StoppedError):
                await self._stopping.unless_asked(_settled(self._put[0][1]))

    async def _settle_all(self) -> None:
        while self._put:
            await self._put[0][1].settled()
            self._settle_first()

    def _settle_first(self) -> None:
        numbers, puts = self._put.popleft()
        self._account.settle(numbers, puts.failures())

    async def _end(self, settling: asyncio.Future[None], flush_s: float) -> None:
        """Wait for all outcomes; after a signal no longer than ``flush_s``, and after a second one no more."""
        await _first(settling, self._stopping.signalled.wait())
        if not settling.done():
            await _first(settling, self._stopping.at_once.wait(), timeout_s=flush_s)
        if not settling.done():
            with contextlib.suppress(FlushTimeoutError):
                await self._producer.close(0)  # gives everything its outcome
        await settling


async def _settled(puts: Puts) -> None:
    await puts.settled()


async def _first(task: asyncio.Future[None], other: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> None:
    """Wait until either is done."""
    beside = awaited(other)
    try:
        await asyncio.wait((task, beside), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        drop(beside)
