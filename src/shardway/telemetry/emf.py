"""Write datums as lines of the embedded metric format: CloudWatch's logs make metrics of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.telemetry.cloudwatch_datums import fitting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.telemetry.cloudwatch_datums import Datum


EMF_METRICS_MAX = 100
"""The metrics that an EMF line holds."""


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
                            "Namespace": fitting(namespace).replace(":", "_")[:255],
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
