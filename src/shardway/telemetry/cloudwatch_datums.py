"""Make CloudWatch's datums of snapshots, by the choice of level and dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from shardway import events
from shardway.core.histogram import BUCKETS_PER_DOUBLING, RELATIVE_ERROR_MAX, Histogram
from shardway.core.options.base import Options
from shardway.events.consumer_snapshot import OTHERS, Spread
from shardway.telemetry.metric_table import TABLE
from shardway.telemetry.metrics import EXPECTATION, CloudWatchName, Kind, Level, Metric
from shardway.telemetry.points import of_event, stream_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.telemetry.points import Told


VALUES_MAX = 150
"""The different values of a metric that PutMetricData takes."""
DIMENSION_BYTES_MAX = 1024
KPL_NAMESPACE = "KinesisProducerLibrary"
SHARD_ID, WORKER_ID = "ShardId", "WorkerIdentifier"
LevelName: TypeAlias = Literal["NONE", "SUMMARY", "DETAILED"]
DimensionName: TypeAlias = Literal["ShardId", "WorkerIdentifier"]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)
DIMENSIONS: tuple[DimensionName, ...] = get_args(DimensionName)


class CloudWatchChoice(Options, frozen=True, kw_only=True):
    """What is sent to CloudWatch, which bills for each metric by its name and dimensions. Raises OptionError."""

    level: LevelName = "SUMMARY"
    """NONE, SUMMARY or DETAILED, which mean what they mean in the KCL's ``metricsLevel``."""
    dimensions: tuple[DimensionName, ...] = ()
    """The dimensions beside those that are always there: ``ShardId`` (each metric once for each shard) and
    ``WorkerIdentifier`` (once for each worker id that there ever was).
    """
    namespace: str | None = None
    """The namespace. None: the application's name for consumers, as the KCL has it, and KinesisProducerLibrary for
    producers.
    """
    shards_max: Annotated[int, Meta(ge=0)] = 1000
    """The shards that are told apart; all further shards are one, with the name ``others``."""


class Datum(msgspec.Struct, frozen=True):
    """One metric in one period: values, each with its count; or the ``spread`` of the values."""

    namespace: str
    name: str
    unit: str
    dimensions: tuple[tuple[str, str], ...]
    values: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    spread: Spread | None = None

    @property
    def together(self) -> Spread:
        """The count, the sum and the ends of the values."""
        if self.spread is not None:
            return self.spread
        total = sum(value * count for value, count in zip(self.values, self.counts, strict=True))
        return Spread(int(sum(self.counts)), total, min(self.values), max(self.values))


def datums(told: Sequence[Told], choice: CloudWatchChoice) -> list[Datum]:
    """Return the data of one period's events of one consumer, or producer, in the order of the table."""
    if choice.level == "NONE" or not told:
        return []
    of = of_event(told[0])
    whole = told[0].snapshot
    for event in told[1:]:
        whole = whole + event.snapshot  # type: ignore[operator]
    period = _Period(told, whole, choice)
    found: list[Datum] = []
    for metric in TABLE:
        if metric.of is not of:
            continue
        for called in metric.cloudwatch:
            if called.level is Level.SUMMARY or choice.level == "DETAILED":
                found += period.of(metric, called)
    return found


class _Period:
    def __init__(self, told: Sequence[Told], whole: Any, choice: CloudWatchChoice) -> None:
        self._events = told
        self._sum = whole
        self._choice = choice
        event = told[0]
        self._stream = stream_label(event.stream)
        self._several = ", " in event.stream
        self._worker: tuple[tuple[str, str], ...] = ()
        if isinstance(event, events.ProducerMetrics):
            self._namespace = choice.namespace or KPL_NAMESPACE
            self._common: tuple[tuple[str, str], ...] = (("StreamName", self._stream),)
        else:
            self._namespace = choice.namespace or event.application
            self._common = ()
            if isinstance(event, events.ConsumerMetrics):
                self._worker = ((WORKER_ID, event.worker_id),)

    def of(self, metric: Metric, called: CloudWatchName) -> Iterator[Datum]:
        """Yield the data of one metric under one of its names."""
        dimensions = self._common if called.operation is None else (("Operation", called.operation),)
        if called.by_worker and WORKER_ID in self._choice.dimensions:
            dimensions += self._worker
        if called.by_shard and SHARD_ID in self._choice.dimensions:
            found = list(self._by_shard(metric, called))
            if found:
                yield from self._shard_datums(called, dimensions, found)
                if called.operation is not None:
                    return  # the KPL sends each shard's data and the stream's, the KCL only the finest
        if metric.level is not None:
            values = list(self._levels(metric, metric.factor * called.factor))
            if values:
                yield self._datum(called, dimensions, _count(values))
            return
        value = getattr(self._sum, metric.field)
        if called.zeros:
            yield from self._rate(called, dimensions, _size(value), _sum_of(self._sum, called.zeros))
        elif isinstance(value, Histogram):
            if value.count:
                yield self._datum(called, dimensions, values_of(value, called.factor))
        elif metric.kind is Kind.GAUGE:
            levels = [level for one in self._events if (level := getattr(one.snapshot, metric.field)) is not None]
            if levels:
                yield self._datum(called, dimensions, _count([level * called.factor for level in levels]))
        elif value or metric.by != EXPECTATION:  # a job without expectations has no number of them to pay for
            yield self._datum(called, dimensions, ((_size(value) * called.factor,), (1.0,)))

    def _levels(self, metric: Metric, factor: float) -> Iterator[float]:
        """Yield the level of each shard that is held, or of each worker, for each event."""
        for event in self._events:
            for worker in event.snapshot.workers.values():  # type: ignore[union-attr]
                if metric.field == "shards":
                    yield from (
                        value * factor
                        for shard in worker.shards
                        if (value := getattr(shard, metric.level or "")) is not None
                    )
                elif not worker.left:
                    yield len(worker.shards) if metric.level == "held" else getattr(worker, metric.level or "")

    def _by_shard(self, metric: Metric, called: CloudWatchName) -> Iterator[tuple[str, Any]]:
        """Yield pairs: the shard, with its stream before a slash; and the shard's values with their counts, or their
        spread.
        """
        if metric.level is not None:
            by_shard: dict[str, list[float]] = {}
            for event in self._events:
                for worker in event.snapshot.workers.values():  # type: ignore[union-attr]
                    for shard in worker.shards:
                        value = getattr(shard, metric.level)
                        if value is not None:
                            name = f"{shard.stream}/{shard.shard_id}"
                            by_shard.setdefault(name, []).append(value * (metric.factor * called.factor))
            yield from ((name, _count(values)) for name, values in by_shard.items())
            return
        if metric.of_shard is None:
            return
        for name, shard in self._sum.per_shard.items():
            value = getattr(shard, metric.of_shard)
            if called.zeros:
                failed = getattr(shard, _ZEROS_OF_SHARD.get(called.zeros, ""), 0)
                good = max(0, _size(value) - (failed if called.zeros_counted else 0))
                yield name, Spread(int(good + failed), good, 0.0 if failed else 1.0, 1.0 if good else 0.0)
            elif isinstance(value, Spread):
                yield name, _scale(value, called.factor)
            else:
                yield name, ((value * called.factor,), (1.0,))

    def _shard_datums(
        self, called: CloudWatchName, dimensions: tuple[tuple[str, str], ...], found: list[tuple[str, Any]]
    ) -> Iterator[Datum]:
        found.sort(key=lambda one: one[0])
        most = self._choice.shards_max
        for name, value in found[:most]:
            stream, _, shard_id = name.rpartition("/")
            of_stream = (("StreamId", stream_label(stream)),) if self._several else ()
            yield self._datum(called, (*dimensions, (SHARD_ID, shard_id), *of_stream), value)
        rest = Spread()
        for _, value in found[most:]:
            rest += value if isinstance(value, Spread) else _spread_of(*value)
        if rest.count:
            yield self._datum(called, (*dimensions, (SHARD_ID, OTHERS)), rest)

    def _rate(
        self, called: CloudWatchName, dimensions: tuple[tuple[str, str], ...], counted: float, zeros: float
    ) -> Iterator[Datum]:
        good = max(0.0, counted - zeros) if called.zeros_counted else counted
        pairs = [(1.0, good), (0.0, zeros)]
        kept = [(value, float(count)) for value, count in pairs if count]
        if kept:
            yield self._datum(called, dimensions, (tuple(one[0] for one in kept), tuple(one[1] for one in kept)))

    def _datum(self, called: CloudWatchName, dimensions: tuple[tuple[str, str], ...], value: Any) -> Datum:
        fit = tuple((name, fitting(text)) for name, text in dimensions)
        if isinstance(value, Spread):
            return Datum(self._namespace, called.name, called.unit, fit, spread=value)
        return Datum(self._namespace, called.name, called.unit, fit, *value)


_ZEROS_OF_SHARD = {"batches_failed": "batches_failed", "fetches_failed": "fetches_failed"}


def values_of(histogram: Histogram, factor: float = 1.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a histogram that is not empty as at most `VALUES_MAX` values, and how often each occurred. Their sum is
    the histogram's own; each value is within a bucket of those that it stands for.
    """
    low, high = histogram.min or 0.0, histogram.max or 0.0
    found = [
        (min(max(2.0 ** (number / BUCKETS_PER_DOUBLING) * (1 + RELATIVE_ERROR_MAX), low), high), count)
        for number, count in histogram.buckets()
    ]
    if histogram.zeros:
        found.insert(0, (0.0, histogram.zeros))
    while len(found) > VALUES_MAX:
        pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
        found = [
            (sum(value * count for value, count in pair) / sum(count for _, count in pair), sum(c for _, c in pair))
            for pair in pairs
        ]
    told = sum(value * count for value, count in found)
    scale = factor * (histogram.sum / told if told else 1.0)
    return tuple(value * scale for value, _ in found), tuple(float(count) for _, count in found)


def _count(values: Iterable[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each value once, and how often it is there. Where there are too many values, the lowest ones become one,
    and the highest ones stay apart.
    """
    counts: dict[float, float] = {}
    for value in values:
        counts[value] = counts.get(value, 0.0) + 1
    found = sorted(counts.items())
    while len(found) > VALUES_MAX:
        rest = len(found) - VALUES_MAX + 1
        count = sum(count for _, count in found[:rest])
        found = [(sum(value * times for value, times in found[:rest]) / count, count), *found[rest:]]
    return tuple(value for value, _ in found), tuple(count for _, count in found)


def _spread_of(values: Sequence[float], counts: Sequence[float]) -> Spread:
    total = sum(value * count for value, count in zip(values, counts, strict=True))
    return Spread(int(sum(counts)), total, min(values), max(values))


def _scale(spread: Spread, factor: float) -> Spread:
    low, high = spread.min, spread.max
    return Spread(
        spread.count,
        spread.sum * factor,
        None if low is None else low * factor,
        None if high is None else high * factor,
    )


def _size(value: Any) -> float:
    if isinstance(value, Histogram | Spread):
        return value.count
    return sum(value.values()) if isinstance(value, dict) else value


def _sum_of(snapshot: Any, fields: str) -> float:
    return sum(_size(getattr(snapshot, field)) for field in fields.split())


def fitting(text: str) -> str:
    """Return a text as CloudWatch takes it for a dimension: ASCII, not empty, at most 1,024 bytes, no colon at its
    start.
    """
    shown = "".join(letter if " " <= letter <= "~" else "?" for letter in text).strip()[:DIMENSION_BYTES_MAX]
    return f"_{shown[1:]}" if shown.startswith(":") else shown or "-"
