# Written by scripts/stubs.py from the list in aggregates.py.

from shardway.core.aggregation.aggregate import Aggregate as Aggregate
from shardway.core.aggregation.aggregate import AggregateLimits as AggregateLimits
from shardway.core.aggregation.aggregate import UserRecord as UserRecord
from shardway.core.aggregation.reader import open_aggregate as open_aggregate
from shardway.core.aggregation.reader import why_plain as why_plain

__all__ = [
    "Aggregate",
    "AggregateLimits",
    "UserRecord",
    "open_aggregate",
    "why_plain",
]
