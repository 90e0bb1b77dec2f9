"""A stand-in for CloudWatch: it takes PutMetricData and answers GetMetricData, each checked by botocore's model."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

import botocore.session
from botocore.validate import ParamValidator

SERIES_MAX = 500
_SEARCH = re.compile(r"""SEARCH\('\{([^}]*)\} MetricName="([^"]+)"', '(\w+)', (\d+)\)""")


class Datum(NamedTuple):
    """What was put for one metric at one time."""

    at_s: float
    values: tuple[tuple[float, float], ...]
    """(value, how often); of a statistic set its ends, and what is left between them."""
    total: float
    number: float


@lru_cache(maxsize=1)
def model() -> Any:
    return botocore.session.get_session().get_service_model("cloudwatch")


def check(operation: str, given: dict[str, Any]) -> None:
    """Raise for what the service's model does not take."""
    report = ParamValidator().validate(given, model().operation_model(operation).input_shape)
    assert not report.has_errors(), report.generate_report()


class CloudWatch:
    """The metrics that were put."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Datum]] = {}
        self.units: dict[str, set[str]] = {}

    def put(self, body: bytes) -> None:
        """A request of PutMetricData."""
        given = json.loads(body)
        check("PutMetricData", given)
        assert len(given["MetricData"]) <= 1000
        assert not given["Namespace"].startswith("AWS/")
        for one in given["MetricData"]:
            assert sum(name in one for name in ("Value", "Values", "StatisticValues")) == 1
            dimensions = tuple(sorted((pair["Name"], pair["Value"]) for pair in one.get("Dimensions", ())))
            assert all(value.isascii() and value.strip() and not value.startswith(":") for _, value in dimensions)
            self.units.setdefault(one["MetricName"], set()).add(one["Unit"])
            key = given["Namespace"], one["MetricName"], dimensions
            self.metrics.setdefault(key, []).append(_datum(one))

    def get(self, queries: list[dict[str, Any]], start_s: float, end_s: float) -> dict[str, dict[int, float]]:
        """GetMetricData: for each query (or, of a SEARCH, each metric) the value of each period that has one."""
        check("GetMetricData", {"MetricDataQueries": queries, "StartTime": start_s, "EndTime": end_s})
        found: dict[str, dict[int, float]] = {}
        for query in queries:
            if "Expression" in query:
                found |= self._searched(query["Expression"], start_s, end_s)
                continue
            stat = query["MetricStat"]
            metric = stat["Metric"]
            dimensions = tuple(sorted((one["Name"], one["Value"]) for one in metric.get("Dimensions", ())))
            key = metric["Namespace"], metric["MetricName"], dimensions
            found[query["Id"]] = self._periods(key, stat["Stat"], stat["Period"], (start_s, end_s))
        return found

    def _searched(self, expression: str, start_s: float, end_s: float) -> dict[str, dict[int, float]]:
        match = _SEARCH.fullmatch(expression)
        assert match is not None, expression
        schema, name, statistic, period = match.groups()
        namespace, *wanted = schema.split(",")
        keys = [
            key
            for key in self.metrics
            if (key[0], key[1]) == (namespace, name) and sorted(one for one, _ in key[2]) == sorted(wanted)
        ]
        assert len(keys) <= SERIES_MAX
        return {
            " ".join(value for _, value in key[2]): self._periods(key, statistic, int(period), (start_s, end_s))
            for key in keys
        }

    def _periods(self, key: Any, statistic: str, period_s: int, within: tuple[float, float]) -> dict[int, float]:
        by_period: dict[int, list[Datum]] = {}
        for datum in self.metrics.get(key, ()):
            if within[0] <= datum.at_s < within[1]:
                by_period.setdefault(int(datum.at_s // period_s) * period_s, []).append(datum)
        return {at_s: _statistic(data, statistic) for at_s, data in sorted(by_period.items())}


def _datum(one: dict[str, Any]) -> Datum:
    if "StatisticValues" in one:
        told = one["StatisticValues"]
        assert told["Minimum"] <= told["Maximum"]
        ends = ((told["Minimum"], 1.0), (told["Maximum"], told["SampleCount"] - 1))
        return Datum(one["Timestamp"], ends, told["Sum"], told["SampleCount"])
    values = tuple(zip(one.get("Values", [one.get("Value")]), one.get("Counts", [1.0]), strict=True))
    assert len(values) <= 150
    return Datum(one["Timestamp"], values, sum(v * c for v, c in values), sum(c for _, c in values))


def _statistic(data: list[Datum], statistic: str) -> float:
    values = sorted(pair for datum in data for pair in datum.values)
    total, count = sum(datum.total for datum in data), sum(datum.number for datum in data)
    if statistic.startswith("p"):
        left = count * float(statistic[1:]) / 100
        for value, times in values:
            left -= times
            if left <= 0:
                return value
    return {
        "Maximum": values[-1][0], "Minimum": values[0][0], "Sum": total, "SampleCount": count, "Average": total / count,
    }[statistic]  # fmt: skip


class _Series(float):
    """A value of metric math that knows its rate."""

    rate: float


def evaluate(cloudwatch: CloudWatch, alarm: dict[str, Any], names: dict[str, str], end_s: float) -> bool:
    """A small evaluator of an alarm of CloudFormation, as CloudWatch's documentation describes it: at ``end_s`` are
    enough of the last periods breaching? ``names`` are the template's parameters.
    """
    if "Metrics" in alarm:
        (queried,) = [one["MetricStat"] for one in alarm["Metrics"] if "MetricStat" in one]
        metric, statistic, period_s = queried["Metric"], queried["Stat"], queried["Period"]
        (expression,) = [one["Expression"] for one in alarm["Metrics"] if one.get("ReturnData")]
    else:
        metric, statistic, period_s, expression = alarm, alarm["Statistic"], alarm["Period"], "used"
    given = {name: value for name, value in metric.items() if name in ("Namespace", "MetricName", "Dimensions")}
    queried = {"Metric": _filled(given, names), "Period": period_s, "Stat": statistic}
    periods = alarm["EvaluationPeriods"]
    found = cloudwatch.get([{"Id": "used", "MetricStat": queried}], end_s - (periods + 1) * period_s, end_s)["used"]
    breaching = 0
    for number in range(periods, 0, -1):
        at_s = int(end_s // period_s - number) * period_s
        value = _math(expression, found, at_s, period_s)
        if value is None:
            breaching += alarm["TreatMissingData"] == "breaching"
        elif alarm["ComparisonOperator"] == "LessThanThreshold":
            breaching += value < alarm["Threshold"]
        else:
            assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
            breaching += value > alarm["Threshold"]
    return bool(breaching >= alarm["DatapointsToAlarm"])


def _filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return names[value["Ref"]] if value.keys() == {"Ref"} else {key: _filled(v, names) for key, v in value.items()}
    return [_filled(one, names) for one in value] if isinstance(value, list) else value


def _math(expression: str, found: dict[int, float], at_s: int, period_s: int) -> float | None:
    if at_s not in found:
        return None
    used = _Series(found[at_s])
    used.rate = (found[at_s] - found[at_s - period_s]) / period_s if at_s - period_s in found else 0.0
    functions = {"IF": lambda test, one, other: one if test else other, "RATE": lambda series: series.rate}
    return float(eval(expression, {"__builtins__": {}}, {"used": used, **functions}))
