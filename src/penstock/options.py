"""The options of services: frozen, keyword-only, checked in one place, all faults at once.

Each is documented where it stands; ``docs/reference/producer.md`` is made from here.
"""

from __future__ import annotations

import msgspec

from penstock.core.aggregation import AGGREGATE_BYTES_MAX
from penstock.core.batching.batcher import REQUEST_BYTES_MAX, REQUEST_RECORDS_MAX
from penstock.core.batching.chunk import RECORD_OVERHEAD_BYTES
from penstock.errors import OptionError

MIB = 1024 * 1024


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a `Producer`. Raises OptionError with all faults."""

    aggregation: bool = False
    """Pack user records into KPL aggregates, by predicted shard. The stream then gets far fewer and larger Kinesis
    records, which cost less and allow more throughput. Readers must open them (the KCL, the KPL's readers and Penstock
    do). The producer switches this off by itself where the stream ignores partition keys, or where it can't list the
    shards.
    """
    aggregate_bytes_max: int = AGGREGATE_BYTES_MAX
    """An aggregate is no larger than this, unless a single user record is. This is the KPL's AggregationMaxSize."""
    ordered_by_key: bool = False
    """Keep the order of each partition key, also when the service refuses records. With aggregation each shard has one
    aggregate in flight; without it each key has one record in flight. This costs throughput where one shard or key is
    hot. False: throughput comes first, and records of a key may be written out of order after a refusal.
    """

    buffer_bytes_max: int = 16 * MIB
    """The most memory for records that have no outcome yet: each counts with its data, its partition key and 256 bytes
    of book-keeping, and each chunk of them with 1,024 bytes.
    """
    raise_when_full: bool = False
    """True: ``put`` and ``put_many`` raise BufferFullError when there is no room. False: they wait for it."""
    record_bytes_max: int = REQUEST_BYTES_MAX
    """The producer refuses a record with more data and key at once. The stream's own limit (MaxRecordSizeInKiB) may be
    lower.
    """

    linger_s: float = 0.005
    """How long a record waits for others that can share its request, and the least time between two requests that
    others could still join. The first record after a pause does not wait. More time gives larger requests and
    aggregates; with 0 no record waits.
    """
    request_records_max: int = REQUEST_RECORDS_MAX
    """The most Kinesis records in a PutRecords request."""
    request_bytes_max: int = REQUEST_BYTES_MAX
    """The most data and partition keys in a request. If an endpoint refuses that much, the producer lowers it to 5 MiB
    by itself.
    """
    request_timeout_s: float = 10.0
    """The producer gives up a request that has no answer after this time; it is then unknown whether the service has
    done it.
    """
    requests_in_flight_max: int = 24
    """The most requests that wait for their answer at the same time."""
    in_flight_bytes_max: int = 8 * MIB
    """The producer begins no further request while those in flight have this much payload."""

    record_ttl_s: float = 30.0
    """A record that is not written by then fails with RecordExpiredError, whether it waited, was refused or was never
    sent. A record that is in flight at that time gets its outcome when its answer comes, or when ``request_timeout_s``
    has passed.
    """
    retry_base_s: float = 0.1
    """The pause before the first retry is random, up to this bound; each further bound is twice the one before."""
    retry_cap_s: float = 5.0
    """The highest of these bounds."""

    pacing: bool = True
    """Keep to each shard's limits. Where other writers share a shard, keep to less, which the producer learns from
    refusals.
    """
    shard_records_per_s: float = 1_000
    """How many records a shard takes in a second (AWS: Kinesis quotas)."""
    shard_bytes_per_s: float = MIB
    """How much a shard takes in a second, data and partition keys together."""
    shard_map_refresh_s: float = 60.0
    """How often the producer lists the shards. It also does so whenever an answer shows that they changed."""

    metrics_interval_s: float = 60.0
    """How often a ProducerMetrics event reports what happened since the last one."""
    metrics_per_shard: bool = False
    """Count for each shard, too."""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        faults = [f"{name} must be a number, not {given[name]!r}" for name in _NUMBERS if not _is_number(given[name])]
        wrong_flags = [name for name in _FLAGS if not isinstance(given[name], bool)]
        faults += [f"{name} must be True or False, not {given[name]!r}" for name in wrong_flags]
        if faults:
            raise OptionError(faults)
        faults = [f"{name} must be more than 0, not {given[name]}" for name in _POSITIVE if given[name] <= 0]
        faults += [f"{name} must be at least 0, not {given[name]}" for name in _NOT_NEGATIVE if given[name] < 0]
        faults += [
            f"{name} is at most {most} (AWS API reference, PutRecords), not {given[name]}"
            for name, most in _AT_MOST.items()
            if given[name] > most
        ]
        if self.retry_base_s > self.retry_cap_s:
            faults.append("retry_base_s must not be above retry_cap_s")
        if self.record_bytes_max + RECORD_OVERHEAD_BYTES > self.buffer_bytes_max:
            faults.append("buffer_bytes_max must hold at least one record of record_bytes_max, and 256 bytes")
        if faults:
            raise OptionError(faults)


_POSITIVE = (
    "aggregate_bytes_max",
    "buffer_bytes_max",
    "record_bytes_max",
    "request_records_max",
    "request_bytes_max",
    "request_timeout_s",
    "requests_in_flight_max",
    "in_flight_bytes_max",
    "record_ttl_s",
    "retry_cap_s",
    "shard_records_per_s",
    "shard_bytes_per_s",
    "shard_map_refresh_s",
    "metrics_interval_s",
)
_NOT_NEGATIVE = ("linger_s", "retry_base_s")
_NUMBERS = (*_POSITIVE, *_NOT_NEGATIVE)
_FLAGS = ("aggregation", "ordered_by_key", "raise_when_full", "pacing", "metrics_per_shard")
_AT_MOST = {
    "request_records_max": REQUEST_RECORDS_MAX,
    "request_bytes_max": REQUEST_BYTES_MAX,
    "record_bytes_max": REQUEST_BYTES_MAX,
    "aggregate_bytes_max": REQUEST_BYTES_MAX,
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
