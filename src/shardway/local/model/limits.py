"""Limits that can be switched on: throughput per shard, and the call rates of the API.

Sources: the limits page of the Kinesis Data Streams developer guide and the API reference's operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from shardway.local.model.errors import ModelError, limit_exceeded

MIB = 1024 * 1024
PAGE_SPAN_S = 3_600.0
"""The seconds of a shard's log that one GetRecords crosses at most, unless the limits are set otherwise."""
METERS_MAX = 65_536
"""The meters that are kept; when there are more, the idle ones are forgotten."""

_PER_ACCOUNT = {
    "AddTagsToStream": 5.0,
    "CreateStream": 5.0,
    "DecreaseStreamRetentionPeriod": 5.0,
    "DeleteResourcePolicy": 5.0,
    "DeleteStream": 5.0,
    "DescribeAccountSettings": 5.0,
    "DescribeLimits": 1.0,
    "DescribeStream": 10.0,
    "DescribeStreamSummary": 20.0,
    "DisableEnhancedMonitoring": 5.0,
    "EnableEnhancedMonitoring": 5.0,
    "GetResourcePolicy": 5.0,
    "IncreaseStreamRetentionPeriod": 5.0,
    "ListStreams": 5.0,
    "ListTagsForResource": 5.0,
    "ListTagsForStream": 5.0,
    "MergeShards": 5.0,
    "PutResourcePolicy": 5.0,
    "RegisterStreamConsumer": 5.0,
    "RemoveTagsFromStream": 5.0,
    "SplitShard": 5.0,
    "StartStreamEncryption": 5.0,
    "StopStreamEncryption": 5.0,
    "TagResource": 5.0,
    "UntagResource": 5.0,
    "UpdateAccountSettings": 5.0,
    "UpdateMaxRecordSize": 5.0,
    "UpdateShardCount": 10.0,
    "UpdateStreamMode": 5.0,
    "UpdateStreamRecordDistributionStrategy": 5.0,
    "UpdateStreamWarmThroughput": 5.0,
}
_PER_STREAM = {
    "DeregisterStreamConsumer": 5.0,
    "DescribeStreamConsumer": 20.0,
    "ListShards": 1_000.0,
    "ListStreamConsumers": 5.0,
}


class Limits(msgspec.Struct, kw_only=True):
    """Which limits are enforced, and how high they are. All rates allow a burst of one second's worth."""

    per_shard: bool = False
    """True: the limits of reading and writing per shard are enforced."""
    api: bool = False
    """True: the limits of the control plane's calls per account and per stream are enforced."""
    put_records_per_s: float = 1_000.0
    put_bytes_per_s: float = float(MIB)
    get_calls_per_s: float = 5.0
    get_bytes_per_s: float = 2.0 * MIB
    """Bytes a second that GetRecords reads of a shard. One call may return more at once (10 MiB); the following calls
    are refused until it has evened out.
    """
    page_span_s: Annotated[float, msgspec.Meta(gt=0)] = PAGE_SPAN_S
    """The seconds of a shard's log that one GetRecords crosses at most, in the time of the arrivals; always enforced.
    So a stretch without records is answered by empty pages, with a MillisBehindLatest that falls from one to the next.
    """
    iterator_calls_per_s: float = 5.0
    fanout_bytes_per_s: float = 2.0 * MIB
    """Bytes a second for each shard and registered consumer."""
    subscribe_calls_per_s: float = 1.0
    """Calls of SubscribeToShard a second for each shard and registered consumer."""
    account_calls_per_s: dict[str, float] = msgspec.field(default_factory=lambda: dict(_PER_ACCOUNT))
    """Calls a second of each operation, in the whole account."""
    stream_calls_per_s: dict[str, float] = msgspec.field(default_factory=lambda: dict(_PER_STREAM))
    """Calls a second of each operation, on each stream."""


class Meter:
    """A token bucket that holds one second's worth and may go into debt by one big amount.

    ``debt_waits``: an amount beyond what was left must be paid off in full (amount / rate seconds) before the next is
    let in.
    """

    __slots__ = ("_blocked_until", "_last_look", "_level", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._level = rate
        self._last_look = now
        self._blocked_until = 0.0

    def _fill(self, now: float) -> None:
        if now > self._last_look:
            self._level = min(self.rate, self._level + (now - self._last_look) * self.rate)
        self._last_look = now

    def allows(self, amount: float, now: float) -> bool:
        """Return True when ``amount`` may be taken now; more than a second's worth may be when the bucket is full."""
        self._fill(now)
        return self._level >= min(amount, self.rate) and now >= self._blocked_until

    def take(self, amount: float, now: float, *, debt_waits: bool = False) -> None:
        """Take an amount that was allowed, or that is known only now."""
        self._fill(now)
        self._level -= amount
        if debt_waits and self._level < 0:
            self._blocked_until = now + amount / self.rate

    def idle(self, now: float) -> bool:
        """Return True when the bucket is as good as new."""
        return now >= self._blocked_until and self._level + max(0.0, now - self._last_look) * self.rate >= self.rate


class Meters:
    """The meters that are in use, by what they measure."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._meters: dict[tuple[object, ...], Meter] = {}

    def meter(self, key: tuple[object, ...], rate: float) -> Meter:
        """Return the meter for ``key`` with the rate that holds now."""
        meter = self._meters.get(key)
        now = self._clock()
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                self._meters = {k: m for k, m in self._meters.items() if not m.idle(now)}
            meter = self._meters[key] = Meter(rate, now)
        meter.rate = rate
        return meter

    def take_if_allowed(self, key: tuple[object, ...], rate: float, amount: float = 1.0) -> bool:
        """Take an amount. Return False, and take nothing, when the amount is too much now."""
        meter = self.meter(key, rate)
        now = self._clock()
        if not meter.allows(amount, now):
            return False
        meter.take(amount, now)
        return True

    def account_call(self, operation: str, account_id: str) -> None:
        """Count a call of the control plane. Raises LimitExceededException."""
        rate = self.limits.account_calls_per_s.get(operation) if self.limits.api else None
        if rate is not None and not self.take_if_allowed((operation,), rate):
            raise limit_exceeded(f"Rate exceeded for account {account_id}.")

    def stream_call(self, operation: str, stream: str, account_id: str) -> None:
        """Count a call that is limited per stream. Raises LimitExceededException."""
        rate = self.limits.stream_calls_per_s.get(operation) if self.limits.api else None
        if rate is not None and not self.take_if_allowed((operation, stream), rate):
            raise limit_exceeded(f"Rate exceeded for stream {stream} under account {account_id}.")


def shard_throttled(shard: str, stream: str, account_id: str) -> ModelError:
    """Return a ProvisionedThroughputExceededException, as the data plane words it."""
    return ModelError("ProvisionedThroughputExceededException", throttle_text(shard, stream, account_id))


def throttle_text(shard: str, stream: str, account_id: str) -> str:
    """Return the text about a shard whose limit is reached, for an error and for an entry of PutRecords' answer."""
    return f"Rate exceeded for shard {shard} in stream {stream} under account {account_id}."
