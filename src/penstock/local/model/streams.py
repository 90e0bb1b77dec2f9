"""CreateStream, DeleteStream, the descriptions of a stream, ListStreams, ListShards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.local.model import tokens
from penstock.local.model.errors import ModelError, in_use, invalid, limit_exceeded, stream_not_found, validation
from penstock.local.model.sequence import epoch_ms, shard_index_of
from penstock.local.model.state import even_ranges
from penstock.local.model.tags import TAGS_MAX, require_plain

if TYPE_CHECKING:
    from penstock.local.model.service import KinesisModel
    from penstock.local.model.state import Shard, Stream

# --- shards ---------------------------------------------------------------------------------------
# ListShards: its filters and its pages.

RESULTS_MAX = 1_000
"""Of one page, also when the caller asks for more."""

_NOT_WITH_TOKEN = ("StreamName", "StreamARN", "StreamCreationTimestamp", "ExclusiveStartShardId", "ShardFilter")
_BY_TIME = ("AT_TIMESTAMP", "FROM_TIMESTAMP")


def list_shards(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """ListShards. A token stands for stream, filter and place; nothing of that may come with it."""
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
        answer["NextToken"] = tokens.write_token("ListShards", now_ms, state)
    return answer


def open_token(model: KinesisModel, operation: str, token: str) -> Any:
    """The state in a list token. Raises InvalidArgumentException and, 300 s after it was given,
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
        # The shards open at the horizon are those of whose parents nothing is left. Said in this way it also holds
        # when shards were made and closed in one instant.
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
"""Shards of a new on-demand stream."""
ON_DEMAND_STREAMS_MAX = 50
CREATING_MAX = 5
"""Streams that may be CREATING at once."""
DESCRIBE_SHARDS_DEFAULT = 100
LIST_STREAMS_DEFAULT = 100


def create_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """CreateStream. Without a shard count and a mode the stream is on-demand, as AWS's is."""
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
    """The shards that count towards the account's quota: the open ones of provisioned streams."""
    return sum(len(s.open_shards) for s in model.state.streams.values() if s.mode == "PROVISIONED")


def require_shards(model: KinesisModel, more: int) -> None:
    """Raise LimitExceededException when so many more shards would be too many."""
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
    """DeleteStream, in any state. With consumers only if the caller says that it may."""
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
    """DescribeStream: settings and a page of shards."""
    stream = model.stream_of(request)
    limit = request.get("Limit", DESCRIBE_SHARDS_DEFAULT)
    shards = stream.listed_shards(model.now_ms())
    after = shard_index_of(request.get("ExclusiveStartShardId", ""))
    if after is not None:
        shards = [shard for shard in shards if shard.index > after]
    page = {"Shards": [shard.describe() for shard in shards[:limit]], "HasMoreShards": len(shards) > limit}
    return {"StreamDescription": _description(stream) | page}


def describe_stream_summary(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """DescribeStreamSummary: settings and counts."""
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
    """ListStreams, by name."""
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
        answer["NextToken"] = tokens.write_token("ListStreams", now_ms, page[-1])
    return answer
