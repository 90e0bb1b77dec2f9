"""Send numbers as OTLP over HTTP: an ``ExportMetricsServiceRequest`` (opentelemetry-proto 1.x), without any library.

Counts and histograms are cumulative. A histogram is sent as it is: an exponential histogram of scale 5.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING

from shardway.core.histogram import SCALE, VALUE_MIN, Histogram
from shardway.telemetry.consumer_metrics import Spread
from shardway.telemetry.exporting import Pusher
from shardway.telemetry.names import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shardway.ports import Poster
    from shardway.telemetry.names import Metric, Point
    from shardway.wiring import ConnectionOptions

CONTENT_TYPE = "application/x-protobuf"
SCOPE = "shardway"
_CUMULATIVE = 2
_VARINT, _FIXED64, _BYTES = 0, 1, 2


class OtlpExporter(Pusher):
    """Sends all numbers to an OpenTelemetry collector, or to CloudWatch, as OTLP over HTTP (protobuf).

    ::

        OtlpExporter("http://localhost:4318/v1/metrics")
        OtlpExporter("https://monitoring.eu-west-1.amazonaws.com/v1/metrics", sign_for="monitoring")

    Numbers are cumulative, so a collector that was away loses nothing but the points in between.
    """

    def __init__(
        self,
        url: str = "http://localhost:4318/v1/metrics",
        *,
        every_s: float = 60.0,
        sign_for: str | None = None,
        headers: Mapping[str, str] | None = None,
        resource: Mapping[str, str] | None = None,
        shards_max: int = 0,
        connection: ConnectionOptions | None = None,
    ) -> None:
        """``sign_for``: the service's name, for a signature of AWS (version 4); None: requests are not signed.
        ``headers`` go along, such as a collector's token. ``resource`` adds to ``service.name`` (shardway) and
        ``service.instance.id`` (host and process). ``shards_max``: the levels of at most this many shards are reported
        one by one, too, and those of the rest as one. ``connection``: credentials, region, proxies, timeouts.
        """
        super().__init__("otlp", every_s=every_s, shards_max=shards_max)
        self._url = url
        self._sign_for = sign_for
        self._headers = {"content-type": CONTENT_TYPE, **(headers or {})}
        self._resource = dict(resource or {})
        self._connection = connection
        self._poster: Poster | None = None

    async def _push(self) -> None:
        """See `Pusher`."""
        if not self._totals:
            return
        if self._poster is None:
            from shardway.wiring import poster_for

            self._poster = poster_for(self._url, self._connection, sign_for=self._sign_for)
        resource = {"service.name": "shardway", "service.instance.id": _instance(), **self._resource}
        await self._poster.post(encode(self._points(), now_s=time.time(), resource=resource), self._headers)

    async def _leave(self) -> None:
        """See `Pusher`."""
        if self._poster is not None:
            await self._poster.close()


def _instance() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


# --- a request ------------------------------------------------------------------------------------


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
    times = _fixed(2, _nanos(start_s)) + _fixed(3, _nanos(now_s))
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
        _fixed(4, histogram.count)
        + _double(5, histogram.sum)
        + _number(6, _zigzag(SCALE))
        + _fixed(7, histogram.zeros)
        + _field(8, buckets)
        + ends
        + _double(14, VALUE_MIN)
    )


def _attribute(key: str, value: str) -> bytes:
    return _text(1, key) + _field(2, _field(1, value.encode()))


# --- protobuf's wire format -----------------------------------------------------------------------


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


def _fixed(field: int, value: int) -> bytes:
    return _tag(field, _FIXED64) + struct.pack("<Q", value) if value else b""


def _double(field: int, value: float) -> bytes:
    return _tag(field, _FIXED64) + struct.pack("<d", value)


def _nanos(epoch_s: float) -> int:
    return max(0, round(epoch_s * 1e9))
