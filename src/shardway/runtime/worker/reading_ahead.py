"""Shards are read ahead when their leases are on their way to this worker, or likely to come."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from shardway.core.leases.continuation import goes_on
from shardway.core.worker import events
from shardway.errors import OptionError
from shardway.runtime.background import emits_failure
from shardway.runtime.worker.sharded_stream import shard_id_of
from shardway.tasks import drop, give_up, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.log.feed_cursor import PageMeaning
    from shardway.model import Position
    from shardway.options.consumer import ConsumerOptions
    from shardway.runtime.background import Chores
    from shardway.runtime.feeds.polling import PollingFeed
    from shardway.runtime.shard.window_reading import WindowRead
    from shardway.runtime.worker.sharded_stream import StreamPart
    from shardway.tasks import Heard


class WarmUp:
    """The pages behind the stored checkpoint, bounded in bytes. Nothing of them is delivered here."""

    def __init__(
        self,
        feed: PollingFeed,
        bytes_max: int,
        on_warm: Callable[[], None],
        on_failed: Heard,
        window: WindowRead | None = None,
        *,
        begins: LeaseRow,
    ) -> None:
        """``on_warm`` is called, maybe more than once, when this worker could go on with the shard. ``on_failed`` hears
        of an error that repeating does not mend: nothing more is read then. ``window``: it has to be known before.
        ``begins``: the lease as it was when the feed was opened.
        """
        self.feed = feed
        self._begins = begins
        self._first_position: Position | None = None  # The first position that was read.
        self.window = window
        self.pages: deque[PageMeaning] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._share = None if feed.room is None else feed.room.share
        self._on_warm, self._on_failed = on_warm, on_failed
        self._room = asyncio.Event()
        self._read_enough = False
        self._task = spawn(self._run(), on_failed)
        self._window_task = None if window is None else spawn(self._when_known(window), on_failed)

    def leads_to(self, row: LeaseRow) -> bool:
        """True where what was read has all that follows the lease as it is now. False: the shard is to be read anew."""
        return goes_on(self._begins, row, self._first_position)

    def drop(self, checkpoint: Checkpoint) -> None:
        """Drop what lies before the checkpoint, which the owner has stored."""
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
        await give_up(*(task for task in (self._task, self._window_task) if task is not None))

    async def _run(self) -> None:
        while True:
            taken = await self.feed.next()
            if self.window is not None:
                self.window.saw(taken)
            if self._first_position is None:
                self._first_position = taken.records.position(0) if len(taken.records) else taken.ends_at
            if len(taken.records) or taken.ends_at is not None or taken.ended:
                self.pages.append(taken)
                self._hold(taken.records.held_bytes)
            if not taken.millis_behind_latest or taken.ended or self._bytes >= self._bytes_max:
                self._read_enough = True
                self._check_warm()
            if taken.ended:
                return
            while self._bytes >= self._bytes_max:
                self._room.clear()
                await self._room.wait()

    async def _when_known(self, window: WindowRead) -> None:
        await window.over()
        if window.failure is None:
            self._check_warm()
        else:
            drop(self._task)
            self._on_failed(window.failure)

    def _hold(self, held_bytes: int) -> None:
        self._bytes += held_bytes
        if self._share is not None:
            self._share.change(held_bytes)

    def _check_warm(self) -> None:
        if self._read_enough and (self.window is None or self.window.is_known):
            self._on_warm()


class ReadingAhead:
    """Begins warm-ups, keeps them until their shards are held, and drops those whose shards do not come."""

    def __init__(
        self,
        parts: Mapping[str | None, StreamPart],
        options: ConsumerOptions,
        chores: Chores,
        *,
        on_event: Callable[[Any], None],
        handle: Callable[[events.Event], None],
    ) -> None:
        """``handle`` takes the events of shards that are warm, or cannot be read."""
        self._parts = parts
        self._options = options
        self._chores = chores
        self._on_event = on_event
        self._handle = handle
        self._warm_ups: dict[str, WarmUp] = {}
        self._end_tasks: set[asyncio.Task[None]] = set()

    def come(self, row: LeaseRow) -> None:
        """Read a shard ahead whose lease is on its way here. If it cannot be read, it is left to others for a while."""
        self.discard(row.key)
        follows = f"it is left to others for {self._options.leases.failover_s:.0f} s"
        self._begin(
            row,
            follows,
            on_warm=lambda: self._handle(events.WarmUpDone(row.key)),
            leave_it=lambda _: self._handle(events.WarmUpFailed(row.key)),
        )

    def expect(self, row: LeaseRow) -> None:
        """Read a shard ahead that is likely to be this worker's soon, or whose delivery waits for a while."""
        if row.key not in self._warm_ups and not row.ended:
            self._begin(
                row,
                "it is read when it is held",
                on_warm=lambda: None,
                leave_it=lambda _: self.discard(row.key),
            )

    def _begin(
        self,
        row: LeaseRow,
        follows: str,
        *,
        on_warm: Callable[[], None],
        leave_it: Callable[[BaseException], None],
    ) -> None:
        """``follows`` says in words what is done with a shard that cannot be read, and ``leave_it`` does it."""
        part = self._parts[row.stream]
        window, bytes_max = part.stream.open_window(row), self._options.times.warm_bytes_max
        where = part.name, shard_id_of(row.key)
        failed = emits_failure(self._on_event, where, "reading ahead of the handoff", follows, leave_it)
        try:
            feed = part.stream.open_feed(row)
        except OptionError as error:
            self._chores.failed(error)
            return
        self._warm_ups[row.key] = WarmUp(feed, bytes_max, on_warm, failed, window, begins=row)

    def follow(self, key: str, checkpoint: Checkpoint) -> None:
        """Drop what the owner of a shard has settled: it has stored progress."""
        if (warming := self._warm_ups.get(key)) is not None:
            warming.drop(checkpoint)

    async def taken(self, row: LeaseRow) -> WarmUp | None:
        """Return what was read ahead of a shard that this worker begins to hold; it reads no further. None: nothing
        was, or what was read does not lead on from where the lease stands.
        """
        warming = self._warm_ups.get(row.key)
        if warming is None:
            return None
        if not warming.leads_to(row):
            self.discard(row.key)
            return None
        del self._warm_ups[row.key]
        await warming.stop()
        return warming

    def discard(self, key: str) -> None:
        """Stop reading a shard ahead, and drop what was read."""
        # It is out of sight at once: another warm-up of the same shard may begin before this one has ended.
        if (warming := self._warm_ups.pop(key, None)) is not None:
            task = spawn(_end(warming), self._chores.failed)
            self._end_tasks.add(task)
            task.add_done_callback(self._end_tasks.discard)

    async def close(self) -> None:
        """End all warm-ups: nothing is read ahead any more."""
        for key in list(self._warm_ups):
            self.discard(key)
        if self._end_tasks:
            await asyncio.wait(self._end_tasks)


async def _end(warming: WarmUp) -> None:
    await warming.stop()
    if warming.window is not None:
        await warming.window.stop()
    if warming.feed.room is not None:
        warming.feed.room.share.leave()
    await warming.feed.close()
