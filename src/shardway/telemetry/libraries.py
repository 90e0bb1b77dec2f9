"""Report numbers by the metrics library that a program has already: OpenTelemetry's API, or prometheus-client."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from shardway.core.histogram import BUCKETS_PER_DOUBLING, RELATIVE_ERROR_MAX, Histogram
from shardway.errors import OptionError
from shardway.telemetry.exporting import Exporter
from shardway.telemetry.metric_table import AGE, LOSSES, TABLE
from shardway.telemetry.metrics import Kind, Metric
from shardway.telemetry.points import Point, points
from shardway.telemetry.prometheus_page import bounds_of, cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.telemetry.points import Told

RECORDED_MAX = 10_000
"""The values of an event's histogram that OpenTelemetry gets at most, each by a call of its own; the rest is dropped,
and counted as dropped.
"""


COLLECTION_S = 1.0
"""Seconds. A collection that takes longer gets newer numbers for the rest of its instruments."""


class _SummingExporter(Exporter):
    """Keeps the sum of all events, for a library that asks."""

    def __init__(self, name: str, *, shards_max: int) -> None:
        super().__init__(name, shards_max=shards_max)
        self._add_lock = threading.Lock()

    def _drain(self) -> None:
        """See `Exporter`. The lock is there since the library asks on threads of its own."""
        with self._add_lock:
            super()._drain()

    def _current_points(self) -> list[Point]:
        """Return all numbers as they are now."""
        with self._add_lock:
            super()._drain()
            return [point for point, _ in self._points()]


class PrometheusCollector(_SummingExporter):
    """An ``on_event`` that is also a collector of prometheus-client (the extra ``prometheus``), for a program that has
    an endpoint by that library already::

        exporter = PrometheusCollector()
        prometheus_client.REGISTRY.register(exporter)
    """

    metrics_interval_s = 2.0

    def __init__(self, *, shards_max: int = 0) -> None:
        """``shards_max``: the levels of at most this many shards are reported one by one, too, and those of the rest as
        one. Raises OptionError where the library is not there.
        """
        try:
            import prometheus_client.core
        except ImportError as error:
            raise OptionError(
                "PrometheusCollector needs prometheus-client: pip install 'shardway[prometheus]'"
            ) from error
        self._library: Any = prometheus_client.core
        super().__init__("prometheus-client", shards_max=shards_max)

    def describe(self) -> list[Any]:
        """Return nothing. The library asks this when the collector is registered, before it is known which numbers
        there are.
        """
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the library's families of metrics, one for each name."""
        families: dict[str, Any] = {}
        for point in self._current_points():
            metric, value = point.metric, point.value
            name = metric.prometheus_name
            labels = [key.replace(".", "_") for key, _ in point.attributes]
            family = families.get(name)
            if family is None:
                family = families[name] = self._library.Metric(
                    name.removesuffix("_total"), metric.help, metric.kind.value
                )
            with_labels = dict(zip(labels, (text for _, text in point.attributes), strict=True))
            if isinstance(value, Histogram):
                low, high = bounds_of(metric.unit)
                for exponent, count in zip(range(low, high + 1), cut(value, low, high), strict=True):
                    family.add_sample(f"{name}_bucket", {**with_labels, "le": repr(2.0**exponent)}, count)
                family.add_sample(f"{name}_bucket", {**with_labels, "le": "+Inf"}, value.count)
                family.add_sample(f"{name}_sum", with_labels, value.sum)
                family.add_sample(f"{name}_count", with_labels, value.count)
            else:
                family.add_sample(name, with_labels, value)
        yield from families.values()


class OpenTelemetryExporter(_SummingExporter):
    """Reports the numbers through OpenTelemetry's API (the extra ``opentelemetry``) to whatever SDK the program has set
    up. Counts and levels are observed when the SDK asks. The API takes no histogram that exists already, so each value
    of a histogram is recorded by itself, up to 10,000 of an event; `OtlpExporter` sends histograms whole.
    """

    metrics_interval_s = 5.0

    def __init__(self, *, meter_provider: Any = None, shards_max: int = 0) -> None:
        """``meter_provider``: None takes the program's global one. ``shards_max``: the levels of at most this many
        shards are reported one by one, too, and those of the rest as one. Raises OptionError where the library is not
        there.
        """
        try:
            import opentelemetry.metrics
        except ImportError as error:
            raise OptionError(
                "OpenTelemetryExporter needs opentelemetry-api: pip install 'shardway[opentelemetry]'"
            ) from error
        self._library: Any = opentelemetry.metrics
        super().__init__("opentelemetry", shards_max=shards_max)
        provider = meter_provider or opentelemetry.metrics.get_meter_provider()
        meter = provider.get_meter("shardway")
        self._histograms: dict[str, Any] = {}
        self._ask_lock = threading.Lock()
        self._observations: dict[str, list[Any]] = {}  # this collection's observations, by instrument
        self._given_instruments: set[str] = set()  # the instruments that have got theirs
        self._looked_s = -math.inf
        made: set[str] = set()
        for metric in (*TABLE, LOSSES, AGE):
            for name in (metric.name, metric.shard_name):
                if name is None or name in made:
                    continue
                made.add(name)
                self._make(meter, metric, name)

    def _make(self, meter: Any, metric: Metric, name: str) -> None:
        match metric.kind:
            case Kind.HISTOGRAM:
                self._histograms[name] = meter.create_histogram(name, unit=metric.unit, description=metric.help)
            case Kind.COUNTER:
                meter.create_observable_counter(name, [self._callback(name)], metric.unit, metric.help)
            case Kind.GAUGE:
                meter.create_observable_gauge(name, [self._callback(name)], metric.unit, metric.help)

    def _callback(self, name: str) -> Any:
        return lambda _: self._observe(name)

    def _observe(self, name: str) -> list[Any]:
        """Return the observations of an instrument. A collection asks for each instrument once: an instrument that is
        asked for again begins the next collection, for which all numbers are read anew.
        """
        with self._ask_lock:
            now_s = time.monotonic()
            if name in self._given_instruments or now_s - self._looked_s > COLLECTION_S:
                self._looked_s = now_s
                self._given_instruments.clear()
                self._observations.clear()
                for point in self._current_points():
                    if not isinstance(point.value, Histogram):
                        made = self._library.Observation(point.value, dict(point.attributes))
                        self._observations.setdefault(point.metric.name, []).append(made)
            self._given_instruments.add(name)
            return self._observations.get(name, [])

    def _take(self, event: Told) -> None:
        """See `Exporter`."""
        super()._take(event)
        for point in points(event):
            if isinstance(point.value, Histogram) and point.value.count:
                self._record(self._histograms[point.metric.name], point.value, dict(point.attributes))

    def _record(self, instrument: Any, histogram: Histogram, attributes: dict[str, str]) -> None:
        left = RECORDED_MAX
        low, high = histogram.min or 0.0, histogram.max or 0.0
        for number, count in ((None, histogram.zeros), *histogram.buckets()):
            value = 0.0 if number is None else 2.0 ** (number / BUCKETS_PER_DOUBLING) * (1 + RELATIVE_ERROR_MAX)
            for _ in range(min(count, left)):
                instrument.record(min(max(value, low), high), attributes)
            left -= min(count, left)
        if histogram.count > RECORDED_MAX:
            self._lose(histogram.count - RECORDED_MAX, "a histogram has more values than the API takes one by one")
