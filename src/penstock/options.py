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
    """Pack user records into KPL aggregates, by predicted shard: far fewer and larger Kinesis records, so less cost and
    more throughput. Readers must open them (the KCL, the KPL's readers, Penstock do). Switches itself off where the
    stream ignores partition keys, or its shards can't be listed.
    """
    aggregate_bytes_max: int = AGGREGATE_BYTES_MAX
    """An aggregate is no larger, but for a single user record that is. The KPL's AggregationMaxSize."""
    ordered_by_key: bool = False
    """Keep the order of each partition key, also when records are refused: with aggregation a shard has one aggregate
    on its way, without it a key one record. Costs throughput where one shard or key is hot. Without it throughput
    comes first, and records of a key may be written out of order after a refusal.
    """

    buffer_bytes_max: int = 16 * MIB
    """What records may take that have no outcome yet: data, partition key and 256 bytes each for its book-keeping, and
    1,024 bytes for each chunk of them.
    """
    raise_when_full: bool = False
    """True: ``put`` and ``put_many`` raise BufferFullError when there is no room. False: they wait for it."""
    record_bytes_max: int = REQUEST_BYTES_MAX
    """A record with more data and key is refused at once. The stream's own limit (MaxRecordSizeInKiB) may be lower."""

    linger_s: float = 0.005
    """A request that others could still join goes at most so often. The first record after a pause goes at once, and
    no record waits longer than this for company. More gives larger requests and aggregates; 0 never waits.
    """
    request_records_max: int = REQUEST_RECORDS_MAX
    """Kinesis records in a PutRecords request."""
    request_bytes_max: int = REQUEST_BYTES_MAX
    """Data and partition keys in a request. If an endpoint refuses that much, it is lowered to 5 MiB by itself."""
    request_timeout_s: float = 10.0
    """A request that has no answer after this is given up; whether it was done is unknown then."""
    requests_in_flight_max: int = 24
    """Requests that wait for their answer at the same time."""
    in_flight_bytes_max: int = 8 * MIB
    """No further request is begun while those on their way have this much payload."""

    record_time_to_live_s: float = 30.0
    """A record that is not written by then fails with RecordExpiredError: waiting, refused or never sent. One that is
    on its way then is told when its answer comes, or ``request_timeout_s`` has passed.
    """
    retry_base_s: float = 0.1
    """The wait before the first repetition is random, up to this; each further bound is twice the one before."""
    retry_cap_s: float = 5.0
    """No such bound is higher."""

    pacing: bool = True
    """Keep to each shard's limits, and to less where other writers share it, learnt from refusals."""
    shard_records_per_s: float = 1_000
    """What a shard takes (AWS: Kinesis quotas)."""
    shard_bytes_per_s: float = MIB
    """What a shard takes, data and partition keys."""
    shard_map_refresh_s: float = 60.0
    """How often the shards are listed, beside whenever an answer shows that they changed."""

    metrics_interval_s: float = 60.0
    """How often a ProducerMetrics event tells what happened since the last one."""
    metrics_per_shard: bool = False
    """Count by shard, too."""

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
    "record_time_to_live_s",
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
