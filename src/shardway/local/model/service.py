"""The service model, which has one entry for all operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.local.model import account, consumers, policies, resharding, settings, shard_lists, streams, tags
from shardway.local.model.checking import check
from shardway.local.model.errors import ModelError, serialization, stream_not_found, validation
from shardway.local.model.get import get_records, get_shard_iterator
from shardway.local.model.limits import Limits, Meters
from shardway.local.model.put import put_record, put_records
from shardway.local.model.state import Change, State
from shardway.local.model.subscriptions import Subscription, Subscriptions
from shardway.local.model.times import epoch_ms

if TYPE_CHECKING:
    import random

    from shardway.local.model.stream import Stream

SHARD_QUOTA = 20_000
"""The shards that an account may have open: AWS's default in its largest regions."""

_RAW: dict[str, Callable[[KinesisModel, bytes], bytes]] = {
    "GetRecords": get_records,
    "GetShardIterator": get_shard_iterator,
    "PutRecord": put_record,
    "PutRecords": put_records,
}
"""The operations of the data plane, which read and write JSON themselves."""

_PLAIN_OPERATIONS: dict[str, Callable[[KinesisModel, dict[str, Any]], dict[str, Any] | None]] = {
    "AddTagsToStream": tags.add_tags_to_stream,
    "CreateStream": streams.create_stream,
    "DecreaseStreamRetentionPeriod": settings.decrease_stream_retention_period,
    "DeleteResourcePolicy": policies.delete_resource_policy,
    "DeleteStream": streams.delete_stream,
    "DeregisterStreamConsumer": consumers.deregister_stream_consumer,
    "DescribeAccountSettings": account.describe_account_settings,
    "DescribeLimits": account.describe_limits,
    "DescribeStream": streams.describe_stream,
    "DescribeStreamConsumer": consumers.describe_stream_consumer,
    "DescribeStreamSummary": streams.describe_stream_summary,
    "DisableEnhancedMonitoring": settings.disable_enhanced_monitoring,
    "EnableEnhancedMonitoring": settings.enable_enhanced_monitoring,
    "GetResourcePolicy": policies.get_resource_policy,
    "IncreaseStreamRetentionPeriod": settings.increase_stream_retention_period,
    "ListShards": shard_lists.list_shards,
    "ListStreamConsumers": consumers.list_stream_consumers,
    "ListStreams": streams.list_streams,
    "ListTagsForResource": tags.list_tags_for_resource,
    "ListTagsForStream": tags.list_tags_for_stream,
    "MergeShards": resharding.merge_shards,
    "PutResourcePolicy": policies.put_resource_policy,
    "RegisterStreamConsumer": consumers.register_stream_consumer,
    "RemoveTagsFromStream": tags.remove_tags_from_stream,
    "SplitShard": resharding.split_shard,
    "StartStreamEncryption": settings.start_stream_encryption,
    "StopStreamEncryption": settings.stop_stream_encryption,
    "TagResource": tags.tag_resource,
    "UntagResource": tags.untag_resource,
    "UpdateAccountSettings": account.update_account_settings,
    "UpdateMaxRecordSize": settings.update_max_record_size,
    "UpdateShardCount": resharding.update_shard_count,
    "UpdateStreamMode": settings.update_stream_mode,
    "UpdateStreamRecordDistributionStrategy": settings.update_record_distribution_strategy,
    "UpdateStreamWarmThroughput": settings.update_stream_warm_throughput,
}


class KinesisModel:
    """Kinesis Data Streams without the network: JSON in, JSON out; time and randomness are passed in.

    ``clock`` gives epoch seconds; it may jump ahead. ``stream_settle_s`` is how long CREATING, UPDATING and DELETING
    last; what is due happens at the next call that looks. ``shard_quota`` is how many shards may be open in the
    account.

    A journal gets each durable change after it was made (``keep_in``); ``apply`` makes such a change in another model.
    Only one thread at a time may use a model.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        region: str = "us-east-1",
        account_id: str = "000000000000",
        limits: Limits | None = None,
        shard_quota: int = SHARD_QUOTA,
        stream_settle_s: float = 0.0,
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.region = region
        self.account_id = account_id
        self.shard_quota = shard_quota
        self.stream_settle_s = stream_settle_s
        self._journal: Callable[[Change], None] | None = None
        self.state = State(f"arn:aws:kinesis:{region}:{account_id}:")
        self.meters = Meters(limits or Limits(), clock)
        self.subscriptions = Subscriptions()
        self.moved = 0
        """The number of records that the last call put or got."""
        self._serial = 0

    @property
    def operations(self) -> frozenset[str]:
        """The operations that ``handle`` knows; SubscribeToShard is ``subscribe``."""
        return frozenset(_RAW) | frozenset(_PLAIN_OPERATIONS)

    @property
    def limits(self) -> Limits:
        """The limits that hold; they may be exchanged, or changed, at any time."""
        return self.meters.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.meters = Meters(limits, self.clock)

    def handle(self, operation: str, body: bytes) -> bytes:
        """Answer one call. ``body`` is the JSON request; the answer is JSON, or empty where AWS's is. Raises
        ModelError.
        """
        self.moved = 0
        raw = _RAW.get(operation)
        if raw is not None:
            return raw(self, body)
        plain = _PLAIN_OPERATIONS.get(operation)
        if plain is None:
            raise ModelError("UnknownOperationException")
        request = check(operation, self.decode(body))
        self.meters.account_call(operation, self.account_id)
        answer = plain(self, request)
        return b"" if answer is None else msgspec.json.encode(answer)

    def subscribe(self, body: bytes) -> Subscription:
        """Answer SubscribeToShard with its stream of events. Raises ModelError."""
        return self.subscriptions.subscribe(self, check("SubscribeToShard", self.decode(body)))

    def apply(self, change: Change) -> None:
        """Make a change that a journal kept."""
        self.state.apply(change)

    def keep_in(self, journal: Callable[[Change], None] | None) -> None:
        """Give ``journal`` each change that is made from here on; None: no journal gets the changes."""
        self._journal = journal

    # --- for the operations ---------------------------------------------------------------------

    def commit(self, *change: Any) -> None:
        """Make a change that an operation decided on, and give it to the journal."""
        self.state.apply(change)
        if self._journal is not None:
            self._journal(change)

    def decode(self, body: bytes) -> Any:
        """Return a request's JSON as values. Raises SerializationException."""
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise serialization() from error

    def now_ms(self) -> int:
        """Return the time in whole milliseconds since the epoch."""
        return epoch_ms(self.clock())

    def due_ms(self, now_ms: int) -> int:
        """Return the time at which a change of a stream's status that begins now is over."""
        return now_ms + int(self.stream_settle_s * 1000)

    def serial(self) -> int:
        """Return a number that was not given before."""
        self._serial += 1
        return self._serial

    def settle(self, stream: Stream) -> None:
        """End the stream's CREATING, UPDATING or DELETING if its time has come."""
        if stream.status != "ACTIVE":
            now_ms = self.now_ms()
            if stream.due_ms <= now_ms:
                self.commit("settle", stream.uid, now_ms)

    def settle_all(self) -> None:
        """End each stream's CREATING, UPDATING or DELETING whose time has come."""
        for stream in list(self.state.streams.values()):
            self.settle(stream)

    def stream_named(self, name: str | None, arn: str | None) -> str:
        """Return the stream's name, which a request gives by name or by ARN."""
        return name if name is not None else (arn or "").rpartition("/")[2]

    def find_stream(self, name: str | None, arn: str | None) -> Stream | None:
        """Return the stream that a request names by name, by ARN or by both; None when there is none."""
        stream = self.state.streams.get(self.stream_named(name, arn))
        if stream is not None and stream.status != "ACTIVE":
            self.settle(stream)
            stream = self.state.streams.get(stream.name)
        return stream if stream is None or arn is None or arn == stream.arn else None

    def stream_of_uid(self, uid: int) -> Stream | None:
        """Return the stream with this number, if it still exists."""
        stream = self.state.by_uid.get(uid)
        if stream is not None and stream.status != "ACTIVE":
            self.settle(stream)
            stream = self.state.by_uid.get(uid)
        return stream

    def stream_of(self, request: dict[str, Any]) -> Stream:
        """Return the stream that a checked request names. Raises ModelError."""
        name, arn = request.get("StreamName"), request.get("StreamARN")
        stream = self.find_stream(name, arn)
        if stream is None:
            if name is not None and arn is not None and arn.rpartition("/")[2] != name:
                raise validation("StreamARN and StreamName name different streams.")
            raise stream_not_found(self.stream_named(name, arn), self.account_id)
        return stream
