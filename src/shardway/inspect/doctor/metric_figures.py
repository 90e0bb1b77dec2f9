"""Ask CloudWatch for the metrics of a stream and an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.aws.calls.answers import reading
from shardway.errors import ServiceError, TransportError
from shardway.inspect.applications.views import ApplicationView
from shardway.inspect.doctor.snapshots import KPL_NAMESPACE, PEAK_S, RECENT_S, WORKER_DIMENSION, MetricsView, MetricView
from shardway.inspect.values import Missing, StreamReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from typing import TypeVar

    from shardway.inspect.reads.ports import Calls

    T = TypeVar("T")


PEAK_PERIOD_S = 3600
PERIOD_S = 300
METRIC_PAGES_MAX = 20
"""The pages of ListMetrics that are read, each with 500 metrics."""
QUERIES_MAX = 500
"""The queries that one GetMetricData call takes."""


class MetricQuery(NamedTuple):
    """A figure to ask CloudWatch for."""

    namespace: str
    name: str
    of: Mapping[str, str]
    is_peak: bool = False


async def if_shown(inspector: Calls, what: str, service: str, looking: Awaitable[T]) -> T | None:
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


async def metrics_of(
    inspector: Calls, application: str | None, report: StreamReport | None, view: ApplicationView | None
) -> MetricsView | None:
    """Return the figures that say something of a stream and an application; None where they are not shown."""
    wanted = wanted_metrics(application, report, view)
    found: list[MetricView] = []
    for is_peak in (False, True):
        asked = [one for one in wanted if one.is_peak is is_peak]
        if asked:
            answered = await if_shown(inspector, "metrics", "cloudwatch", _figures(inspector, asked))
            if answered is None:
                return None
            found += answered
    names = None
    if application is not None:
        names = await if_shown(inspector, "the list of metrics", "cloudwatch", _names(inspector, application))
    return MetricsView(found=found, listed=None if names is None else names[0], worker_ids=names[1] if names else 0)


async def _figures(inspector: Calls, asked: Sequence[MetricQuery]) -> list[MetricView]:
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


async def _names(inspector: Calls, namespace: str) -> tuple[int, int]:
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
