"""Put a query's numbers into Spark's own places: the query's progress, and Spark's metrics system.

``observed`` puts what only the rows can tell into each progress, as Spark's observed metrics. ``stream_metrics`` reads
a progress. ``MetricsListener`` makes gauges of it in Spark's metrics system, which every sink that is set up there
shows: Prometheus, JMX, Graphite, StatsD.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import StreamingQueryListener

from shardway.events import ProducerMetrics, QueryMetrics
from shardway.pipeline.spark_calls import Py4JError, columns_of
from shardway.runtime.producer.metrics import ProducerSnapshot
from shardway.spark.offsets import OffsetFormatError, StreamOffset, is_initial
from shardway.spark.ranges import OUTSIDE
from shardway.telemetry.snapshots import LEVELS, QuerySnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

OBSERVATION = "shardway"
"""The name of the observed metrics in a query's progress."""

logger = logging.getLogger("shardway.spark")


class StreamMetrics(NamedTuple):
    """The numbers in a progress for one stream that the query reads."""

    stream: str
    batch_id: int
    rows: int
    """The rows that were read. Each further action on a batch that is not kept reads, and counts, its rows again."""
    bytes: int | None
    """Bytes of the rows' data; None without ``observed``."""
    lag_s: float
    """How long the oldest record that is known and unread has been waiting, in seconds. On Spark 4.0 and 4.1: the time
    from the batch's cut to its end."""
    cut_ms: int
    """The time up to which the batch read, epoch milliseconds of the service's clock."""
    shards: int
    """The number of shards in the offset."""
    unread_shards: int
    """The number of shards in the offset that are not read to their ends."""
    aggregates_outside_range: int | None
    """KPL aggregates with user records outside of their shard's hash range; None where they are not counted."""
    possible_losses: int
    """Losses that were passed over (``failOnDataLoss=false``) since the checkpoint directory was made."""
    silent_shards: int | None = None
    """Shards that cross a silence and for which the cut of all waits; None on Spark 4.0 and 4.1, which do not say."""
    left_out_shards: int | None = None
    """Shards that cross a silence and for which the cut waits no more: their rows may come later than those of the
    others. None on Spark 4.0 and 4.1."""


def observed(records: DataFrame, *, name: str = OBSERVATION) -> DataFrame:
    """Return the records of the source as they are, and have Spark show their numbers in the query's progress.

    ``observedMetrics[name]`` has ``stream``, ``rows`` and, where the columns are there, ``bytes`` (of data) and
    ``aggregates_outside_range``. To have that last one, read with all columns, and with ``aggregatesOutsideRange``
    deliver, its default: ``spark.readStream.format("shardway").schema(ALL_COLUMNS)``; this step drops the column that
    it is counted by. Put this step right behind ``load()``. Two streams in one query need two names.
    """
    numbers = [fn.first("stream", ignorenulls=True).alias("stream"), fn.count(fn.lit(1)).alias("rows")]
    columns = columns_of(records) or ["data"]
    if "data" in columns:
        numbers.append(fn.coalesce(fn.sum(fn.octet_length("data")), fn.lit(0)).alias("bytes"))
    # A source in Python cannot send back what its tasks count: it has no metrics and no accumulators. So the figure is
    # a column, which is observed.
    if OUTSIDE in columns:
        first = fn.col(OUTSIDE) & (fn.col("sub_sequence_number") == 0)  # an aggregate is delivered whole
        numbers.append(fn.count(fn.when(first, 1)).alias("aggregates_outside_range"))
    return records.observe(name, *numbers).drop(OUTSIDE)


def stream_metrics(progress: Mapping[str, Any]) -> list[StreamMetrics]:
    """Return what a progress says of the streams that its query reads by ``format("shardway")``. The list is empty for
    other sources.

    ``progress`` is ``query.lastProgress``, an element of ``query.recentProgress``, or what a listener is given.
    """
    found = []
    for source in progress["sources"]:
        end = _offset(source["endOffset"])
        if end is None:
            continue
        stream = end.stream_arn.rpartition("/")[2]
        told = _decoded(source.get("latestOffset"))
        seen = _observation(progress, stream)
        found.append(
            StreamMetrics(
                stream=stream,
                batch_id=int(progress["batchId"]),
                rows=int(source["numInputRows"]),
                bytes=seen.get("bytes"),
                lag_s=_lag_ms(progress, end, told) / 1000,
                cut_ms=end.cut_ms,
                shards=len(end.shards),
                unread_shards=len(end.unread()),
                aggregates_outside_range=seen.get("aggregates_outside_range"),
                possible_losses=max(end.losses, int(told.get("possibleLosses", 0))),
                silent_shards=_told_count(told, "silentShards"),
                left_out_shards=_told_count(told, "leftOutShards"),
            )
        )
    return found


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
                    self._tell(self._numbers, name, progress, metrics)
            if self._numbers is not None and name in self._sinks:
                self._names[str(progress["id"])] = name
                rows = max(0, int(progress["sink"]["numOutputRows"] or 0))  # -1 stands for a sink that does not say
                self._numbers.wrote(name, self._sinks[name], rows)
        except Exception as error:  # what cannot be shown must not end anything
            logger.warning("the metrics of a query's batch were not shown: %s: %s", type(error).__name__, error)

    def _tell(self, numbers: QueryNumbers, name: str, progress: Mapping[str, Any], metrics: StreamMetrics) -> None:
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


class BatchNumbers(NamedTuple):
    """The counts of one batch."""

    records: int
    data_bytes: int
    seconds: float
    dead_letters: int = 0
    duplicates: int = 0
    late: int = 0


class QueryNumbers:
    """Emits the numbers of queries as `QueryMetrics` and `ProducerMetrics` events. One thread may use it."""

    def __init__(self, on_event: Callable[[Any], object], *, now: Callable[[], float] = time.time) -> None:
        self._on_event = on_event
        self._now = now
        self._written: dict[tuple[str, str], float] = {}
        """The time of the last `ProducerMetrics` event, by the query and the stream that it writes to."""
        self._last: dict[tuple[str, str], QuerySnapshot] = {}
        """The snapshot that was emitted last, by query and stream."""

    def begin(self, query: str, stream: str) -> None:
        """Begin the numbers of a query that starts: the time that it waits from here on counts, also before its first
        batch.
        """
        now_s = self._now()
        self._tell(query, stream, QuerySnapshot(period_start_s=now_s, period_end_s=now_s, lag_s=0.0))

    def batch(self, query: str, metrics: StreamMetrics, counted: BatchNumbers) -> None:
        """Emit the numbers of a batch that was committed."""
        now_s = self._now()
        before = self._last.get((query, metrics.stream))
        snapshot = QuerySnapshot(
            period_start_s=now_s - counted.seconds if before is None else before.period_end_s,
            period_end_s=now_s,
            batches=1,
            records_read=counted.records,
            bytes_read=counted.data_bytes,
            records_dead_lettered=counted.dead_letters,
            records_duplicate=counted.duplicates,
            records_late=counted.late,
            aggregates_outside_range=metrics.aggregates_outside_range or 0,
            lag_s=metrics.lag_s,
            shards=metrics.shards,
            shards_unread=metrics.unread_shards,
            shards_silent=metrics.silent_shards,
            shards_left_out=metrics.left_out_shards,
            possible_losses=metrics.possible_losses,
        )
        snapshot.batch_s.add(counted.seconds)
        self._tell(query, metrics.stream, snapshot)

    def wrote(self, query: str, stream: str, rows: int, *, last: bool = False) -> None:
        """Emit that the query has written ``rows`` rows to a stream, each as a user record."""
        now_s = self._now()
        before_s = self._written.get((query, stream), now_s)
        snapshot = ProducerSnapshot(
            period_start_s=before_s, period_end_s=now_s, user_records_accepted=rows, user_records_put=rows
        )
        self._written[query, stream] = now_s
        self._on_event(ProducerMetrics(stream, snapshot, last))

    def idle(self, query: str) -> None:
        """Emit the same levels again: no batch was committed, as nothing came."""
        self._again(query, 0.0)

    def busy(self, query: str) -> None:
        """Emit the levels with a larger lag: no batch was committed, though one runs, or its end is looked for, so what
        waits has waited for longer.
        """
        self._again(query, 1.0)

    def ended(self, query: str, *, failed: bool) -> None:
        """Emit the last event of a query that has ended. For one that has failed there is none: it is to be missed, as
        its numbers grow old.
        """
        for name, stream in [key for key in self._last if key[0] == query]:
            last = self._last.pop((name, stream))
            if not failed:
                snapshot = QuerySnapshot(period_start_s=last.period_end_s, period_end_s=self._now())
                self._on_event(QueryMetrics(stream, name, snapshot, last=True))
        for name, stream in [key for key in self._written if key[0] == query]:
            if not failed:
                self.wrote(name, stream, 0, last=True)
            del self._written[name, stream]

    def _again(self, query: str, ages: float) -> None:
        now_s = self._now()
        for name, stream in [key for key in self._written if key[0] == query]:
            self.wrote(name, stream, 0)
        for (name, stream), last in list(self._last.items()):
            if name == query:
                lag_s = None if last.lag_s is None else last.lag_s + ages * (now_s - last.period_end_s)
                levels = {field: getattr(last, field) for field in LEVELS} | {"lag_s": lag_s}
                snapshot = QuerySnapshot(period_start_s=last.period_end_s, period_end_s=now_s, **levels)
                self._tell(name, stream, snapshot)

    def _tell(self, query: str, stream: str, snapshot: QuerySnapshot) -> None:
        self._last[query, stream] = snapshot
        self._on_event(QueryMetrics(stream, query, snapshot))


class _Gauges:
    """Keeps gauges in the metrics system of Spark's driver by accumulators, which is the way that Spark has for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext
        self._known: dict[str, tuple[Any, int]] = {}
        """The accumulator and the value of each gauge, by the gauge's name."""

    def set(self, query: str, metrics: StreamMetrics) -> None:
        """Set the gauges to the numbers of one batch."""
        before = f"{OBSERVATION}.{query}.{metrics.stream}."
        self._make(before, metrics)
        for name, value, adds in _numbers(metrics):
            accumulator, old = self._known[before + name]
            by = value if adds else value - old
            accumulator.add(by)
            self._known[before + name] = accumulator, old + by

    def _make(self, before: str, metrics: StreamMetrics) -> None:
        """Make the gauges that are not there yet, in one registration."""
        jvm: Any = self._context._jvm
        scala = self._context._jsc.sc()
        made = {
            before + name: scala.longAccumulator(before + name)
            for name, _, _ in _numbers(metrics)
            if before + name not in self._known
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
        self._known |= {name: (accumulator, 0) for name, accumulator in made.items()}


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


def _lag_ms(progress: Mapping[str, Any], end: StreamOffset, told: Mapping[str, Any]) -> int:
    if "lagMs" in told:
        return max(0, int(told["lagMs"]))
    if not end.cut_ms:
        return 0
    began = dt.datetime.fromisoformat(progress["timestamp"])
    ended_ms = began.timestamp() * 1000 + int(progress["durationMs"].get("triggerExecution", 0))
    return max(0, round(ended_ms - end.cut_ms))


def _told_count(told: Mapping[str, Any], name: str) -> int | None:
    return int(told[name]) if name in told else None


def _observation(progress: Mapping[str, Any], stream: str) -> dict[str, Any]:
    """Return the observed metrics of a stream; those of a batch without rows name no stream."""
    found: list[dict[str, Any]] = [row.asDict() for row in (progress["observedMetrics"] or {}).values()]
    ours = [row for row in found if {"stream", "rows"} <= row.keys()]
    for row in ours:
        if row["stream"] == stream:
            return row
    if len(ours) == 1 and ours[0]["stream"] is None:
        return ours[0]
    return {}


def _offset(text: Any) -> StreamOffset | None:
    """Return the offset of our source; None for that of another source, and before the first batch."""
    value = _decoded(text)
    if is_initial(value) or "arn" not in value:
        return None
    try:
        return StreamOffset.from_dict(value)
    except OffsetFormatError:
        return None


def _decoded(text: Any) -> dict[str, Any]:
    """Decode an offset, which is JSON; PySpark 4.0 has the text of a Python dict in its place, except for listeners."""
    for decode in (json.loads, ast.literal_eval):
        try:
            value = decode(text) if isinstance(text, str) else text
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}
