"""The bounds and intervals of a batcher, and what the service takes in a request."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from shardway.core.aggregation.writer import AGGREGATE_BYTES_MAX
from shardway.core.producer.pace import START_SHARE

REQUEST_RECORDS_MAX = 500
"""The most entries of a request (AWS API reference, PutRecords)."""
REQUEST_BYTES_MAX = 10 * 1024 * 1024
"""The most bytes of a request: data and partition keys of all entries (AWS API reference, PutRecords)."""

STEP_RECORDS = 2_000
"""The number of records in one step of what takes long: a few milliseconds. Others may run in between."""
RUN_WORK = 8
"""The number of records that a run counts for in a step, beside its own."""


class PaceLimits(NamedTuple):
    """The limits of what a shard takes, and the share of them at which a producer starts."""

    records_per_s: float = 1_000
    bytes_per_s: float = 1_048_576
    start_share: float = START_SHARE


class BatchLimits(NamedTuple):
    """The bounds and intervals of a batcher."""

    aggregate: bool = False
    ordered_by_key: bool = False
    linger_s: float = 0.005
    requests_in_flight_max: float = inf
    in_flight_bytes_max: float = inf
    """The bytes of payload on their way at which no further request is begun."""
    request_records_max: int = REQUEST_RECORDS_MAX
    request_bytes_max: int = REQUEST_BYTES_MAX
    aggregate_bytes_max: int = AGGREGATE_BYTES_MAX
    retry_base_s: float = 0.1
    retry_cap_s: float = 5.0
    pace: PaceLimits | None = None
    """The limits of what each shard takes. None: they are not known, and only what the service refuses is held back."""
