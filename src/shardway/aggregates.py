"""The KPL's aggregates: many user records in one Kinesis record. Consumers and the Spark source open them by
themselves; these are for programs that read a stream in another way.
"""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "Aggregate": "shardway.core.aggregation.aggregate",
    "AggregateLimits": "shardway.core.aggregation.aggregate",
    "UserRecord": "shardway.core.aggregation.aggregate",
    "open_aggregate": "shardway.core.aggregation.reader",
    "why_plain": "shardway.core.aggregation.reader",
}
"""The module of each name: that one is loaded for it, and no other."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
