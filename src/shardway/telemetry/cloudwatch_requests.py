"""Pack datums into requests to CloudWatch, within the limits of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.telemetry.cloudwatch_datums import fitting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardway.telemetry.cloudwatch_datums import Datum


DATUMS_MAX = 1000
"""The metrics that PutMetricData takes in a call."""
REQUEST_BYTES_MAX = 900_000
"""The bytes of metrics in a call. PutMetricData takes 1 MB; the rest is for what surrounds the metrics."""


def requests(found: Iterable[Datum], now_s: float) -> list[bytes]:
    """Return the bodies of as few calls of PutMetricData as possible, in JSON."""
    bodies = []
    by_namespace: dict[str, list[Datum]] = {}
    for datum in found:
        if datum.spread is None or datum.spread.count:
            by_namespace.setdefault(datum.namespace, []).append(datum)
    for namespace, data in by_namespace.items():
        encoded = [msgspec.json.encode(_of_request(datum, now_s)) for datum in data]
        head = msgspec.json.encode(fitting(namespace).replace(":", "_")[:255])
        bodies += [
            b'{"Namespace":' + head + b',"MetricData":[' + b",".join(packed) + b"]}" for packed in _pack(encoded)
        ]
    return bodies


def _pack(encoded: list[bytes]) -> Iterator[list[bytes]]:
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
