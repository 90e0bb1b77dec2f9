"""Answer ListShards, with its filters and its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model import tokens
from shardway.local.model.errors import (
    ModelError,
    in_use,
    invalid,
    stream_not_found,
)
from shardway.local.model.sequence_numbers import shard_index_of
from shardway.local.model.times import epoch_ms

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.shard import Shard
    from shardway.local.model.stream import Stream


RESULTS_MAX = 1_000
"""The results of one page, even when the caller asks for more."""
_NOT_WITH_TOKEN = ("StreamName", "StreamARN", "StreamCreationTimestamp", "ExclusiveStartShardId", "ShardFilter")
_BY_TIME = ("AT_TIMESTAMP", "FROM_TIMESTAMP")


def list_shards(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer ListShards. A token stands for stream, filter and place; nothing of that may come with it."""
    now_ms = model.now_ms()
    if "NextToken" in request:
        for member in _NOT_WITH_TOKEN:
            if member in request:
                raise invalid(f"NextToken and {member} cannot be provided together.")
        uid, shard_filter, after = open_token(model, "ListShards", request["NextToken"])
        stream = model.stream_of_uid(uid)
        if stream is None:
            raise invalid("Invalid NextToken: its stream does not exist any more.")
    else:
        if "StreamName" not in request and "StreamARN" not in request:
            raise invalid("Either NextToken or StreamName should be provided.")
        stream = model.stream_of(request)
        require_creation_time(model, stream, request)
        shard_filter = request.get("ShardFilter")
        start = request.get("ExclusiveStartShardId")
        after = -1 if start is None else _index_of(start)
    model.meters.stream_call("ListShards", stream.name, model.account_id)
    if not stream.writable:
        raise in_use(
            f"Stream {stream.name} under account {model.account_id} not ACTIVE or UPDATING, "
            f"instead in state {stream.status}"
        )
    matching = [s for s in _filter(model, stream, shard_filter, now_ms) if s.index > after]
    limit = min(RESULTS_MAX, request.get("MaxResults", RESULTS_MAX))
    page = matching[:limit]
    answer: dict[str, Any] = {"Shards": [shard.describe() for shard in page]}
    if len(matching) > limit:
        state = [stream.uid, shard_filter, page[-1].index]
        answer["NextToken"] = tokens.write_token("ListShards", now_ms, state)
    return answer


def open_token(model: KinesisModel, operation: str, token: str) -> Any:
    """Return the state in a list token. Raises InvalidArgumentException and, 300 s after the token was given,
    ExpiredNextTokenException.
    """
    try:
        issued_ms, state = tokens.read_token(operation, token)
    except tokens.BadTokenError as error:
        raise invalid("Invalid NextToken.") from error
    if model.now_ms() - issued_ms > tokens.LIST_TOKEN_LIFE_MS:
        raise ModelError("ExpiredNextTokenException", "The NextToken has expired. List again from the start.")
    return state


def require_creation_time(model: KinesisModel, stream: Stream, request: dict[str, Any]) -> None:
    """Raise ResourceNotFoundException when the caller means another stream of the same name."""
    wanted = request.get("StreamCreationTimestamp")
    if wanted is not None and int(wanted) != stream.created_s:
        raise stream_not_found(stream.name, model.account_id)


def _index_of(shard_id: str) -> int:
    index = shard_index_of(shard_id)
    if index is None:
        raise invalid(f"Invalid shard id {shard_id}.")
    return index


def _filter(model: KinesisModel, stream: Stream, shard_filter: dict[str, Any] | None, now_ms: int) -> list[Shard]:
    shards = stream.listed_shards(now_ms)
    if shard_filter is None:
        return shards
    kind = shard_filter["Type"]
    _check_filter(kind, shard_filter, model.clock())
    if kind == "FROM_TRIM_HORIZON":
        return shards
    if kind == "AT_LATEST":
        return [shard for shard in shards if shard.closed_ms is None]
    if kind == "AFTER_SHARD_ID":
        after = _index_of(shard_filter["ShardId"])
        return [shard for shard in shards if shard.index > after]
    oldest_ms = max(stream.horizon_ms(now_ms), stream.created_ms)
    moment_ms = epoch_ms(shard_filter.get("Timestamp", 0))
    if kind == "FROM_TIMESTAMP":
        return [s for s in shards if s.closed_ms is None or s.closed_ms >= moment_ms]
    if kind == "AT_TRIM_HORIZON" or moment_ms <= oldest_ms:
        # The shards open at the horizon are those of whose parents nothing is left. This condition holds even when
        # shards were made and closed in one instant.
        listed = {shard.index for shard in shards}
        return [shard for shard in shards if listed.isdisjoint(shard.parents)]
    return [shard for shard in shards if shard.open_at(moment_ms)]


def _check_filter(kind: str, shard_filter: dict[str, Any], now: float) -> None:
    for member, kinds in (("ShardId", ("AFTER_SHARD_ID",)), ("Timestamp", _BY_TIME)):
        if (member in shard_filter) != (kind in kinds):
            must = "must be" if kind in kinds else "cannot be"
            raise invalid(f"{member} {must} specified in a ShardFilter of type {kind}.")
    if kind in _BY_TIME and shard_filter["Timestamp"] > now:
        raise invalid("The Timestamp of a ShardFilter cannot be in the future.")
