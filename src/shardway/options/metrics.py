"""How often the numbers are reported, and in what detail: an option of consumers and of producers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shardway.core.options.base import Options
from shardway.ports import IntervalWish, ShardDetailWish


class MetricsOptions(Options, frozen=True, kw_only=True):
    """The intervals at which a consumer or a producer reports its numbers, and their detail."""

    interval_s: Annotated[float, Meta(gt=0)] | None = None
    """How often an event (`ConsumerMetrics`, `ProducerMetrics`) reports what happened since the one before. None: as
    often as an exporter that is the ``on_event`` wants it, and each 60 seconds for anything else.
    """
    per_shard: bool = False
    """True: numbers are counted by shard, too. An exporter that reports numbers by shard has that done in any case."""


METRICS_INTERVAL_S = 60.0
"""The interval at which the numbers are reported where neither the options nor the subscriber name one."""


def metrics_for(options: MetricsOptions, on_event: object) -> tuple[float, bool]:
    """Return how often the numbers are reported to this subscriber, in seconds, and whether by shard, too. An exporter
    says what it wants: see `IntervalWish` and `ShardDetailWish`.
    """
    wanted_s = on_event.metrics_interval_s if isinstance(on_event, IntervalWish) else None
    per_shard = isinstance(on_event, ShardDetailWish) and on_event.metrics_per_shard
    return options.interval_s or wanted_s or METRICS_INTERVAL_S, options.per_shard or per_shard
