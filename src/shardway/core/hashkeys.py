"""A partition key has a hash key, and a hash key belongs to the shard that takes it.

A record's hash key is the MD5 of its partition key in UTF-8, read as an unsigned 128-bit number with the
first byte highest; an explicit hash key takes its place (AWS API reference, PutRecord). A shard takes the
hash keys of one inclusive range.
"""

from __future__ import annotations

import hashlib
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from shardway.model import HASH_KEY_MAX, ListedShard

if TYPE_CHECKING:
    from collections.abc import Iterable

try:
    # The interpreter's own: for a short text it takes half the time of hashlib's, which goes through OpenSSL.
    from _md5 import md5 as _md5  # type: ignore[import-not-found]
except ImportError:  # Not every interpreter is built with it.
    _md5 = partial(hashlib.md5, usedforsecurity=False)

__all__ = ["HASH_KEY_MAX", "ShardMap", "even_ranges", "hash_key", "parse_hash_key"]

_DECIMAL_DIGITS_MAX = len(str(HASH_KEY_MAX))


def hash_key(partition_key: str) -> int:
    """Return the 128-bit hash key of a partition key.

    Raises ``UnicodeEncodeError`` (a ValueError) for a key that has no UTF-8 form, which AWS does not take
    either.
    """
    return int.from_bytes(_md5(partition_key.encode()).digest(), "big")


def hash_key_bytes(partition_key: str) -> bytes:
    """Return the hash key as 16 bytes, the first one highest: they compare as the numbers do, and cost less."""
    digest: bytes = _md5(partition_key.encode()).digest()
    return digest


def parse_hash_key(text: str) -> int:
    """Return the hash key that AWS's decimal form stands for: ``0``, or digits without a leading zero.

    Raises ValueError for everything else, also above 2¹²⁸−1. Python's ``int`` alone would take signs, spaces,
    underscores and foreign digits.
    """
    if (
        text.isascii()
        and text.isdigit()
        and len(text) <= _DECIMAL_DIGITS_MAX
        and (text == "0" or text[0] != "0")
        and (number := int(text)) <= HASH_KEY_MAX
    ):
        return number
    raise ValueError("an explicit hash key is a decimal number from 0 to 2**128-1, with no sign and no leading zero")


def even_ranges(shard_count: int) -> list[tuple[int, int]]:
    """Return the inclusive hash ranges of a new stream with that many shards, as CreateStream deals them out.

    All are of equal size, but for the last, which takes the remainder too.
    """
    if shard_count < 1:
        raise ValueError("a stream has at least one shard")
    size = (HASH_KEY_MAX + 1) // shard_count
    firsts = [size * number for number in range(shard_count)]
    return [(first, first + size - 1) for first in firsts[:-1]] + [(firsts[-1], HASH_KEY_MAX)]


class ShardMap:
    """The shards that take records now, by hash range.

    Closed shards are left out, and so are shards whose children are listed (a listing that was made during a
    reshard may still show a parent as open). The ranges may have holes, but must not overlap: ValueError.
    """

    __slots__ = ("_firsts", "shards")

    def __init__(self, shards: Iterable[ListedShard]) -> None:
        listed = list(shards)
        parents = {parent for shard in listed for parent in shard.parents}
        taking = [shard for shard in listed if not shard.closed and shard.shard_id not in parents]
        taking.sort(key=lambda shard: shard.first_hash_key)
        for left, right in pairwise(taking):
            if left.last_hash_key >= right.first_hash_key:
                raise ValueError(f"{left.shard_id} and {right.shard_id} are both open, and their hash ranges overlap")
        self.shards: tuple[ListedShard, ...] = tuple(taking)
        """The shards in the order of their ranges."""

    def __len__(self) -> int:
        return len(self.shards)
