"""Find in a snapshot what shows the symptoms of the account: permissions, quotas, clocks, metrics and producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.aws.calls.answers import STALE_CREDENTIALS
from shardway.inspect.doctor.facts import counted_metric
from shardway.inspect.moments import span_text
from shardway.inspect.reads.wire import INSPECT_POLICY, STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.inspect.doctor.snapshots import Snapshot


CLOCK_MAX_S = 60.0
LIMIT_SHARE = 0.9
METRICS_MAX = 200
"""The metrics of one application from which on their price is a surprise on the bill."""
METRIC_PRICE = 0.30
"""Dollars a month of one of the first 10,000 metrics (CloudWatch, us-east-1, 2026-11)."""
WORKER_IDS_MAX = 20
EXPIRY_S = 900.0
"""Seconds. Credentials that end sooner, and that nothing renews, end in the middle of the work."""
ACCOUNT_CALLS = frozenset(
    {"DescribeLimits", "DescribeStreamSummary", "ListShards", "ListStreamConsumers", "ListStreams"}
)
"""Calls whose rate is limited for each account, or for each stream, and not for each shard."""


def clock(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D021: this machine's clock is wrong."""
    if abs(snapshot.clock_off_s) >= CLOCK_MAX_S:
        yield f"it differs by {span_text(abs(snapshot.clock_off_s))} from the time in the service's answers"


def permissions(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D030: permissions lack, so some symptoms could not be looked for."""
    for action in sorted({one.action for one in snapshot.missing if one.lacks_permission}):
        statement = STATEMENTS.get(action)
        where = f", which {INSPECT_POLICY} has under {statement}" if statement else ""
        yield f"{action} is missing{where}"


def unreadable(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D031: rows of the lease table cannot be read."""
    rows = snapshot.application.unreadable if snapshot.application else {}
    return (f"{key}: {why}" for key, why in rows.items())


def failed_records(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D016: the handler fails, and records may be skipped."""
    return counted_metric(snapshot, "RecordsFailedProcessing")


def outside(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D019: aggregates hold user records of other shards, which readers leave out."""
    for one in snapshot.heat.shards if snapshot.heat else ():
        if one.outside:
            yield f"{one.shard_id}: {one.outside} of {one.user_records} user records have keys of other shards"


def credentials(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D020: the credentials end, or have ended."""
    for action in sorted({one.action for one in snapshot.missing if one.code in STALE_CREDENTIALS}):
        yield f"{action} was refused, because the credentials have expired or are not known"
    found = snapshot.credentials
    if found is None or found.renewed or not found.temporary:
        return
    if found.expires_at is None:
        yield "the credentials are temporary, and the environment gives them: nothing renews them"
    elif (left_s := (found.expires_at - snapshot.taken_at).total_seconds()) < EXPIRY_S:
        yield f"the credentials end in {span_text(max(0.0, left_s))}, and nothing renews them"


def many_metrics(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D022: the application's metrics are many, and cost."""
    metrics = snapshot.metrics
    if metrics is None:
        return
    if metrics.listed is not None and metrics.listed >= METRICS_MAX:
        price = metrics.listed * METRIC_PRICE
        yield f"the application has {metrics.listed} metrics, which cost about ${price:.0f} a month"
    if metrics.worker_ids >= WORKER_IDS_MAX:
        yield f"{metrics.worker_ids} names of workers are among the dimensions; each brings metrics of its own"


def quotas(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D025: a limit of the account is near, or its rate of calls is used up."""
    limits = snapshot.limits
    if limits is not None and limits.open_shards >= LIMIT_SHARE * limits.shards_max:
        yield f"{limits.open_shards} of {limits.shards_max} shards that the account may have are open"
    if limits is not None and limits.on_demand_max and (limits.on_demand or 0) >= LIMIT_SHARE * limits.on_demand_max:
        yield f"there are {limits.on_demand} of {limits.on_demand_max} on-demand streams"
    for name, times in snapshot.refused.items():
        if name in ACCOUNT_CALLS:
            yield f"{name} was refused {times} times: other programs use up the rate of the account"


def producer_late(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D029: a producer's records are too late, and given up."""
    return counted_metric(snapshot, "UserRecordExpired")
