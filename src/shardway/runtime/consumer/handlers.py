"""The program's handlers are called with the batches or the records of each shard, as many at a time as may be."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from shardway.runtime.clocks import YieldBudget
from shardway.runtime.consumer.concurrency import Concurrency, OneByOne, Unordered
from shardway.runtime.shard.batch import Delivered
from shardway.waiting import is_cancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.shard_reader import ShardReader


class HandlerCancelledError(Exception):
    """A handler let a cancellation out that did not mean it: something that it waited for was cancelled."""


async def drive(
    readers: AsyncIterator[ShardReader],
    handler: Callable[[Any], object],
    *,
    concurrency: Concurrency,
    each_record: bool,
    handlers_max: int | None,
) -> None:
    """Call ``handler`` with each batch, or each record, until there are no more shards. Raises the first error that is
    not a handler's.
    """
    room = asyncio.Semaphore(handlers_max) if handlers_max is not None else None
    slots = 1 if isinstance(concurrency, OneByOne) else concurrency.slots_max

    async def call(given: Batch[Any] | Delivered[Any]) -> None:
        if room is None:
            await _call(handler, given)
        else:
            async with room:
                await _call(handler, given)

    async def follow(reader: ShardReader) -> None:
        # It asks also while all slots are taken: a handoff waits until what is behind has caught up.
        with reader.driver.asking.lasts():
            if each_record and isinstance(concurrency, Unordered):
                await _records_side_by_side(reader, call, slots)
            elif slots == 1:
                while (batch := await reader.delivery.next_batch()) is not None:
                    await _one(batch, call, each_record)
            else:
                await _side_by_side(reader, call, slots, each_record)

    try:
        async with asyncio.TaskGroup() as group:
            async for reader in readers:
                group.create_task(follow(reader))
    except BaseExceptionGroup as errors:
        error = _first_error(errors)
        raise error from error.__cause__


async def _call(handler: Callable[[Any], object], given: Any) -> None:
    try:
        waits = handler(given)
        if isawaitable(waits):  # A plain function has done its work by now.
            await waits
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        # A task that ends cancelled is no failure to its TaskGroup: the shard would stand still, and no error would say
        # so.
        raise HandlerCancelledError("what the handler waited for was cancelled, and it did not catch that") from error


async def _one(batch: Batch[Any], call: Callable[[Any], Awaitable[None]], each_record: bool) -> None:
    """Call with a batch, as a whole or record by record; a record that fails, or is put off, sends those behind it
    back.
    """
    if not each_record:
        with batch:
            await call(batch)
        return
    begun_s = batch._reader.now_s
    try:
        await _record_by_record(batch, call)
    finally:
        batch._reader.handled(batch._reader.now_s - begun_s)


async def _record_by_record(batch: Batch[Any], call: Callable[[Any], Awaitable[None]]) -> None:
    count, budget = len(batch), YieldBudget()
    for index in range(count):
        try:
            if budget.is_due:
                await budget.take()
            if not batch._may_go_on(index):
                return
            await call(Delivered(batch, index))
        except Exception as error:
            batch.fail(error, index)
        except BaseException:
            batch.nack(*range(index, count))
            raise
        else:
            batch._settle_rest((index,))
            if not batch._holds_up(index):
                continue
        if index + 1 < count:
            batch.nack(*range(index + 1, count))
        return


async def _side_by_side(
    reader: ShardReader, call: Callable[[Any], Awaitable[None]], slots: int, each_record: bool
) -> None:
    async with asyncio.TaskGroup() as group:
        busy = asyncio.Semaphore(slots)

        async def work(batch: Batch[Any]) -> None:
            try:
                await _one(batch, call, each_record)
            finally:
                busy.release()

        while True:
            await busy.acquire()
            batch = await reader.delivery.next_batch()
            if batch is None:
                return
            group.create_task(work(batch))


async def _records_side_by_side(reader: ShardReader, call: Callable[[Any], Awaitable[None]], slots: int) -> None:
    """Run ``slots`` tasks side by side. Each takes the next record, of whichever batch that is, and calls the
    handler.
    """
    turn = asyncio.Lock()
    budget = YieldBudget()
    current: list[Delivered[Any]] = []  # The rest of the batch that was taken last, its first record last.

    async def hand() -> None:
        while True:
            if budget.is_due:
                await budget.take()
            async with turn:
                if not current:
                    batch = await reader.delivery.next_batch()
                    if batch is None:
                        return
                    current.extend(Delivered(batch, index) for index in reversed(range(len(batch))))
                one = current.pop()
                if not one._may_go_on():
                    current.clear()
                    continue
            with one:
                await call(one)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(hand())
    finally:
        for one in current:
            one.nack()


def _first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
