"""Figures of the last hour, minute by minute, as CloudWatch has them: one call brings up to `FIGURES_MAX` of them.

CloudWatch charges for each figure of a call, and allows 50 calls a second. The callers of `hour_of` bound how often
they ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.aws.calls.answers import reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.inspect import Inspector


FIGURES_MAX = 500
HOUR_S, PERIOD_S = 3600, 60
MINUTES = HOUR_S // PERIOD_S
PRICE = 0.01
"""US dollars for a thousand figures of GetMetricData in us-east-1 (CloudWatch's list of prices, 2026-11)."""


class FigureQuery(NamedTuple):
    """A figure to ask for."""

    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str = "Sum"


class HourAnswers(NamedTuple):
    """The answers to some questions about the hour."""

    begin_s: int
    """When the hour begins, in epoch seconds. It ends with the last whole minute."""
    now_s: float
    """The service's time of the call."""
    found: Sequence[Mapping[int, float]]
    """What was found of each figure: numbers by the minutes of the hour, from 0 on."""


class _Result(msgspec.Struct):
    id: str = msgspec.field(name="Id")
    at_s: list[float] = msgspec.field(name="Timestamps", default=[])
    values: list[float] = msgspec.field(name="Values", default=[])


class _MetricData(msgspec.Struct):
    results: list[_Result] = msgspec.field(name="MetricDataResults")


async def hour_of(inspector: Inspector, wanted: Sequence[FigureQuery]) -> HourAnswers:
    """Ask for figures of the last hour in one call of GetMetricData. Raises ShardwayError."""
    queries: list[dict[str, Any]] = [
        {
            "Id": f"m{place}",
            "MetricStat": {
                "Metric": {
                    "Namespace": one.namespace,
                    "MetricName": one.metric,
                    "Dimensions": [{"Name": name, "Value": value} for name, value in one.dimensions.items()],
                },
                "Period": PERIOD_S,
                "Stat": one.statistic,
            },
        }
        for place, one in enumerate(wanted[:FIGURES_MAX])
    ]
    now_s = inspector.now_s
    end_s = int(now_s) // PERIOD_S * PERIOD_S  # the minute that is under way would look like a fall
    begin_s = end_s - HOUR_S
    asked = {"StartTime": begin_s, "EndTime": end_s, "MetricDataQueries": queries}
    body = await inspector.wire.call("cloudwatch", "GetMetricData", msgspec.json.encode(asked))
    with reading("GetMetricData"):
        results = {one.id: one for one in msgspec.json.decode(body, type=_MetricData).results}
    found = [_by_minute(results.get(f"m{place}"), begin_s) for place in range(len(queries))]
    return HourAnswers(begin_s, now_s, found)


def _by_minute(result: _Result | None, begin_s: int) -> dict[int, float]:
    if result is None:
        return {}
    pairs = zip(result.at_s, result.values, strict=False)
    return {int(at_s - begin_s) // PERIOD_S: value for at_s, value in pairs}
