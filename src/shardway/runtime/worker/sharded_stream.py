"""A stream as a worker sees it, and how the lease table names its leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shardway.core.leases.lease_key import LeaseKey
from shardway.model import ListedShard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.leases import Checkpoint, LeaseRow
    from shardway.core.leases.lease_key import StreamKey
    from shardway.core.leases.stream_mark import StreamMark
    from shardway.runtime.feeds.fan_out import FanOutFeed
    from shardway.runtime.feeds.polling import PollingFeed
    from shardway.runtime.shard.window_reading import WindowRead


class ShardedStream(Protocol):
    """A stream whose shards a worker reads."""

    @property
    def name(self) -> str:
        """The stream's name or ARN, as messages show it."""

    @property
    def now_s(self) -> float:
        """The service's time, in epoch seconds, as its answers have shown it."""

    async def list_shards(self) -> Sequence[ListedShard]:
        """Return all shards that the retention still covers."""

    def start_ms(self, checkpoint: Checkpoint) -> int | None:
        """Return the time (epoch milliseconds) at which a lease begins that stands at this checkpoint since now; None:
        no time says that.
        """

    def open_feed(self, row: LeaseRow) -> PollingFeed:
        """Return a feed that reads a lease's shard from its checkpoint on. `shard_id_of` says which shard that is.

        Raises OptionError for a lease that begins at a time which is not known.
        """

    def promote(self, feed: PollingFeed) -> PollingFeed | FanOutFeed:
        """Return the feed that goes on, while the shard is held, from where a feed that polls has come to."""

    def open_window(self, row: LeaseRow) -> WindowRead | None:
        """Return what reads the window of a shard's duplicates again, where duplicates are left out; else None."""


@dataclass(frozen=True, kw_only=True)
class StreamPart:
    """One of the streams that a worker reads, and how the lease table names it."""

    stream: ShardedStream
    mark: StreamMark | None = None
    """The mark of the stream among all that ever had its name; None: it is not known, or lease keys name it."""
    key: StreamKey | None = None
    """The key by which lease keys name the stream, where the table is for several streams; None: the table is for this
    one.
    """

    @property
    def name(self) -> str:
        """The stream's name or ARN, as messages show it."""
        return self.stream.name

    @property
    def text(self) -> str | None:
        """The text that the leases of this stream have as ``streamName``."""
        return None if self.key is None else self.key.text

    def key_of(self, shard_id: str) -> str:
        """Return the key of a shard's lease."""
        return LeaseKey(shard_id, self.key).text


def shard_id_of(key: str) -> str:
    """Return the id of the shard that a lease is for."""
    return LeaseKey.parse(key).shard_id
