"""Bring numbers to CloudWatch, with the names, units and dimensions of the KCL and the KPL, and with our own names for
what alarms need beside those.

Histograms go as values with counts, so that CloudWatch has percentiles of them, which the KCL's statistic sets cannot
give. `datums` makes values of events, `requests` makes the bodies of PutMetricData, and `emf_lines` makes lines of a
log in the embedded metric format. One exporter sends such bodies, and another writes such lines, for each period.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

from shardway.errors import AccessDeniedError, NotFoundError, ServiceError, ThrottledError
from shardway.telemetry.cloudwatch_datums import SHARD_ID, CloudWatchChoice, datums
from shardway.telemetry.cloudwatch_requests import requests
from shardway.telemetry.emf import emf_lines
from shardway.telemetry.exporting import PARTS_MAX
from shardway.telemetry.pushing import Pusher, told_of

if TYPE_CHECKING:
    from shardway.ports import Poster
    from shardway.telemetry.points import Told
    from shardway.wiring import ConnectionOptions


WAITING_REQUESTS_MAX = 500
"""The requests that wait for a service that does not answer; the oldest is dropped where there are more."""


class _Periods(Pusher):
    """Gathers each period's events by stream and application."""

    def __init__(self, name: str, choice: CloudWatchChoice, *, every_s: float) -> None:
        super().__init__(name, every_s=every_s)
        self._choice = choice
        self.metrics_per_shard = SHARD_ID in choice.dimensions
        self._events: dict[tuple[type, str, str, str], list[Told]] = {}

    def _take(self, event: Told) -> None:
        """See `Exporter`."""
        worker = getattr(event, "worker_id", "")
        key = (type(event), event.stream, getattr(event, "application", ""), worker)
        if key not in self._events and len(self._events) >= PARTS_MAX:
            self._lose(1, "there are too many streams and applications")
        else:
            self._events.setdefault(key, []).append(event)

    def _gather(self) -> list[Any]:
        """Return the data of the period that ends now, and begin the next one."""
        gathered, self._events = self._events, {}
        return [one for events in gathered.values() for one in datums(events, self._choice)]


class CloudWatchExporter(_Periods):
    """Sends to CloudWatch with PutMetricData, by the KCL's and the KPL's names.

    ::

        CloudWatchExporter(CloudWatchChoice(level="DETAILED", dimensions=("ShardId",)))

    Requests that CloudWatch does not take are kept, at most 500 of them, and sent later, with the times of their
    periods.
    """

    def __init__(
        self,
        choice: CloudWatchChoice | None = None,
        *,
        every_s: float = 60.0,
        connection: ConnectionOptions | None = None,
    ) -> None:
        """``connection``: the region, the endpoint and the credentials, as a consumer has them."""
        super().__init__("cloudwatch", choice or CloudWatchChoice(), every_s=every_s)
        self._connection = connection
        self._waiting_requests: deque[bytes] = deque()
        self._poster: Poster | None = None

    async def _push(self) -> None:
        """See `Pusher`."""
        self._waiting_requests.extend(requests(self._gather(), time.time()))
        while len(self._waiting_requests) > WAITING_REQUESTS_MAX:
            self._waiting_requests.popleft()
            self._lose(1, "CloudWatch does not take them, and too many requests wait")
        if self._poster is None and self._waiting_requests:
            from shardway.wiring import metric_data_poster

            self._poster = metric_data_poster(self._connection)
        while self._waiting_requests:
            assert self._poster is not None
            await self._poster.post(self._waiting_requests[0], {})
            self._waiting_requests.popleft()

    def _handle_failure(self, error: Exception) -> None:
        """See `Pusher`. A request that the service will never take is dropped: else it would hold up the rest."""
        if self._waiting_requests and _is_its_fault(error):
            self._waiting_requests.popleft()
            self._lose(1, told_of(error))
        else:
            self._lose(0, told_of(error))

    async def _leave(self) -> None:
        """See `Pusher`."""
        if self._waiting_requests:
            self._lose(len(self._waiting_requests), "the exporter is closed, and CloudWatch did not take them")
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
        self._output = to

    async def _push(self) -> None:
        """See `Pusher`."""
        lines = emf_lines(self._gather(), time.time())
        if lines:
            to = sys.stdout if self._output is None else self._output
            to.write("".join([f"{line}\n" for line in lines]))
            to.flush()

    def _handle_failure(self, error: Exception) -> None:
        """See `Pusher`."""
        self._lose(1, f"lines could not be written: {type(error).__name__}")


def _is_its_fault(error: Exception) -> bool:
    """Return True where the service refuses the request itself, and not its sender or its rate."""
    if not isinstance(error, ServiceError) or isinstance(error, AccessDeniedError | NotFoundError | ThrottledError):
        return False
    return error.status in (400, 413)
