"""The iterations and calls that give a program the records of all shards, whichever has some."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardway.core.options.check import check
from shardway.errors import ConsumerClosedError, OptionError
from shardway.options.consumer import LATEST_WINS_BY_KEY
from shardway.policies import ByKey
from shardway.runtime.consumer.concurrency import Concurrency, OneByOne, order_of, promised
from shardway.runtime.consumer.handlers import drive
from shardway.runtime.shard.batch import Delivered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from shardway.runtime.consumer.closing import Closing
    from shardway.runtime.consumer.held_shards import HeldShards
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.stream_set import StreamSet
    from shardway.runtime.consumer.turns import Turns
    from shardway.runtime.consumer.worker_run import WorkerRun
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.shard_reader import ShardReader


class Iterations:
    """The iterations of one consumer. They run on the program's loop."""

    def __init__(
        self,
        spec: ConsumerSpec,
        placement: Placement,
        streams: StreamSet,
        turns: Turns,
        shards: HeldShards,
        run: WorkerRun,
        closing: Closing,
    ) -> None:
        self._spec = spec
        self._placement = placement
        self._budget = placement.budget
        self._streams = streams
        self._turns = turns
        self._shards = shards
        self._run = run
        self._closing = closing

    async def batches(self) -> AsyncGenerator[Batch[Any], None]:
        """See `Consumer.__aiter__`."""
        try:
            with self._turns.asking.lasts() as asked:
                while True:
                    await self._budget.take()
                    seen = self._turns.stirred.count
                    batch = self._turns.take()
                    if batch is not None:
                        yield batch
                        asked()
                    elif not await self._wait(seen):
                        return
        finally:
            self._turns.take_back()

    async def records(self) -> AsyncGenerator[Delivered[Any], None]:
        """See `Consumer.records`."""
        async with contextlib.aclosing(self.batches()) as batches:
            async for batch in batches:
                for index in range(len(batch)):
                    if self._budget.is_due:
                        await self._budget.take()
                    if not batch._may_go_on(index):
                        break
                    yield Delivered(batch, index)

    async def getmany(self, records_max: int = 10_000, wait_s: float | None = None) -> list[Batch[Any]]:
        """See `Consumer.getmany`."""
        if records_max < 1:
            raise ValueError("records_max must be at least 1")
        if wait_s is not None and self._closing.is_done:
            raise closed_error(self._spec.application)
        loop, found, left = asyncio.get_running_loop(), list[Any](), records_max
        end_s = None if wait_s is None else loop.time() + wait_s
        with self._placement.host.lock:
            self._turns.asking.once()
        await self._budget.take()
        while True:
            seen = self._turns.stirred.count
            try:
                batch = self._turns.take(left) if left > 0 else None
            except Exception as error:
                if not found:
                    raise
                self._turns.fail(error)  # What was taken comes first.
                return found
            if batch is not None:
                found.append(batch)
                left -= len(batch)
            elif found:
                return found
            elif end_s is not None and loop.time() >= end_s:
                self._run.raise_failure()
                return found
            elif not await self._wait(seen, end_s):
                return found

    async def readers(self) -> AsyncGenerator[ShardReader, None]:
        """See `Consumer.shards`."""
        offered: list[ShardReader] = []
        try:
            while True:
                await self._budget.take()
                seen = self._turns.stirred.count
                reader = self._turns.next_unread()
                if reader is not None:
                    offered = [one for one in offered if not one.is_over and one is not reader]
                    offered.append(reader)
                    yield reader
                elif not await self._wait(seen):
                    return
        finally:
            for reader in offered:
                if not reader.delivery.is_iterated:
                    self._turns.left(reader)

    async def run(
        self,
        handler: Callable[[Any], object],
        concurrency: Concurrency | None,
        handlers_max: int | None,
        *,
        each_record: bool,
    ) -> None:
        """See `Consumer.run_batches` and `Consumer.run_records`."""
        given = {"handler": handler, "concurrency": concurrency, "handlers_max": handlers_max}
        check(given, {"handler": Callable, "concurrency": Concurrency | None, "handlers_max": int | None})
        self._streams.check_keys(promised(self._spec.options.order, concurrency))
        concurrency = concurrency or OneByOne()
        if handlers_max is not None and handlers_max < 1:
            raise ValueError("handlers_max must be at least 1")
        self._choose_order(concurrency)
        async with contextlib.aclosing(self.readers()) as readers:
            await drive(
                readers,
                handler,
                concurrency=concurrency,
                each_record=each_record,
                handlers_max=handlers_max,
            )

    def _choose_order(self, concurrency: Concurrency) -> None:
        options, order = self._spec.options, order_of(concurrency)
        if order is None and not self._shards.has_order:
            return
        # After a run with another order, `OneByOne` goes back to that of the options.
        order = options.order if order is None else order
        if isinstance(order, ByKey) and options.settling.latest_wins:
            raise OptionError(LATEST_WINS_BY_KEY)
        self._shards.use_order(order)

    async def _wait(self, seen: int, end_s: float | None = None) -> bool:
        """Wait until there may be something to take; False: nothing more will come. Raises the error that ended the
        worker.
        """
        self._run.raise_failure()
        if not self._run.is_begun:
            if not self._closing.is_begun:
                raise RuntimeError("the consumer is not started: use it in an `async with` statement, or await start()")
            return False
        wait_s = None if end_s is None else max(0.0, end_s - asyncio.get_running_loop().time())
        await self._turns.stirred.wait(seen, wait_s)
        self._budget.rested()
        return True


def closed_error(application: str) -> ConsumerClosedError:
    """Return the error for a call that waits for records of a closed consumer: an empty list would say that there is
    nothing yet, for ever.
    """
    return ConsumerClosedError(
        f"{application}: the consumer is closed and delivers no more records: leave the loop that asks for them"
    )
