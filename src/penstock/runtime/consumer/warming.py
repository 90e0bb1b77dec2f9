"""Reading a shard ahead that another worker still delivers, so that there is no gap when it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.feeding.cursor import Taken
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.runtime.feeds import PollingFeed


class WarmUp:
    """Pages behind the stored checkpoint, bounded in bytes. Nothing of them is delivered here."""

    def __init__(self, feed: PollingFeed, bytes_max: int, on_warm: Callable[[], None]) -> None:
        self.feed = feed
        self.pages: deque[Taken] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._on_warm = on_warm
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def drop(self, checkpoint: Checkpoint) -> None:
        """The owner has stored progress: what lies before it is not needed."""
        pages = self.pages
        while pages and (ends_at := pages[0].ends_at) is not None and type(checkpoint).at(ends_at) <= checkpoint:
            self._bytes -= pages.popleft().records.payload_bytes
        if self._bytes < self._bytes_max:
            self._room.set()

    async def stop(self) -> None:
        """Read no further; what is there stays."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            taken = await self.feed.next()
            if len(taken.records) or taken.ends_at is not None or taken.ended:
                self.pages.append(taken)
                self._bytes += taken.records.payload_bytes
            if not taken.millis_behind_latest or taken.ended or self._bytes >= self._bytes_max:
                self._on_warm()
            if taken.ended:
                return
            while self._bytes >= self._bytes_max:
                self._room.clear()
                await self._room.wait()
