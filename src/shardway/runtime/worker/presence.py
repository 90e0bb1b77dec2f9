"""The presence of a worker: it shows a row of its own to the others, and knows whether that is confirmed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.core.leases import Done
from shardway.core.leases.worker_row import WRITES_PER_FAILOVER
from shardway.core.worker.state import WorkerState
from shardway.errors import ShardwayError
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.leases.worker_row import WorkerRow
    from shardway.ports import LeaseTable


TOLD_PER_WRITE_INTERVAL = 8
"""The most times in the interval between two writes that a lease hears of confirmed writes, though a worker that has
much to show writes more often.
"""


class Presence:
    """Writes the worker's own row at every change, and often enough to be known as alive."""

    def __init__(
        self,
        table: LeaseTable,
        state: WorkerState,
        shown: Callable[[float, int], WorkerRow],
        *,
        retry_s: float,
        clock: Callable[[], float],
    ) -> None:
        """``shown`` returns the row by the time and its counter. ``retry_s`` is the pause after a write that was not
        confirmed.
        """
        self.alive_s: float | None = None
        """The send time of the last confirmed write; None: no other worker can have seen this one yet."""
        self._table = table
        self._state = state
        self._make_row = shown
        self._retry_s = retry_s
        self._told_s = float("-inf")
        self._counter = 0
        self._clock = clock
        self._write_request = asyncio.Event()
        self._ends = False

    def changed(self) -> None:
        """Write the row soon: there is something new to show."""
        self._write_request.set()

    def end(self) -> None:
        """Write the row no more: `run` returns when the write that is under way has its outcome."""
        self._ends = True
        self._write_request.set()

    async def run(self, on_alive: Callable[[float], None]) -> None:
        """Write the row until `end`. Raises, before the first confirmed write, an error that trying again does not
        mend. ``on_alive`` hears of confirmed writes, by the time at which they were sent.
        """
        interval_s = self._state.terms.failover_s / WRITES_PER_FAILOVER
        while not self._ends:
            self._write_request.clear()
            sent_s = self._clock()
            self._counter += 1
            row = self._make_row(sent_s, self._counter)
            try:
                outcome = await self._table.put_worker(row)
            except ShardwayError as error:
                if self.alive_s is None and not error.retryable:
                    raise
                outcome = None
            if isinstance(outcome, Done):
                self.alive_s = sent_s
                if sent_s - self._told_s >= interval_s / TOLD_PER_WRITE_INTERVAL:
                    self._told_s = sent_s
                    on_alive(sent_s)
            await wait_set(
                self._write_request, interval_s if isinstance(outcome, Done) else min(interval_s, self._retry_s)
            )
