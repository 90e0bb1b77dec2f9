"""Routes lead from a partition key to the lane of the shard that will take it. They remember the keys that come
often.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from shardway.core.hashkeys import HASH_KEY_MAX, hash_key, hash_key_bytes
from shardway.errors import InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.hashkeys import ShardMap
    from shardway.core.producer.lane import Lane

KEYS_REMEMBERED_MAX = 65_536
KEY_REMEMBERED_CHARACTERS_MAX = 64
"""The most characters of a key that is remembered: what is remembered counts for no bound."""
PARTITION_KEY_CHARACTERS_MAX = 256
KEY_BYTES_MAX = 4 * PARTITION_KEY_CHARACTERS_MAX
"""The most bytes of a partition key in UTF-8."""
_TEXT_TYPES = {str}


class Routes:
    """``lanes[routes[partition_key]]`` is the lane of a key. Raises InvalidRecordError for what is no partition key.

    The first lanes are those of the map's shards; the last is ``unmapped``, for keys that there is no shard for, and
    without a map for all keys.
    """

    __slots__ = ("_firsts", "_lasts", "_passed_over", "known", "lanes", "same")

    def __init__(self, shards: ShardMap | None, lanes: Sequence[Lane], unmapped: Lane) -> None:
        self.known: dict[str, int] = {}
        """The numbers of lanes by partition key, as far as they are remembered."""
        self.same: dict[str, str] = {}
        """The remembered keys that are ASCII, by themselves: one object of equal keys is in the processor's cache,
        found by its address.
        """
        self.lanes = [*lanes, unmapped]
        taking = () if shards is None else shards.shards
        self._firsts = [_hash_bytes(shard.first_hash_key) for shard in taking]
        self._lasts = [_hash_bytes(shard.last_hash_key) for shard in taking]
        self._passed_over = 0  # The number of keys that were not remembered since the memory is full.

    def __getitem__(self, partition_key: str) -> int:
        number = self.known.get(partition_key)
        if number is None:
            number = self.by_hash(_hash_bytes(checked_hash_key(partition_key)))
            self._remember(partition_key, number)
        return number

    def numbers(self, partition_keys: Sequence[str]) -> Sequence[int]:
        """Return the numbers of the lanes of many keys, which were checked."""
        if len(partition_keys) > 1:
            try:
                return itemgetter(*partition_keys)(self.known)  # type: ignore[no-any-return]
            except KeyError:
                pass
        found: list[Any] = list(map(self.known.get, partition_keys))
        if None in found:
            self._find(partition_keys, found)
        return found

    def _find(self, partition_keys: Sequence[str], found: list[Any]) -> None:
        """Put a number where None is. It is `by_hash` and `_remember`, unrolled for keys that never come again."""
        firsts, lasts, unmapped = self._firsts, self._lasts, len(self.lanes) - 1
        known, same = self.known, self.same
        left = KEYS_REMEMBERED_MAX - len(known)
        for place, number in enumerate(found):
            if number is None:
                key = partition_keys[place]
                hashed = hash_key_bytes(key)
                number = bisect_right(firsts, hashed) - 1
                if number < 0 or hashed > lasts[number]:
                    number = unmapped
                found[place] = number
                if left > 0 and len(key) <= KEY_REMEMBERED_CHARACTERS_MAX:
                    left -= 1
                    known[key] = number
                    if key.isascii():
                        same[key] = key
                else:
                    self._remember(key, number)

    def by_hash(self, key: bytes) -> int:
        """Return the number of the lane of a hash key: 16 bytes, the first byte highest."""
        number = bisect_right(self._firsts, key) - 1
        return number if number >= 0 and key <= self._lasts[number] else len(self.lanes) - 1

    def number_for(self, partition_key: str, explicit_hash_key: int | None) -> int:
        """Return the number of the lane of a record; its key is checked."""
        number = self[partition_key]
        return number if explicit_hash_key is None else self.by_hash(_hash_bytes(explicit_hash_key))

    def check(self, partition_keys: Sequence[str]) -> tuple[Sequence[str], int]:
        """Return the keys as plain text, and how many bytes they take of the buffer's bound. The keys are the objects
        that are remembered, if all of them are.

        Raises InvalidRecordError if one of them is no partition key.
        """
        if len(partition_keys) > 1:
            try:
                same: Sequence[str] = itemgetter(*partition_keys)(self.same)
                return same, len("".join(same))
            except (KeyError, TypeError):
                pass
        return check_keys(partition_keys)

    def _remember(self, partition_key: str, number: int) -> None:
        """Keep a key: where keys never come again, forgetting all at each filling costs half."""
        if len(partition_key) > KEY_REMEMBERED_CHARACTERS_MAX:
            return
        if len(self.known) < KEYS_REMEMBERED_MAX:
            self.known[partition_key] = number
            if partition_key.isascii():
                self.same[partition_key] = partition_key
            return
        self._passed_over += 1
        if self._passed_over >= KEYS_REMEMBERED_MAX:
            self._passed_over = 0
            self.known.clear()
            self.same.clear()


def _hash_bytes(key: int) -> bytes:
    return key.to_bytes(16, "big")


def check_keys(partition_keys: Sequence[str]) -> tuple[Sequence[str], int]:
    """Return the keys as plain text, and how many bytes they take of the buffer's bound. Raises InvalidRecordError if
    one is no partition key.
    """
    try:
        joined = "".join(partition_keys)
        lengths = set(map(len, partition_keys))
        usual = joined.isascii() and 0 not in lengths and max(lengths, default=0) <= PARTITION_KEY_CHARACTERS_MAX
        if usual and set(map(type, partition_keys)) <= _TEXT_TYPES:
            return partition_keys, len(joined)
    except TypeError:
        pass
    keys = [plain_key(key) for key in partition_keys]
    return keys, keys_bytes(keys)


def keys_bytes(partition_keys: Sequence[str]) -> int:
    """Return how many bytes these keys take of the buffer's bound."""
    joined = "".join(partition_keys)
    return len(joined) if joined.isascii() else sum(map(held_by_key, partition_keys))


def held_by_key(partition_key: str) -> int:
    """Return how many bytes a key takes of the buffer's bound: its characters as Python keeps them, and in UTF-8, which
    Python keeps beside them once it was asked for.
    """
    if partition_key.isascii():
        return len(partition_key)
    highest = max(partition_key)
    return len(partition_key) * (3 if highest < "\u0100" else 5 if highest < "\U00010000" else 8)


def plain_key(partition_key: str) -> str:
    """Return a partition key of exactly the type str. Raises InvalidRecordError if it is none (AWS API reference,
    PutRecord).

    A subclass (numpy's, or an Enum) is text that an encoder may not know how to write.
    """
    if not isinstance(partition_key, str):
        raise InvalidRecordError(f"a partition key is a str, not {type(partition_key).__name__}")
    partition_key = str.__str__(partition_key)  # A call of str() would ask the subclass.
    if not (partition_key.isascii() and 1 <= len(partition_key) <= PARTITION_KEY_CHARACTERS_MAX):
        checked_hash_key(partition_key)
    return partition_key


def checked_hash_key(partition_key: str) -> int:
    """Return the hash key of a partition key. Raises InvalidRecordError if it is none (AWS API reference,
    PutRecord).
    """
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
    """Return the explicit hash key as a plain int. Raises InvalidRecordError if it is none."""
    if not isinstance(explicit_hash_key, int) or not 0 <= explicit_hash_key <= HASH_KEY_MAX:
        raise InvalidRecordError("an explicit hash key is an int from 0 to 2**128-1")
    return int.__index__(explicit_hash_key)
