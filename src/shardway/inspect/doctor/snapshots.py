"""Values of a snapshot of an application and its stream.

A snapshot holds no payload, no partition key and no secret, so it can be sent to somewhere else and be looked at there.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.inspect.applications.views import ApplicationView
from shardway.inspect.heat import HeatReport
from shardway.inspect.lag.reports import LagReport, Look
from shardway.inspect.values import CredentialsView, Missing, StreamReport

if TYPE_CHECKING:
    from collections.abc import Iterable


RECENT_S = 3600.0
"""Seconds over which refusals and failures are counted."""
PEAK_S = 14 * 86400.0
"""Seconds over which the peak of the load is sought."""
KPL_NAMESPACE = "KinesisProducerLibrary"
WORKER_DIMENSION = "WorkerIdentifier"


class MetricView(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of CloudWatch that has data."""

    namespace: str
    name: str
    of: dict[str, str]
    """The metric's dimensions."""
    statistic: str
    """``Sum``, over all of ``hours``; or a rate in each second: ``Mean``, over all of ``hours``, or ``Peak``, the
    largest mean of an hour.
    """
    hours: float
    value: float


class MetricsView(msgspec.Struct, frozen=True, kw_only=True):
    """What CloudWatch has of a stream, its application and their tables."""

    found: list[MetricView]
    listed: int | None = None
    """The number of metrics in the application's namespace within two weeks, each of which has its price. None: they
    were not listed.
    """
    worker_ids: int = 0
    """The number of names of workers among the dimensions of these metrics."""


class AccountLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an account may have in a region, and has (DescribeLimits)."""

    shards_max: int
    open_shards: int
    on_demand_max: int | None = None
    on_demand: int | None = None
    """The number of on-demand streams, as ``on_demand_max`` is their limit."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that the symptoms look at."""

    schema: str = "shardway.snapshot/1"
    taken_at: dt.datetime
    clock_off_s: float = 0.0
    """How many seconds this machine's clock was behind the service's; less than 0: it was ahead."""
    stream: StreamReport | None = None
    application: ApplicationView | None = None
    lag: LagReport | None = None
    looks: dict[str, list[Look]] = {}
    """All looks at each lease, by lease keys, the oldest first."""
    heat: HeatReport | None = None
    metrics: MetricsView | None = None
    limits: AccountLimits | None = None
    credentials: CredentialsView | None = None
    refused: dict[str, int] = {}
    """Attempts that the service refused for their rate while the snapshot was taken, by operation."""
    missing: list[Missing] = []


def without_values(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without what may come from a payload, a partition key, or a row that is no lease."""
    view, heat = snapshot.application, snapshot.heat
    if view is not None:
        unreadable = {key: _without_value(key, why) for key, why in view.unreadable.items()}
        view = msgspec.structs.replace(view, unreadable=unreadable)
    if heat is not None:
        # A hash key for a split is the hash of one record's partition key: it identifies the key as its name does.
        shards = [
            msgspec.structs.replace(one, split_at=None, advice=None, hot_keys=_without_names(one.hot_keys))
            for one in heat.shards
        ]
        heat = msgspec.structs.replace(heat, shards=shards)
    return msgspec.structs.replace(snapshot, application=view, heat=heat)


def _without_value(key: str, why: str) -> str:
    """Return what an error says of a row, up to where the error shows the row's content."""
    row = f"the row {key!r} "
    return why.removeprefix(row).partition("(")[0] if why.startswith(row) else "it cannot be read as a lease"


def _without_names(keys: Iterable[Any]) -> list[Any]:
    return [msgspec.structs.replace(one, partition_key=None) for one in keys]
