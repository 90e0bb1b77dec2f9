"""Make the values of the read model of what Kinesis answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.calls.answers import reading
from shardway.aws.kinesis.shapes import Count, Seconds
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.lineage import Lineage
from shardway.core.sequence import second_of
from shardway.inspect.moments import utc
from shardway.inspect.values import (
    ConsumerView,
    ShardView,
    StreamFound,
    StreamView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shardway.model import ListedShard


class _Mode(msgspec.Struct, rename="pascal"):
    stream_mode: str | None = None


class _Monitoring(msgspec.Struct, rename="pascal"):
    shard_level_metrics: list[str] = []


class _Warm(msgspec.Struct):
    target: int | None = msgspec.field(name="TargetMiBps", default=None)
    current: int | None = msgspec.field(name="CurrentMiBps", default=None)


class _Summary(msgspec.Struct):
    name: str = msgspec.field(name="StreamName")
    arn: str = msgspec.field(name="StreamARN")
    status: str = msgspec.field(name="StreamStatus")
    created_s: Seconds = msgspec.field(name="StreamCreationTimestamp")
    retention_hours: Count = msgspec.field(name="RetentionPeriodHours")
    open_shards: Count = msgspec.field(name="OpenShardCount")
    mode: _Mode | None = msgspec.field(name="StreamModeDetails", default=None)
    consumers: Count | None = msgspec.field(name="ConsumerCount", default=None)
    encryption: str | None = msgspec.field(name="EncryptionType", default=None)
    key_id: str | None = msgspec.field(name="KeyId", default=None)
    monitoring: list[_Monitoring] | None = msgspec.field(name="EnhancedMonitoring", default=None)
    max_record_kib: Count | None = msgspec.field(name="MaxRecordSizeInKiB", default=None)
    distribution: str | None = msgspec.field(name="RecordDistributionStrategy", default=None)
    warm: _Warm | None = msgspec.field(name="WarmThroughput", default=None)
    channels: Count | None = msgspec.field(name="ChannelCount", default=None)
    queues: Count | None = msgspec.field(name="QueueCount", default=None)


class _ListedStream(msgspec.Struct):
    name: str = msgspec.field(name="StreamName")
    arn: str | None = msgspec.field(name="StreamARN", default=None)
    status: str | None = msgspec.field(name="StreamStatus", default=None)
    mode: _Mode | None = msgspec.field(name="StreamModeDetails", default=None)
    created_s: Seconds | None = msgspec.field(name="StreamCreationTimestamp", default=None)


class _Consumer(msgspec.Struct):
    name: str = msgspec.field(name="ConsumerName")
    arn: str = msgspec.field(name="ConsumerARN")
    status: str = msgspec.field(name="ConsumerStatus")
    created_s: Seconds = msgspec.field(name="ConsumerCreationTimestamp")


def stream_view(answer: Mapping[str, Any]) -> StreamView:
    """Return the stream that an answer of DescribeStreamSummary describes. Raises TransportError for another shape."""
    with reading("DescribeStreamSummary"):
        found = msgspec.convert(_present(answer["StreamDescriptionSummary"]), type=_Summary)
        warm = found.warm
        return StreamView(
            name=found.name,
            arn=found.arn,
            status=found.status,
            mode=None if found.mode is None else found.mode.stream_mode,
            created_at=utc(found.created_s),
            retention_hours=found.retention_hours,
            open_shards=found.open_shards,
            consumers=found.consumers,
            encryption=found.encryption,
            key_id=found.key_id,
            shard_metrics=tuple(name for one in found.monitoring or () for name in one.shard_level_metrics),
            max_record_kib=found.max_record_kib,
            distribution=found.distribution,
            warm_throughput_mib_s=None if warm is None else (warm.current if warm.current is not None else warm.target),
            channels=found.channels,
            queues=found.queues,
        )


def listed_streams(answer: Mapping[str, Any]) -> list[StreamFound]:
    """Return the streams of a page of ListStreams. Emulators and older services list names alone. Raises
    TransportError for another shape.
    """
    with reading("ListStreams"):
        summaries = answer.get("StreamSummaries")
        if summaries is None:
            return [StreamFound(name=str(name)) for name in answer["StreamNames"]]
        return [
            StreamFound(
                name=one.name,
                arn=one.arn,
                status=one.status,
                mode=None if one.mode is None else one.mode.stream_mode,
                created_at=None if one.created_s is None else utc(one.created_s),
            )
            for one in msgspec.convert([_present(one) for one in summaries], type=list[_ListedStream])
        ]


def consumer_views(answer: Mapping[str, Any]) -> list[ConsumerView]:
    """Return the consumers of a page of ListStreamConsumers. Raises TransportError for another shape."""
    with reading("ListStreamConsumers"):
        return [
            ConsumerView(name=one.name, arn=one.arn, status=one.status, created_at=utc(one.created_s))
            for one in msgspec.convert(answer.get("Consumers", []), type=list[_Consumer])
        ]


def shard_views(shards: Iterable[ListedShard]) -> tuple[list[ShardView], list[tuple[str, str]]]:
    """Return the shards in the order of their lineage, and the holes that open shards leave in the hash range."""
    lineage = Lineage(shards)
    views = []
    for shard_id, shard in lineage.shards.items():
        opened_s = second_of(shard.first_sequence_number)
        views.append(
            ShardView(
                shard_id=shard_id,
                open=not shard.closed,
                generation=lineage.generation(shard_id),
                parents=lineage.parents(shard_id),
                children=lineage.children(shard_id),
                trimmed_parents=tuple(one for one in shard.parents if one not in lineage),
                first_hash_key=str(shard.first_hash_key),
                last_hash_key=str(shard.last_hash_key),
                hash_share=(shard.last_hash_key - shard.first_hash_key + 1) / (HASH_KEY_MAX + 1),
                first_sequence_number=str(shard.first_sequence_number),
                last_sequence_number=None if shard.last_sequence_number is None else str(shard.last_sequence_number),
                opened_at=None if opened_s is None else utc(opened_s),
            )
        )
    return views, [(str(first), str(last)) for first, last in lineage.holes()]


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are not null: null counts as absent, since some emulators write it."""
    return {name: value for name, value in values.items() if value is not None}
