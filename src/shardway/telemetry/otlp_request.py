"""Encode points as a request of OTLP, in protobuf's wire format."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from shardway.core.histogram import SCALE, VALUE_MIN, Histogram
from shardway.events.consumer_snapshot import Spread
from shardway.telemetry.metrics import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shardway.telemetry.metrics import Metric
    from shardway.telemetry.points import Point


SCOPE = "shardway"
_CUMULATIVE = 2
_VARINT, _FIXED64, _BYTES = 0, 1, 2


def encode(
    points: Iterable[tuple[Point, float]], *, now_s: float, resource: Mapping[str, str], version: str = ""
) -> bytes:
    """Return a request with these points. Each point stands with the time since which it counts (epoch seconds)."""
    families: dict[tuple[str, Kind], tuple[Metric, list[bytes]]] = {}
    for point, start_s in points:
        data = _data_point(point, start_s, now_s)
        if data is not None:
            families.setdefault((point.metric.name, point.metric.kind), (point.metric, []))[1].append(data)
    scope = _text(1, SCOPE) + _text(2, version)
    metrics = b"".join([_field(2, _metric(metric, data)) for metric, data in families.values()])
    attributes = b"".join([_field(1, _attribute(key, value)) for key, value in resource.items()])
    return _field(1, _field(1, attributes) + _field(2, _field(1, scope) + metrics))


def _metric(metric: Metric, data: list[bytes]) -> bytes:
    points = b"".join([_field(1, one) for one in data])
    head = _text(1, metric.name) + _text(2, metric.help) + _text(3, metric.unit)
    match metric.kind:
        case Kind.GAUGE:
            return head + _field(5, points)
        case Kind.COUNTER:
            return head + _field(7, points + _number(2, _CUMULATIVE) + _number(3, 1))
        case Kind.HISTOGRAM:
            return head + _field(10, points + _number(2, _CUMULATIVE))


def _data_point(point: Point, start_s: float, now_s: float) -> bytes | None:
    value = point.value
    if isinstance(value, Spread):
        return None
    times = _encode_fixed(2, _nanos(start_s)) + _encode_fixed(3, _nanos(now_s))
    if isinstance(value, Histogram):
        attributes = b"".join([_field(1, _attribute(key, text)) for key, text in point.attributes])
        return attributes + times + _exponential(value)
    attributes = b"".join([_field(7, _attribute(key, text)) for key, text in point.attributes])
    if isinstance(value, int):
        return attributes + times + _tag(6, _FIXED64) + struct.pack("<q", value)
    return attributes + times + _double(4, value)


def _exponential(histogram: Histogram) -> bytes:
    found = list(histogram.buckets())
    buckets = b""
    if found:
        first, last = found[0][0], found[-1][0]
        counts = [0] * (last - first + 1)
        for number, count in found:
            counts[number - first] = count
        buckets = _number(1, _zigzag(first)) + _field(2, b"".join(map(_varint, counts)))
    ends = b""
    if histogram.min is not None and histogram.max is not None:
        ends = _double(12, histogram.min) + _double(13, histogram.max)
    return (
        _encode_fixed(4, histogram.count)
        + _double(5, histogram.sum)
        + _number(6, _zigzag(SCALE))
        + _encode_fixed(7, histogram.zeros)
        + _field(8, buckets)
        + ends
        + _double(14, VALUE_MIN)
    )


def _attribute(key: str, value: str) -> bytes:
    return _text(1, key) + _field(2, _field(1, value.encode()))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _field(field: int, content: bytes) -> bytes:
    return _tag(field, _BYTES) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode()) if text else b""


def _number(field: int, value: int) -> bytes:
    return _tag(field, _VARINT) + _varint(value) if value else b""  # a field that is left out is 0


def _encode_fixed(field: int, value: int) -> bytes:
    return _tag(field, _FIXED64) + struct.pack("<Q", value) if value else b""


def _double(field: int, value: float) -> bytes:
    return _tag(field, _FIXED64) + struct.pack("<d", value)


def _nanos(epoch_s: float) -> int:
    return max(0, round(epoch_s * 1e9))
