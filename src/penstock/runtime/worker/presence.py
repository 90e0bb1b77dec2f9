"""A worker's own row: what it shows of itself to the others, and whether that is confirmed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.leases import Done
from penstock.core.leases.membership import WRITES_PER_FAILOVER
from penstock.errors import PenstockError
from penstock.runtime.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.worker import Mine
    from penstock.ports import LeaseTable

TOLD_PER_WRITE_INTERVAL = 8
"""The most times in that interval that a lease hears of confirmed writes, though a worker that has much to show writes
more often.
"""


class Presence:
    """Written at every change, and often enough to be known as alive."""

    def __init__(self, table: LeaseTable, mine: Mine, *, retry_s: float, clock: Callable[[], float]) -> None:
        """``mine``: what is shown. ``retry_s``: after a write that was not confirmed."""
        self.alive_s: float | None = None
        """Send time of the last confirmed write; None: no other worker can have seen this one yet."""
        self._table = table
        self._mine = mine
        self._retry_s = retry_s
        self._told_s = float("-inf")
        self._counter = 0
        self._clock = clock
        self._now = asyncio.Event()

    def changed(self) -> None:
        """There is something new to show."""
        self._now.set()

    async def run(self, on_alive: Callable[[float], None]) -> None:
        """Write the row until cancelled. Raises, before the first confirmed write, what trying again does not mend.
        ``on_alive`` hears of confirmed writes, by the time at which they were sent.
        """
        interval_s = self._mine.terms.failover_s / WRITES_PER_FAILOVER
        while True:
            self._now.clear()
            sent_s = self._clock()
            self._counter += 1
            row = self._mine.shown(sent_s, self._counter)
            try:
                outcome = await self._table.put_worker(row)
            except PenstockError as error:
                if self.alive_s is None and not error.retryable:
                    raise
                outcome = None
            if isinstance(outcome, Done):
                self.alive_s = sent_s
                if sent_s - self._told_s >= interval_s / TOLD_PER_WRITE_INTERVAL:
                    self._told_s = sent_s
                    on_alive(sent_s)
            await wait_set(self._now, interval_s if isinstance(outcome, Done) else min(interval_s, self._retry_s))
