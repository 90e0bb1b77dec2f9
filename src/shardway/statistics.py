"""The numbers that a consumer, a producer and a Spark query report of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.public import loaded_from

if TYPE_CHECKING:
    from shardway.options import MetricsOptions
    from shardway.runtime.consumer.statistics import ConsumerStatistics, ShardStatistics
    from shardway.runtime.producer.metrics import ProducerSnapshot
    from shardway.telemetry.consumer_metrics import ConsumerSnapshot
    from shardway.telemetry.snapshots import QuerySnapshot

__all__ = [
    "ConsumerSnapshot",
    "ConsumerStatistics",
    "MetricsOptions",
    "ProducerSnapshot",
    "QuerySnapshot",
    "ShardStatistics",
]

_HOMES = {
    "ConsumerSnapshot": "shardway.telemetry.consumer_metrics",
    "ConsumerStatistics": "shardway.runtime.consumer.statistics",
    "MetricsOptions": "shardway.options",
    "ProducerSnapshot": "shardway.runtime.producer.metrics",
    "QuerySnapshot": "shardway.telemetry.snapshots",
    "ShardStatistics": "shardway.runtime.consumer.statistics",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
