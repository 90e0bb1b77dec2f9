"""The handle of a shard: what the worker has of it, to have it drained and handed over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.core.shard import events

if TYPE_CHECKING:
    from shardway.runtime.shard.driver import ShardDriver


class ShardHandle:
    """Ends the delivery of one shard, for good or until the worker keeps it after all."""

    def __init__(self, driver: ShardDriver) -> None:
        self._driver = driver

    def drain(self, deadline_s: float) -> asyncio.Future[bool]:
        """Deliver no more, but for what lies before records that were delivered, while there is a caller that takes it:
        otherwise those come again. The future waits until what is in flight is settled, letters are written, and
        nothing is pending. It is False when the deadline came first.
        """
        drained = self._driver.revocation.begin()
        self._driver.handle(events.Drain(self._driver.now_s + deadline_s))
        return drained

    def resume(self) -> None:
        """Deliver again, after a drain that came to nothing."""
        self._driver.revocation.call_off()
        self._driver.handle(events.Resume())

    def hand_over(self) -> None:
        """Have the machine store the last checkpoint: the lease is about to go. Nothing more is delivered."""
        self._driver.handle(events.HandOver())

    def stop(self, reason: str) -> None:
        """Deliver nothing more. What is settled by now is the last checkpoint; an event names what is not."""
        self._driver.stop(reason)

    async def over(self) -> None:
        """Wait until nothing more is delivered."""
        driver = self._driver
        if asyncio.get_running_loop() is driver.loop:
            await driver.over.wait()
            return
        while True:  # Events of asyncio wake the tasks of one loop only.
            seen = driver.signal.count
            if driver.is_over:
                return
            await driver.signal.wait(seen)
