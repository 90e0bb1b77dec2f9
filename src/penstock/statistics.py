"""The numbers that a consumer, a producer and a Spark query report of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.public import loaded_from

if TYPE_CHECKING:
    from penstock.options import MetricsOptions
    from penstock.runtime.consumer.counting import ConsumerStatistics, ShardStatistics
    from penstock.runtime.producer.metrics import ProducerSnapshot
    from penstock.telemetry.consumer_metrics import ConsumerSnapshot
    from penstock.telemetry.snapshots import QuerySnapshot

__all__ = [
    "ConsumerSnapshot",
    "ConsumerStatistics",
    "MetricsOptions",
    "ProducerSnapshot",
    "QuerySnapshot",
    "ShardStatistics",
]

_HOMES = {
    "ConsumerSnapshot": "penstock.telemetry.consumer_metrics",
    "ConsumerStatistics": "penstock.runtime.consumer.counting",
    "MetricsOptions": "penstock.options",
    "ProducerSnapshot": "penstock.runtime.producer.metrics",
    "QuerySnapshot": "penstock.telemetry.snapshots",
    "ShardStatistics": "penstock.runtime.consumer.counting",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
