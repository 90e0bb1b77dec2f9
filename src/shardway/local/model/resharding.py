"""Answer SplitShard, MergeShards and UpdateShardCount.

They make a plan of stages, each a list of shards to close and of shards to make from them; the plan is carried out when
the stream has settled. Until then records go to the shards that were open before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model.errors import (
    invalid,
    limit_exceeded,
    shard_not_found,
    validation,
)
from shardway.local.model.scaling import Piece, scale
from shardway.local.model.sequence_numbers import shard_index_of
from shardway.local.model.stream import HOUR_MS
from shardway.local.model.streams import require_active, require_shards

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.shard import Shard
    from shardway.local.model.stream import Stream


SCALINGS_PER_DAY_MAX = 10
SCALED_SHARDS_MAX = 10_000


def split_shard(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer SplitShard: the first child ends before the new starting hash key, the second begins with it."""
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
    """Answer MergeShards. The shard to merge is the lower one: AWS does not take the two the other way round."""
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
    """Answer UpdateShardCount: to at most double and at least half of the open shards, by splits and merges."""
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
    """Return the shards' indexes. A text that is no shard id raises before the stream is looked for."""
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
