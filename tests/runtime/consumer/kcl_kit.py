"""A table that KCL workers can reach, and workers that do to its leases what the KCL does. They read no records."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

from shardway.core.assignment.kcl.fleet import Place
from shardway.core.assignment.kcl.kcl2 import moves
from shardway.core.assignment.kcl.rows import metrics_row
from shardway.core.assignment.views import lease_view
from shardway.core.leases import Done, LeaseRow, Outcome, writes
from shardway.core.leases.counters import ObservedCounters
from shardway.stores.memory import MemoryLeaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.assignment.kcl.fleet import Coordination


class KclTable(MemoryLeaseTable):
    """Rows of any kind beside the leases, as in a DynamoDB table."""

    async def coordination(self) -> Coordination | None:
        return None

    async def show_metrics(self, place: Place, row: Mapping[str, Any]) -> Outcome:
        assert place is Place.LEASE_TABLE
        self.add(row)
        return Done(None)

    async def withdraw_metrics(self, place: Place, worker_id: str) -> Outcome:
        self._rows.pop(worker_id, None)
        return Done(None)

    async def owned_keys(self, worker_id: str) -> list[str] | None:
        return [key for key, row in self._rows.items() if row.get("leaseOwner") == worker_id]

    def add(self, row: Mapping[str, Any]) -> None:
        """A row as it is."""
        self._rows[row["leaseKey"]] = dict(row)

    def row(self, key: str) -> dict[str, Any]:
        """A row as it is."""
        return dict(self._rows[key])

    def names(self) -> set[str]:
        """The keys of all rows, of whatever kind."""
        return set(self._rows)

    def owners(self) -> dict[str, str | None]:
        """The owner of each lease by its row."""
        return {key: row.get("leaseOwner") for key, row in self._rows.items() if "leaseCounter" in row}

    def warm(self, worker_id: str) -> frozenset[str]:
        """What a Shardway worker says that it could deliver from at once."""
        row = self._workers.get(worker_id, {})
        return frozenset(row.get("warm", ()))

    def mode(self, version: str) -> None:
        """What a KCL 3.5 fleet writes of its mode."""
        self.add({"leaseKey": "Migration3.0", "entityType": "CLIENT_VERSION_MIGRATION", "cv": version})

    def metrics_of(self, worker_id: str) -> None:
        """What a KCL 3.5 worker writes of itself."""
        self.add(metrics_row(Place.LEASE_TABLE, worker_id, time.time()))


class Kcl2Worker:
    """Renews what it has, takes and steals."""

    def __init__(self, name: str, table: KclTable, failover_s: float, *, takes: bool = True) -> None:
        self.name = name
        self.table = table
        self.held: dict[str, LeaseRow] = {}
        self.lost: set[str] = set()
        self._takes = takes
        self._failover_s = failover_s
        self._observed = ObservedCounters()
        self._rng = random.Random(name)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """As the KCL stops: its name stays on its leases."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        loop, take_at_s = asyncio.get_running_loop(), 0.0
        while True:
            for key, row in list(self.held.items()):
                outcome = await self.table.write(writes.renew(row))
                if isinstance(outcome, Done) and outcome.row is not None:
                    self.held[key] = outcome.row
                else:
                    del self.held[key]
                    self.lost.add(key)
            if self._takes and loop.time() >= take_at_s:
                await self._take(loop.time())
                take_at_s = loop.time() + self._failover_s / 2
            await asyncio.sleep(self._failover_s / 4)

    async def _take(self, now_s: float) -> None:
        listing = await self.table.scan()
        self._observed.look_at_leases(listing.rows, now_s)
        rows = {row.key: row for row in listing.rows}
        views = [lease_view(row, self._observed.unmoved_s(row.key, now_s)) for row in listing.rows]
        found = moves(views, (), self.name, self._rng, failover_s=self._failover_s)
        for key in found.take + found.steal:
            outcome = await self.table.write(writes.take(rows[key], self.name))
            if isinstance(outcome, Done) and outcome.row is not None:
                self.held[key] = outcome.row
