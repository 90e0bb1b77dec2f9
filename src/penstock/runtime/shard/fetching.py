"""Fetches a shard's pages, one after another, as far as there is room."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.ledger.resuming import behind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from penstock.core.feeding.cursor import Taken
    from penstock.core.feeding.pages import ChildShard
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.model import Position, Record
    from penstock.runtime.feeds import FanOutFeed, PollingFeed


class Fetching:
    """Fetches pages: `run` in a task of its own; `seek` makes it go on elsewhere."""

    def __init__(
        self,
        feed: PollingFeed | FanOutFeed,
        read_ahead: Iterable[Taken],
        after: Checkpoint,
        *,
        may: Callable[[], bool | None],
        admit: Callable[[Taken, Sequence[Record], Position | None], None],
        pause: Callable[[float | None], Awaitable[None]],
        on_end: Callable[[tuple[ChildShard, ...]], Awaitable[None]],
    ) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before ``after``. ``may()``: True to go
        on, False to ``pause``, None to end. ``admit`` gets each page, with what of it is new, and where that ends.
        ``on_end`` is awaited when there are no more.
        """
        self.after = after
        """Records up to here are not admitted."""
        self._feed = feed
        self._read_ahead = deque(read_ahead)
        self._may = may
        self._admit = admit
        self._pause = pause
        self._on_end = on_end
        self._running: asyncio.Task[Any] | None = None
        self._sought: PollingFeed | FanOutFeed | None = None
        self._is_done = False

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``."""
        while self._read_ahead:
            self._ahead()
        self.after = after
        self._is_done = False
        is_told = self._sought is not None
        self._sought = feed
        if self._running is not None and not is_told:
            self._running.cancel()

    async def run(self) -> None:
        """Fetch until ``may`` returns None. Raises what reading raises."""
        running = self._running = asyncio.current_task()
        assert running is not None
        try:
            while self._may() is not None:
                try:
                    if self._sought is not None:
                        former, self._feed, self._sought = self._feed, self._sought, None
                        await former.close()
                    await self._fetch()
                except asyncio.CancelledError:
                    # A seek cancels this task to wake it. If the task's owner cancels it too, at the same time, that
                    # one counts (`uncancel` leaves a request).
                    if self._sought is None or running.uncancel():
                        raise
        finally:
            self._running = None
            await self._feed.close()

    async def _fetch(self) -> None:
        """Fetch pages until there are no more, or the program seeks."""
        while self._sought is None and (may := self._may()) is not None:
            if self._is_done:
                await self._pause(None)
            elif not may:
                await self._pause(1.0)
            else:
                taken = self._ahead() if self._read_ahead else await self._feed.next()
                self._take(taken)
                if taken.ended:
                    await self._on_end(taken.children)
                    self._is_done = True
                    await self._feed.close()

    def _ahead(self) -> Taken:
        """The next page that was read ahead. Its room is free: the ledger takes what it keeps of the page."""
        taken = self._read_ahead.popleft()
        if self._feed.room is not None:
            self._feed.room.share.change(-taken.records.held_bytes)
        return taken

    def _take(self, taken: Taken) -> None:
        records, ends_at, after = behind(taken.records, self.after), taken.ends_at, self.after
        if ends_at is not None and after.is_position and ends_at <= after.position:
            ends_at = None  # read ahead, and settled by the former owner
        self._admit(taken, records, ends_at)
