"""Find what shows each symptom of `shardway.inspect.doctor` in a snapshot: a sentence for each thing that was seen.

These are pure functions. They yield nothing where the symptom is not there, or where the snapshot does not show it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from shardway.aws.calls import STALE_CREDENTIALS
from shardway.core.leases.row import CLOCKS_DIFFER_S
from shardway.core.lineage import holes
from shardway.inspect.applications import COORDINATOR_SUFFIX, METRICS_SUFFIX
from shardway.inspect.blind_spots import STANDS_S
from shardway.inspect.heat import ONE_KEY_SHARE
from shardway.inspect.inspector import INSPECT_POLICY, STATEMENTS
from shardway.inspect.lag import WARNING_OF_RETENTION, State
from shardway.inspect.moments import counted, span_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.inspect.applications import LeaseView
    from shardway.inspect.heat import ShardHeat
    from shardway.inspect.lag import Look, ShardLag
    from shardway.inspect.snapshots import Snapshot
    from shardway.inspect.values import StreamView

RENEWALS_PER_S = 1 / 3.3
"""Renewals of each lease in a second, by the KCL's default failover time of 10 s."""
CLOCK_MAX_S = 60.0
CONSUMERS_MAX = 20
"""Registered consumers that a stream may have, if the account has no other limit."""
NAMED_MAX = 5
MIB = 1024 * 1024
IDLE_SHARE = 0.1
"""A part of what the open shards take: a stream whose peak is below this part needs fewer shards."""
IDLE_SHARDS_MIN = 5
"""The open shards from which on there may be too many. An on-demand stream begins with 4, which are not many."""
LIMIT_SHARE = 0.9
METRICS_MAX = 200
"""The metrics of one application from which on their price is a surprise on the bill."""
METRIC_PRICE = 0.30
"""Dollars a month of one of the first 10,000 metrics (CloudWatch, us-east-1, 2026-11)."""
WORKER_IDS_MAX = 20
EXPIRY_S = 900.0
"""Seconds. Credentials that end sooner, and that nothing renews, end in the middle of the work."""
POISON_SWITCHES = 2
"""The changes of owner at one checkpoint from which on owners give up at the record behind it."""
MOVES_MIN = 2
"""The changes of owner of one lease during the looks from which on they are more than one takeover."""
LEADER_S = 300.0
"""A leader that has not written its row for this time is gone: each leader writes it every 30 s."""
UNEVEN = 4.0
"""Shards are uneven where the largest has this many times the hash keys of the smallest."""
OLD_LEASES_MIN = 20
ACCOUNT_CALLS = frozenset(
    {"DescribeLimits", "DescribeStreamSummary", "ListShards", "ListStreamConsumers", "ListStreams"}
)
"""Calls whose rate is limited for each account, or for each stream, and not for each shard."""


def table_too_small(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D001: the lease table is too small for its leases."""
    live = sum(one.owner is not None for one in _unfinished(snapshot))
    needed = live * RENEWALS_PER_S
    for one in snapshot.application.tables if snapshot.application else ():
        if one.write_units is not None and one.write_units < needed:
            yield (
                f"{one.name} takes {one.write_units} writes a second; {live} leases are renewed {needed:.1f} times a "
                "second at a failover time of 10 s, and each checkpoint is a write too"
            )


def stalled(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D002: shards are owned, and nothing happens."""
    pending = {one.shard_id for one in _unfinished(snapshot) if one.pending_checkpoint}
    for one in _in_state(snapshot, State.STALLED):
        is_pending = "; a checkpoint is pending" if one.shard_id in pending else ""
        yield f"{one.shard_id}: {one.why}; the checkpoint is {_checkpoint(one)}{is_pending}"


def far_behind(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D047: shards are far behind, and it is not known whether they move."""
    for one in _in_state(snapshot, State.FAR_BEHIND):
        if one.unsettled_s is None or one.unsettled_s > 0:
            yield f"{one.shard_id}: {span_text(one.behind_s or 0.0)} behind; {one.why}"


def without_reader(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D003: shards that no worker reads."""
    for lease in _unfinished(snapshot):
        if lease.owner is None and lease.query is None:
            yield f"{lease.shard_id}: no worker has the lease"
    for shard_id in snapshot.lag.without_lease if snapshot.lag else ():
        yield f"{shard_id}: there is no lease for this open shard"


def hole(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D004: a hole in the hash range: records with these keys are not read."""
    report, application, view = snapshot.stream, snapshot.application, _stream(snapshot)
    if report is not None and view is not None and view.status == "ACTIVE":
        for first, last in report.holes:
            yield f"no open shard takes the hash keys {first} to {last}"
    live = _unfinished(snapshot)
    ranges = [
        (int(one.first_hash_key), int(one.last_hash_key))
        for one in live
        if one.first_hash_key is not None and one.last_hash_key is not None
    ]
    if application and ranges and len(ranges) == len(live) and len(application.streams) < 2:
        for begin, end in holes(ranges):
            yield f"no unfinished lease covers the hash keys {begin} to {end}"
    yield from _counted(snapshot, "NumStreamsWithPartialLeases")


def falls_behind(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D005: the lag grows."""
    return _reasons(snapshot, State.FALLING_BEHIND)


def lost(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D006: records may be gone: a checkpoint is older than the retention."""
    for one in snapshot.lag.shards if snapshot.lag else ():
        if one.may_have_lost:
            yield f"{one.shard_id}: its checkpoint {one.checkpoint} lies behind the horizon"


def consumers(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D012: consumers of enhanced fan-out that cannot be used."""
    consumers = (snapshot.stream.consumers if snapshot.stream else None) or []
    for one in consumers:
        if one.status != "ACTIVE":
            yield f"the consumer {one.name} is {one.status}"
    if len(consumers) >= CONSUMERS_MAX:
        yield f"{len(consumers)} consumers are registered; further ones are refused"
    yield from _counted(snapshot, "SubscribeToShard.RateExceeded")


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
    yield from _reasons(snapshot, State.GONE)
    view = _stream(snapshot)
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
    for one in _unfinished(snapshot):
        if one.switches:
            yield f"{one.shard_id}: {one.switches} changes of owner"


def stopped(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D018: owners do not renew their leases."""
    owners = Counter(one.owner for one in _in_state(snapshot, State.STOPPED))
    return (f"{owner}: {counted(count, 'lease')}" for owner, count in owners.most_common())


def clock(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D021: this machine's clock is wrong."""
    if abs(snapshot.clock_off_s) >= CLOCK_MAX_S:
        yield f"it differs by {span_text(abs(snapshot.clock_off_s))} from the time in the service's answers"


def retention(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D028: much of the retention is used up."""
    used, view, lag = retention_used(snapshot), _stream(snapshot), snapshot.lag
    if used > WARNING_OF_RETENTION and view is not None and lag is not None and lag.behind_s is not None:
        yield (
            f"the oldest unread record is {span_text(lag.behind_s)} old; the retention is "
            f"{span_text(view.retention_hours * 3600)}"
        )


def retention_used(snapshot: Snapshot) -> float:
    """Return the lag as a part of the retention; 0.0 where either is not known."""
    lag, view = snapshot.lag, _stream(snapshot)
    if lag is None or view is None or lag.behind_s is None:
        return 0.0
    return lag.behind_s / (view.retention_hours * 3600)


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


def iterators(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D007: iterators expire before they are used."""
    return _counted(snapshot, "ExpiredIterator")


def reads_refused(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D008: shards refuse reads."""
    yield from _counted(snapshot, "ReadProvisionedThroughputExceeded")
    if times := snapshot.refused.get("GetRecords"):
        yield f"GetRecords was refused {times} times while this snapshot was taken, at a part of what a shard allows"


def hot_shards(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D009: a shard is hot."""
    for one in snapshot.heat.shards if snapshot.heat else ():
        if one.hot:
            most = f"; one partition key has {one.hot_keys[0].share:.0%} of it" if _one_key(one) else ""
            yield f"{one.shard_id} takes {one.utilization:.0%} of its limit, {one.share:.0%} of all load{most}"
    if not _is_on_demand(snapshot):
        yield from _counted(snapshot, "WriteProvisionedThroughputExceeded")


def _one_key(heat: ShardHeat) -> bool:
    return bool(heat.hot_keys) and heat.hot_keys[0].share > ONE_KEY_SHARE


def on_demand_refuses(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D010: an on-demand stream refuses writes."""
    if _is_on_demand(snapshot):
        yield from _counted(snapshot, "WriteProvisionedThroughputExceeded")


def too_many_shards(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D011: there are far more shards than the load needs."""
    view = _stream(snapshot)
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


def failed_records(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D016: the handler fails, and records may be skipped."""
    return _counted(snapshot, "RecordsFailedProcessing")


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


def twins(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D023: two processes have one worker's name."""
    processes: dict[str, set[str]] = {}
    for one in _unfinished(snapshot):
        if one.owner is not None and one.process is not None:
            processes.setdefault(one.owner, set()).add(one.process)
    for owner, found in processes.items():
        if len(found) > 1:
            yield f"{len(found)} processes hold leases under the name {owner}"


def poison(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D024: several owners have given up at the same record."""
    switches = {one.key: one.switches for one in _unfinished(snapshot)}
    for one in snapshot.lag.shards if snapshot.lag else ():
        waits = one.behind_s is not None and one.behind_s > 0
        if waits and switches.get(one.lease, 0) >= POISON_SWITCHES and not _moves(snapshot, one.lease):
            yield f"{one.shard_id}: {switches[one.lease]} changes of owner at the checkpoint {_checkpoint(one)}"


def _checkpoint(one: ShardLag) -> str:
    return one.checkpoint + (f"/{one.sub_sequence_number}" if one.sub_sequence_number else "")


def _moves(snapshot: Snapshot, lease: str) -> bool:
    """Return True where the looks have seen the lease's checkpoint move."""
    return len({(one.sequence_number, one.sub_sequence_number) for one in snapshot.looks.get(lease, ())}) > 1


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


def encryption(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D026: the stream's key is refused."""
    for action, code in sorted({(one.action, one.code) for one in snapshot.missing if one.code.startswith("KMS")}):
        view = _stream(snapshot)
        key = f" (key {view.key_id})" if view is not None and view.key_id else ""
        yield f"{action} was refused: {code}{key}"


def channels(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D027: channels or queues hang on the stream."""
    view = _stream(snapshot)
    if view is not None and view.channels:
        yield f"{view.channels} channels deliver from the stream; one that has FAILED does not go on by itself"
    if view is not None and view.queues:
        yield f"{view.queues} queues are fed by the stream; each counts as a registered consumer"


def producer_late(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D029: a producer's records are too late, and given up."""
    return _counted(snapshot, "UserRecordExpired")


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
        leases = len(_unfinished(snapshot))
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
        since_s = _since_s(looks, lambda one: (one.owner, one.next_owner))
        if since_s >= STANDS_S:
            yield f"{key}: {last.owner} has not given it to {last.next_owner} for {span_text(since_s)}"


def pending(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D036: a prepared checkpoint is not settled."""
    for key, looks in snapshot.looks.items():
        last = looks[-1]
        since_s = _since_s(looks, lambda one: one.pending)
        if last.pending is not None and since_s >= STANDS_S:
            yield f"{key}: the checkpoint {last.pending} is prepared, and not settled for {span_text(since_s)}"


def _since_s(looks: Sequence[Look], what: Callable[[Look], object]) -> float:
    """Return for how many seconds the newest looks have shown the same value of ``what``."""
    kept = [one.at_s for one in itertools.takewhile(lambda one: what(one) == what(looks[-1]), reversed(looks))]
    return kept[0] - kept[-1]


def not_active(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D037: the stream or its lease table is not active."""
    view = _stream(snapshot)
    if view is not None and view.status != "ACTIVE":
        yield f"the stream {view.name} is {view.status}"
    for table in snapshot.application.tables if snapshot.application else ():
        if table.status != "ACTIVE":
            yield f"the table {table.name} is {table.status}"


def is_deleting(snapshot: Snapshot) -> bool:
    """Return True where the stream or a table is DELETING: neither comes back from that."""
    return any("DELETING" in one for one in not_active(snapshot))


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


def no_position(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D039: leases without a position: a restart may leave records out."""
    for one in _unfinished(snapshot):
        if one.checkpoint in ("LATEST", "AT_TIMESTAMP") and one.read_until is None:
            yield f"{one.shard_id}: its checkpoint is {one.checkpoint}, and it does not say since when"


def out_of_order(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D040: a shard is read before its parent is read to its end."""
    unfinished = {(one.stream, one.shard_id) for one in _unfinished(snapshot)}
    for one in _unfinished(snapshot):
        before = [parent for parent in one.parents if (one.stream, parent) in unfinished]
        if before and one.checkpoint[:1].isdigit():
            yield f"{one.shard_id} is read, and its parent {before[0]} is not read to its end"


def rewound(snapshot: Snapshot) -> Iterable[str]:
    """Yield the evidence of SHW-D041: a checkpoint went back."""
    return _reasons(snapshot, State.REWOUND)


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
    yield from _counted(snapshot, "WriteThrottleEvents")
    yield from _counted(snapshot, "ReadThrottleEvents")
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
    if len(old) >= max(OLD_LEASES_MIN, len(_unfinished(snapshot))):
        yield f"{len(old)} of {len(application.leases)} leases are of shards that the stream does not list any more"


def _counted(snapshot: Snapshot, name: str) -> Iterable[str]:
    """Yield a sentence for each figure of CloudWatch with this name that should be 0, and is more."""
    for one in snapshot.metrics.found if snapshot.metrics else ():
        if one.name == name and one.value > 0:
            of = ", ".join(one.of.values())
            yield f"CloudWatch counts {one.value:g} {name} of {of} in {one.hours:g} h ({one.namespace})"


def _is_on_demand(snapshot: Snapshot) -> bool:
    view = _stream(snapshot)
    return view is not None and view.mode == "ON_DEMAND"


def _stream(snapshot: Snapshot) -> StreamView | None:
    return snapshot.stream.stream if snapshot.stream else None


def _unfinished(snapshot: Snapshot) -> Sequence[LeaseView]:
    return [one for one in snapshot.application.leases if not one.ended] if snapshot.application else []


def _in_state(snapshot: Snapshot, state: State) -> Sequence[ShardLag]:
    return [one for one in snapshot.lag.shards if one.state is state] if snapshot.lag else []


def _reasons(snapshot: Snapshot, state: State) -> Iterable[str]:
    return (f"{one.shard_id}: {one.why}" for one in _in_state(snapshot, state))


def named(found: Sequence[str]) -> list[str]:
    """Return the first `NAMED_MAX` sentences, and one that says how many more there are."""
    if len(found) <= NAMED_MAX:
        return list(found)
    return [*found[:NAMED_MAX], f"and {len(found) - NAMED_MAX} more"]
