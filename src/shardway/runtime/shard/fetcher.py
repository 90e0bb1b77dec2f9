"""The fetcher reads the pages of a shard one after another, as far as there is room, and gives them to the machine of
the shard.

It is one task, which lives as long as the tenure does. Whatever stirs the shard wakes it: room in the ledger, a lease
that is confirmed again, the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from shardway.core.ledger.page import payload_bytes_of_all
from shardway.core.shard import events
from shardway.errors import ShardReadError, ShardwayError
from shardway.tasks import spawn
from shardway.waiting import is_cancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from shardway.core.log.feed_cursor import PageMeaning
    from shardway.core.log.pages import ChildShard
    from shardway.model import Position, Record
    from shardway.runtime.feeds.pages import Pages
    from shardway.runtime.shard.driver import ShardDriver
    from shardway.runtime.shard.window_reading import WindowRead

ROOM_LOOK_S = 1.0
"""The longest pause before a fetcher that may not fetch looks again whether it may."""


class Fetcher:
    """Fetches the pages of one shard in one tenure."""

    def __init__(self, pages: Pages, driver: ShardDriver) -> None:
        self.millis_behind_latest: int | None = None
        """The time by which the last read was behind the shard's tip, in milliseconds; 0 at the tip, None: it is not
        known yet.
        """
        self.children: tuple[ChildShard, ...] = ()
        """The children of a shard that has ended."""
        self._loop = asyncio.get_running_loop()
        self.read_at_s = self._loop.time()
        """The time at which the last page came (the loop's clock); before the first one, when reading began. A read
        that fails leaves it as it is, so the time since then shows a shard that cannot be read, which
        `millis_behind_latest` does not.
        """
        self._pages = pages
        self._window = pages.window
        self._driver = driver

    async def run(self) -> None:
        """Fetch, as far as there is room, until the tenure ends. Raises ShardReadError."""
        driver = self._driver
        try:
            await self._fetch_all()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            named = error if isinstance(error, ShardwayError) else type(error).__name__
            driver.failure = ShardReadError(
                f"{driver.stream}, {driver.shard_id}: reading has ended: {named}",
                stream=driver.stream,
                shard_id=driver.shard_id,
            )
            raise driver.failure from error
        finally:
            if self._window is not None:
                await self._window.stop()

    async def _fetch_all(self) -> None:
        """Fetch from one place after another, as the program seeks."""
        async with self._window_read(), self._pages.fetched_by_this_task() as pages:
            while self._may_fetch() is not None:
                with pages.until_sought():
                    await pages.go_on()
                    await self._fetch(pages)

    async def _fetch(self, pages: Pages) -> None:
        while not pages.is_sought and (may := self._may_fetch()) is not None:
            if pages.is_done:
                await self._driver.until_stirred(None)
            elif not may:
                await self._driver.until_stirred(ROOM_LOOK_S)
            else:
                taken = await pages.next()
                self._page_came(taken, *pages.new_of(taken))
                if taken.ended:
                    await self._all_fetched(taken.children)
                    await pages.done()

    def _may_fetch(self) -> bool | None:
        """True when the fetcher may fetch; False while nothing should be fetched, None: never again."""
        driver = self._driver
        if driver.is_over:
            return None
        with driver.lock:
            has_room = driver.ledger.has_room
        if not has_room or not driver.may_deliver():
            return False
        if self._window is not None:
            self._window.check()
        return not driver.machine.is_kept_waiting

    def _page_came(self, taken: PageMeaning, records: Sequence[Record], ends_at: Position | None) -> None:
        driver = self._driver
        self.millis_behind_latest, self.read_at_s = taken.millis_behind_latest, self._loop.time()
        if driver.counts is not None:
            driver.counts.fetched(len(taken.records), payload_bytes_of_all(taken.records))
        driver.handle(self._pages.admission.read(taken, records, ends_at))

    @contextlib.asynccontextmanager
    async def _window_read(self) -> AsyncIterator[None]:
        """Tell the machine, while the block runs, when the window of duplicates is known."""
        window = self._window
        if window is None or window.is_known:
            yield
            return
        knowing = spawn(
            self._until_known(window), self._driver.stops_by_failure("the reading of the window of duplicates")
        )
        try:
            yield
        finally:
            knowing.cancel()

    async def _until_known(self, window: WindowRead) -> None:
        await window.over()
        # Where the reading of the window has failed, this wakes the task that fetches, which raises the error.
        self._driver.handle(events.WindowKnown())

    async def _all_fetched(self, children: tuple[ChildShard, ...]) -> None:
        self.children = children
        await self._driver.listeners.fetched(children)
        if self._window is not None and self._driver.machine.keeps_pages:
            await self._window.over()
            self._window.check()
            self._driver.handle(events.WindowKnown())
        self._driver.handle(events.Fetched())
