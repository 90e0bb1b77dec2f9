"""Take the snapshot of an application, its stream and their metrics that the symptoms look at.

A snapshot holds no payload, no partition key and no secret, so it can be sent to somewhere else and be looked at there.
What the credentials or the service do not show is left out, and noted.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.aws.calls import reading
from shardway.aws.kinesis import Count
from shardway.errors import ServiceError, TransportError
from shardway.inspect.applications import ApplicationView, only_stream
from shardway.inspect.heat import HeatReport
from shardway.inspect.lag import LagReport, Look
from shardway.inspect.moments import utc
from shardway.inspect.values import CredentialsView, Missing, StreamReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from shardway.inspect.inspector import Inspector
    from shardway.inspect.lag import LagTimes
    from shardway.inspect.tables import Store

    T = TypeVar("T")

HEAT_SINCE_S = 60.0
HEAT_RECORDS_MAX = 2_000
"""Records that are read of each shard to see where the load lies."""
RECENT_S = 3600.0
"""Seconds over which refusals and failures are counted."""
PEAK_S = 14 * 86400.0
"""Seconds over which the peak of the load is sought."""
PEAK_PERIOD_S = 3600
PERIOD_S = 300
METRIC_PAGES_MAX = 20
"""The pages of ListMetrics that are read, each with 500 metrics."""
QUERIES_MAX = 500
"""The queries that one GetMetricData call takes."""
KPL_NAMESPACE = "KinesisProducerLibrary"
WORKER_DIMENSION = "WorkerIdentifier"


class MetricView(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of CloudWatch that has data."""

    namespace: str
    name: str
    of: dict[str, str]
    """The metric's dimensions."""
    statistic: str
    """``Sum``, over all of ``hours``; or a rate in each second: ``Mean``, over all of ``hours``, or ``Peak``, the
    largest mean of an hour.
    """
    hours: float
    value: float


class MetricsView(msgspec.Struct, frozen=True, kw_only=True):
    """What CloudWatch has of a stream, its application and their tables."""

    found: list[MetricView]
    listed: int | None = None
    """The number of metrics in the application's namespace within two weeks, each of which has its price. None: they
    were not listed.
    """
    worker_ids: int = 0
    """The number of names of workers among the dimensions of these metrics."""


class AccountLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an account may have in a region, and has (DescribeLimits)."""

    shards_max: int
    open_shards: int
    on_demand_max: int | None = None
    on_demand: int | None = None
    """The number of on-demand streams, as ``on_demand_max`` is their limit."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that the symptoms look at."""

    schema: str = "shardway.snapshot/1"
    taken_at: dt.datetime
    clock_off_s: float = 0.0
    """Seconds by which this machine's clock was behind the service's; less than 0: it was ahead."""
    stream: StreamReport | None = None
    application: ApplicationView | None = None
    lag: LagReport | None = None
    looks: dict[str, list[Look]] = {}
    """All looks at each lease, by lease keys, the oldest first."""
    heat: HeatReport | None = None
    metrics: MetricsView | None = None
    limits: AccountLimits | None = None
    credentials: CredentialsView | None = None
    refused: dict[str, int] = {}
    """Attempts that the service refused for their rate while the snapshot was taken, by operation."""
    missing: list[Missing] = []


class MetricQuery(NamedTuple):
    """A figure to ask CloudWatch for."""

    namespace: str
    name: str
    of: Mapping[str, str]
    is_peak: bool = False


async def snapshot_of(
    inspector: Inspector,
    application: str | None,
    stream: str | None,
    store: Store | None,
    *,
    times: LagTimes | None = None,
    history: Mapping[str, Sequence[Look]] | None = None,
    heat_s: float | None = None,
) -> Snapshot:
    """See `Inspector.snapshot`."""
    view = lag = found = None
    looks: Mapping[str, Sequence[Look]] = {}
    if application is not None:
        view = (await inspector.application(application, store)).application
        if stream is None and view.listed:
            stream = only_stream(view)
    if stream is not None:
        found = await inspector.stream(stream)
    if application is not None and view is not None and view.leases:
        lag, looks = await inspector.lag(application, stream, store, times=times, history=history)
    heat = None
    if stream is not None:
        since_s = HEAT_SINCE_S if heat_s is None else heat_s
        heating = inspector.heat(stream, since_s=since_s, records_max=HEAT_RECORDS_MAX, show_keys=False)
        heat = await _if_shown(inspector, f"the load of {stream}", "kinesis", heating)
    limits = await _if_shown(inspector, "the limits of the account", "kinesis", _limits(inspector))
    metrics = await _metrics(inspector, application, found, view)
    taken = Snapshot(
        taken_at=utc(inspector.now_s),
        clock_off_s=inspector.clock_off_s,
        stream=found,
        application=view,
        lag=lag,
        looks={key: list(seen) for key, seen in looks.items()},
        heat=heat,
        metrics=metrics,
        limits=limits,
        credentials=await inspector.wire.credentials_view(),
        refused=dict(sorted(inspector.wire.refusals.items())),
        missing=list(inspector.missing),
    )
    return without_values(taken)


async def _if_shown(inspector: Inspector, what: str, service: str, looking: Awaitable[T]) -> T | None:
    """Return what ``looking`` found; None, and noted, where it failed in whichever way: see `Inspector.shown`. A
    service that is not AWS may lack it altogether, as another Kinesis has no CloudWatch.
    """
    try:
        return await inspector.shown(what, service, looking)
    except ServiceError as fault:
        inspector.lacks(what, service, fault)
    except TransportError as fault:
        found = Missing(what=what, action=service, message=str(fault), code=type(fault).__name__)
        inspector.missing.append(found)
    return None


# --- the account ----------------------------------------------------------------------------------


class _Limits(msgspec.Struct):
    shards_max: Count = msgspec.field(name="ShardLimit")
    open_shards: Count = msgspec.field(name="OpenShardCount")
    on_demand_max: Count | None = msgspec.field(name="OnDemandStreamCountLimit", default=None)
    on_demand: Count | None = msgspec.field(name="OnDemandStreamCount", default=None)


async def _limits(inspector: Inspector) -> AccountLimits:
    body = await inspector.wire.call("kinesis", "DescribeLimits", b"{}")
    with reading("DescribeLimits"):
        return AccountLimits(**msgspec.structs.asdict(msgspec.json.decode(body, type=_Limits)))


# --- CloudWatch -----------------------------------------------------------------------------------


def wanted_metrics(
    application: str | None, report: StreamReport | None, view: ApplicationView | None
) -> list[MetricQuery]:
    """Return the figures of CloudWatch that the symptoms look at."""
    wanted: list[MetricQuery] = []
    if report is not None:
        of = {"StreamName": report.name}
        wanted += [
            MetricQuery("AWS/Kinesis", "WriteProvisionedThroughputExceeded", of),
            MetricQuery("AWS/Kinesis", "ReadProvisionedThroughputExceeded", of),
            MetricQuery("AWS/Kinesis", "IncomingBytes", of, is_peak=True),
            MetricQuery("AWS/Kinesis", "IncomingRecords", of, is_peak=True),
            MetricQuery("AWS/Kinesis", "GetRecords.Bytes", of, is_peak=True),
            MetricQuery(KPL_NAMESPACE, "UserRecordExpired", of),
        ]
        wanted += [
            MetricQuery("AWS/Kinesis", "SubscribeToShard.RateExceeded", {**of, "ConsumerName": one.name})
            for one in report.consumers or ()
        ]
    for table in view.tables if view is not None else ():
        parts = [{}, *({"GlobalSecondaryIndexName": name} for name in table.indexes)]
        for part in parts:
            for name in ("WriteThrottleEvents", "ReadThrottleEvents"):
                wanted.append(MetricQuery("AWS/DynamoDB", name, {"TableName": table.name, **part}))
    if application is not None:
        wanted += [
            MetricQuery(application, "ExpiredIterator", {"Operation": "ProcessTask"}),
            MetricQuery(application, "RecordsFailedProcessing", {"Operation": "ProcessTask"}),
            MetricQuery(application, "NumStreamsWithPartialLeases", {"Operation": "PeriodicShardSyncManager"}),
        ]
    return wanted[:QUERIES_MAX]


class _Result(msgspec.Struct):
    id: str = msgspec.field(name="Id")
    values: list[float] = msgspec.field(name="Values", default=[])


class _MetricData(msgspec.Struct):
    results: list[_Result] = msgspec.field(name="MetricDataResults")


class _Dimension(msgspec.Struct):
    name: str = msgspec.field(name="Name")
    value: str = msgspec.field(name="Value")


class _Metric(msgspec.Struct):
    dimensions: list[_Dimension] = msgspec.field(name="Dimensions", default=[])


class _Metrics(msgspec.Struct):
    metrics: list[_Metric] = msgspec.field(name="Metrics", default=[])
    next: str | None = msgspec.field(name="NextToken", default=None)


async def _metrics(
    inspector: Inspector, application: str | None, report: StreamReport | None, view: ApplicationView | None
) -> MetricsView | None:
    wanted = wanted_metrics(application, report, view)
    found: list[MetricView] = []
    for is_peak in (False, True):
        asked = [one for one in wanted if one.is_peak is is_peak]
        if asked:
            answered = await _if_shown(inspector, "metrics", "cloudwatch", _figures(inspector, asked))
            if answered is None:
                return None
            found += answered
    names = None
    if application is not None:
        names = await _if_shown(inspector, "the list of metrics", "cloudwatch", _names(inspector, application))
    return MetricsView(found=found, listed=None if names is None else names[0], worker_ids=names[1] if names else 0)


async def _figures(inspector: Inspector, asked: Sequence[MetricQuery]) -> list[MetricView]:
    """Ask for figures in one call of GetMetricData. Raises ShardwayError."""
    is_peak = asked[0].is_peak
    span_s, period_s = (PEAK_S, PEAK_PERIOD_S) if is_peak else (RECENT_S, PERIOD_S)
    queries = [
        {
            "Id": f"m{place}",
            "MetricStat": {
                "Metric": {
                    "Namespace": one.namespace,
                    "MetricName": one.name,
                    "Dimensions": [{"Name": name, "Value": value} for name, value in one.of.items()],
                },
                "Period": period_s,
                "Stat": "Sum",
            },
        }
        for place, one in enumerate(asked)
    ]
    now_s = int(inspector.now_s)
    parameters: dict[str, Any] = {"StartTime": now_s - span_s, "EndTime": now_s, "MetricDataQueries": queries}
    body = await inspector.wire.call("cloudwatch", "GetMetricData", msgspec.json.encode(parameters))
    found: list[MetricView] = []
    with reading("GetMetricData"):
        for result in msgspec.json.decode(body, type=_MetricData).results:
            one, values = asked[int(result.id[1:])], result.values
            if not values:
                continue
            told = {"Peak": max(values) / period_s, "Mean": sum(values) / span_s} if is_peak else {"Sum": sum(values)}
            found += [
                MetricView(
                    namespace=one.namespace,
                    name=one.name,
                    of=dict(one.of),
                    statistic=statistic,
                    hours=span_s / 3600,
                    value=value,
                )
                for statistic, value in told.items()
            ]
    return found


async def _names(inspector: Inspector, namespace: str) -> tuple[int, int]:
    """Return how many metrics a namespace has, and how many names of workers are in their dimensions."""
    count, workers = 0, set[str]()
    parameters: dict[str, Any] = {"Namespace": namespace}
    for _ in range(METRIC_PAGES_MAX):
        body = await inspector.wire.call("cloudwatch", "ListMetrics", msgspec.json.encode(parameters))
        with reading("ListMetrics"):
            page = msgspec.json.decode(body, type=_Metrics)
        count += len(page.metrics)
        workers |= {dim.value for one in page.metrics for dim in one.dimensions if dim.name == WORKER_DIMENSION}
        if not page.next:
            break
        parameters = {"Namespace": namespace, "NextToken": page.next}
    return count, len(workers)


# --- what is left out -----------------------------------------------------------------------------


def without_values(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without what may come from a payload, a partition key, or a row that is no lease."""
    view, heat = snapshot.application, snapshot.heat
    if view is not None:
        unreadable = {key: _without_value(key, why) for key, why in view.unreadable.items()}
        view = msgspec.structs.replace(view, unreadable=unreadable)
    if heat is not None:
        # A hash key for a split is the hash of one record's partition key: it identifies the key as its name does.
        shards = [
            msgspec.structs.replace(one, split_at=None, advice=None, hot_keys=_unnamed(one.hot_keys))
            for one in heat.shards
        ]
        heat = msgspec.structs.replace(heat, shards=shards)
    return msgspec.structs.replace(snapshot, application=view, heat=heat)


def _without_value(key: str, why: str) -> str:
    """Return what an error says of a row, up to where the error shows the row's content."""
    row = f"the row {key!r} "
    return why.removeprefix(row).partition("(")[0] if why.startswith(row) else "it cannot be read as a lease"


def _unnamed(keys: Iterable[Any]) -> list[Any]:
    return [msgspec.structs.replace(one, partition_key=None) for one in keys]
