"""Count calls per operation and per user-agent tag."""

from __future__ import annotations

import msgspec

from shardway.local.http_messages import tag_of

TAGS_MAX = 1000
"""User agents and tags beyond this many are counted under the tag ``other``."""


class Count(msgspec.Struct):
    """The sums of one operation's calls since the start or the last reset."""

    calls: int = 0
    errors: int = 0
    """Calls answered with an error, or with nothing (a connection broken on order)."""
    records: int = 0
    """Records delivered (GetRecords, SubscribeToShard) or stored (PutRecord, PutRecords)."""
    response_bytes: int = 0
    """Bytes of response bodies."""


class Stats(msgspec.Struct):
    """A snapshot of the counts: ``operations`` has the sums of all clients, ``tags`` those of each ``tag/<name>`` that
    clients send.
    """

    operations: dict[str, Count]
    tags: dict[str, dict[str, Count]]

    def calls(self, operation: str, tag: str | None = None) -> int:
        """Return how often ``operation`` was called, by all clients or by the clients of one tag."""
        table = self.operations if tag is None else self.tags.get(tag, {})
        return table[operation].calls if operation in table else 0

    def records(self, operation: str, tag: str | None = None) -> int:
        """Return how many records ``operation`` moved, for all clients or for the clients of one tag."""
        table = self.operations if tag is None else self.tags.get(tag, {})
        return table[operation].records if operation in table else 0


class Counters:
    """The running counts of one server. They are used on the server's loop only."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again at zero."""
        self._counts: dict[tuple[str, str], Count] = {}
        self._tag_of: dict[bytes, str] = {}

    def of(self, operation: str, user_agent: bytes) -> Count:
        """Return the counts that a call of this operation is added to."""
        tag = self._tag_of.get(user_agent)
        if tag is None:
            tag = self._remember(user_agent)
        key = (operation, tag)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = Count()
        return count

    def _remember(self, user_agent: bytes) -> str:
        if len(self._tag_of) >= TAGS_MAX:
            return "other"
        tag = self._tag_of[user_agent] = tag_of(user_agent)
        return tag

    def snapshot(self) -> Stats:
        """Return the counts as they are now; clients without a tag are under ``""``."""
        operations: dict[str, Count] = {}
        tags: dict[str, dict[str, Count]] = {}
        for (operation, tag), count in sorted(self._counts.items()):
            total = operations.setdefault(operation, Count())
            total.calls += count.calls
            total.errors += count.errors
            total.records += count.records
            total.response_bytes += count.response_bytes
            tags.setdefault(tag, {})[operation] = msgspec.structs.replace(count)
        return Stats(operations, tags)
