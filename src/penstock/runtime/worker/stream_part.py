"""A stream as a worker sees it: whose shards there are, and how one of them is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.core.leases.row import LeaseKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.leases import LeaseRow
    from penstock.core.leases.row import StreamKey, StreamMark
    from penstock.model import Shard
    from penstock.runtime.feeds import FanOutFeed, PollingFeed
    from penstock.runtime.shard.window_reading import WindowRead


class ShardedStream(Protocol):
    """A stream of which a worker reads shards."""

    @property
    def name(self) -> str:
        """The stream's name or ARN, as messages show it."""

    async def list_shards(self) -> Sequence[Shard]:
        """All shards that the retention still covers."""

    def open_feed(self, row: LeaseRow) -> PollingFeed:
        """Read a lease's shard from its checkpoint on. `shard_id_of` says which shard that is."""

    def promote(self, feed: PollingFeed) -> PollingFeed | FanOutFeed:
        """Make of a feed that polls the one that is used while the shard is held."""

    def open_window(self, row: LeaseRow) -> WindowRead | None:
        """Read the window of a shard's duplicates again, where they are left out."""


@dataclass(frozen=True, kw_only=True)
class StreamPart:
    """One of the streams that a worker reads, and how the lease table names it."""

    stream: ShardedStream
    mark: StreamMark | None = None
    """Which stream it is among all that ever had its name; None: it is not known, or lease keys name it."""
    key: StreamKey | None = None
    """As lease keys name it, where the table is for several streams; None: the table is for this one."""

    @property
    def name(self) -> str:
        """The stream's name or ARN, as messages show it."""
        return self.stream.name

    @property
    def text(self) -> str | None:
        """What the leases of this stream have as ``streamName``."""
        return None if self.key is None else self.key.text

    def key_of(self, shard_id: str) -> str:
        """The key of a shard's lease."""
        return LeaseKey(shard_id, self.key).text


def shard_id_of(key: str) -> str:
    """The shard that a lease is for."""
    return LeaseKey.parse(key).shard_id
