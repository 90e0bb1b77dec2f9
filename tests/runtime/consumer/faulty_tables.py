"""A lease table as one worker reaches it, over a network that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.core.leases import Unknown
from shardway.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from random import Random

    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.listing import Listing
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.ports import LeaseTable


T = TypeVar("T")

TIMEOUT_S = 0.1


class FaultyTable:
    """Passes calls on to a table, unless it is cut off; may lose answers of what was done."""

    def __init__(self, table: LeaseTable, rng: Random | None = None) -> None:
        """``rng``: half of the writes that are done are answered with an error."""
        self.is_cut = False
        self.writes_are_cut = False
        """Only those to leases."""
        self.answers_lost = 0
        self._table = table
        self._rng = rng

    @property
    def name(self) -> str:
        return self._table.name

    async def ensure(self) -> None:
        await self._read(self._table.ensure())

    async def create(self, row: LeaseRow) -> Outcome:
        return await self._write(self._table.create(row))

    async def write(self, write: Write) -> Outcome:
        if self.writes_are_cut:
            await asyncio.sleep(TIMEOUT_S)
            return Unknown("no answer")
        return await self._write(self._table.write(write))

    async def get(self, key: str) -> LeaseRow | None:
        return await self._read(self._table.get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        return await self._read(self._table.scan(consistent=consistent))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        return await self._write(self._table.put_worker(row))

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        return await self._read(self._table.workers(consistent=consistent))

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        return await self._write(self._table.delete_worker(worker_id, counter=counter))

    async def close(self) -> None:
        await self._table.close()

    async def _read(self, call: Coroutine[Any, Any, T]) -> T:
        if self.is_cut:
            call.close()
            await asyncio.sleep(TIMEOUT_S)
            raise TransportError("the table cannot be reached")
        return await call

    async def _write(self, call: Coroutine[Any, Any, Outcome]) -> Outcome:
        if self.is_cut:
            call.close()
            await asyncio.sleep(TIMEOUT_S)
            return Unknown("no answer")
        outcome = await call
        if self._rng is not None and self._rng.random() < 0.5:
            self.answers_lost += 1
            return Unknown("the connection was reset")
        return outcome
