"""The snapshot of a producer's numbers, and how the numbers of several add up."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardway.core.histogram import Histogram
from shardway.events.snapshots import Snapshot, sum_of_fields


class ShardSnapshot(msgspec.Struct, kw_only=True):
    """The figures of one shard: the one that took the records, or was predicted for those that it did not take."""

    records_put: int = 0
    """The number of Kinesis records put: an aggregate is one."""
    record_bytes_put: int = 0
    """The bytes of data and partition key of the records put."""
    records_refused: int = 0
    """The number of records that were refused for the shard's limits; each refusal counts."""
    records_failed_attempts: int = 0
    """The number of times that a record came back with an error, refusals included."""
    user_records_put: int = 0
    """The number of user records that were written, as their results say."""
    user_bytes_put: int = 0
    """The data bytes of the user records put, without keys."""
    attempts: int = 0
    """The number of requests that carried the user records which were put, summed over them."""

    def __add__(self, other: ShardSnapshot) -> ShardSnapshot:
        if not isinstance(other, ShardSnapshot):
            return NotImplemented
        return sum_of_fields(self, other)


class ProducerSnapshot(Snapshot, kw_only=True):
    """The figures of a producer from ``period_start_s`` to ``period_end_s`` (both of the clock that the producer uses).

    ``a + b`` covers both periods: counters and histograms add up. The two gauges (``user_records_pending``,
    ``buffer_bytes``) are levels at ``period_end_s``: the later one counts, and those of the same moment, which are of
    different producers, add up.

    A user record ends as exactly one of put, failed, expired, withdrawn; until then it is pending.
    """

    _is_of: ClassVar[str] = "producer"
    _rates: ClassVar[tuple[str, ...]] = ("success_rate", "records_per_s", "bytes_per_s", "attempts_mean")

    user_records_accepted: int = 0
    """The number of user records that were taken into the buffer."""
    user_records_put: int = 0
    """The number of user records that were written, as their results say."""
    user_records_failed: int = 0
    """The number of user records that were given up because of an error that repeating does not mend."""
    user_records_expired: int = 0
    """The number of user records that were not put within their time to live."""
    user_records_withdrawn: int = 0
    """The number of user records that the caller took back before they were sent."""
    user_bytes_put: int = 0
    """The data bytes of the user records put, without keys."""
    records_put: int = 0
    """The number of Kinesis records put: an aggregate is one."""
    record_bytes_put: int = 0
    """The bytes of data and partition key of the records put, as the service counts them."""
    records_refused: int = 0
    """The number of records that were refused for a shard's limits; each refusal counts."""
    records_failed_attempts: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of times that a record came back, by error code, refusals included; all but the last attempt are
    retried.
    """
    requests: int = 0
    """The number of PutRecords requests that ended, failed ones included."""
    requests_failed: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of requests that failed as a whole, by error code."""
    aggregates: int = 0
    """The number of records put that are aggregates."""
    aggregates_repeated: int = 0
    """The number of aggregates that landed on a shard which does not hold all their user records, and were put again by
    shard.
    """
    duplicates_possible: int = 0
    """The number of user records put that the stream may hold twice."""

    user_records_pending: int = 0
    """The number of user records that were taken, and had no outcome at the period's end: a gauge."""
    buffer_bytes: int = 0
    """The bytes that the pending user records count against ``buffer_bytes_max``: a gauge."""

    latency_s: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from the put of a user record to its outcome (put, failed or expired)."""
    attempts: Histogram = msgspec.field(default_factory=Histogram)
    """The number of requests that carried a user record until its outcome."""
    buffering_s: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from the put of a user record to the first request that carried it."""
    request_s: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds that a request took, failed ones included."""
    request_records: Histogram = msgspec.field(default_factory=Histogram)
    """The number of records in a request."""
    request_user_records: Histogram = msgspec.field(default_factory=Histogram)
    """The number of user records in a request's records."""
    request_bytes: Histogram = msgspec.field(default_factory=Histogram)
    """The bytes of data and partition keys of a request's records."""
    record_bytes: Histogram = msgspec.field(default_factory=Histogram)
    """The bytes of data and partition key of each record put."""
    user_records_per_record: Histogram = msgspec.field(default_factory=Histogram)
    """The number of user records in a record put; 1 for one that is no aggregate."""

    per_shard: dict[str, ShardSnapshot] = msgspec.field(default_factory=dict)
    """The figures of each shard, by shard id; empty unless asked for."""

    def __add__(self, other: ProducerSnapshot) -> ProducerSnapshot:
        if not isinstance(other, ProducerSnapshot):
            return NotImplemented
        end_s = max(self.period_end_s, other.period_end_s)
        last = [one for one in (self, other) if one.period_end_s == end_s]
        return sum_of_fields(
            self,
            other,
            period_start_s=min(self.period_start_s, other.period_start_s),
            period_end_s=end_s,
            user_records_pending=sum(one.user_records_pending for one in last),
            buffer_bytes=sum(one.buffer_bytes for one in last),
        )

    @property
    def success_rate(self) -> float | None:
        """The part of the user records with an outcome (withdrawn ones aside) that was put. None without any."""
        ended = self.user_records_put + self.user_records_failed + self.user_records_expired
        return self.user_records_put / ended if ended else None

    @property
    def records_per_s(self) -> float:
        """User records put per second of the period; 0.0 for an empty period."""
        return self.user_records_put / self.period_s if self.period_s > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes of user data put per second of the period; 0.0 for an empty period."""
        return self.user_bytes_put / self.period_s if self.period_s > 0 else 0.0

    @property
    def attempts_mean(self) -> float | None:
        """The mean number of requests that carried a user record until its outcome. None without any."""
        return self.attempts.mean

    @property
    def errors(self) -> int:
        """The number of records that came back with an error, and of requests that failed as a whole, together."""
        return sum(self.records_failed_attempts.values()) + sum(self.requests_failed.values())
