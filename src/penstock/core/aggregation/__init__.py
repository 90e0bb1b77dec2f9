"""The KPL's aggregates: many user records in one Kinesis record. ``format`` describes the bytes."""

from penstock.core.aggregation.format import MAGIC
from penstock.core.aggregation.reader import (
    DEFAULT_LIMITS,
    Aggregate,
    AggregateLimits,
    UserRecord,
    append_user_records,
    is_aggregate,
    open_aggregate,
    why_plain,
)
from penstock.core.aggregation.writer import (
    AGGREGATE_BYTES_MAX,
    CONTAINER_PARTITION_KEY,
    Aggregator,
    Container,
    encode_aggregate,
)

__all__ = [
    "AGGREGATE_BYTES_MAX",
    "CONTAINER_PARTITION_KEY",
    "DEFAULT_LIMITS",
    "MAGIC",
    "Aggregate",
    "AggregateLimits",
    "Aggregator",
    "Container",
    "UserRecord",
    "append_user_records",
    "encode_aggregate",
    "is_aggregate",
    "open_aggregate",
    "why_plain",
]
