"""A worker's own row: what it shows of itself to the others, and whether that is confirmed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.leases import Done
from penstock.core.leases.membership import WRITES_PER_FAILOVER, WorkerRow
from penstock.errors import PenstockError
from penstock.runtime.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.ports import LeaseTable

TOLD_PER_WRITE_INTERVAL = 8
"""Each lease hears of confirmed writes so often at most, though a worker that has much to show writes more often."""


class Presence:
    """Written at every change, and often enough to be known as alive."""

    def __init__(
        self,
        worker_id: str,
        table: LeaseTable,
        *,
        failover_s: float,
        retry_s: float,
        leases_max: int | None,
        version: str,
        process: str,
        held: Callable[[], Iterable[str]],
        on_alive: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        """``retry_s``: after a write that was not confirmed. ``on_alive`` hears of confirmed writes, by the time at
        which they were sent.
        """
        self.wanted: set[str] = set()
        self.warm: set[str] = set()
        self.given: dict[str, str] = {}
        self.leaving = False
        """It hands over what it holds, and takes nothing."""
        self.retreats = False
        """True: it shows itself as leaving, though it stays, so that others take the leases that it could not keep."""
        self.alive_s: float | None = None
        """Send time of the last confirmed write; None: no other worker can have seen this one yet."""
        self.row = WorkerRow(
            worker_id=worker_id, failover_s=failover_s, leases_max=leases_max, version=version, process=process
        )
        """As it was written last."""
        self._retry_s = retry_s
        self._told_s = float("-inf")
        self._avoided: dict[str, float] = {}
        self._table = table
        self._held = held
        self._on_alive = on_alive
        self._clock = clock
        self._now = asyncio.Event()

    def avoid(self, key: str, for_s: float) -> None:
        """Do not take this lease for a while."""
        self._avoided[key] = self._clock() + for_s
        self._now.set()

    def avoids(self) -> frozenset[str]:
        """The leases that it will not have now."""
        now_s = self._clock()
        self._avoided = {key: until_s for key, until_s in self._avoided.items() if until_s > now_s}
        return frozenset(self._avoided)

    def changed(self) -> None:
        """There is something new to show."""
        self._now.set()

    def name(self, key: str, receiver: str | None) -> None:
        """Show which worker gets a lease; None: no worker."""
        if receiver is None:
            self.given.pop(key, None)
        else:
            self.given[key] = receiver
        self._now.set()

    def shown(self) -> WorkerRow:
        """The row as it would be written now."""
        return WorkerRow(
            worker_id=self.row.worker_id,
            counter=self.row.counter + 1,
            failover_s=self.row.failover_s,
            version=self.row.version,
            held=frozenset(self._held()),
            wanted=frozenset(self.wanted),
            given=dict(self.given),
            warm=frozenset(self.warm),
            leaving=self.leaving or self.retreats,
            leases_max=self.row.leases_max,
            avoids=self.avoids(),
            process=self.row.process,
        )

    async def run(self) -> None:
        """Write the row until cancelled. Raises, before the first confirmed write, what trying again does not mend."""
        interval_s = self.row.failover_s / WRITES_PER_FAILOVER
        while True:
            self._now.clear()
            sent_s = self._clock()
            self.row = self.shown()
            try:
                outcome = await self._table.put_worker(self.row)
            except PenstockError as error:
                if self.alive_s is None and not error.retryable:
                    raise
                outcome = None
            if isinstance(outcome, Done):
                self.alive_s = sent_s
                if sent_s - self._told_s >= interval_s / TOLD_PER_WRITE_INTERVAL:
                    self._told_s = sent_s
                    self._on_alive(sent_s)
            await wait_set(self._now, interval_s if isinstance(outcome, Done) else min(interval_s, self._retry_s))
