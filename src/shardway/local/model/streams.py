"""Answer CreateStream, DeleteStream, the descriptions of a stream, ListStreams and ListShards; and reshard a stream."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.local.model import identifiers
from shardway.local.model.identifiers import epoch_ms, shard_index_of
from shardway.local.model.state import HOUR_MS, even_ranges
from shardway.local.model.validation import (
    TAGS_MAX,
    ModelError,
    in_use,
    invalid,
    limit_exceeded,
    require_plain,
    shard_not_found,
    stream_not_found,
    validation,
)
from shardway.model import HASH_KEY_MAX

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.state import Shard, Stream


# --- shards ---------------------------------------------------------------------------------------
# ListShards has filters and pages.

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
    matching = [s for s in _filtered(model, stream, shard_filter, now_ms) if s.index > after]
    limit = min(RESULTS_MAX, request.get("MaxResults", RESULTS_MAX))
    page = matching[:limit]
    answer: dict[str, Any] = {"Shards": [shard.describe() for shard in page]}
    if len(matching) > limit:
        state = [stream.uid, shard_filter, page[-1].index]
        answer["NextToken"] = identifiers.write_token("ListShards", now_ms, state)
    return answer


def open_token(model: KinesisModel, operation: str, token: str) -> Any:
    """Return the state in a list token. Raises InvalidArgumentException and, 300 s after the token was given,
    ExpiredNextTokenException.
    """
    try:
        issued_ms, state = identifiers.read_token(operation, token)
    except identifiers.BadTokenError as error:
        raise invalid("Invalid NextToken.") from error
    if model.now_ms() - issued_ms > identifiers.LIST_TOKEN_LIFE_MS:
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


def _filtered(model: KinesisModel, stream: Stream, shard_filter: dict[str, Any] | None, now_ms: int) -> list[Shard]:
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


# --- streams --------------------------------------------------------------------------------------

ON_DEMAND_SHARDS = 4
"""The shards of a new on-demand stream."""
ON_DEMAND_STREAMS_MAX = 50
CREATING_MAX = 5
"""The streams that may be CREATING at once."""
DESCRIBE_SHARDS_DEFAULT = 100
LIST_STREAMS_DEFAULT = 100


def create_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer CreateStream. Without a shard count and a mode the stream is on-demand, as AWS's is."""
    name = request["StreamName"]
    model.settle_all()
    streams = model.state.streams
    if name in streams:
        raise in_use(f"Stream {name} under account {model.account_id} already exists.")
    mode = _mode_of(request)
    shards = request["ShardCount"] if mode == "PROVISIONED" else ON_DEMAND_SHARDS
    tags = request.get("Tags", {})
    if len(tags) > TAGS_MAX:
        raise invalid(f"A stream cannot have more than {TAGS_MAX} tags associated with it.")
    require_plain(model, f"create stream {name}", tags)
    _require_room(model, mode, shards)
    now_ms = model.now_ms()
    created_s = max(now_ms // 1000, model.state.last_created_s.get(name, 0) + 1)
    fields = {
        "mode": mode,
        "max_record_kib": request.get("MaxRecordSizeInKiB", 1024),
        "strategy": request.get("RecordDistributionStrategy", "USER_PARTITION_KEY"),
        "warm_mibps": request.get("WarmThroughputMiBps"),
        "tags": tags,
    }
    ranges = [(str(first), str(last)) for first, last in even_ranges(shards)]
    uid = model.state.next_uid
    model.commit("create", uid, name, now_ms, created_s, model.due_ms(now_ms), ranges, fields)
    model.settle(streams[name])


def _mode_of(request: dict[str, Any]) -> str:
    given = request.get("StreamModeDetails", {}).get("StreamMode")
    mode: str = given or ("PROVISIONED" if "ShardCount" in request else "ON_DEMAND")
    if mode == "PROVISIONED":
        if "ShardCount" not in request:
            raise validation("ShardCount must be specified for a stream in PROVISIONED mode.")
        if request.get("RecordDistributionStrategy") == "AUTO":
            raise invalid("RecordDistributionStrategy AUTO is only supported for streams in ON_DEMAND mode.")
        if "WarmThroughputMiBps" in request:
            raise validation("WarmThroughputMiBps is only supported for streams in ON_DEMAND mode.")
    return mode


def _require_room(model: KinesisModel, mode: str, shards: int) -> None:
    streams = model.state.streams.values()
    if mode == "ON_DEMAND":
        if sum(1 for stream in streams if stream.mode == mode) >= ON_DEMAND_STREAMS_MAX:
            raise limit_exceeded(
                f"This request would exceed the limit of {ON_DEMAND_STREAMS_MAX} on-demand streams "
                f"for the account {model.account_id} in {model.region}."
            )
    else:
        require_shards(model, shards)
    if model.limits.api and sum(1 for s in streams if s.status == "CREATING") >= CREATING_MAX:
        raise limit_exceeded(
            f"Subscriber limit exceeded: only {CREATING_MAX} streams can be created, deleted or updated at once."
        )


def open_shards_of(model: KinesisModel) -> int:
    """Return the number of shards that count towards the account's quota: the open ones of provisioned streams."""
    return sum(len(s.open_shards) for s in model.state.streams.values() if s.mode == "PROVISIONED")


def require_shards(model: KinesisModel, more: int) -> None:
    """Raise LimitExceededException when ``more`` further shards would be too many."""
    current = open_shards_of(model)
    if current + more > model.shard_quota:
        raise limit_exceeded(
            f"This request would exceed the shard limit for the account {model.account_id} in {model.region}. "
            f"Current shard count for the account: {current}. Limit: {model.shard_quota}. "
            f"Number of additional shards that would have resulted from this request: {more}. "
            "Refer to the AWS Service Limits page "
            "(http://docs.aws.amazon.com/general/latest/gr/aws_service_limits.html) "
            "for current limits and how to request higher limits."
        )


def require_active(model: KinesisModel, stream: Stream) -> None:
    """Raise ResourceInUseException unless the stream is ACTIVE."""
    if stream.status != "ACTIVE":
        raise in_use(
            f"Stream {stream.name} under account {model.account_id} not ACTIVE, instead in state {stream.status}"
        )


def delete_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer DeleteStream, whatever the stream's status is. A stream with consumers is deleted only if the caller says
    so.
    """
    stream = model.stream_of(request)
    now_ms = model.now_ms()
    if not request.get("EnforceConsumerDeletion") and any(c.exists(now_ms) for c in stream.consumers.values()):
        raise in_use(
            f"Stream {stream.name} under account {model.account_id} has enhanced fan-out consumers registered. "
            "Deregister them first, or set EnforceConsumerDeletion."
        )
    if stream.status != "DELETING":
        model.commit("delete", stream.uid, model.due_ms(now_ms))
    model.settle(stream)


def describe_stream(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeStream with settings and a page of shards."""
    stream = model.stream_of(request)
    limit = request.get("Limit", DESCRIBE_SHARDS_DEFAULT)
    shards = stream.listed_shards(model.now_ms())
    after = shard_index_of(request.get("ExclusiveStartShardId", ""))
    if after is not None:
        shards = [shard for shard in shards if shard.index > after]
    page = {"Shards": [shard.describe() for shard in shards[:limit]], "HasMoreShards": len(shards) > limit}
    return {"StreamDescription": _description(stream) | page}


def describe_stream_summary(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeStreamSummary with settings and counts."""
    stream = model.stream_of(request)
    now_ms = model.now_ms()
    summary = _description(stream) | {
        "OpenShardCount": len(stream.open_shards) if stream.ready else 0,
        "ConsumerCount": sum(1 for consumer in stream.consumers.values() if consumer.exists(now_ms)),
        "MaxRecordSizeInKiB": stream.max_record_kib,
    }
    if stream.mode == "ON_DEMAND":
        summary["RecordDistributionStrategy"] = stream.strategy
    if stream.warm_mibps is not None:
        summary["WarmThroughput"] = {"TargetMiBps": stream.warm_mibps, "CurrentMiBps": stream.warm_mibps}
    return {"StreamDescriptionSummary": summary}


def _description(stream: Stream) -> dict[str, Any]:
    answer = _listed(stream) | {
        "RetentionPeriodHours": stream.retention_hours,
        "EnhancedMonitoring": [{"ShardLevelMetrics": stream.metrics}],
        "EncryptionType": stream.encryption,
    }
    if stream.key_id is not None:
        answer["KeyId"] = stream.key_id
    return answer


def _listed(stream: Stream) -> dict[str, Any]:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_s,
    }


def list_streams(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer ListStreams, in the order of the names."""
    model.settle_all()
    now_ms = model.now_ms()
    after = request.get("ExclusiveStartStreamName", "")
    if "NextToken" in request:
        after = open_token(model, "ListStreams", request["NextToken"])
    limit = request.get("Limit", LIST_STREAMS_DEFAULT)
    names = sorted(name for name in model.state.streams if name > after)
    page = names[:limit]
    answer: dict[str, Any] = {
        "StreamNames": page,
        "HasMoreStreams": len(names) > limit,
        "StreamSummaries": [_listed(model.state.streams[name]) for name in page],
    }
    if len(names) > limit:
        answer["NextToken"] = identifiers.write_token("ListStreams", now_ms, page[-1])
    return answer


# --- resharding -----------------------------------------------------------------------------------
# SplitShard, MergeShards and UpdateShardCount make a plan of stages, each a list of shards to close and of shards to
# make from them; the plan is carried out when the stream has settled. Until then records go to the shards that were
# open before.

# --- to shards of equal width ---------------------------------------------------------------------
# UpdateShardCount does to a stream the splits and merges that give shards of equal width.
#
# The service goes through the target ranges from the lowest: it splits the shard that reaches over the end of the
# range, then merges the pieces that lie in the range, two at a time. Going from four shards to three it makes, in this
# order, 4 and 5 from 1, 6 from 0 and 4, 7 and 8 from 2, 9 from 5 and 7, and 10 from 8 and 3. (The service was seen to
# do so; users of connectors shared it.)


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
        """Return the end of a target range, or the end of a shard that differs from it by rounding only."""
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
