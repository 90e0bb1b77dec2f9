"""The numbers that a consumer, a producer and a Spark query report of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.public import loaded_from

if TYPE_CHECKING:
    from shardway.events.consumer_snapshot import ConsumerSnapshot
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.events.query_snapshot import QuerySnapshot
    from shardway.options.metrics import MetricsOptions
    from shardway.runtime.consumer.statistics import ConsumerStatistics, ShardStatistics

__all__ = [
    "ConsumerSnapshot",
    "ConsumerStatistics",
    "MetricsOptions",
    "ProducerSnapshot",
    "QuerySnapshot",
    "ShardStatistics",
]

_HOMES = {
    "ConsumerSnapshot": "shardway.events.consumer_snapshot",
    "ConsumerStatistics": "shardway.runtime.consumer.statistics",
    "MetricsOptions": "shardway.options.metrics",
    "ProducerSnapshot": "shardway.events.producer_snapshot",
    "QuerySnapshot": "shardway.events.query_snapshot",
    "ShardStatistics": "shardway.runtime.consumer.statistics",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
