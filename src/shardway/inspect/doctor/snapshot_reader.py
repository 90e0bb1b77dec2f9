"""Take the snapshot of an application, its stream and their metrics that the symptoms look at.

What the credentials or the service do not show is left out, and noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shardway.aws.calls.answers import reading
from shardway.aws.kinesis.shapes import Count
from shardway.inspect.applications.views import only_stream
from shardway.inspect.doctor.metric_figures import if_shown, metrics_of
from shardway.inspect.doctor.snapshots import AccountLimits, Snapshot, without_values
from shardway.inspect.lag.reports import Look
from shardway.inspect.moments import utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.inspect.applications.stores import Store
    from shardway.inspect.lag.reports import LagTimes
    from shardway.inspect.reads.ports import Calls, Reports


HEAT_SINCE_S = 60.0
HEAT_RECORDS_MAX = 2_000
"""Records that are read of each shard to see where the load lies."""


async def snapshot_of(
    inspector: Reports,
    application: str | None,
    stream: str | None,
    store: Store | None,
    *,
    times: LagTimes | None = None,
    history: Mapping[str, Sequence[Look]] | None = None,
    heat_s: float | None = None,
) -> Snapshot:
    """See `Inspector.snapshot`."""
    view = lag = found = None
    looks: Mapping[str, Sequence[Look]] = {}
    if application is not None:
        view = (await inspector.application(application, store)).application
        if stream is None and view.listed:
            stream = only_stream(view)
    if stream is not None:
        found = await inspector.stream(stream)
    if application is not None and view is not None and view.leases:
        lag, looks = await inspector.lag(application, stream, store, times=times, history=history)
    heat = None
    if stream is not None:
        since_s = HEAT_SINCE_S if heat_s is None else heat_s
        heating = inspector.heat(stream, since_s=since_s, records_max=HEAT_RECORDS_MAX, show_keys=False)
        heat = await if_shown(inspector, f"the load of {stream}", "kinesis", heating)
    limits = await if_shown(inspector, "the limits of the account", "kinesis", _limits(inspector))
    metrics = await metrics_of(inspector, application, found, view)
    taken = Snapshot(
        taken_at=utc(inspector.now_s),
        clock_off_s=inspector.clock_off_s,
        stream=found,
        application=view,
        lag=lag,
        looks={key: list(seen) for key, seen in looks.items()},
        heat=heat,
        metrics=metrics,
        limits=limits,
        credentials=await inspector.wire.credentials_view(),
        refused=dict(sorted(inspector.wire.refusals.items())),
        missing=list(inspector.missing),
    )
    return without_values(taken)


class _Limits(msgspec.Struct):
    shards_max: Count = msgspec.field(name="ShardLimit")
    open_shards: Count = msgspec.field(name="OpenShardCount")
    on_demand_max: Count | None = msgspec.field(name="OnDemandStreamCountLimit", default=None)
    on_demand: Count | None = msgspec.field(name="OnDemandStreamCount", default=None)


async def _limits(inspector: Calls) -> AccountLimits:
    body = await inspector.wire.call("kinesis", "DescribeLimits", b"{}")
    with reading("DescribeLimits"):
        return AccountLimits(**msgspec.structs.asdict(msgspec.json.decode(body, type=_Limits)))
