"""Write the page of numbers that Prometheus reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.histogram import BUCKETS_PER_DOUBLING, Histogram
from shardway.events.consumer_snapshot import Spread
from shardway.telemetry.metrics import Kind, Metric, prometheus_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.telemetry.points import Point


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS: dict[str, tuple[int, int]] = {"s": (-10, 10), "ms": (0, 14), "By": (6, 26)}
"""The exponents of the lowest and of the highest bound of a classic histogram, by unit. Each bound is a power of two:
there the exact histogram can be cut without an error.
"""
_COUNT_BOUNDS = (0, 13)
_SHOWN_AS = {Kind.COUNTER: "counter", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "histogram"}


def encode(points: Iterable[Point]) -> bytes:
    """Return the page that Prometheus scrapes. Points of one name may come in any order; they are shown together."""
    families: dict[str, tuple[Metric, list[Point]]] = {}
    names: dict[int, list[Point]] = {}  # by the metric's identity: the points of all shards share one object
    for point in points:
        found = names.get(id(point.metric))
        if found is None:
            name = point.metric.prometheus_name
            found = names[id(point.metric)] = families.setdefault(name, (point.metric, []))[1]
        found.append(point)
    lines: list[str] = []
    labels: dict[tuple[tuple[str, str], ...], str] = {}
    for name, (metric, found) in families.items():
        lines.append(f"# HELP {name} {_escape(metric.help, quotes=False)}")
        lines.append(f"# TYPE {name} {_SHOWN_AS[metric.kind]}")
        for point in found:
            shown = labels.get(point.attributes)
            if shown is None:
                shown = labels[point.attributes] = _labels(point.attributes)
            lines += _samples(name, metric.unit, (shown, point.value))
    lines.append("")
    return "\n".join(lines).encode()


def _labels(attributes: tuple[tuple[str, str], ...]) -> str:
    return ",".join([f'{prometheus_label(key)}="{_escape(value)}"' for key, value in attributes])


def _samples(name: str, unit: str, shown: tuple[str, float | Histogram | Spread]) -> Iterator[str]:
    labels, value = shown
    if isinstance(value, Histogram):
        low, high = bounds_of(unit)
        before = f"{labels}," if labels else ""
        for exponent, count in zip(range(low, high + 1), cut(value, low, high), strict=True):
            yield f'{name}_bucket{{{before}le="{2.0**exponent!r}"}} {count}'
        yield f'{name}_bucket{{{before}le="+Inf"}} {value.count}'
        yield f"{name}_sum{{{labels}}} {value.sum!r}"
        yield f"{name}_count{{{labels}}} {value.count}"
    elif not isinstance(value, Spread):
        yield f"{name}{{{labels}}} {_number(value)}"


def bounds_of(unit: str) -> tuple[int, int]:
    """Return the exponents of the lowest and of the highest bound of a classic histogram of this unit."""
    return BOUNDS.get(unit, _COUNT_BOUNDS)


def cut(histogram: Histogram, low: int, high: int) -> Sequence[int]:
    """Return how many values are not above 2 ** n, for each n from ``low`` to ``high``."""
    counts = []
    buckets = iter([*histogram.buckets(), None])
    below, bucket = histogram.zeros, next(buckets)
    for exponent in range(low, high + 1):
        while bucket is not None and bucket[0] < exponent * BUCKETS_PER_DOUBLING:
            below += bucket[1]
            bucket = next(buckets)
        counts.append(below)
    return counts


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _escape(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
