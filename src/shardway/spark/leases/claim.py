"""A claim makes sure that no living worker owns the leases of an application before a query begins by them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from shardway.core.leases import Done
from shardway.core.leases.mirror import release
from shardway.errors import NotFoundError, OptionError, ShardwayError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.ports import LeaseTable

log = logging.getLogger("shardway.spark")

LOOKS_PER_FAILOVER = 10
NAMED_MAX = 3
"""The largest number of shards that one warning names."""


class LeasesInUseError(ShardwayError):
    """A worker that lives owns leases of the application: the query and it would both read everything."""


class LeaseClaim:
    """Reads the leases of one application, and releases those of workers that are dead."""

    def __init__(self, table: LeaseTable, where: str, failover_s: float) -> None:
        """``where``: the stream, the application and the table, for messages."""
        self._table = table
        self._place = where
        self._failover_s = failover_s

    async def rows(self) -> list[LeaseRow]:
        """Return the leases, none of which is owned any more. The table is made if there is none.

        Raises LeasesInUseError, and what the table answers.
        """
        try:
            rows = await self._read()
        except NotFoundError:
            await self._table.ensure()
            rows = await self._read()
        workers = await self._workers()
        if workers or any(row.actual_owner is not None for row in rows):
            rows = await self._release_those_of_the_dead(rows, workers)
        return rows

    async def _read(self) -> list[LeaseRow]:
        listing = await self._table.scan(consistent=True)
        several = [row.key for row in listing.rows if row.stream is not None]
        if several:
            raise OptionError(
                f"the table {self._table.name} holds leases of several streams ({some_of(several)}); rows of one "
                "alone, beside them, would break the KCL: give the query an applicationName of its own"
            )
        if listing.unreadable:
            raise ShardwayError(
                f"rows of the table {self._table.name} cannot be read as leases ({some_of(listing.unreadable)}): where "
                "their shards begin is not known. Mend or delete them, or give the query an applicationName of its own"
            )
        return listing.rows

    async def _workers(self) -> list[WorkerRow]:
        try:
            return await self._table.workers(consistent=True)
        except NotFoundError:
            return []

    async def _release_those_of_the_dead(self, rows: list[LeaseRow], workers: list[WorkerRow]) -> list[LeaseRow]:
        """Watch owners and workers for the failover time: what moves is alive. The others lose their leases."""
        loop = asyncio.get_running_loop()
        failover_s = max([self._failover_s, *(worker.failover_s for worker in workers)])
        log.info("%s: waiting %.0f s to see whether a worker lives", self._place, failover_s)
        began_s, first = loop.time(), _beats(rows, workers)
        while loop.time() - began_s <= failover_s:
            await asyncio.sleep(failover_s / LOOKS_PER_FAILOVER)
            rows, workers = await self._read(), await self._workers()
            for what, (owner, counter) in _beats(rows, workers).items():
                if first.get(what) != (owner, counter):
                    raise self._in_use(owner, rows)
        return [row if row.actual_owner is None else await self._release(row, rows) for row in rows]

    async def _release(self, row: LeaseRow, rows: list[LeaseRow]) -> LeaseRow:
        outcome = await self._table.write(release(row))
        if isinstance(outcome, Done) and outcome.row is not None:
            return outcome.row
        found = await self._table.get(row.key)
        if found is None or found.actual_owner is not None:
            raise self._in_use(row.actual_owner or "", rows)
        return found

    def _in_use(self, owner: str, rows: list[LeaseRow]) -> LeasesInUseError:
        count = sum(row.actual_owner == owner for row in rows)
        return LeasesInUseError(
            f"{self._place}: the worker {owner} is alive and owns {count} leases: the query and the workers of one "
            "application would both read everything. Stop the workers first, or give the query an applicationName of "
            "its own"
        )


def _beats(rows: Iterable[LeaseRow], workers: Iterable[WorkerRow]) -> dict[tuple[str, str], tuple[str, int]]:
    """Return the counters that owners and workers move while they live: by kind and key, the name of each and its
    counter.
    """
    leases = {("lease", row.key): (row.actual_owner, row.counter) for row in rows if row.actual_owner is not None}
    return leases | {("worker", one.worker_id): (one.worker_id, one.counter) for one in workers}


def some_of(names: Iterable[str]) -> str:
    """Return the first few names, for a message."""
    listed = list(names)
    return ", ".join(listed[:NAMED_MAX]) + (", …" if len(listed) > NAMED_MAX else "")
