"""The flushes that wait, each for the records that were put before it."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from shardway.core.producer.limits import RUN_WORK, STEP_RECORDS
from shardway.model import OutRecord
from shardway.runtime.producer.handles import Unwritten

if TYPE_CHECKING:
    from shardway.core.producer.batcher import Batcher


class Flushes:
    """Ends a flush when the last of its records has an outcome; nothing lingers while one waits."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._waiting_flushes: dict[asyncio.Future[None], int] = {}  # The number of the newest chunk of each flush.

    def add(self, newest: int) -> asyncio.Future[None]:
        """Return a future that is done when all records up to a chunk have their outcome."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_flushes[future] = newest
        self._batcher.urgent = True
        return future

    def remove(self, future: asyncio.Future[None]) -> None:
        """Forget a flush: it has ended."""
        self._waiting_flushes.pop(future, None)
        self._batcher.urgent = bool(self._waiting_flushes)

    def finish(self) -> None:
        """End the flushes whose records all have their outcome."""
        if self._waiting_flushes:
            oldest = next(iter(self._batcher.settling.live), inf)
            for future, newest in self._waiting_flushes.items():
                if oldest > newest and not future.done():
                    future.set_result(None)

    async def list_unwritten(self, newest: int) -> list[Unwritten]:
        """Return the records up to a chunk that have no outcome. The loop runs in between."""
        found = []
        work = 0
        runs = [
            # The columns are taken as they are now: a run that moves on gets others.
            (run.chunk, run.at, run.keys, run.datas, run.indices, sent)
            for run, sent in self._batcher.unsettled_runs()
            if run.chunk.number <= newest
        ]
        for chunk, at, keys, datas, indices, sent in runs:
            explicit = chunk.hash_keys or {}
            outcomes = chunk.outcomes
            found += [
                Unwritten(OutRecord(datas[place], keys[place], explicit.get(indices[place])), sent)
                for place in range(at, len(keys))
                if outcomes[indices[place]] is None
            ]
            work += RUN_WORK + len(keys)
            if work >= STEP_RECORDS:
                work = 0
                await asyncio.sleep(0)
        return found
