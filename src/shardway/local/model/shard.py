"""A shard: its records, and its place in the lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model.sequence_numbers import COUNTER_MAX, compose, shard_base, shard_name
from shardway.local.model.shard_log import ShardLog

if TYPE_CHECKING:
    from collections.abc import Callable


class Shard:
    """A shard: its hash range, its sequence numbers, its parents and children, its records."""

    __slots__ = (
        "base",
        "children",
        "closed_ms",
        "created_ms",
        "created_s",
        "ending",
        "first_hash_key",
        "index",
        "last_hash_key",
        "log",
        "name",
        "parents",
        "starting",
        "watchers",
    )

    def __init__(
        self,
        index: int,
        hash_range: tuple[int, int],
        *,
        created_s: int,
        created_ms: int,
        parents: tuple[int, ...] = (),
    ) -> None:
        self.index = index
        self.name = shard_name(index)
        self.first_hash_key, self.last_hash_key = hash_range
        self.created_s = created_s
        """The second of creation in the shard's sequence numbers: it is later than that of the shard's parents, if need
        be in the future.
        """
        self.created_ms = created_ms
        self.parents = parents
        """The indexes of the shard's parents; after a merge, the parent that the call named first comes first."""
        self.children: list[int] = []
        self.closed_ms: int | None = None
        self.base = shard_base(index, created_s)
        self.starting = compose(self.base, 0, created_s)
        self.ending: int | None = None
        self.log = ShardLog()
        self.watchers: list[Callable[[], None]] = []
        """The functions to call when there is something new for the shard's subscriptions: records, the shard's end,
        the end of its stream.
        """

    def close(self, now_ms: int) -> None:
        """Close the shard: it takes no more records from ``now_ms`` on."""
        self.closed_ms = now_ms
        self.ending = compose(self.base, COUNTER_MAX, max(self.created_s, now_ms // 1000))
        self.notify()

    def notify(self) -> None:
        """Call the watchers: there is something to look at."""
        for wake in tuple(self.watchers):
            wake()

    def second_of(self, arrival_ms: int) -> int:
        """Return the second of arrival for sequence numbers: not before the shard's own second, which may lie ahead by
        a little.
        """
        return max(self.created_s, arrival_ms // 1000)

    def gone(self, horizon_ms: int) -> bool:
        """Return True when the shard was closed, and so all in it arrived, before the horizon of the retention."""
        return self.closed_ms is not None and self.closed_ms < horizon_ms

    def open_at(self, moment_ms: int) -> bool:
        """Return True when the shard took records at ``moment_ms``. At the moment of a reshard it is True for the
        closed shard and for its children.
        """
        return self.created_ms <= moment_ms and (self.closed_ms is None or self.closed_ms >= moment_ms)

    def hash_range(self) -> dict[str, str]:
        """Return the HashKeyRange member."""
        return {"StartingHashKey": str(self.first_hash_key), "EndingHashKey": str(self.last_hash_key)}

    def describe(self) -> dict[str, Any]:
        """Return the shard as DescribeStream and ListShards show it. Members without a value are absent, never null."""
        answer: dict[str, Any] = {"ShardId": self.name}
        for member, parent in zip(("ParentShardId", "AdjacentParentShardId"), self.parents, strict=False):
            answer[member] = shard_name(parent)
        answer["HashKeyRange"] = self.hash_range()
        numbers = {"StartingSequenceNumber": str(self.starting)}
        if self.ending is not None:
            numbers["EndingSequenceNumber"] = str(self.ending)
        answer["SequenceNumberRange"] = numbers
        return answer

    def describe_child(self) -> dict[str, Any]:
        """Return the shard as a member of its parent's ChildShards: all parents are named."""
        return {
            "ShardId": self.name,
            "ParentShards": [shard_name(parent) for parent in self.parents],
            "HashKeyRange": self.hash_range(),
        }
