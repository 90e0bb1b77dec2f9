"""SplitShard, MergeShards and UpdateShardCount.

All three make a plan of stages, each a list of shards to close and of shards to make from them; the plan is carried
out when the stream has settled. Until then records go to the shards that were open before.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.local.model.errors import invalid, limit_exceeded, shard_not_found, validation
from penstock.local.model.sequence import shard_index_of
from penstock.local.model.state import HOUR_MS, even_ranges
from penstock.local.model.streams import require_active, require_shards
from penstock.model import HASH_KEY_MAX

if TYPE_CHECKING:
    from penstock.local.model.service import KinesisModel
    from penstock.local.model.state import Shard, Stream

# --- to shards of equal width ---------------------------------------------------------------------
# What UpdateShardCount does to a stream: the splits and merges that give shards of equal width.
#
# The service goes through the target ranges from the lowest: it splits the shard that reaches over the end of the
# range, then merges the pieces that lie in the range, two at a time. Going from four shards to three it makes, in this
# order, 4 and 5 from 1, 6 from 0 and 4, 7 and 8 from 2, 9 from 5 and 7, and 10 from 8 and 3. (Seen on the service;
# shared by users of connectors.)


class Piece(NamedTuple):
    """An open shard: its index and its inclusive hash range."""

    shard_index: int
    first: int
    last: int


def scale(pieces: list[Piece], target: int, next_index: int) -> list[Any]:
    """The stages of a resharding from ``pieces`` (they cover the hash space, in order) to ``target`` even shards.

    Each stage is (indexes to close, [(parents, first hash key, last hash key)]); the shards made get the indexes from
    ``next_index`` on.
    """
    return _Plan(pieces, next_index).scale(target)


class _Plan:
    def __init__(self, pieces: list[Piece], next_index: int) -> None:
        self._left = list(reversed(pieces))
        self._lasts = [piece.last for piece in pieces]
        self._next = next_index
        self._stages: list[Any] = []

    def scale(self, target: int) -> list[Any]:
        for _, wanted in even_ranges(target):
            inside = []
            last = self._snapped(wanted, target)
            while self._left and self._left[-1].last <= last:
                inside.append(self._left.pop())
            if self._left and self._left[-1].first <= last:
                lower, upper = self._split(self._left.pop(), last)
                inside.append(lower)
                self._left.append(upper)
            while len(inside) > 1:
                inside[:2] = [self._merge(inside[0], inside[1])]
        return self._stages

    def _snapped(self, wanted: int, target: int) -> int:
        """The end of a target range, or the end of a shard that differs from it by rounding only."""
        if wanted == HASH_KEY_MAX:
            return wanted
        at = bisect_left(self._lasts, wanted - target)
        near = at < len(self._lasts) and self._lasts[at] <= wanted + target
        return self._lasts[at] if near else wanted

    def _born(self, parents: list[int], first: int, last: int) -> tuple[Piece, Any]:
        piece = Piece(self._next, first, last)
        self._next += 1
        return piece, (parents, str(first), str(last))

    def _split(self, piece: Piece, last: int) -> tuple[Piece, Piece]:
        lower, lower_birth = self._born([piece.shard_index], piece.first, last)
        upper, upper_birth = self._born([piece.shard_index], last + 1, piece.last)
        self._stages.append(([piece.shard_index], [lower_birth, upper_birth]))
        return lower, upper

    def _merge(self, lower: Piece, upper: Piece) -> Piece:
        merged, birth = self._born([lower.shard_index, upper.shard_index], lower.first, upper.last)
        self._stages.append(([lower.shard_index, upper.shard_index], [birth]))
        return merged


# --- the operations -------------------------------------------------------------------------------

SCALINGS_PER_DAY_MAX = 10
SCALED_SHARDS_MAX = 10_000


def split_shard(model: KinesisModel, request: dict[str, Any]) -> None:
    """SplitShard: the first child ends before the new starting hash key, the second begins with it."""
    (index,) = _indexes(model, request, "ShardToSplit")
    stream = _reshardable(model, request)
    shard = _shard(model, stream, index)
    require_shards(model, 1)
    middle = int(request["NewStartingHashKey"])
    if not shard.first_hash_key + 1 < middle < shard.last_hash_key:
        raise invalid(
            f"NewStartingHashKey {middle} used in SplitShard() on shard {shard.name} in stream {stream.name} "
            f"under account {model.account_id} is not both greater than one plus the shard's StartingHashKey "
            f"{shard.first_hash_key} and less than the shard's EndingHashKey {shard.last_hash_key}."
        )
    _require_open(model, stream, shard)
    births = [
        ([shard.index], str(shard.first_hash_key), str(middle - 1)),
        ([shard.index], str(middle), str(shard.last_hash_key)),
    ]
    _begin(model, stream, [([shard.index], births)])


def merge_shards(model: KinesisModel, request: dict[str, Any]) -> None:
    """MergeShards. The shard to merge is the lower one: AWS does not take the two the other way round."""
    indexes = _indexes(model, request, "ShardToMerge", "AdjacentShardToMerge")
    stream = _reshardable(model, request)
    lower, upper = (_shard(model, stream, index) for index in indexes)
    if lower.last_hash_key + 1 != upper.first_hash_key:
        raise invalid(
            f"Shards {lower.name} and {upper.name} in stream {stream.name} under account {model.account_id} "
            "are not an adjacent pair of shards eligible for merging"
        )
    _require_open(model, stream, lower)
    _require_open(model, stream, upper)
    births = [([lower.index, upper.index], str(lower.first_hash_key), str(upper.last_hash_key))]
    _begin(model, stream, [([lower.index, upper.index], births)])


def update_shard_count(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """UpdateShardCount: to at most double and at least half of what is open, by splits and merges."""
    stream = _reshardable(model, request)
    current, target = len(stream.open_shards), request["TargetShardCount"]
    said = f"UpdateShardCount on stream {stream.name} under account {model.account_id}"
    if target > 2 * current:
        raise limit_exceeded(
            f"{said}: TargetShardCount {target} is more than double the current open shard count {current}."
        )
    if 2 * target < current:
        raise limit_exceeded(
            f"{said}: TargetShardCount {target} is less than half of the current open shard count {current}."
        )
    if target > SCALED_SHARDS_MAX:
        raise limit_exceeded(f"{said}: TargetShardCount {target} is more than {SCALED_SHARDS_MAX}.")
    if target > current:
        require_shards(model, target - current)
    now_ms = model.now_ms()
    recent = [moment for moment in stream.scaled_ms if moment > now_ms - 24 * HOUR_MS]
    if len(recent) >= SCALINGS_PER_DAY_MAX:
        raise limit_exceeded(f"{said} was done {SCALINGS_PER_DAY_MAX} times within the last 24 hours.")
    model.commit("update", stream.uid, None, {"scaled_ms": [*recent, now_ms]})
    pieces = [Piece(s.index, s.first_hash_key, s.last_hash_key) for s in stream.open_shards]
    _begin(model, stream, scale(pieces, target, len(stream.shards)))
    return {
        "StreamName": stream.name,
        "CurrentShardCount": current,
        "TargetShardCount": target,
        "StreamARN": stream.arn,
    }


def _indexes(model: KinesisModel, request: dict[str, Any], *members: str) -> list[int]:
    """The shards' indexes. What is no shard id is told before the stream is looked for."""
    found = []
    for member in members:
        index = shard_index_of(request[member])
        if index is None:
            name = model.stream_named(request.get("StreamName"), request.get("StreamARN"))
            raise shard_not_found(request[member], name, model.account_id)
        found.append(index)
    return found


def _reshardable(model: KinesisModel, request: dict[str, Any]) -> Stream:
    stream = model.stream_of(request)
    if stream.mode == "ON_DEMAND":
        raise validation(
            f"Request is invalid. Stream {stream.name} under account {model.account_id} is in On-Demand mode."
        )
    require_active(model, stream)
    return stream


def _shard(model: KinesisModel, stream: Stream, index: int) -> Shard:
    shard = stream.shard(index, model.now_ms())
    if shard is None:
        raise shard_not_found(f"shardId-{index:012d}", stream.name, model.account_id)
    return shard


def _require_open(model: KinesisModel, stream: Stream, shard: Shard) -> None:
    if shard.closed_ms is not None:
        raise invalid(
            f"Shard {shard.name} in stream {stream.name} under account {model.account_id} has already been "
            "merged or split, and thus is not eligible for merging or splitting."
        )


def _begin(model: KinesisModel, stream: Stream, stages: list[Any]) -> None:
    model.commit("reshard", stream.uid, model.due_ms(model.now_ms()), stages)
    model.settle(stream)
