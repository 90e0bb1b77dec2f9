"""Answer the operations that change what is set for a stream: retention, monitoring, encryption (which is told in
answers, and not done), mode, record size, strategy and throughput.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model.errors import invalid, validation
from shardway.local.model.streams import require_active

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.stream import Stream


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


def _update(model: KinesisModel, stream: Stream, fields: dict[str, Any]) -> None:
    """Change settings; the stream is UPDATING until it has settled."""
    model.commit("update", stream.uid, model.due_ms(model.now_ms()), fields)
    model.settle(stream)


def _at_once(model: KinesisModel, stream: Stream, fields: dict[str, Any]) -> None:
    model.commit("update", stream.uid, None, fields)


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
        _update(model, stream, {"retention_hours": hours, "horizon_floor_ms": floor_ms})


def enable_enhanced_monitoring(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer EnableEnhancedMonitoring."""
    stream, named = _monitoring_request(model, request)
    return _monitor(model, stream, [m for m in _METRICS if m in named or m in stream.metrics])


def disable_enhanced_monitoring(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer DisableEnhancedMonitoring."""
    stream, named = _monitoring_request(model, request)
    return _monitor(model, stream, [m for m in stream.metrics if m not in named])


def _monitoring_request(model: KinesisModel, request: dict[str, Any]) -> tuple[Stream, set[str]]:
    stream = model.stream_of(request)
    require_active(model, stream)
    named = set(request["ShardLevelMetrics"])
    return stream, set(_METRICS) if "ALL" in named else named


def _monitor(model: KinesisModel, stream: Stream, metrics: list[str]) -> dict[str, Any]:
    before = stream.metrics
    _update(model, stream, {"metrics": metrics})
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardLevelMetrics": before,
        "DesiredShardLevelMetrics": metrics,
    }


def start_stream_encryption(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer StartStreamEncryption: records put from now on say that they are encrypted."""
    stream = _encryption(model, request)
    _update(model, stream, {"encryption": "KMS", "key_id": request["KeyId"]})


def stop_stream_encryption(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer StopStreamEncryption."""
    stream = _encryption(model, request)
    _update(model, stream, {"encryption": "NONE", "key_id": None})


def _encryption(model: KinesisModel, request: dict[str, Any]) -> Stream:
    if request["EncryptionType"] != "KMS":
        raise invalid("The only valid EncryptionType of this request is KMS.")
    stream = model.stream_of(request)
    require_active(model, stream)
    return stream


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
    _update(model, stream, fields)


def update_max_record_size(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer UpdateMaxRecordSize."""
    stream = model.stream_of(request)
    require_active(model, stream)
    _update(model, stream, {"max_record_kib": request["MaxRecordSizeInKiB"]})


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
    _update(model, stream, {"warm_mibps": warm})
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
