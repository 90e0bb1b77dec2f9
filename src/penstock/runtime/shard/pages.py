"""The pages of a shard, one after another, from the place on that was sought last."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.ledger.book import behind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from penstock.core.feeding.cursor import Taken
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.model import Position, Record
    from penstock.runtime.feeds import FanOutFeed, PollingFeed


class Pages:
    """Of one tenure. One task asks for them (`fetched_by_this_task`); `seek` wakes it, whatever it waits for."""

    def __init__(self, feed: PollingFeed | FanOutFeed, read_ahead: Iterable[Taken], after: Checkpoint) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before ``after``."""
        self.after = after
        """Records up to here are not new."""
        self.is_done = False
        """There are no more, unless the program seeks."""
        self._feed = feed
        self._read_ahead = deque(read_ahead)
        self._running: asyncio.Task[Any] | None = None
        self._sought: PollingFeed | FanOutFeed | None = None

    @property
    def is_sought(self) -> bool:
        """True from `seek` until `go_on`."""
        return self._sought is not None

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``."""
        while self._read_ahead:
            self._ahead()
        self.after = after
        self.is_done = False
        is_told = self.is_sought
        self._sought = feed
        if self._running is not None and not is_told:
            self._running.cancel()

    @contextlib.asynccontextmanager
    async def fetched_by_this_task(self) -> AsyncIterator[Pages]:
        """While it lasts the current task asks for pages. At its end the feed is closed."""
        self._running = asyncio.current_task()
        try:
            yield self
        finally:
            self._running = None
            await self._feed.close()

    @contextlib.contextmanager
    def until_sought(self) -> Iterator[None]:
        """What is waited for in the block ends when the program seeks; the block is left then."""
        try:
            yield
        except asyncio.CancelledError:
            # A seek cancels the task to wake it. If the task's owner cancels it too, at the same time, that one counts
            # (`uncancel` leaves a request).
            if self._running is None or not self.is_sought or self._running.uncancel():
                raise

    async def go_on(self) -> None:
        """Go on from the place that was sought, if one was."""
        if self._sought is not None:
            former, self._feed, self._sought = self._feed, self._sought, None
            await former.close()

    async def next(self) -> Taken:
        """The next page, waited for."""
        return self._ahead() if self._read_ahead else await self._feed.next()

    def new_of(self, taken: Taken) -> tuple[Sequence[Record], Position | None]:
        """What of a page is new, and where that ends."""
        records, ends_at, after = behind(taken.records, self.after), taken.ends_at, self.after
        if ends_at is not None and after.is_position and ends_at <= after.position:
            ends_at = None  # read ahead, and settled by the former owner
        return records, ends_at

    async def done(self) -> None:
        """The last page came."""
        self.is_done = True
        await self._feed.close()

    def _ahead(self) -> Taken:
        """The next page that was read ahead. Its room is free: the ledger takes what it keeps of the page."""
        taken = self._read_ahead.popleft()
        if self._feed.room is not None:
            self._feed.room.share.change(-taken.records.held_bytes)
        return taken
