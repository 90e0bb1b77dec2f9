"""Answer the operations that change what is set for a stream, a registered consumer or the account.

A stream has retention, monitoring, encryption, mode, record size, strategy and throughput. A stream or a consumer has
tags and resource policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.local.model.state import consumer_of_arn
from shardway.local.model.streams import ON_DEMAND_STREAMS_MAX, open_shards_of, require_active
from shardway.local.model.validation import TAGS_MAX, invalid, not_found, require_plain, stream_not_found, validation

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.state import Stream


# --- a stream -------------------------------------------------------------------------------------

RETENTION_HOURS_MIN = 24
RETENTION_HOURS_MAX = 8_760
WARM_MIBPS_MAX = 10 * 1024

_METRICS = (
    "IncomingBytes",
    "IncomingRecords",
    "OutgoingBytes",
    "OutgoingRecords",
    "WriteProvisionedThroughputExceeded",
    "ReadProvisionedThroughputExceeded",
    "IteratorAgeMilliseconds",
)


def _updating(model: KinesisModel, stream: Stream, fields: dict[str, Any]) -> None:
    """Change settings; the stream is UPDATING until it has settled."""
    model.commit("update", stream.uid, model.due_ms(model.now_ms()), fields)
    model.settle(stream)


def _at_once(model: KinesisModel, stream: Stream, fields: dict[str, Any]) -> None:
    model.commit("update", stream.uid, None, fields)


# --- retention ------------------------------------------------------------------------------------


def increase_stream_retention_period(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer IncreaseStreamRetentionPeriod: records that have expired by now do not come back."""
    stream, hours = _retention(model, request)
    if hours < stream.retention_hours:
        raise invalid(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be shorter than "
            f"existing retention period ({stream.retention_hours} hours). Use DecreaseRetentionPeriod API."
        )
    _retain(model, stream, hours)


def decrease_stream_retention_period(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer DecreaseStreamRetentionPeriod: records that are older are lost at once."""
    stream, hours = _retention(model, request)
    if hours > stream.retention_hours:
        raise invalid(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be longer than "
            f"existing retention period ({stream.retention_hours} hours). Use IncreaseRetentionPeriod API."
        )
    _retain(model, stream, hours)


def _retention(model: KinesisModel, request: dict[str, Any]) -> tuple[Stream, int]:
    hours = request["RetentionPeriodHours"]
    if hours < RETENTION_HOURS_MIN:
        raise invalid(
            f"Minimum allowed retention period is {RETENTION_HOURS_MIN} hours. "
            f"Requested retention period ({hours} hours) is too short."
        )
    if hours > RETENTION_HOURS_MAX:
        raise invalid(
            f"Maximum allowed retention period is {RETENTION_HOURS_MAX} hours. "
            f"Requested retention period ({hours} hours) is too long."
        )
    stream = model.stream_of(request)
    return stream, hours


def _retain(model: KinesisModel, stream: Stream, hours: int) -> None:
    require_active(model, stream)
    if hours != stream.retention_hours:
        floor_ms = stream.horizon_ms(model.now_ms())
        _updating(model, stream, {"retention_hours": hours, "horizon_floor_ms": floor_ms})


# --- monitoring -----------------------------------------------------------------------------------


def enable_enhanced_monitoring(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer EnableEnhancedMonitoring."""
    stream, named = _monitoring(model, request)
    return _monitor(model, stream, [m for m in _METRICS if m in named or m in stream.metrics])


def disable_enhanced_monitoring(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer DisableEnhancedMonitoring."""
    stream, named = _monitoring(model, request)
    return _monitor(model, stream, [m for m in stream.metrics if m not in named])


def _monitoring(model: KinesisModel, request: dict[str, Any]) -> tuple[Stream, set[str]]:
    stream = model.stream_of(request)
    require_active(model, stream)
    named = set(request["ShardLevelMetrics"])
    return stream, set(_METRICS) if "ALL" in named else named


def _monitor(model: KinesisModel, stream: Stream, metrics: list[str]) -> dict[str, Any]:
    before = stream.metrics
    _updating(model, stream, {"metrics": metrics})
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardLevelMetrics": before,
        "DesiredShardLevelMetrics": metrics,
    }


# --- encryption: told in answers, not done --------------------------------------------------------


def start_stream_encryption(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer StartStreamEncryption: records put from now on say that they are encrypted."""
    stream = _encryption(model, request)
    _updating(model, stream, {"encryption": "KMS", "key_id": request["KeyId"]})


def stop_stream_encryption(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer StopStreamEncryption."""
    stream = _encryption(model, request)
    _updating(model, stream, {"encryption": "NONE", "key_id": None})


def _encryption(model: KinesisModel, request: dict[str, Any]) -> Stream:
    if request["EncryptionType"] != "KMS":
        raise invalid("The only valid EncryptionType of this request is KMS.")
    stream = model.stream_of(request)
    require_active(model, stream)
    return stream


# --- capacity -------------------------------------------------------------------------------------


def update_stream_mode(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer UpdateStreamMode: the shards stay as they are, and so does a stream that is in that mode already."""
    stream = model.stream_of(request)
    require_active(model, stream)
    mode = request["StreamModeDetails"]["StreamMode"]
    fields: dict[str, Any] = {"mode": mode, "warm_mibps": None}
    if mode == "PROVISIONED":
        fields["strategy"] = "USER_PARTITION_KEY"
        if "WarmThroughputMiBps" in request:
            raise validation("WarmThroughputMiBps is only supported for streams in ON_DEMAND mode.")
    elif "WarmThroughputMiBps" in request:
        fields["warm_mibps"] = _warm(model, request)
    _updating(model, stream, fields)


def update_max_record_size(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer UpdateMaxRecordSize."""
    stream = model.stream_of(request)
    require_active(model, stream)
    _updating(model, stream, {"max_record_kib": request["MaxRecordSizeInKiB"]})


def update_record_distribution_strategy(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer UpdateStreamRecordDistributionStrategy: the strategy holds at once, for records put from now on."""
    stream = model.stream_of(request)
    require_active(model, stream)
    strategy = request["RecordDistributionStrategy"]
    if stream.mode != "ON_DEMAND":
        raise invalid(
            f"RecordDistributionStrategy {strategy} is not supported: stream {stream.name} "
            f"under account {model.account_id} is not in ON_DEMAND mode."
        )
    _at_once(model, stream, {"strategy": strategy})


def update_stream_warm_throughput(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer UpdateStreamWarmThroughput."""
    stream = model.stream_of(request)
    require_active(model, stream)
    if stream.mode != "ON_DEMAND":
        raise validation("WarmThroughputMiBps is only supported for streams in ON_DEMAND mode.")
    warm = _warm(model, request)
    before = stream.warm_mibps
    _updating(model, stream, {"warm_mibps": warm})
    current = {} if before is None else {"CurrentMiBps": before}
    return {
        "StreamARN": stream.arn,
        "StreamName": stream.name,
        "WarmThroughput": {"TargetMiBps": warm} | current,
    }


def _warm(model: KinesisModel, request: dict[str, Any]) -> int:
    warm: int = request["WarmThroughputMiBps"]
    if model.state.commitment["Status"] == "DISABLED":
        raise validation(
            "Warm throughput needs an account with MinimumThroughputBillingCommitment enabled (UpdateAccountSettings)."
        )
    if warm > WARM_MIBPS_MAX:
        raise invalid(f"WarmThroughputMiBps {warm} is more than {WARM_MIBPS_MAX}.")
    return warm


# --- the account ----------------------------------------------------------------------------------
# These operations are about the account: its limits and its settings.

COMMITMENT_S = 24 * 3_600
"""The seconds that a commitment has to last before it can be ended."""


def describe_limits(model: KinesisModel, _request: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeLimits."""
    model.settle_all()
    streams = model.state.streams.values()
    return {
        "ShardLimit": model.shard_quota,
        "OpenShardCount": open_shards_of(model),
        "OnDemandStreamCount": sum(1 for stream in streams if stream.mode == "ON_DEMAND"),
        "OnDemandStreamCountLimit": ON_DEMAND_STREAMS_MAX,
    }


def describe_account_settings(model: KinesisModel, _request: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeAccountSettings."""
    commitment = dict(model.state.commitment)
    now_s = model.now_ms() // 1000
    if commitment["Status"] == "ENABLED_UNTIL_EARLIEST_ALLOWED_END" and now_s >= commitment["EarliestAllowedEndAt"]:
        commitment = {"Status": "DISABLED", "EndedAt": commitment["EarliestAllowedEndAt"]}
        model.commit("account", commitment)
    return {"MinimumThroughputBillingCommitment": commitment}


def update_account_settings(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer UpdateAccountSettings: a commitment that is ended early lasts until it may end."""
    wanted = request["MinimumThroughputBillingCommitment"]["Status"]
    current = describe_account_settings(model, {})["MinimumThroughputBillingCommitment"]
    now_s = model.now_ms() // 1000
    if wanted == "ENABLED":
        started_s = current.get("StartedAt", now_s) if current["Status"] != "DISABLED" else now_s
        commitment = {
            "Status": "ENABLED",
            "StartedAt": started_s,
            "EarliestAllowedEndAt": started_s + COMMITMENT_S,
        }
    elif current["Status"] == "ENABLED":
        early = now_s < current["EarliestAllowedEndAt"]
        commitment = (
            current | {"Status": "ENABLED_UNTIL_EARLIEST_ALLOWED_END"}
            if early
            else {"Status": "DISABLED", "EndedAt": now_s}
        )
    else:
        commitment = current
    model.commit("account", commitment)
    return {"MinimumThroughputBillingCommitment": commitment}


# --- tags -----------------------------------------------------------------------------------------

LIST_DEFAULT = 50


def _merged(model: KinesisModel, name: str, old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    require_plain(model, f"add tags to stream {name}", new)
    merged = old | new
    if len(merged) > TAGS_MAX:
        raise invalid(
            f"Failed to add tags to stream {name} under account {model.account_id} "
            f"because a given stream cannot have more than {TAGS_MAX} tags associated with it."
        )
    return merged


def _without(model: KinesisModel, name: str, old: dict[str, str], keys: list[str]) -> dict[str, str]:
    require_plain(model, f"remove tags from stream {name}", keys)
    return {key: value for key, value in old.items() if key not in keys}


def add_tags_to_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer AddTagsToStream."""
    stream = model.stream_of(request)
    _set(model, stream, None, _merged(model, stream.name, stream.tags, request["Tags"]))


def remove_tags_from_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer RemoveTagsFromStream: keys that are not there do not matter."""
    stream = model.stream_of(request)
    _set(model, stream, None, _without(model, stream.name, stream.tags, request["TagKeys"]))


def list_tags_for_stream(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer ListTagsForStream, in the order of the keys."""
    stream = model.stream_of(request)
    after = request.get("ExclusiveStartTagKey", "")
    limit = request.get("Limit", LIST_DEFAULT)
    keys = sorted(key for key in stream.tags if key > after)
    return {"Tags": _listed(stream.tags, keys[:limit]), "HasMoreTags": len(keys) > limit}


def tag_resource(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer TagResource, for a stream or a consumer."""
    stream, consumer, tags = _resource(model, request["ResourceARN"])
    _set(model, stream, consumer, _merged(model, stream.name, tags, request["Tags"]))


def untag_resource(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer UntagResource, for a stream or a consumer."""
    stream, consumer, tags = _resource(model, request["ResourceARN"])
    _set(model, stream, consumer, _without(model, stream.name, tags, request["TagKeys"]))


def list_tags_for_resource(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer ListTagsForResource, for a stream or a consumer, in the order of the keys."""
    _, _, tags = _resource(model, request["ResourceARN"])
    return {"Tags": _listed(tags, sorted(tags))}


def _listed(tags: dict[str, str], keys: list[str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": tags[key]} for key in keys]


def _set(model: KinesisModel, stream: Stream, consumer: str | None, tags: dict[str, str]) -> None:
    if consumer is None:
        model.commit("update", stream.uid, None, {"tags": tags})
    else:
        model.commit("consumer_update", stream.uid, consumer, {"tags": tags})


def _resource(model: KinesisModel, arn: str) -> tuple[Stream, str | None, dict[str, str]]:
    """Return (stream, consumer's name or None, present tags) of an ARN. Raises ResourceNotFoundException."""
    if "/consumer/" in arn:
        stream, consumer = consumer_of_arn(model, arn)
        return stream, consumer.name, consumer.tags
    found = model.find_stream(None, arn)
    if found is None:
        raise stream_not_found(model.stream_named(None, arn), model.account_id)
    return found, None, found.tags


# --- policies -------------------------------------------------------------------------------------
# Resource policies are kept and given back, and not enforced.


def put_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer PutResourcePolicy, for a stream or a consumer."""
    stream, consumer, _ = _policy_of(model, request["ResourceARN"])
    try:
        document = msgspec.json.decode(request["Policy"])
    except msgspec.DecodeError as error:
        raise invalid("The policy is not JSON.") from error
    if not isinstance(document, dict):
        raise invalid("The policy is not a JSON object.")
    _set_policy(model, stream, consumer, request["Policy"])


def get_resource_policy(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer GetResourcePolicy: an empty document when there is no policy."""
    _, _, policy = _policy_of(model, request["ResourceARN"])
    return {"Policy": policy if policy is not None else "{}"}


def delete_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer DeleteResourcePolicy. Raises ResourceNotFoundException when there is no policy."""
    arn = request["ResourceARN"]
    stream, consumer, policy = _policy_of(model, arn)
    if policy is None:
        raise not_found(f"No resource policy found for resource ARN {arn}.")
    _set_policy(model, stream, consumer, None)


def _set_policy(model: KinesisModel, stream: Stream, consumer: str | None, policy: str | None) -> None:
    if consumer is None:
        model.commit("update", stream.uid, None, {"policy": policy})
    else:
        model.commit("consumer_update", stream.uid, consumer, {"policy": policy})


def _policy_of(model: KinesisModel, arn: str) -> tuple[Stream, str | None, str | None]:
    """Return (stream, consumer's name or None, present policy) of an ARN. Raises ResourceNotFoundException."""
    if "/consumer/" in arn:
        stream, consumer = consumer_of_arn(model, arn)
        return stream, consumer.name, consumer.policy
    found = model.find_stream(None, arn)
    if found is None:
        raise stream_not_found(arn, model.account_id)
    return found, None, found.policy
