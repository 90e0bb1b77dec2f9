"""From a partition key to the lane of the shard that will take it, remembered for the keys that come often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.hashkeys import HASH_KEY_MAX, ShardMap, hash_key
from penstock.errors import InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.batching.lane import Lane

KEYS_REMEMBERED_MAX = 65_536
PARTITION_KEY_CHARACTERS_MAX = 256
KEY_BYTES_MAX = 4 * PARTITION_KEY_CHARACTERS_MAX
"""In UTF-8."""


class Routes(dict[str, "Lane"]):
    """``routes[partition_key]`` is its lane. Raises InvalidRecordError for what is no partition key.

    ``lanes`` are in the order of the map's shards; keys that it has no shard for go to ``elsewhere``. Without a map
    all do.
    """

    __slots__ = ("_lanes", "_map", "elsewhere")

    def __init__(self, shards: ShardMap | None, lanes: Sequence[Lane], elsewhere: Lane) -> None:
        super().__init__()
        self._map = shards
        self._lanes = lanes
        self.elsewhere = elsewhere

    def __missing__(self, partition_key: str) -> Lane:
        lane = self.by_hash_key(checked_hash_key(partition_key))
        if len(self) >= KEYS_REMEMBERED_MAX:
            self.clear()
        self[partition_key] = lane
        return lane

    def by_hash_key(self, key: int) -> Lane:
        """The lane of the shard that takes this hash key."""
        if self._map is None:
            return self.elsewhere
        try:
            return self._lanes[self._map.index_for(key)]
        except LookupError:
            return self.elsewhere

    def lane_for(self, partition_key: str, explicit_hash_key: int | None) -> Lane:
        """The lane of a record; both keys are checked."""
        lane = self[partition_key]
        if explicit_hash_key is None:
            return lane
        return self.by_hash_key(explicit_hash_key)


def checked_hash_key(partition_key: str) -> int:
    """The hash key of a partition key. Raises InvalidRecordError if it is not one (AWS API reference, PutRecord)."""
    if not isinstance(partition_key, str):
        raise InvalidRecordError(f"a partition key is a str, not {type(partition_key).__name__}")
    if not 1 <= len(partition_key) <= PARTITION_KEY_CHARACTERS_MAX:
        raise InvalidRecordError(
            f"a partition key has 1 to {PARTITION_KEY_CHARACTERS_MAX} characters, not {len(partition_key)}"
        )
    try:
        return hash_key(partition_key)
    except UnicodeEncodeError:
        raise InvalidRecordError("a partition key has no UTF-8 form (lone surrogates)") from None


def checked_explicit(explicit_hash_key: int) -> int:
    """The explicit hash key itself. Raises InvalidRecordError if it is not one."""
    if not isinstance(explicit_hash_key, int) or not 0 <= explicit_hash_key <= HASH_KEY_MAX:
        raise InvalidRecordError("an explicit hash key is an int from 0 to 2**128-1")
    return explicit_hash_key
