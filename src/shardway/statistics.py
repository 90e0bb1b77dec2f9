"""The numbers that a consumer, a producer and a Spark query report of themselves."""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "ConsumerSnapshot": "shardway.events.consumer_snapshot",
    "ConsumerStatistics": "shardway.runtime.consumer.statistics",
    "MetricsOptions": "shardway.options.metrics",
    "ProducerSnapshot": "shardway.events.producer_snapshot",
    "QuerySnapshot": "shardway.events.query_snapshot",
    "ShardStatistics": "shardway.runtime.consumer.statistics",
}
"""The module of each name: that one is loaded for it, and no other."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
