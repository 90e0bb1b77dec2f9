"""Find the splits and merges that give shards of equal width, as UpdateShardCount does to a stream.

The service goes through the target ranges from the lowest: it splits the shard that reaches over the end of the
range, then merges the pieces that lie in the range, two at a time. Going from four shards to three it makes, in this
order, 4 and 5 from 1, 6 from 0 and 4, 7 and 8 from 2, 9 from 5 and 7, and 10 from 8 and 3. (The service was seen to
do so; users of connectors shared it.)
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

from shardway.local.model.stream import even_ranges
from shardway.model import HASH_KEY_MAX


class Piece(NamedTuple):
    """An open shard: its index and its inclusive hash range."""

    shard_index: int
    first: int
    last: int


def scale(pieces: list[Piece], target: int, next_index: int) -> list[Any]:
    """Return the stages of a resharding from ``pieces`` (they cover the hash space, in order) to ``target`` even
    shards.

    Each stage is (indexes to close, [(parents, first hash key, last hash key)]); the shards made get the indexes from
    ``next_index`` on.
    """
    return _Plan(pieces, next_index).scale(target)


class _Plan:
    def __init__(self, pieces: list[Piece], next_index: int) -> None:
        self._pieces_left = list(reversed(pieces))
        self._lasts = [piece.last for piece in pieces]
        self._next_index = next_index
        self._stages: list[Any] = []

    def scale(self, target: int) -> list[Any]:
        for _, wanted in even_ranges(target):
            inside = []
            last = self._snap(wanted, target)
            while self._pieces_left and self._pieces_left[-1].last <= last:
                inside.append(self._pieces_left.pop())
            if self._pieces_left and self._pieces_left[-1].first <= last:
                lower, upper = self._split(self._pieces_left.pop(), last)
                inside.append(lower)
                self._pieces_left.append(upper)
            while len(inside) > 1:
                inside[:2] = [self._merge(inside[0], inside[1])]
        return self._stages

    def _snap(self, wanted: int, target: int) -> int:
        """Return the end of a target range, or the end of a shard that differs from it by rounding only."""
        if wanted == HASH_KEY_MAX:
            return wanted
        at = bisect_left(self._lasts, wanted - target)
        near = at < len(self._lasts) and self._lasts[at] <= wanted + target
        return self._lasts[at] if near else wanted

    def _new_piece(self, parents: list[int], first: int, last: int) -> tuple[Piece, Any]:
        piece = Piece(self._next_index, first, last)
        self._next_index += 1
        return piece, (parents, str(first), str(last))

    def _split(self, piece: Piece, last: int) -> tuple[Piece, Piece]:
        lower, lower_birth = self._new_piece([piece.shard_index], piece.first, last)
        upper, upper_birth = self._new_piece([piece.shard_index], last + 1, piece.last)
        self._stages.append(([piece.shard_index], [lower_birth, upper_birth]))
        return lower, upper

    def _merge(self, lower: Piece, upper: Piece) -> Piece:
        merged, birth = self._new_piece([lower.shard_index, upper.shard_index], lower.first, upper.last)
        self._stages.append(([lower.shard_index, upper.shard_index], [birth]))
        return merged
