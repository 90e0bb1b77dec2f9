"""The delivery of a shard's records to the program: it takes them from the shard's machine, has the deserializer read
them, and makes batches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shardway.core.ledger.ledger_events import raised_at
from shardway.core.ledger.page import payload_bytes_of_all
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.core.shard.events import CannotRead, MustWait
from shardway.errors import ShardStoppedError
from shardway.policies import Skip
from shardway.runtime.clocks import YieldBudget
from shardway.runtime.shard.batch import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from typing import Any

    from shardway.core.ledger import ticket
    from shardway.core.ledger.failures import GiveUpReason
    from shardway.core.ledger.ledger import Ledger
    from shardway.model import Record
    from shardway.runtime.shard.driver import ShardDriver
    from shardway.runtime.shard.fetcher import Fetcher
    from shardway.runtime.shard.reader_context import ReaderContext


class Delivery:
    """Delivers the records of a shard while its lease is held, and no longer. Several tasks may ask for the next batch
    at once.
    """

    def __init__(
        self, driver: ShardDriver, fetcher: Fetcher, context: ReaderContext, *, batch_records_max: int
    ) -> None:
        self.is_iterated = False
        """True while the program iterates the shard."""
        self.records_delivered = 0
        """The number of records that were delivered so far; those that came again are counted again."""
        self.batches_delivered = 0
        self._deserializer = context.deserializer
        self._budget = YieldBudget(context.turns)
        self._driver = driver
        self._fetcher = fetcher
        self._batch_records_max = batch_records_max
        self._stop_raised: GiveUpReason | None = None

    def take(self, records_max: int | None = None) -> Batch[Any] | None:
        """Return the next records, if there are any to be had now; a listener hears when to ask again (`stir`). It
        returns no more than ``records_max``, unless they failed as a larger batch.

        Raises, once, the error that made the policies stop the shard (`Stop`).
        """
        driver, most = self._driver, self._batch_records_max
        found = self._next_delivery(min(records_max or most, most))
        if found is None:
            return None
        ledger, delivery, values = found
        with driver.lock:
            self.records_delivered += len(delivery.records)
            self.batches_delivered += 1
            if driver.counts is not None:
                driver.counts.delivered(len(delivery.records), payload_bytes_of_all(delivery.records))
        return Batch(
            ledger,
            delivery,
            driver,
            token=driver.keeper.token,
            millis_behind_latest=self._fetcher.millis_behind_latest,
            values=values,
        )

    async def next_batch(self) -> Batch[Any] | None:
        """Wait for the next records, and return them; None when there will be none in this tenure. Raises the error
        that ended the reading, and ShardStoppedError where the policies have stopped the shard (`Stop`).
        """
        with self._driver.lock:
            self._driver.asking.once()
        return await self._next_batch()

    async def _next_batch(self) -> Batch[Any] | None:
        driver = self._driver
        await self._budget.take()
        while not driver.is_over:
            seen = driver.signal.count  # It is read before the look, which may itself end the reading.
            if (ending := driver.ledger.ending) is not None and ending.stops:
                self._stop_raised = ending
                raise stopped(driver.stream, driver.shard_id, ending)
            batch = self.take()
            if batch is not None:
                return batch
            if driver.machine.checkpoints.bound is not None and driver.settled.is_end:
                return None
            await driver.signal.wait(seen)
            self._budget.rested()
        if driver.failure is not None:
            raise driver.failure
        return None

    async def __aiter__(self) -> AsyncGenerator[Batch[Any], None]:
        """Iterate over batches until the tenure ends. What a program that leaves early did not settle is delivered
        again.
        """
        self.is_iterated = True
        try:
            with self._driver.asking.lasts() as asked:
                while (batch := await self._next_batch()) is not None:
                    yield batch
                    asked()
        finally:
            self.is_iterated = False
            self.take_back()
            if not self._driver.is_over:
                self._driver.listeners.left()

    def take_back(self) -> None:
        """Deliver again what is in flight, and checkpoint at once what is settled: the program has left the
        iteration.
        """
        driver = self._driver
        with driver.lock:
            if driver.is_over:
                return
            driver.ledger.take_back(driver.now_s)
        driver.host.soon(self._taken_back)

    def _taken_back(self) -> None:
        if not self._driver.is_over:
            self._driver.handle(checkpoint_events.Flush(at_once=True))
            self._driver.stir()

    def pause(self, paused: bool = True) -> None:
        """Deliver nothing for now; with False, deliver again."""
        self._driver.paused = paused
        self._driver.host.soon(self._driver.look)

    def _next_delivery(
        self, records_max: int
    ) -> tuple[Ledger[Record], ticket.Delivery[Record], Sequence[Any] | None] | None:
        """Return the next delivery with its ledger, and its values where a deserializer makes them; None: there is
        none.
        """
        driver = self._driver
        while True:
            now_s = driver.now_s
            with driver.lock:
                if driver.paused or not driver.may_deliver():
                    return None
                ledger = driver.ledger
                delivery, results = driver.machine.take(records_max, now_s)
                results = driver.worth_the_way(results)
            if results:
                driver.perform_soon(results)
            if delivery is None:
                self._raise_stopped(ledger)
                return None
            if self._deserializer is None:
                return ledger, delivery, None
            read = self._deserializer.of(delivery)
            if read.stops is not None:
                driver.host.soon(partial(driver.stop, "a record cannot be read", read.stops))
                return None
            if read.waits is not None:
                with driver.lock:
                    results = driver.machine.handle(MustWait(ledger, delivery.ticket, read.waits), now_s)
                driver.perform_soon(results)
                driver.touched()
                return None
            if read.left_out:
                skips = isinstance(self._deserializer.policy, Skip)
                with driver.lock:
                    results = driver.machine.handle(CannotRead(ledger, delivery.ticket, read.left_out, skips), now_s)
                driver.perform_soon(results)
            driver.touched()
            if driver.is_over:  # It is over meanwhile.
                return None
            if read.delivery.records:
                return ledger, read.delivery, read.values

    def _raise_stopped(self, ledger: Ledger[Record]) -> None:
        """Raise, once, the error that made the policies stop the shard."""
        ending, driver = ledger.ending, self._driver
        if ending is None or not ending.stops:
            return
        with driver.lock:
            if driver.is_over or self._stop_raised is ending:
                return
            self._stop_raised = ending
        raise stopped(driver.stream, driver.shard_id, ending)


def stopped(stream: str, shard_id: str, ending: GiveUpReason) -> ShardStoppedError:
    """Return the error for a program that asks for records of a shard that the policies have stopped."""
    error_name = type(ending.error).__name__
    why = ending.reason if ending.error is None else f"{ending.reason}: {error_name}, at {raised_at(ending.error)}"
    error = ShardStoppedError(
        f"{stream}, {shard_id}: nothing more is delivered ({why}): mend the cause, and start the consumer anew; or "
        "choose Skip, DeadLetters or GiveUp in place of Stop"
    )
    error.__cause__ = ending.error
    return error
