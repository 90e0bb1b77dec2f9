"""The options of a producer. ``docs/reference/producer.md`` is made from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from shardway.core.aggregation.writer import AGGREGATE_BYTES_MAX
from shardway.core.options.base import Options
from shardway.core.options.hints import ENDLESS
from shardway.core.producer.chunk import RECORD_OVERHEAD_BYTES
from shardway.core.producer.limits import REQUEST_BYTES_MAX, REQUEST_RECORDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
PUT_RECORDS = "AWS API reference, PutRecords"
"""Where the bounds of a request stand, for errors."""


class ProducerOptions(Options, frozen=True, kw_only=True):
    """The options of a `Producer`. Raises OptionError with all faults."""

    aggregation: bool = False
    """Pack user records into KPL aggregates, by predicted shard. The stream then gets far fewer and larger Kinesis
    records, which cost less and allow more throughput. Readers must open them (the KCL, the KPL's readers and Shardway
    do). The producer switches this off by itself where the stream ignores partition keys, or where it can't list the
    shards.
    """
    aggregate_bytes_max: Annotated[int, Meta(gt=0, le=REQUEST_BYTES_MAX, description=PUT_RECORDS)] = AGGREGATE_BYTES_MAX
    """An aggregate is no larger than this, unless a single user record is. This is the KPL's AggregationMaxSize."""
    ordered_by_key: bool = False
    """Keep the order of each partition key, also when the service refuses records. With aggregation each shard has one
    aggregate in flight; without it each key has one record in flight. This costs throughput where one shard or key is
    hot. False: throughput comes first, and records of a key may be written out of order after a refusal. A record that
    failed as maybe written (`PutError.may_be_written`) may still arrive, behind records of its key that were put later.
    """

    buffer_bytes_max: Annotated[int, Meta(gt=0)] = 16 * MIB
    """The most memory for records that have no outcome yet: each counts with its data, its partition key and 256 bytes
    of book-keeping, and each chunk of them with 1,024 bytes.
    """
    raise_when_full: bool = False
    """True: ``put`` and ``put_many`` raise BufferFullError when there is no room. False: they wait for it."""
    record_bytes_max: Annotated[int, Meta(gt=0, le=REQUEST_BYTES_MAX, description=PUT_RECORDS)] = REQUEST_BYTES_MAX
    """The producer refuses a record with more data and key at once. The stream's own limit (MaxRecordSizeInKiB) may be
    lower.
    """

    linger_s: Annotated[float, Meta(ge=0)] = 0.005
    """How long a record waits for others that can share its request, and the least time between two requests that
    others could still join. The first record after a pause does not wait. More time gives larger requests and
    aggregates; with 0 no record waits.
    """
    request_records_max: Annotated[int, Meta(gt=0, le=REQUEST_RECORDS_MAX, description=PUT_RECORDS)] = (
        REQUEST_RECORDS_MAX
    )
    """The most Kinesis records in a PutRecords request."""
    request_bytes_max: Annotated[int, Meta(gt=0, le=REQUEST_BYTES_MAX, description=PUT_RECORDS)] = REQUEST_BYTES_MAX
    """The most data and partition keys in a request. If an endpoint refuses that much, the producer lowers it to 5 MiB
    by itself.
    """
    request_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """The producer gives up a request that has no answer after this time; it is then unknown whether the service has
    done it.
    """
    requests_in_flight_max: Annotated[int, Meta(gt=0)] = 24
    """The most requests that wait for their answer at the same time."""
    in_flight_bytes_max: Annotated[int, Meta(gt=0)] = 8 * MIB
    """The producer begins no further request while those in flight have this much payload."""

    record_ttl_s: Annotated[float, Meta(gt=0), ENDLESS] = 30.0
    """A record that is not written by then fails with RecordExpiredError, whether it waited, was refused or was never
    sent. A record that is in flight at that time gets its outcome when its answer comes, or when ``request_timeout_s``
    has passed.
    """
    retry_base_s: Annotated[float, Meta(ge=0)] = 0.1
    """The pause before the first retry is random, up to this bound; each further bound is twice the one before."""
    retry_cap_s: Annotated[float, Meta(gt=0)] = 5.0
    """The highest of these bounds."""

    pacing: bool = True
    """Keep to each shard's limits. Where other writers share a shard, keep to less, which the producer learns from
    refusals.
    """
    shard_records_per_s: Annotated[float, Meta(gt=0)] = 1_000
    """How many records a shard takes in a second (AWS: Kinesis quotas)."""
    shard_bytes_per_s: Annotated[float, Meta(gt=0)] = MIB
    """How much a shard takes in a second, data and partition keys together."""
    shard_map_refresh_s: Annotated[float, Meta(gt=0)] = 60.0
    """How often the producer lists the shards. It also does so whenever an answer shows that they changed."""

    def _rules(self) -> Iterator[str]:
        if self.retry_base_s > self.retry_cap_s:
            yield "retry_base_s must not be above retry_cap_s"
        if self.record_bytes_max + RECORD_OVERHEAD_BYTES > self.buffer_bytes_max:
            yield "buffer_bytes_max must hold at least one record of record_bytes_max, and 256 bytes"
