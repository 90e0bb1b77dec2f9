"""Show a query's numbers in Spark's own metrics system.

``MetricsListener`` makes gauges of each progress there, which every sink that is set up shows: Prometheus, JMX,
Graphite, StatsD.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from shardway.pipeline.py4j_error import Py4JError
from shardway.pipeline.query_numbers import BatchNumbers, QueryNumbers
from shardway.pipeline.stream_progress import OBSERVATION, stream_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from shardway.pipeline.stream_progress import StreamMetrics


logger = logging.getLogger("shardway.spark")


class MetricsListener(StreamingQueryListener):
    """Shows the numbers of all queries that read by ``format("shardway")`` where people's dashboards look::

        spark.streams.addListener(MetricsListener(spark))

    In Spark's metrics system each is a gauge of the source ``AccumulatorSource`` on the driver,
    ``shardway.QUERY.STREAM.NUMBER``; QUERY is the query's name, or the beginning of its id. ``lagMs``, ``shards``,
    ``unreadShards``, ``silentShards``, ``leftOutShards``, ``possibleLosses`` and ``batch`` are as of the last batch;
    ``rows``, ``bytes`` and ``aggregatesOutsideRange`` count from the listener's start on. ``on_metrics`` is called with
    the query's name and each StreamMetrics, for what is not in Spark. It must not wait: Spark tells listeners one thing
    after the other.

    ``on_event`` is called with a `QueryMetrics` event for each stream of each batch, and of each idle spell of ten
    seconds: an exporter of `shardway.telemetry` is one. ``sinks`` has, by the names of queries, the streams that they
    write to by ``format("shardway")``, which Spark does not tell: for these it is called with `ProducerMetrics`, too.

    With Spark Connect there is no metrics system at hand: only ``on_metrics`` and ``on_event`` are called there.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        on_metrics: Callable[[str, StreamMetrics], object] | None = None,
        on_event: Callable[[Any], object] | None = None,
        sinks: Mapping[str, str] | None = None,
    ) -> None:
        self._sinks = dict(sinks or {})
        self._gauges: _Gauges | None = _Gauges(spark) if hasattr(spark, "_jsparkSession") else None
        self._on_metrics = on_metrics
        self._numbers = None if on_event is None else QueryNumbers(on_event)
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no number is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Set the gauges. This never raises: Spark would not give the event to the other listeners then."""
        progress: Any = event.progress
        self.show(progress)

    def show(self, progress: Mapping[str, Any]) -> None:
        """Set the gauges by a progress, and never raise. A program that reads the progresses itself calls this: a
        listener in Python costs some hundred questions to Spark's JVM for each progress.
        """
        try:
            name = progress["name"] or str(progress["id"]).partition("-")[0]
            for metrics in stream_metrics(progress):
                self._set_gauges(name, metrics)
                if self._on_metrics is not None:
                    self._on_metrics(name, metrics)
                if self._numbers is not None:
                    self._names[str(progress["id"])] = name
                    self._report(self._numbers, name, progress, metrics)
            if self._numbers is not None and name in self._sinks:
                self._names[str(progress["id"])] = name
                rows = max(0, int(progress["sink"]["numOutputRows"] or 0))  # -1 stands for a sink that does not say
                self._numbers.wrote(name, self._sinks[name], rows)
        except Exception as error:  # what cannot be shown must not end anything
            logger.warning("the metrics of a query's batch were not shown: %s: %s", type(error).__name__, error)

    def _report(self, numbers: QueryNumbers, name: str, progress: Mapping[str, Any], metrics: StreamMetrics) -> None:
        durations = progress["durationMs"]
        if "addBatch" in durations:
            seconds = int(durations.get("triggerExecution", 0)) / 1000
            numbers.batch(name, metrics, BatchNumbers(metrics.rows, metrics.bytes or 0, seconds))
        else:  # Spark reports now and then that nothing happens
            numbers.idle(name)

    def _set_gauges(self, name: str, metrics: StreamMetrics) -> None:
        if self._gauges is None:
            return
        try:
            self._gauges.set(name, metrics)
        except (Py4JError, OSError) as error:
            self._gauges = None  # where Spark cannot make them once, it cannot the next time
            logger.warning("Spark's metrics system takes no gauges here: %s", error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Leave the gauges as they are, and emit the levels again, so that exporters see that the query is there."""
        if self._numbers is not None and (name := self._names.get(str(event.id))) is not None:
            self._numbers.idle(name)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Leave the gauges, as the same query goes on with them when it is started again, and end its events."""
        if self._numbers is not None and (name := self._names.pop(str(event.id), None)) is not None:
            self._numbers.ended(name, failed=event.exception is not None)


class _Gauges:
    """Keeps gauges in the metrics system of Spark's driver by accumulators, which is the way that Spark has for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext
        self._gauge_values: dict[str, tuple[Any, int]] = {}
        """The accumulator and the value of each gauge, by the gauge's name."""

    def set(self, query: str, metrics: StreamMetrics) -> None:
        """Set the gauges to the numbers of one batch."""
        before = f"{OBSERVATION}.{query}.{metrics.stream}."
        self._make(before, metrics)
        for name, value, adds in _numbers(metrics):
            accumulator, old = self._gauge_values[before + name]
            by = value if adds else value - old
            accumulator.add(by)
            self._gauge_values[before + name] = accumulator, old + by

    def _make(self, before: str, metrics: StreamMetrics) -> None:
        """Make the gauges that are not there yet, in one registration."""
        jvm: Any = self._context._jvm
        scala = self._context._jsc.sc()
        made = {
            before + name: scala.longAccumulator(before + name)
            for name, _, _ in _numbers(metrics)
            if before + name not in self._gauge_values
        }
        if not made:
            return
        names = jvm.java.util.HashMap()
        for name, accumulator in made.items():
            names.put(name, accumulator)
        # Py4J lists all methods of a class before it calls one. Where one of them needs a package that is not there, as
        # with `SparkEnv`, the connection ends; this class needs none.
        registry = getattr(getattr(jvm.org.apache.spark.metrics.source, "LongAccumulatorSource$"), "MODULE$")
        registry.register(scala, jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(names))
        self._gauge_values |= {name: (accumulator, 0) for name, accumulator in made.items()}


def _numbers(metrics: StreamMetrics) -> Iterator[tuple[str, int, bool]]:
    """Yield (name, value, True if it adds up) for each gauge."""
    yield "lagMs", round(metrics.lag_s * 1000), False
    yield "shards", metrics.shards, False
    yield "unreadShards", metrics.unread_shards, False
    yield "possibleLosses", metrics.possible_losses, False
    if metrics.silent_shards is not None:
        yield "silentShards", metrics.silent_shards, False
    if metrics.left_out_shards is not None:
        yield "leftOutShards", metrics.left_out_shards, False
    yield "batch", metrics.batch_id, False
    yield "rows", metrics.rows, True
    if metrics.bytes is not None:
        yield "bytes", metrics.bytes, True
    if metrics.aggregates_outside_range is not None:
        yield "aggregatesOutsideRange", metrics.aggregates_outside_range, True
