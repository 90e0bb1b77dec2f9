"""Bring numbers to CloudWatch, with the names, units and dimensions of the KCL and the KPL, and with our own names for
what alarms need beside those.

Histograms go as values with counts, so that CloudWatch has percentiles of them, which the KCL's statistic sets cannot
give. `datums` makes values of events, `requests` makes the bodies of PutMetricData, and `emf_lines` makes lines of a
log in the embedded metric format. One exporter sends such bodies, and another writes such lines, for each period.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from shardway import events
from shardway.core.histogram import BUCKETS_PER_DOUBLING, RELATIVE_ERROR_MAX, Histogram
from shardway.errors import AccessDeniedError, NotFoundError, OptionError, ServiceError, ThrottledError
from shardway.telemetry.consumer_metrics import OTHERS, Spread
from shardway.telemetry.exporting import PARTS_MAX, Pusher, told_of
from shardway.telemetry.names import TABLE, CloudWatchName, Kind, Level, Metric, of_event, stream_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.ports import Poster
    from shardway.telemetry.names import Told
    from shardway.wiring import ConnectionOptions

DATUMS_MAX = 1000
"""The metrics that PutMetricData takes in a call."""
REQUEST_BYTES_MAX = 900_000
"""The bytes of metrics in a call. PutMetricData takes 1 MB; the rest is for what surrounds the metrics."""
VALUES_MAX = 150
"""The different values of a metric that PutMetricData takes."""
EMF_METRICS_MAX = 100
"""The metrics that an EMF line holds."""
DIMENSION_BYTES_MAX = 1024
KPL_NAMESPACE = "KinesisProducerLibrary"
SHARD_ID, WORKER_ID = "ShardId", "WorkerIdentifier"
LEVELS = ("NONE", "SUMMARY", "DETAILED")
DIMENSIONS = (SHARD_ID, WORKER_ID)


class CloudWatchChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent to CloudWatch, which bills for each metric by its name and dimensions. Raises OptionError."""

    level: str = "SUMMARY"
    """NONE, SUMMARY or DETAILED, which mean what they mean in the KCL's ``metricsLevel``."""
    dimensions: tuple[str, ...] = ()
    """The dimensions beside those that are always there: ``ShardId`` (each metric once for each shard) and
    ``WorkerIdentifier`` (once for each worker id that there ever was).
    """
    namespace: str | None = None
    """The namespace. None: the application's name for consumers, as the KCL has it, and KinesisProducerLibrary for
    producers.
    """
    shards_max: int = 1000
    """The shards that are told apart; all further shards are one, with the name ``others``."""

    def __post_init__(self) -> None:
        faults = []
        if self.level not in LEVELS:
            faults.append(f"level is one of {', '.join(LEVELS)}, not {self.level!r}")
        faults += [
            f"dimensions may hold {' and '.join(DIMENSIONS)}, not {name!r}"
            for name in self.dimensions
            if name not in DIMENSIONS
        ]
        if self.shards_max < 0:
            faults.append(f"shards_max must be at least 0, not {self.shards_max}")
        if faults:
            raise OptionError(faults)


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
        self._told = told
        self._whole = whole
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
                yield from self._each(called, dimensions, found)
                if called.operation is not None:
                    return  # the KPL sends each shard's data and the stream's, the KCL only the finest
        if metric.level is not None:
            values = list(self._levels(metric, metric.factor * called.factor))
            if values:
                yield self._datum(called, dimensions, _counted(values))
            return
        value = getattr(self._whole, metric.field)
        if called.zeros:
            yield from self._rate(called, dimensions, _size(value), _sum_of(self._whole, called.zeros))
        elif isinstance(value, Histogram):
            if value.count:
                yield self._datum(called, dimensions, values_of(value, called.factor))
        elif metric.kind is Kind.GAUGE:
            levels = [level for one in self._told if (level := getattr(one.snapshot, metric.field)) is not None]
            if levels:
                yield self._datum(called, dimensions, _counted([level * called.factor for level in levels]))
        else:
            yield self._datum(called, dimensions, ((_size(value) * called.factor,), (1.0,)))

    def _levels(self, metric: Metric, factor: float) -> Iterator[float]:
        """Yield the level of each shard that is held, or of each worker, for each event."""
        for event in self._told:
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
            for event in self._told:
                for worker in event.snapshot.workers.values():  # type: ignore[union-attr]
                    for shard in worker.shards:
                        value = getattr(shard, metric.level)
                        if value is not None:
                            name = f"{shard.stream}/{shard.shard_id}"
                            by_shard.setdefault(name, []).append(value * (metric.factor * called.factor))
            yield from ((name, _counted(values)) for name, values in by_shard.items())
            return
        if metric.of_shard is None:
            return
        for name, shard in self._whole.per_shard.items():
            value = getattr(shard, metric.of_shard)
            if called.zeros:
                failed = getattr(shard, _ZEROS_OF_SHARD.get(called.zeros, ""), 0)
                good = max(0, _size(value) - (failed if called.zeros_counted else 0))
                yield name, Spread(int(good + failed), good, 0.0 if failed else 1.0, 1.0 if good else 0.0)
            elif isinstance(value, Spread):
                yield name, _scaled(value, called.factor)
            else:
                yield name, ((value * called.factor,), (1.0,))

    def _each(
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
            rest += value if isinstance(value, Spread) else _spread(*value)
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
        fit = tuple((name, _fit(text)) for name, text in dimensions)
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


def _counted(values: Iterable[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
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


def _spread(values: Sequence[float], counts: Sequence[float]) -> Spread:
    total = sum(value * count for value, count in zip(values, counts, strict=True))
    return Spread(int(sum(counts)), total, min(values), max(values))


def _scaled(spread: Spread, factor: float) -> Spread:
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


def _fit(text: str) -> str:
    """Return a text as CloudWatch takes it for a dimension: ASCII, not empty, at most 1,024 bytes, no colon at its
    start.
    """
    shown = "".join(letter if " " <= letter <= "~" else "?" for letter in text).strip()[:DIMENSION_BYTES_MAX]
    return f"_{shown[1:]}" if shown.startswith(":") else shown or "-"


# --- requests -------------------------------------------------------------------------------------


def requests(found: Iterable[Datum], now_s: float) -> list[bytes]:
    """Return the bodies of as few calls of PutMetricData as possible, in JSON."""
    bodies = []
    by_namespace: dict[str, list[Datum]] = {}
    for datum in found:
        if datum.spread is None or datum.spread.count:
            by_namespace.setdefault(datum.namespace, []).append(datum)
    for namespace, data in by_namespace.items():
        encoded = [msgspec.json.encode(_of_request(datum, now_s)) for datum in data]
        head = msgspec.json.encode(_fit(namespace).replace(":", "_")[:255])
        bodies += [
            b'{"Namespace":' + head + b',"MetricData":[' + b",".join(packed) + b"]}" for packed in _packed(encoded)
        ]
    return bodies


def _packed(encoded: list[bytes]) -> Iterator[list[bytes]]:
    pack: list[bytes] = []
    size = 0
    for one in encoded:
        if pack and (len(pack) >= DATUMS_MAX or size + len(one) + 1 > REQUEST_BYTES_MAX):
            yield pack
            pack, size = [], 0
        pack.append(one)
        size += len(one) + 1
    if pack:
        yield pack


def _of_request(datum: Datum, now_s: float) -> dict[str, Any]:
    told: dict[str, Any] = {"MetricName": datum.name, "Timestamp": int(now_s), "Unit": datum.unit}
    if datum.dimensions:
        told["Dimensions"] = [{"Name": name, "Value": value} for name, value in datum.dimensions]
    if datum.spread is not None:
        one = datum.spread
        told["StatisticValues"] = {"SampleCount": one.count, "Sum": one.sum, "Minimum": one.min, "Maximum": one.max}
    elif datum.counts == (1.0,):
        told["Value"] = datum.values[0]
    else:
        told["Values"], told["Counts"] = datum.values, datum.counts
    return told


# --- the embedded metric format -------------------------------------------------------------------


def emf_lines(found: Iterable[Datum], now_s: float) -> list[str]:
    """Return lines of JSON. A line has at most 100 metrics of one namespace and one set of dimensions."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Datum]] = {}
    for datum in found:
        if datum.spread is None or datum.spread.count:
            groups.setdefault((datum.namespace, datum.dimensions), []).append(datum)
    lines = []
    for (namespace, dimensions), data in groups.items():
        for begin in range(0, len(data), EMF_METRICS_MAX):
            part = data[begin : begin + EMF_METRICS_MAX]
            metrics = [{"Name": datum.name, "Unit": datum.unit} for datum in part]
            told: dict[str, Any] = {
                "_aws": {
                    "Timestamp": int(now_s * 1000),
                    "CloudWatchMetrics": [
                        {
                            "Namespace": _fit(namespace).replace(":", "_")[:255],
                            "Dimensions": [[name for name, _ in dimensions]],
                            "Metrics": metrics,
                        }
                    ],
                },
                **dict(dimensions),
                **{datum.name: _emf_value(datum) for datum in part},
            }
            lines.append(msgspec.json.encode(told).decode())
    return lines


def _emf_value(datum: Datum) -> Any:
    if datum.spread is None and datum.counts == (1.0,):
        return datum.values[0]
    whole = datum.together
    told: dict[str, Any] = {} if datum.spread is not None else {"Values": datum.values, "Counts": datum.counts}
    return {**told, "Max": whole.max, "Min": whole.min, "Count": whole.count, "Sum": whole.sum}


# --- exporters ------------------------------------------------------------------------------------

WAITING_REQUESTS_MAX = 500
"""The requests that wait for a service that does not answer; the oldest is dropped where there are more."""


class _Periods(Pusher):
    """Gathers each period's events by stream and application."""

    def __init__(self, name: str, choice: CloudWatchChoice, *, every_s: float) -> None:
        super().__init__(name, every_s=every_s)
        self._choice = choice
        self.metrics_per_shard = SHARD_ID in choice.dimensions
        self._told: dict[tuple[type, str, str, str], list[Told]] = {}

    def _took(self, event: Told) -> None:
        """See `Exporter`."""
        worker = getattr(event, "worker_id", "")
        key = (type(event), event.stream, getattr(event, "application", ""), worker)
        if key not in self._told and len(self._told) >= PARTS_MAX:
            self._lost(1, "there are too many streams and applications")
        else:
            self._told.setdefault(key, []).append(event)

    def _gathered(self) -> list[Any]:
        """Return the data of the period that ends now, and begin the next one."""
        gathered, self._told = self._told, {}
        return [one for events in gathered.values() for one in datums(events, self._choice)]


class CloudWatchExporter(_Periods):
    """Sends to CloudWatch with PutMetricData, by the KCL's and the KPL's names.

    ::

        CloudWatchExporter(CloudWatchChoice(level="DETAILED", dimensions=("ShardId",)))

    Requests that CloudWatch does not take are kept, at most 500 of them, and sent later, with the times of their
    periods.
    """

    def __init__(
        self,
        choice: CloudWatchChoice | None = None,
        *,
        every_s: float = 60.0,
        connection: ConnectionOptions | None = None,
    ) -> None:
        """``connection``: the region, the endpoint and the credentials, as a consumer has them."""
        super().__init__("cloudwatch", choice or CloudWatchChoice(), every_s=every_s)
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._poster: Poster | None = None

    async def _push(self) -> None:
        """See `Pusher`."""
        self._waiting.extend(requests(self._gathered(), time.time()))
        while len(self._waiting) > WAITING_REQUESTS_MAX:
            self._waiting.popleft()
            self._lost(1, "CloudWatch does not take them, and too many requests wait")
        if self._poster is None and self._waiting:
            from shardway.wiring import metric_data_poster

            self._poster = metric_data_poster(self._connection)
        while self._waiting:
            assert self._poster is not None
            await self._poster.post(self._waiting[0], {})
            self._waiting.popleft()

    def _failed(self, error: Exception) -> None:
        """See `Pusher`. A request that the service will never take is dropped: else it would hold up the rest."""
        if self._waiting and _is_its_fault(error):
            self._waiting.popleft()
            self._lost(1, told_of(error))
        else:
            self._lost(0, told_of(error))

    async def _leave(self) -> None:
        """See `Pusher`."""
        if self._waiting:
            self._lost(len(self._waiting), "the exporter is closed, and CloudWatch did not take them")
        if self._poster is not None:
            await self._poster.close()


class EmfExporter(_Periods):
    """Writes lines in CloudWatch's embedded metric format, by default to standard output: Lambda, and ECS with awslogs,
    make metrics of them, and no permission is needed.
    """

    def __init__(
        self, choice: CloudWatchChoice | None = None, *, every_s: float = 60.0, to: TextIO | None = None
    ) -> None:
        super().__init__("emf", choice or CloudWatchChoice(), every_s=every_s)
        self._to = to

    async def _push(self) -> None:
        """See `Pusher`."""
        lines = emf_lines(self._gathered(), time.time())
        if lines:
            to = sys.stdout if self._to is None else self._to
            to.write("".join([f"{line}\n" for line in lines]))
            to.flush()

    def _failed(self, error: Exception) -> None:
        """See `Pusher`."""
        self._lost(1, f"lines could not be written: {type(error).__name__}")


def _is_its_fault(error: Exception) -> bool:
    """Return True where the service refuses the request itself, and not its sender or its rate."""
    if not isinstance(error, ServiceError) or isinstance(error, AccessDeniedError | NotFoundError | ThrottledError):
        return False
    return error.status in (400, 413)
