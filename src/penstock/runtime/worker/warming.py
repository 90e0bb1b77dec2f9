"""Reading a shard ahead that another worker still delivers, so that there is no gap when it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock.tasks import drop, give_up, spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.feeding.pages import Taken
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.runtime.feeds import PollingFeed
    from penstock.runtime.shard.window_reading import WindowRead
    from penstock.tasks import Heard


class WarmUp:
    """Pages behind the stored checkpoint, bounded in bytes. Nothing of them is delivered here."""

    def __init__(
        self,
        feed: PollingFeed,
        bytes_max: int,
        on_warm: Callable[[], None],
        on_failed: Heard,
        window: WindowRead | None = None,
    ) -> None:
        """``on_warm`` is called, maybe more than once, when it could go on here. ``on_failed`` hears of what repeating
        does not mend: nothing more is read then. ``window``: has to be known before.
        """
        self.feed = feed
        self.window = window
        self.pages: deque[Taken] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._share = None if feed.room is None else feed.room.share
        self._on_warm, self._on_failed = on_warm, on_failed
        self._room = asyncio.Event()
        self._read_enough = False
        self._task = spawn(self._run(), on_failed)
        self._knowing = None if window is None else spawn(self._when_known(window), on_failed)

    def drop(self, checkpoint: Checkpoint) -> None:
        """The owner has stored progress: what lies before it is not needed."""
        pages = self.pages
        while pages and (ends_at := pages[0].ends_at) is not None and type(checkpoint).at(ends_at) <= checkpoint:
            records = pages.popleft().records
            self._hold(-records.held_bytes)
            if self.window is not None:
                self.window.follow(records)
        if self._bytes < self._bytes_max:
            self._room.set()

    async def stop(self) -> None:
        """Read no further; what is there stays, and keeps its room until it is admitted or discarded."""
        await give_up(*(task for task in (self._task, self._knowing) if task is not None))

    async def _run(self) -> None:
        while True:
            taken = await self.feed.next()
            if self.window is not None:
                self.window.saw(taken)
            if len(taken.records) or taken.ends_at is not None or taken.ended:
                self.pages.append(taken)
                self._hold(taken.records.held_bytes)
            if not taken.millis_behind_latest or taken.ended or self._bytes >= self._bytes_max:
                self._read_enough = True
                self._tell()
            if taken.ended:
                return
            while self._bytes >= self._bytes_max:
                self._room.clear()
                await self._room.wait()

    async def _when_known(self, window: WindowRead) -> None:
        await window.over()
        if window.failure is None:
            self._tell()
        else:
            drop(self._task)
            self._on_failed(window.failure)

    def _hold(self, held_bytes: int) -> None:
        self._bytes += held_bytes
        if self._share is not None:
            self._share.change(held_bytes)

    def _tell(self) -> None:
        if self._read_enough and (self.window is None or self.window.is_known):
            self._on_warm()
