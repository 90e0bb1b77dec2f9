"""Find in a snapshot what shows the symptoms of the leases: their table, their owners, and how they move."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from shardway.core.leases.stream_mark import CLOCKS_DIFFER_S
from shardway.inspect.applications.views import COORDINATOR_SUFFIX, METRICS_SUFFIX
from shardway.inspect.doctor.account_evidence import CLOCK_MAX_S
from shardway.inspect.doctor.blind_spots import STANDS_S
from shardway.inspect.doctor.facts import (
    NAMED_MAX,
    checkpoint_text,
    counted_metric,
    reasons,
    stands_since_s,
    stream_view_of,
    unfinished_leases,
)
from shardway.inspect.lag.reports import State
from shardway.inspect.moments import span_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.inspect.doctor.snapshots import Snapshot


RENEWALS_PER_S = 1 / 3.3
"""Renewals of each lease in a second, by the KCL's default failover time of 10 s."""
POISON_SWITCHES = 2
"""The changes of owner at one checkpoint from which on owners give up at the record behind it."""
MOVES_MIN = 2
"""The changes of owner of one lease during the looks from which on they are more than one takeover."""
LEADER_S = 300.0
"""A leader that has not written its row for this time is gone: each leader writes it every 30 s."""
UNEVEN = 4.0
"""Shards are uneven where the largest has this many times the hash keys of the smallest."""
OLD_LEASES_MIN = 20


def table_too_small(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D001: the lease table is too small for its leases."""
    live = sum(one.owner is not None for one in unfinished_leases(snapshot))
    needed = live * RENEWALS_PER_S
    for one in snapshot.application.tables if snapshot.application else ():
        if one.write_units is not None and one.write_units < needed:
            yield (
                f"{one.name} takes {one.write_units} writes a second; {live} leases are renewed {needed:.1f} times a "
                "second at a failover time of 10 s, and each checkpoint is a write too"
            )


def index(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D013: the index by owner is not ready."""
    for table in snapshot.application.tables if snapshot.application else ():
        for name, status in table.indexes.items():
            if status not in ("ACTIVE", ""):
                yield f"the index {name} of {table.name} is {status}"


def migration(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D014: a migration to the KCL 3.x is under way."""
    application = snapshot.application
    if application is None:
        return
    if application.client_version not in (None, "CLIENT_VERSION_3X"):
        yield f"the fleet's mode is {application.client_version}"
    if application.table_migration not in (None, "TABLE_MIGRATION_STATUS_COMPLETE"):
        yield f"the move of its tables is at {application.table_migration}"


def other_stream(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D015: leases of another stream, or of a former one with this name."""
    yield from reasons(snapshot, State.GONE)
    view = stream_view_of(snapshot)
    for lease in snapshot.application.leases if snapshot.application else []:
        if view is None or lease.checkpoint_at is None or lease.stream not in (None, view.name):
            continue
        if (view.created_at - lease.checkpoint_at).total_seconds() > CLOCKS_DIFFER_S:
            yield (
                f"{lease.shard_id}: its checkpoint is of {time_text(lease.checkpoint_at)}, before the stream was made "
                f"({time_text(view.created_at)})"
            )


def switches(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D017: leases changed hands since their last checkpoint: records are delivered again."""
    for one in unfinished_leases(snapshot):
        if one.switches:
            yield f"{one.shard_id}: {one.switches} changes of owner"


def twins(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D023: two processes have one worker's name."""
    processes: dict[str, set[str]] = {}
    for one in unfinished_leases(snapshot):
        if one.owner is not None and one.process is not None:
            processes.setdefault(one.owner, set()).add(one.process)
    for owner, found in processes.items():
        if len(found) > 1:
            yield f"{len(found)} processes hold leases under the name {owner}"


def poison(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D024: several owners have given up at the same record."""
    switches = {one.key: one.switches for one in unfinished_leases(snapshot)}
    for one in snapshot.lag.shards if snapshot.lag else ():
        waits = one.behind_s is not None and one.behind_s > 0
        if waits and switches.get(one.lease, 0) >= POISON_SWITCHES and not _moves(snapshot, one.lease):
            yield f"{one.shard_id}: {switches[one.lease]} changes of owner at the checkpoint {checkpoint_text(one)}"


def _moves(snapshot: Snapshot, lease: str) -> bool:
    """Return True where the looks have seen the lease's checkpoint move."""
    return len({(one.sequence_number, one.sub_sequence_number) for one in snapshot.looks.get(lease, ())}) > 1


def lease_moves(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D032: leases go from worker to worker."""
    for key, looks in snapshot.looks.items():
        owners = [one.owner for one in looks if one.owner is not None]
        moves = sum(before != after for before, after in itertools.pairwise(owners))
        if moves >= MOVES_MIN:
            yield f"{key} changed hands {moves} times within {span_text(looks[-1].at_s - looks[0].at_s)}"


def idle_workers(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D033: workers have nothing to do."""
    workers = [one for one in snapshot.application.workers if not one.leaving] if snapshot.application else []
    idle = [one.worker_id for one in workers if not one.leases]
    if idle:
        leases = len(unfinished_leases(snapshot))
        yield f"{', '.join(idle[:NAMED_MAX])} have no lease: there are {len(workers)} workers for {leases} leases"


def leader(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D034: the leader of the workers is gone."""
    application = snapshot.application
    workers = [one for one in application.workers if one.kind == "kcl 3.x"] if application else []
    if application is None or application.client_version != "CLIENT_VERSION_3X" or not workers:
        return
    leaders = [one for one in application.workers if one.leader]
    if not leaders:
        yield f"none of {len(workers)} workers is the leader"
    for one in leaders:
        if one.updated_at is not None and (snapshot.taken_at - one.updated_at).total_seconds() > LEADER_S:
            yield f"the leader {one.worker_id} has not written its row since {time_text(one.updated_at)}"


def handoffs(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D035: a lease is not handed over."""
    for key, looks in snapshot.looks.items():
        last = looks[-1]
        if last.next_owner is None:
            continue
        since_s = stands_since_s(looks, lambda one: (one.owner, one.next_owner))
        if since_s >= STANDS_S:
            yield f"{key}: {last.owner} has not given it to {last.next_owner} for {span_text(since_s)}"


def pending(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D036: a prepared checkpoint is not settled."""
    for key, looks in snapshot.looks.items():
        last = looks[-1]
        since_s = stands_since_s(looks, lambda one: one.pending)
        if last.pending is not None and since_s >= STANDS_S:
            yield f"{key}: the checkpoint {last.pending} is prepared, and not settled for {span_text(since_s)}"


def half_tables(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D038: half of an application's tables."""
    application = snapshot.application
    if application is None:
        return
    there = [one for one in (COORDINATOR_SUFFIX, METRICS_SUFFIX) if one in application.beside]
    if len(there) == 1:
        gone = METRICS_SUFFIX if there == [COORDINATOR_SUFFIX] else COORDINATOR_SUFFIX
        yield f"{application.name}{there[0]} is there, and {application.name}{gone} is not"
    if application.listed and not application.leases:
        yield f"the table of {application.name} holds no lease"


def uneven(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D042: shards have very different parts of the hash keys."""
    shards = [one for one in snapshot.stream.shards or () if one.open] if snapshot.stream else []
    if len(shards) < 2:
        return
    small, large = min(shards, key=lambda one: one.hash_share), max(shards, key=lambda one: one.hash_share)
    if large.hash_share >= UNEVEN * small.hash_share:
        yield (
            f"{large.shard_id} has {large.hash_share:.1%} of the hash keys, and {small.shard_id} {small.hash_share:.1%}"
        )


def worker_clocks(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D043: a worker's clock is wrong."""
    for one in snapshot.application.workers if snapshot.application else ():
        if one.updated_at is None:
            continue
        ahead_s = (one.updated_at - snapshot.taken_at).total_seconds()
        if ahead_s > CLOCK_MAX_S:
            yield f"{one.worker_id} wrote its row {span_text(ahead_s)} in the future"


def table_refuses(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D044: the lease table refuses calls."""
    yield from counted_metric(snapshot, "WriteThrottleEvents")
    yield from counted_metric(snapshot, "ReadThrottleEvents")
    if times := snapshot.refused.get("Scan"):
        yield f"Scan was refused {times} times while this snapshot was taken"


def workers_differ(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D045: workers differ in version or failover time."""
    workers = [one for one in snapshot.application.workers if not one.leaving] if snapshot.application else []
    versions = sorted({one.version for one in workers if one.version is not None})
    failovers = sorted({one.failover_s for one in workers if one.failover_s is not None})
    if len(versions) > 1:
        yield f"workers run the versions {', '.join(versions)}"
    if len(failovers) > 1:
        yield f"workers have failover times of {', '.join(f'{one:g} s' for one in failovers)}"


def old_leases(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D046: leases of shards that are long gone fill the table."""
    report, application = snapshot.stream, snapshot.application
    if report is None or report.shards is None or application is None:
        return
    there = {one.shard_id for one in report.shards}
    old = [
        one
        for one in application.leases
        if one.ended and one.shard_id not in there and one.stream in (None, report.name)
    ]
    if len(old) >= max(OLD_LEASES_MIN, len(unfinished_leases(snapshot))):
        yield f"{len(old)} of {len(application.leases)} leases are of shards that the stream does not list any more"
