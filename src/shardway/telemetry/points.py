"""Make points of snapshots: a number of a metric, with what it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from shardway import events
from shardway.core.histogram import Histogram
from shardway.events.consumer_snapshot import Spread
from shardway.telemetry.metric_table import OF_SHARDS, TABLE
from shardway.telemetry.metrics import APPLICATION, SHARD, STREAM, SYSTEM, Metric, Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Point(msgspec.Struct, frozen=True):
    """One number with its attributes."""

    metric: Metric
    attributes: tuple[tuple[str, str], ...]
    value: float | Histogram | Spread


def stream_label(stream: str) -> str:
    """Return the name of a stream that was given by its name or ARN: no account id goes into a label."""
    return ", ".join(
        one.partition(":stream/")[2] or one if one.startswith("arn:") else one for one in stream.split(", ")
    )


Told: TypeAlias = "events.ConsumerMetrics | events.ProducerMetrics | events.QueryMetrics"
"""The events that have numbers."""
_POINT_FUNCTIONS = {
    events.ConsumerMetrics: Reporter.CONSUMER,
    events.ProducerMetrics: Reporter.PRODUCER,
    events.QueryMetrics: Reporter.QUERY,
}


def of_event(event: Told) -> Reporter:
    """Return which part emits the event."""
    return _POINT_FUNCTIONS[type(event)]


def common_to(event: Told) -> tuple[tuple[str, str], ...]:
    """Return the attributes that all numbers of an event have."""
    stream = (STREAM, stream_label(event.stream))
    if isinstance(event, events.ProducerMetrics):
        return (SYSTEM, stream)
    return (SYSTEM, stream, (APPLICATION, event.application))


def points(event: Told, *, by_shard: bool = False, shards_max: int = 200) -> Iterable[Point]:
    """Yield the numbers of an event, or of a sum of several events, in the order of `TABLE`.

    ``by_shard``: the levels of each shard are among them, by names of their own. At most ``shards_max`` shards are told
    apart; all further shards are one, with the name ``others``.
    """
    of, levels = of_event(event), event.snapshot.workers if isinstance(event, events.ConsumerMetrics) else {}
    shown = _Points(common_to(event), by_shard, shards_max)
    for metric in TABLE:
        if metric.of is of:
            yield from shown.of_metric(metric, event.snapshot, levels)


class _Points:
    """The points of one snapshot."""

    def __init__(self, common: tuple[tuple[str, str], ...], by_shard: bool, shards_max: int) -> None:
        self._common = common
        self._by_shard = by_shard
        self._shards_max = shards_max
        self._of_shards: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}  # attributes of shards, to share

    def of_metric(self, metric: Metric, snapshot: Any, workers: dict[str, Any]) -> Iterable[Point]:
        if metric.level is not None:
            yield from self._levels(metric, workers)
            return
        value = getattr(snapshot, metric.field)
        if metric.by is not None:
            for key, count in sorted(value.items()):
                yield self._point(metric, count, (metric.by, key))
        elif value is not None:
            yield self._point(metric, value)

    def _levels(self, metric: Metric, workers: dict[str, Any]) -> Iterable[Point]:
        assert metric.level is not None
        joined = sum if metric.sums else max
        if metric.field == "workers":
            values = [
                len(one.shards) if metric.level == "held" else getattr(one, metric.level)
                for one in workers.values()
                if not one.left
            ]
            if values:
                yield self._point(metric, joined(values))
            return
        found = [
            (shard, value * metric.factor if metric.factor != 1.0 else value)
            for worker in workers.values()
            for shard in worker.shards
            if (value := getattr(shard, metric.level)) is not None
        ]
        if found:
            yield self._point(metric, joined(value for _, value in found))
        elif metric.sums:
            yield self._point(metric, 0)
        if self._by_shard:
            yield from self._by_shards(metric, found, joined)

    def _by_shards(
        self, metric: Metric, found: list[tuple[Any, float]], joined: Callable[[Iterable[float]], float]
    ) -> Iterable[Point]:
        found.sort(key=lambda one: (one[0].stream, one[0].shard_id))
        for shard, value in found[: self._shards_max]:
            yield self._of_shard(metric, shard.stream, shard.shard_id, value)
        if rest := [value for _, value in found[self._shards_max :]]:
            yield self._of_shard(metric, "", "others", joined(rest))

    def _of_shard(self, metric: Metric, stream: str, shard_id: str, value: Any) -> Point:
        attributes = self._of_shards.get((stream, shard_id))
        if attributes is None:
            common = dict(self._common) | ({STREAM: stream_label(stream)} if stream else {})
            attributes = self._of_shards[stream, shard_id] = (*common.items(), (SHARD, shard_id))
        return Point(OF_SHARDS[metric.name], attributes, value)

    def _point(self, metric: Metric, value: Any, *more: tuple[str, str]) -> Point:
        return Point(metric, (*self._common, *metric.attributes, *more), value)
