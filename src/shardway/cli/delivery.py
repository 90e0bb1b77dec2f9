"""Deliver batches to a producer while they come, and account for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from shardway.cli.accounts import Account, Batch
from shardway.cli.interrupt import StoppedError, Stopping
from shardway.errors import (
    FlushTimeoutError,
)
from shardway.tasks import awaited, drop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence

    from shardway.model import OutRecord
    from shardway.runtime.producer.handles import Puts
    from shardway.runtime.producer.producer import Producer


BATCHES_MAX = 256
"""The batches whose outcomes are waited for. Together with the producer's own buffer, this bounds the memory."""
PROGRESS_INTERVAL_S = 1.0
"""Seconds between the numbers of a run that shows them."""
BATCH_RECORDS_MAX = 500
BATCH_BYTES_MAX = 512 * 1024
"""The bytes of a batch. This and `BATCH_RECORDS_MAX` are small enough for the producer to take a batch whole or not at
all.
"""


class Batcher:
    """Gathers records into batches that are not too large: the number of records times the largest one is within
    `BATCH_BYTES_MAX`.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._records: list[OutRecord] = []
        self._largest_bytes = 0

    def add(self, number: int, record: OutRecord) -> Iterator[Batch]:
        """Add a record, and yield the batch before it, if that batch is full."""
        largest = max(self._largest_bytes, len(record.data))
        count = len(self._records) + 1
        if count > BATCH_RECORDS_MAX or (count > 1 and count * largest > BATCH_BYTES_MAX):
            yield from self.take()
            largest = len(record.data)
        self._largest_bytes = largest
        self._numbers.append(number)
        self._records.append(record)

    def take(self) -> Iterator[Batch]:
        """Yield the records that are there as a batch, if there are any."""
        if self._records:
            yield Batch(self._numbers, self._records)
            self._numbers, self._records, self._largest_bytes = [], [], 0


class Delivery:
    """Puts batches as fast as the producer takes them, and enters them into the account in the order of the puts."""

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
            # It is done after an error, too: batches that the producer has taken are not given up.
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
                await self._stopping.unless_asked(_wait_for_outcomes(self._put[0][1]))

    async def _settle_all(self) -> None:
        while self._put:
            await self._put[0][1].settled()
            self._settle_first()

    def _settle_first(self) -> None:
        numbers, puts = self._put.popleft()
        self._account.settle(numbers, puts.failures())

    async def _end(self, settling: asyncio.Future[None], flush_s: float) -> None:
        """Wait for all outcomes; after a signal no longer than ``flush_s``, and after a second signal not at all."""
        await _wait_for_first(settling, self._stopping.signalled.wait())
        if not settling.done():
            await _wait_for_first(settling, self._stopping.at_once.wait(), timeout_s=flush_s)
        if not settling.done():
            with contextlib.suppress(FlushTimeoutError):
                await self._producer.close(0)  # gives everything its outcome
        await settling


async def _wait_for_outcomes(puts: Puts) -> None:
    await puts.settled()


async def _wait_for_first(
    task: asyncio.Future[None], other: Coroutine[Any, Any, Any], timeout_s: float | None = None
) -> None:
    """Wait until either is done."""
    beside = awaited(other)
    try:
        await asyncio.wait((task, beside), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        drop(beside)
