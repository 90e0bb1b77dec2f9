"""Answer CreateStream, DeleteStream, the descriptions of a stream, and ListStreams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model import tokens
from shardway.local.model.errors import (
    in_use,
    invalid,
    limit_exceeded,
    validation,
)
from shardway.local.model.sequence_numbers import shard_index_of
from shardway.local.model.shard_lists import open_token
from shardway.local.model.stream import even_ranges
from shardway.local.model.tag_rules import TAGS_MAX, require_plain

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.stream import Stream


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
    answer = _listing(stream) | {
        "RetentionPeriodHours": stream.retention_hours,
        "EnhancedMonitoring": [{"ShardLevelMetrics": stream.metrics}],
        "EncryptionType": stream.encryption,
    }
    if stream.key_id is not None:
        answer["KeyId"] = stream.key_id
    return answer


def _listing(stream: Stream) -> dict[str, Any]:
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
        "StreamSummaries": [_listing(model.state.streams[name]) for name in page],
    }
    if len(names) > limit:
        answer["NextToken"] = tokens.write_token("ListStreams", now_ms, page[-1])
    return answer
