"""Bodies that are posted as they are: to a collector of metrics, and to CloudWatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.aws.calls import NEVER
from penstock.aws.options import ConnectionOptions, url_fault
from penstock.aws.wire import Wire
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTEMPT_S = 10.0
"""An answer is waited for so long, where the settings say nothing else."""


class UrlPoster:
    """A `penstock.ports.Poster` to one URL."""

    def __init__(self, url: str, settings: ConnectionOptions, *, sign_for: str | None) -> None:
        if fault := url_fault(url):
            raise OptionError(f"url {fault}")
        self._url = url
        self._sign_for = sign_for
        self._wire = Wire(_soon(settings), retry=NEVER)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """See `penstock.ports.Poster`."""
        await self._wire.post(self._url, body, headers, sign_for=self._sign_for)

    async def close(self) -> None:
        """See `penstock.ports.Poster`."""
        await self._wire.close()


class MetricDataPoster:
    """A `penstock.ports.Poster` of CloudWatch's PutMetricData."""

    def __init__(self, settings: ConnectionOptions) -> None:
        self._wire = Wire(_soon(settings), retry=NEVER)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """See `penstock.ports.Poster`."""
        assert not headers, "the call has its own"
        await self._wire.call("cloudwatch", "PutMetricData", body)

    async def close(self) -> None:
        """See `penstock.ports.Poster`."""
        await self._wire.close()


def _soon(settings: ConnectionOptions) -> ConnectionOptions:
    """An exporter asks again by itself, so it gives up soon."""
    return msgspec.structs.replace(settings, request_timeout_s=min(settings.request_timeout_s, ATTEMPT_S))
