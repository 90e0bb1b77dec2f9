"""Post bodies as they are, to a collector of metrics and to CloudWatch (`shardway.ports.Poster`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shardway.aws.calls.retry import NEVER
from shardway.aws.options import url_fault
from shardway.aws.wire import Wire
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.aws.options import ConnectionOptions

ATTEMPT_S = 10.0
"""The most seconds that an exporter waits for an answer; the options may say fewer."""


class UrlPoster:
    """A `shardway.ports.Poster` that posts to one URL."""

    def __init__(self, url: str, options: ConnectionOptions, *, sign_for: str | None) -> None:
        if fault := url_fault(url):
            raise OptionError(f"url {fault}")
        self._url = url
        self._sign_for = sign_for
        self._wire = Wire(_with_short_timeout(options), retry=NEVER)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """See `shardway.ports.Poster`."""
        await self._wire.post(self._url, body, headers, sign_for=self._sign_for)

    async def close(self) -> None:
        """See `shardway.ports.Poster`."""
        await self._wire.close()


class MetricDataPoster:
    """A `shardway.ports.Poster` of CloudWatch's PutMetricData."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._wire = Wire(_with_short_timeout(options), retry=NEVER)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """See `shardway.ports.Poster`."""
        assert not headers, "the call has its own"
        await self._wire.call("cloudwatch", "PutMetricData", body)

    async def close(self) -> None:
        """See `shardway.ports.Poster`."""
        await self._wire.close()


def _with_short_timeout(options: ConnectionOptions) -> ConnectionOptions:
    """Return the options with a short time for a request: an exporter asks again by itself, so it gives up soon."""
    return msgspec.structs.replace(options, request_timeout_s=min(options.request_timeout_s, ATTEMPT_S))
