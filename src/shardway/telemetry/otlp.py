"""Send numbers as OTLP over HTTP: an ``ExportMetricsServiceRequest`` (opentelemetry-proto 1.x), without any library.

Counts and histograms are cumulative. A histogram is sent as it is: an exponential histogram of scale 5.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from shardway.telemetry.otlp_request import encode
from shardway.telemetry.pushing import Pusher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.ports import Poster
    from shardway.wiring import ConnectionOptions


CONTENT_TYPE = "application/x-protobuf"


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
