"""Exporters that send: OTLP over HTTP, CloudWatch's PutMetricData, and lines in its embedded metric format."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

from penstock.errors import (
    AccessDeniedError,
    NotFoundError,
    OptionError,
    PenstockError,
    ServiceError,
    ThrottledError,
)
from penstock.tasks import logged, spawn
from penstock.telemetry import otlp
from penstock.telemetry.cloudwatch import SHARD_ID, CloudWatchChoice, datums, emf_lines, requests
from penstock.telemetry.exporting import PARTS_MAX, TICK_S, Exporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.ports import Poster
    from penstock.telemetry.names import Told
    from penstock.wiring import ConnectionOptions

WAITING_REQUESTS_MAX = 500
"""So many requests wait at most for a service that does not answer; the oldest is dropped where there are more."""
CLOSE_SHARE = 0.8
"""Sending goes on for so much of the time that a close may take; the rest is for ending it."""
RETRY_MAX_S = 300.0
"""A service that does not answer is asked again after one interval, then after twice as long, up to this."""


class Pusher(Exporter):
    """Sends at an interval. Between failures it waits longer; what is due meanwhile is kept, or sent with the next."""

    def __init__(self, name: str, *, every_s: float, shards_max: int = 0) -> None:
        super().__init__(name, shards_max=shards_max)
        if not every_s > 0:
            raise OptionError(f"every_s must be more than 0, not {every_s}")
        self.every_s = every_s
        """How often it sends."""
        self.metrics_interval_s = min(every_s, 5.0)

    async def _work(self) -> None:
        """See `Exporter`."""
        now_s = asyncio.get_running_loop().time
        due_s, failures, sending = now_s() + self.every_s, 0, None
        try:
            while not self._is_closed:
                await asyncio.sleep(TICK_S)
                self._drain()  # also while a service does not answer: the queue is short
                if sending is None:
                    if now_s() >= due_s:
                        sending = spawn(self._try(), logged(f"{self.name}: sending has failed; it is tried again"))
                elif sending.done():
                    failures = 0 if sending.result() else failures + 1
                    wait_s = min(self.every_s * 2 ** min(failures, 10), max(RETRY_MAX_S, self.every_s))
                    due_s, sending = now_s() + wait_s, None
            self._drain()
            async with asyncio.timeout(self._close_s * CLOSE_SHARE):
                if sending is not None:
                    await sending
                await self._try()
        except TimeoutError:
            self._lost(0, "the exporter is closed, and its service does not answer")
        finally:
            if sending is not None:
                sending.cancel()
            await self._leave()

    async def _try(self) -> bool:
        try:
            await self._push()
        except Exception as error:
            self._failed(error)
            return False
        self._works()
        return True

    async def _push(self) -> None:
        """Send what is there. Raises what came of it."""

    def _failed(self, error: Exception) -> None:
        """It could not be sent."""
        self._lost(0, told(error))

    async def _leave(self) -> None:
        """Nothing more is sent."""


def told(error: Exception) -> str:
    """What may be told of an error: a service's message is told, that of any other is not."""
    return str(error) if isinstance(error, PenstockError) else type(error).__name__


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
        """``sign_for``: the service's name, for a signature of AWS (version 4); None: none. ``headers`` go along, as a
        collector's token. ``resource`` adds to ``service.name`` (penstock) and ``service.instance.id`` (host and
        process). ``shards_max``: the levels of so many shards one by one, too; the rest is one. ``connection``:
        credentials, region, proxies, timeouts.
        """
        super().__init__("otlp", every_s=every_s, shards_max=shards_max)
        self._url = url
        self._sign_for = sign_for
        self._headers = {"content-type": otlp.CONTENT_TYPE, **(headers or {})}
        self._resource = dict(resource or {})
        self._connection = connection
        self._poster: Poster | None = None

    async def _push(self) -> None:
        """See `Pusher`."""
        if not self._totals:
            return
        if self._poster is None:
            from penstock.wiring import poster_for

            self._poster = poster_for(self._url, self._connection, sign_for=self._sign_for)
        resource = {"service.name": "penstock", "service.instance.id": _instance(), **self._resource}
        await self._poster.post(otlp.encode(self._points(), now_s=time.time(), resource=resource), self._headers)

    async def _leave(self) -> None:
        """See `Pusher`."""
        if self._poster is not None:
            await self._poster.close()


class _Periods(Pusher):
    """Gathers each period's events by stream and application."""

    def __init__(self, name: str, choice: CloudWatchChoice, *, every_s: float) -> None:
        super().__init__(name, every_s=every_s)
        self._choice = choice
        self.metrics_per_shard = SHARD_ID in choice.dimensions
        self._told: dict[tuple[type, str, str, str], list[Told]] = {}

    def _took(self, event: Told) -> None:
        """See `Exporter`."""
        worker = getattr(event, "worker_id", "")
        key = (type(event), event.stream, getattr(event, "application", ""), worker)
        if key not in self._told and len(self._told) >= PARTS_MAX:
            self._lost(1, "there are too many streams and applications")
        else:
            self._told.setdefault(key, []).append(event)

    def _gathered(self) -> list[Any]:
        """The data of the period that ends now."""
        gathered, self._told = self._told, {}
        return [one for events in gathered.values() for one in datums(events, self._choice)]


class CloudWatchExporter(_Periods):
    """Sends to CloudWatch with PutMetricData, by the KCL's and the KPL's names.

    ::

        CloudWatchExporter(CloudWatchChoice(level="DETAILED", dimensions=("ShardId",)))

    What CloudWatch does not take is kept, up to 500 requests, and sent when it does, with the time that it is of.
    """

    def __init__(
        self,
        choice: CloudWatchChoice | None = None,
        *,
        every_s: float = 60.0,
        connection: ConnectionOptions | None = None,
    ) -> None:
        """``connection``: region, endpoint, credentials, as for a consumer."""
        super().__init__("cloudwatch", choice or CloudWatchChoice(), every_s=every_s)
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._poster: Poster | None = None

    async def _push(self) -> None:
        """See `Pusher`."""
        self._waiting.extend(requests(self._gathered(), time.time()))
        while len(self._waiting) > WAITING_REQUESTS_MAX:
            self._waiting.popleft()
            self._lost(1, "CloudWatch does not take them, and too many requests wait")
        if self._poster is None and self._waiting:
            from penstock.wiring import metric_data_poster

            self._poster = metric_data_poster(self._connection)
        while self._waiting:
            assert self._poster is not None
            await self._poster.post(self._waiting[0], {})
            self._waiting.popleft()

    def _failed(self, error: Exception) -> None:
        """See `Pusher`. What the service will never take is dropped: else it would hold up the rest."""
        if self._waiting and _is_its_fault(error):
            self._waiting.popleft()
            self._lost(1, told(error))
        else:
            self._lost(0, told(error))

    async def _leave(self) -> None:
        """See `Pusher`."""
        if self._waiting:
            self._lost(len(self._waiting), "the exporter is closed, and CloudWatch did not take them")
        if self._poster is not None:
            await self._poster.close()


class EmfExporter(_Periods):
    """Writes lines in CloudWatch's embedded metric format, by default to standard output: Lambda, and ECS with awslogs,
    make metrics of them, and no permission is needed.
    """

    def __init__(
        self, choice: CloudWatchChoice | None = None, *, every_s: float = 60.0, to: TextIO | None = None
    ) -> None:
        super().__init__("emf", choice or CloudWatchChoice(), every_s=every_s)
        self._to = to

    async def _push(self) -> None:
        """See `Pusher`."""
        lines = emf_lines(self._gathered(), time.time())
        if lines:
            to = sys.stdout if self._to is None else self._to
            to.write("".join([f"{line}\n" for line in lines]))
            to.flush()

    def _failed(self, error: Exception) -> None:
        """See `Pusher`."""
        self._lost(1, f"lines could not be written: {type(error).__name__}")


def _is_its_fault(error: Exception) -> bool:
    """The request itself is refused, and not its sender, nor its time."""
    if not isinstance(error, ServiceError) or isinstance(error, AccessDeniedError | NotFoundError | ThrottledError):
        return False
    return error.status in (400, 413)


def _instance() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
