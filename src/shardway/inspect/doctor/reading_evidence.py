"""Find in a snapshot what shows the symptoms of reading: how far shards are read, and what stands before them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shardway.core.lineage import holes
from shardway.core.log.feed_cursor import TO_COME_MAX_S
from shardway.inspect.doctor.facts import (
    checkpoint_text,
    counted_metric,
    in_state,
    reasons,
    stream_view_of,
    unfinished_leases,
)
from shardway.inspect.lag.reports import WARNING_OF_RETENTION, State
from shardway.inspect.moments import counted, span_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.inspect.doctor.snapshots import Snapshot


def stalled(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D002: shards are owned, and nothing happens."""
    pending = {one.shard_id for one in unfinished_leases(snapshot) if one.pending_checkpoint}
    for one in in_state(snapshot, State.STALLED):
        is_pending = "; a checkpoint is pending" if one.shard_id in pending else ""
        yield f"{one.shard_id}: {one.why}; the checkpoint is {checkpoint_text(one)}{is_pending}"


def far_behind(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D047: shards are far behind, and it is not known whether they move."""
    for one in in_state(snapshot, State.FAR_BEHIND):
        if one.unsettled_s is None or one.unsettled_s > 0:
            yield f"{one.shard_id}: {span_text(one.behind_s or 0.0)} behind; {one.why}"


def without_reader(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D003: shards that no worker reads."""
    for lease in unfinished_leases(snapshot):
        if lease.owner is None and lease.query is None:
            yield f"{lease.shard_id}: no worker has the lease"
    for shard_id in snapshot.lag.without_lease if snapshot.lag else ():
        yield f"{shard_id}: there is no lease for this open shard"


def hole(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D004: a hole in the hash range: records with these keys are not read."""
    report, application, view = snapshot.stream, snapshot.application, stream_view_of(snapshot)
    if report is not None and view is not None and view.status == "ACTIVE":
        for first, last in report.holes:
            yield f"no open shard takes the hash keys {first} to {last}"
    live = unfinished_leases(snapshot)
    ranges = [
        (int(one.first_hash_key), int(one.last_hash_key))
        for one in live
        if one.first_hash_key is not None and one.last_hash_key is not None
    ]
    if application and ranges and len(ranges) == len(live) and len(application.streams) < 2:
        for begin, end in holes(ranges):
            yield f"no unfinished lease covers the hash keys {begin} to {end}"
    yield from counted_metric(snapshot, "NumStreamsWithPartialLeases")


def falls_behind(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D005: the lag grows."""
    return reasons(snapshot, State.FALLING_BEHIND)


def lost(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D006: records may be gone: a checkpoint is older than the retention."""
    for one in snapshot.lag.shards if snapshot.lag else ():
        if one.may_have_lost:
            yield f"{one.shard_id}: its checkpoint {one.checkpoint} lies behind the horizon"


def stopped(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D018: owners do not renew their leases."""
    owners = Counter(one.owner for one in in_state(snapshot, State.STOPPED))
    return (f"{owner}: {counted(count, 'lease')}" for owner, count in owners.most_common())


def retention(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D028: much of the retention is used up."""
    used, view, lag = retention_used(snapshot), stream_view_of(snapshot), snapshot.lag
    if used > WARNING_OF_RETENTION and view is not None and lag is not None and lag.behind_s is not None:
        yield (
            f"the oldest unread record is {span_text(lag.behind_s)} old; the retention is "
            f"{span_text(view.retention_hours * 3600)}"
        )


def retention_used(snapshot: Snapshot) -> float:
    """Return the lag as a part of the retention; 0.0 where either is not known."""
    lag, view = snapshot.lag, stream_view_of(snapshot)
    if lag is None or view is None or lag.behind_s is None:
        return 0.0
    return lag.behind_s / (view.retention_hours * 3600)


def no_position(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D039: leases without a position: a restart may leave records out."""
    for one in unfinished_leases(snapshot):
        if one.checkpoint in ("LATEST", "AT_TIMESTAMP") and one.read_until is None:
            yield f"{one.shard_id}: its checkpoint is {one.checkpoint}, and it does not say since when"


def still_to_come(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D048: a shard is not read until a time that is still to come."""
    for one in unfinished_leases(snapshot):
        if one.checkpoint not in ("LATEST", "AT_TIMESTAMP") or one.read_until is None:
            continue
        ahead_s = (one.read_until - snapshot.taken_at).total_seconds()
        if ahead_s > TO_COME_MAX_S:
            yield f"{one.shard_id}: it begins at {time_text(one.read_until)}, which is {span_text(ahead_s)} ahead"


def out_of_order(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D040: a shard is read before its parent is read to its end."""
    unfinished = {(one.stream, one.shard_id) for one in unfinished_leases(snapshot)}
    for one in unfinished_leases(snapshot):
        before = [parent for parent in one.parents if (one.stream, parent) in unfinished]
        if before and one.checkpoint[:1].isdigit():
            yield f"{one.shard_id} is read, and its parent {before[0]} is not read to its end"


def rewound(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D041: a checkpoint went back."""
    return reasons(snapshot, State.REWOUND)
