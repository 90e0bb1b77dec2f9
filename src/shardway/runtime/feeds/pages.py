"""The pages of one tenure come one after another, from the place on that was sought last."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.page import behind
from shardway.runtime.feeds.admission import Admission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from shardway.core.log.feed_cursor import FeedCursor, PageMeaning
    from shardway.model import Position, Record
    from shardway.runtime.feeds.fan_out import FanOutFeed
    from shardway.runtime.feeds.polling import PollingFeed
    from shardway.runtime.shard.window_reading import WindowRead


class Pages:
    """The pages of one tenure. One task asks for them (`fetched_by_this_task`); `seek` wakes it, whatever it
    waits for.
    """

    def __init__(
        self, feed: PollingFeed | FanOutFeed, read_ahead: Iterable[PageMeaning] = (), admission: Admission | None = None
    ) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before where the tenure begins.
        ``admission`` says what of a page is delivered.
        """
        self.admission = admission or Admission()
        """The part that calls the program's functions on the records."""
        self.stream, self.shard_id = feed.stream, feed.shard_id
        self.room = feed.room
        """The shard's part of the consumer's buffer."""
        self.after = Checkpoint.TRIM_HORIZON
        """The checkpoint up to which records are not new."""
        self.is_done = False
        """True when there are no more pages, unless the program seeks."""
        self._feed = feed
        self._read_ahead = deque(read_ahead)
        self._running_task: asyncio.Task[Any] | None = None
        self._sought_feed: PollingFeed | FanOutFeed | None = None

    @property
    def window(self) -> WindowRead | None:
        """The window of duplicates; None: duplicates are not left out."""
        return self.admission.window

    def begin(self, after: Checkpoint) -> None:
        """Begin the tenure: records up to ``after`` are not new."""
        self.after = after

    @property
    def cursor(self) -> FeedCursor:
        """The cursor of what is fetched since the last `seek`."""
        return (self._sought_feed or self._feed).cursor

    @property
    def is_sought(self) -> bool:
        """True from a call of `seek` to the next call of `go_on`."""
        return self._sought_feed is not None

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``."""
        while self._read_ahead:
            self._next_ahead()
        feed.use_room(self.room)
        self.after = after
        self.is_done = False
        is_cancelled = self.is_sought
        self._sought_feed = feed
        if self._running_task is not None and not is_cancelled:
            self._running_task.cancel()

    @contextlib.asynccontextmanager
    async def fetched_by_this_task(self) -> AsyncIterator[Pages]:
        """Let the current task ask for pages in the block. At its end the feed is closed."""
        self._running_task = asyncio.current_task()
        try:
            yield self
        finally:
            self._running_task = None
            await self._feed.close()

    @contextlib.contextmanager
    def until_sought(self) -> Iterator[None]:
        """End what is waited for in the block when the program seeks; the block is left then."""
        try:
            yield
        except asyncio.CancelledError:
            # A seek cancels the task to wake it. If the task's owner cancels it too, at the same time, the owner's
            # cancellation counts (`uncancel` leaves a request).
            if self._running_task is None or not self.is_sought or self._running_task.uncancel():
                raise

    async def go_on(self) -> None:
        """Go on from the place that was sought, if one was."""
        if self._sought_feed is not None:
            former, self._feed, self._sought_feed = self._feed, self._sought_feed, None
            await former.close()

    async def next(self) -> PageMeaning:
        """Wait for the next page, and return it."""
        return self._next_ahead() if self._read_ahead else await self._feed.next()

    def new_of(self, taken: PageMeaning) -> tuple[Sequence[Record], Position | None]:
        """Return what of a page is new, and where that ends."""
        records, ends_at, after = behind(taken.records, self.after), taken.ends_at, self.after
        if ends_at is not None and after.is_position and ends_at <= after.position:
            ends_at = None  # It was read ahead, and the former owner has settled it.
        return records, ends_at

    async def done(self) -> None:
        """Close the feed: the last page came."""
        self.is_done = True
        await self._feed.close()

    def _next_ahead(self) -> PageMeaning:
        """Return the next page that was read ahead. Its room is free: the ledger takes what it keeps of the page."""
        taken = self._read_ahead.popleft()
        if self.room is not None:
            self.room.share.change(-taken.records.held_bytes)
        return taken
