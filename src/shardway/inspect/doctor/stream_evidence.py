"""Find in a snapshot what shows the symptoms of the stream: its shards, its load, its readers and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.inspect.doctor.facts import counted_metric, is_on_demand, stream_view_of
from shardway.inspect.heat import ONE_KEY_SHARE
from shardway.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.inspect.doctor.snapshots import Snapshot
    from shardway.inspect.heat import ShardHeat


CONSUMERS_MAX = 20
"""Registered consumers that a stream may have, if the account has no other limit."""
MIB = 1024 * 1024
IDLE_SHARE = 0.1
"""A part of what the open shards take: a stream whose peak is below this part needs fewer shards."""
IDLE_SHARDS_MIN = 5
"""The open shards from which on there may be too many. An on-demand stream begins with 4, which are not many."""


def consumers(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D012: consumers of enhanced fan-out that cannot be used."""
    consumers = (snapshot.stream.consumers if snapshot.stream else None) or []
    for one in consumers:
        if one.status != "ACTIVE":
            yield f"the consumer {one.name} is {one.status}"
    if len(consumers) >= CONSUMERS_MAX:
        yield f"{len(consumers)} consumers are registered; further ones are refused"
    yield from counted_metric(snapshot, "SubscribeToShard.RateExceeded")


def iterators(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D007: iterators expire before they are used."""
    return counted_metric(snapshot, "ExpiredIterator")


def reads_refused(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D008: shards refuse reads."""
    yield from counted_metric(snapshot, "ReadProvisionedThroughputExceeded")
    if times := snapshot.refused.get("GetRecords"):
        yield f"GetRecords was refused {times} times while this snapshot was taken, at a part of what a shard allows"


def hot_shards(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D009: a shard is hot."""
    for one in snapshot.heat.shards if snapshot.heat else ():
        if one.hot:
            most = f"; one partition key has {one.hot_keys[0].share:.0%} of it" if _one_key(one) else ""
            read = "" if one.complete else f" (bound: the first {one.covered:.0%}, {span_text(one.span_s)})"
            yield f"{one.shard_id} takes {one.utilization:.0%} of its limit, {one.share:.0%} of all load{most}{read}"
    if not is_on_demand(snapshot):
        yield from counted_metric(snapshot, "WriteProvisionedThroughputExceeded")


def _one_key(heat: ShardHeat) -> bool:
    return bool(heat.hot_keys) and heat.hot_keys[0].share > ONE_KEY_SHARE


def on_demand_refuses(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D010: an on-demand stream refuses writes."""
    if is_on_demand(snapshot):
        yield from counted_metric(snapshot, "WriteProvisionedThroughputExceeded")


def too_many_shards(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D011: there are far more shards than the load needs."""
    view = stream_view_of(snapshot)
    peaks = {one.name: one for one in snapshot.metrics.found if one.statistic == "Peak"} if snapshot.metrics else {}
    if view is None or view.open_shards < IDLE_SHARDS_MIN or "IncomingBytes" not in peaks:
        return
    peak = peaks["IncomingBytes"]
    records = peaks["IncomingRecords"].value if "IncomingRecords" in peaks else 0.0
    takes = view.limits
    used = max(peak.value / takes.write_bytes_per_s, records / takes.write_records_per_s) / view.open_shards
    if used < IDLE_SHARE:
        yield (
            f"the {view.open_shards} open shards take {view.open_shards * takes.write_bytes_per_s / MIB:g} MiB a "
            f"second; the busiest hour of {peak.hours / 24:g} days brought {peak.value / MIB:.3g} MiB and "
            f"{records:.3g} records a second"
        )


def encryption(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D026: the stream's key is refused."""
    for action, code in sorted({(one.action, one.code) for one in snapshot.missing if one.code.startswith("KMS")}):
        view = stream_view_of(snapshot)
        key = f" (key {view.key_id})" if view is not None and view.key_id else ""
        yield f"{action} was refused: {code}{key}"


def channels(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D027: channels or queues hang on the stream."""
    view = stream_view_of(snapshot)
    if view is not None and view.channels:
        yield f"{view.channels} channels deliver from the stream; one that has FAILED does not go on by itself"
    if view is not None and view.queues:
        yield f"{view.queues} queues are fed by the stream; each counts as a registered consumer"


def not_active(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D037: the stream or its lease table is not active."""
    view = stream_view_of(snapshot)
    if view is not None and view.status != "ACTIVE":
        yield f"the stream {view.name} is {view.status}"
    for table in snapshot.application.tables if snapshot.application else ():
        if table.status != "ACTIVE":
            yield f"the table {table.name} is {table.status}"


def is_deleting(snapshot: Snapshot) -> bool:
    """Return True where the stream or a table is DELETING: neither comes back from that."""
    return any("DELETING" in one for one in not_active(snapshot))
