"""How many bytes a second the workers of an application read from a stream, as they say in their lease rows.

It stands in for CloudWatch's figures where there are none. A row has no number of records. What is read is not what the
stream takes: an application that catches up reads more than comes in.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.inspect import ApplicationReport


FRESH_S = 120.0
"""Seconds. The rows of a worker that has not written its own row for so long say what was read once."""


class Reading(NamedTuple):
    """What an application reads from a stream."""

    application: str
    bytes_per_s: float


def reading_of(reports: Iterable[ApplicationReport], stream: str, now: dt.datetime) -> Reading | None:
    """Return what the application reads that reads most of a stream, of those that have it: each of them reads all of
    the stream at its own pace. None: no row of a worker that lives tells it.

    ``now`` is the service's time; a worker of the KCL dates its row by its own clock.
    """
    found = [one for one in (_take_reading(report, stream, now) for report in reports) if one is not None]
    return max(found, key=lambda one: one.bytes_per_s, default=None)


def _take_reading(report: ApplicationReport, stream: str, now: dt.datetime) -> Reading | None:
    application = report.application
    fresh = {
        one.worker_id
        for one in application.workers
        if one.updated_at is not None and (now - one.updated_at).total_seconds() <= FRESH_S
    }
    rates = [
        one.throughput_kib_s
        for one in application.leases
        if one.throughput_kib_s is not None and one.owner in fresh and not one.ended and one.stream in (None, stream)
    ]
    return Reading(application.name, sum(rates) * 1024.0) if rates else None
