"""Fills the ledger of a shard with what is fetched, as far as there is room, up to the shard's end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, ShardReadError
from penstock.runtime.shard.fetching import Fetching
from penstock.runtime.waiting import is_cancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from penstock.core.feeding.cursor import Taken
    from penstock.core.feeding.pages import ChildShard
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.model import Position, Record
    from penstock.runtime.feeds import FanOutFeed, PollingFeed
    from penstock.runtime.shard.admitting import Admission
    from penstock.runtime.shard.ledgers import Ledgers


class Filling:
    """Puts the pages of one tenure into the ledger: `run` in a task of its own; `seek` makes it go on elsewhere."""

    def __init__(
        self,
        feed: PollingFeed | FanOutFeed,
        read_ahead: Iterable[Taken],
        after: Checkpoint,
        ledgers: Ledgers,
        admission: Admission,
        *,
        where: tuple[str, str],
        may: Callable[[], bool | None],
        pause: Callable[[float | None], Awaitable[None]],
        on_new: Callable[[], None],
        on_settled: Callable[[], None],
        on_end: Callable[[tuple[ChildShard, ...]], Awaitable[None]] | None,
    ) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before ``after``. ``where``: stream and
        shard. ``may()``: False while nothing should be fetched, None: never again. ``pause``: waits until something has
        happened, or so long. ``on_new``: there are records to be handed out; ``on_settled``: some of what came may be
        settled. ``on_end`` is awaited at the shard's end, before the ledger is told of it.
        """
        self.millis_behind_latest: int | None = None
        """How old the shard's newest record was when it was read last; 0 at the tip, None: not told yet."""
        self.read_at_s = asyncio.get_running_loop().time()
        """When the last page came (the loop's clock); before the first one, when reading began. A read that fails
        leaves it as it is, so the time since then shows a shard that cannot be read, which the figure above does not.
        """
        self.children: tuple[ChildShard, ...] = ()
        """The children of a shard that has ended."""
        self._now_s = asyncio.get_running_loop().time
        self._ledgers = ledgers
        self._room = feed.room
        self._admission = admission
        self._where = where
        self._may = may
        self._on_new, self._on_settled, self._on_end = on_new, on_settled, on_end
        self._fetching = Fetching(
            feed, read_ahead, after, may=self._may_fetch, admit=self._admit, pause=pause, on_end=self._fetched
        )
        admission.listen(self._window_known)

    @property
    def after(self) -> Checkpoint:
        """Records up to here are not handed out."""
        return self._fetching.after

    async def run(self) -> None:
        """Fetch until ``may`` returns None. Raises ShardReadError."""
        try:
            await self._fetching.run()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            told = error if isinstance(error, PenstockError) else type(error).__name__
            stream, shard_id = self._where
            raise ShardReadError(
                f"{stream}, {shard_id}: reading has ended: {told}", stream=stream, shard_id=shard_id
            ) from error
        finally:
            await self._admission.close()

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``, once the ledger is another one."""
        feed.use_room(self._room)
        self._fetching.seek(feed, after)

    def forget(self) -> None:
        """The shard is about to be read from another place on."""
        self._admission.forget()

    def stop(self) -> None:
        """Nothing more is handed out."""
        self._admission.stop()
        if self._room is not None:
            self._room.share.leave()

    def _may_fetch(self) -> bool | None:
        may = self._may()
        if may is None:
            return None
        return may and self._ledgers.current.has_room and not self._admission.waits

    def _admit(self, taken: Taken, records: Sequence[Record], ends_at: Position | None) -> None:
        self.millis_behind_latest, self.read_at_s = taken.millis_behind_latest, self._now_s()
        if self._admission.admit(self._ledgers.current, taken, records, ends_at, self._now_s()):
            self._on_settled() if self._admission.settles else self._on_new()

    def _window_known(self) -> None:
        self._admission.go_on(self._ledgers.current, self._now_s())
        self._on_settled()

    async def _fetched(self, children: tuple[ChildShard, ...]) -> None:
        self.children = children
        if self._on_end is not None:
            await self._on_end(children)
        await self._admission.over(self._ledgers.current, self._now_s)
        self._ledgers.current.end()
        self._on_settled()
