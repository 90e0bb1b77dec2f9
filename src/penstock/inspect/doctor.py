"""What is wrong with an application and its stream: symptoms, each with a pure function that finds its evidence.

A snapshot holds no payload and no partition key, so it can be sent to somewhere else and be looked at there.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.aws.answers import STALE_CREDENTIALS
from penstock.core.leases.row import CLOCKS_DIFFER_S
from penstock.core.lineage import holes
from penstock.inspect.applications import COORDINATOR_SUFFIX, METRICS_SUFFIX
from penstock.inspect.calls import INSPECT_POLICY, STATEMENTS
from penstock.inspect.heat import ONE_KEY_SHARE
from penstock.inspect.moments import span_text, time_text
from penstock.inspect.values import Missing
from penstock.inspect.verdicts import FAILOVER_S, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.inspect.applications import LeaseView
    from penstock.inspect.heat import ShardHeat
    from penstock.inspect.snapshots import Snapshot
    from penstock.inspect.values import StreamView
    from penstock.inspect.verdicts import Look, ShardLag

RENEWALS_PER_S = 1 / 3.3
"""Of each lease, by the KCL's default failover time of 10 s."""
CLOCK_MAX_S = 60.0
CONSUMERS_MAX = 20
"""Registered consumers that a stream may have, if the account has no other limit."""
LAG_OF_RETENTION = 0.25
CRITICAL_LAG_OF_RETENTION = 0.5
NAMED_MAX = 5
MIB = 1024 * 1024
IDLE_SHARE = 0.1
"""Of what the open shards take: a peak below it needs fewer shards."""
IDLE_SHARDS_MIN = 5
"""An on-demand stream begins with 4 shards, which are not many."""
LIMIT_SHARE = 0.9
METRICS_MAX = 200
"""Metrics of one application that are no surprise on the bill."""
METRIC_PRICE = 0.30
"""Dollars a month of one of the first 10,000 metrics (CloudWatch, us-east-1, 2026-11)."""
WORKER_IDS_MAX = 20
EXPIRY_S = 900.0
"""Credentials that end sooner, and that nothing renews, end in the middle of the work."""
POISON_SWITCHES = 2
"""So many owners gave up at one record."""
MOVES_MIN = 2
"""So many changes of owners of one lease, within the looks, are no takeover."""
LEADER_S = 300.0
"""A leader that has not written its row for so long is gone: each writes it every 30 s."""
STANDS_S = 2 * FAILOVER_S
"""What takes longer than two failover times does not end by itself."""
UNEVEN = 4.0
"""The largest shard, beside the smallest."""
OLD_LEASES_MIN = 20
ACCOUNT_CALLS = frozenset(
    {"DescribeLimits", "DescribeStreamSummary", "ListShards", "ListStreamConsumers", "ListStreams"}
)
"""Their rates are of the account, or of the stream, and not of a shard."""


class Severity(StrEnum):
    """How bad it is, the worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Confidence(StrEnum):
    """How sure it is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A symptom that is there."""

    id: str
    """Stays the same for this symptom."""
    title: str
    severity: Severity
    confidence: Confidence
    evidence: list[str]
    do: str
    verify: str
    """How to see that it is gone."""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the worst first."""

    schema: str = "penstock.doctor/1"
    taken_at: dt.datetime
    findings: list[Finding]
    looked_for: list[str]
    """The ids of all symptoms that were looked for."""
    missing: list[Missing]


class Symptom(NamedTuple):
    """What is said of a symptom, and the function that finds it."""

    id: str
    """Stays the same for this symptom, and is given to no other."""
    title: str
    severity: Severity
    confidence: Confidence
    seen_by: str
    """What shows it."""
    do: str
    verify: str
    """How to see that it is gone."""
    evidence: Callable[[Snapshot], Iterable[str]]
    """What shows it in a snapshot; nothing where it is not there."""
    is_worse: Callable[[Snapshot], bool] | None = None
    """Whether what is a warning is critical in this snapshot."""


def examine(snapshot: Snapshot) -> DoctorReport:
    """Look for all symptoms."""
    found = []
    for symptom in SYMPTOMS.values():
        evidence = list(symptom.evidence(snapshot))
        if not evidence:
            continue
        is_worse = symptom.is_worse is not None and symptom.is_worse(snapshot)
        found.append(
            Finding(
                id=symptom.id,
                title=symptom.title,
                severity=Severity.CRITICAL if is_worse else symptom.severity,
                confidence=symptom.confidence,
                evidence=_named(evidence),
                do=symptom.do,
                verify=symptom.verify,
            )
        )
    found.sort(key=lambda one: (list(Severity).index(one.severity), one.id))
    return DoctorReport(taken_at=snapshot.taken_at, findings=found, looked_for=[*SYMPTOMS], missing=snapshot.missing)


# --- the evidence ---------------------------------------------------------------------------------


def _table_too_small(snapshot: Snapshot) -> Iterable[str]:
    live = sum(one.owner is not None for one in _unfinished(snapshot))
    needed = live * RENEWALS_PER_S
    for one in snapshot.application.tables if snapshot.application else ():
        if one.write_units is not None and one.write_units < needed:
            yield (
                f"{one.name} takes {one.write_units} writes a second; {live} leases are renewed {needed:.1f} times a "
                "second at a failover time of 10 s, and each checkpoint is a write too"
            )


def _stalled(snapshot: Snapshot) -> Iterable[str]:
    pending = {one.shard_id for one in _unfinished(snapshot) if one.pending_checkpoint}
    for one in _in_state(snapshot, State.STALLED):
        yield f"{one.shard_id}: {one.why}" + ("; a checkpoint is pending" if one.shard_id in pending else "")


def _without_reader(snapshot: Snapshot) -> Iterable[str]:
    for lease in _unfinished(snapshot):
        if lease.owner is None:
            yield f"{lease.shard_id}: no worker has the lease"
    for shard_id in snapshot.lag.without_lease if snapshot.lag else ():
        yield f"{shard_id}: there is no lease for this open shard"


def _hole(snapshot: Snapshot) -> Iterable[str]:
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


def _falls_behind(snapshot: Snapshot) -> Iterable[str]:
    return _reasons(snapshot, State.FALLING_BEHIND)


def _lost(snapshot: Snapshot) -> Iterable[str]:
    for one in snapshot.lag.shards if snapshot.lag else ():
        if one.may_have_lost:
            yield f"{one.shard_id}: its checkpoint {one.checkpoint} lies behind the horizon"


def _consumers(snapshot: Snapshot) -> Iterable[str]:
    consumers = (snapshot.stream.consumers if snapshot.stream else None) or []
    for one in consumers:
        if one.status != "ACTIVE":
            yield f"the consumer {one.name} is {one.status}"
    if len(consumers) >= CONSUMERS_MAX:
        yield f"{len(consumers)} consumers are registered; further ones are refused"
    yield from _counted(snapshot, "SubscribeToShard.RateExceeded")


def _index(snapshot: Snapshot) -> Iterable[str]:
    for table in snapshot.application.tables if snapshot.application else ():
        for name, status in table.indexes.items():
            if status not in ("ACTIVE", ""):
                yield f"the index {name} of {table.name} is {status}"


def _migration(snapshot: Snapshot) -> Iterable[str]:
    application = snapshot.application
    if application is None:
        return
    if application.client_version not in (None, "CLIENT_VERSION_3X"):
        yield f"the fleet's mode is {application.client_version}"
    if application.table_migration not in (None, "TABLE_MIGRATION_STATUS_COMPLETE"):
        yield f"the move of its tables is at {application.table_migration}"


def _other_stream(snapshot: Snapshot) -> Iterable[str]:
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


def _switches(snapshot: Snapshot) -> Iterable[str]:
    for one in _unfinished(snapshot):
        if one.switches:
            yield f"{one.shard_id}: {one.switches} changes of owner"


def _stopped(snapshot: Snapshot) -> Iterable[str]:
    owners = Counter(one.owner for one in _in_state(snapshot, State.STOPPED))
    return (f"{owner}: {count} leases" for owner, count in owners.most_common())


def _clock(snapshot: Snapshot) -> Iterable[str]:
    if abs(snapshot.clock_off_s) >= CLOCK_MAX_S:
        yield f"it differs by {span_text(abs(snapshot.clock_off_s))} from the time in the service's answers"


def _retention(snapshot: Snapshot) -> Iterable[str]:
    used = _retention_used(snapshot)
    view = _stream(snapshot)
    if used > LAG_OF_RETENTION and view is not None and snapshot.lag is not None and snapshot.lag.behind_s is not None:
        yield (
            f"the oldest unread record is {span_text(snapshot.lag.behind_s)} old; the retention is "
            f"{span_text(view.retention_hours * 3600)}"
        )


def _retention_used(snapshot: Snapshot) -> float:
    lag, view = snapshot.lag, _stream(snapshot)
    if lag is None or view is None or lag.behind_s is None:
        return 0.0
    return lag.behind_s / (view.retention_hours * 3600)


def _permissions(snapshot: Snapshot) -> Iterable[str]:
    for action in sorted({one.action for one in snapshot.missing if one.lacks_permission}):
        statement = STATEMENTS.get(action)
        where = f", which {INSPECT_POLICY} has under {statement}" if statement else ""
        yield f"{action} is missing{where}"


def _unreadable(snapshot: Snapshot) -> Iterable[str]:
    rows = snapshot.application.unreadable if snapshot.application else {}
    return (f"{key}: {why}" for key, why in rows.items())


def _iterators(snapshot: Snapshot) -> Iterable[str]:
    return _counted(snapshot, "ExpiredIterator")


def _reads_refused(snapshot: Snapshot) -> Iterable[str]:
    yield from _counted(snapshot, "ReadProvisionedThroughputExceeded")
    if times := snapshot.refused.get("GetRecords"):
        yield f"GetRecords was refused {times} times while this snapshot was taken, at a part of what a shard allows"


def _hot_shards(snapshot: Snapshot) -> Iterable[str]:
    for one in snapshot.heat.shards if snapshot.heat else ():
        if one.hot:
            most = f"; one partition key has {one.hot_keys[0].share:.0%} of it" if _one_key(one) else ""
            yield f"{one.shard_id} takes {one.utilization:.0%} of its limit, {one.share:.0%} of all load{most}"
    if not _is_on_demand(snapshot):
        yield from _counted(snapshot, "WriteProvisionedThroughputExceeded")


def _one_key(heat: ShardHeat) -> bool:
    return bool(heat.hot_keys) and heat.hot_keys[0].share > ONE_KEY_SHARE


def _on_demand_refuses(snapshot: Snapshot) -> Iterable[str]:
    if _is_on_demand(snapshot):
        yield from _counted(snapshot, "WriteProvisionedThroughputExceeded")


def _too_many_shards(snapshot: Snapshot) -> Iterable[str]:
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


def _failed_records(snapshot: Snapshot) -> Iterable[str]:
    return _counted(snapshot, "RecordsFailedProcessing")


def _outside(snapshot: Snapshot) -> Iterable[str]:
    for one in snapshot.heat.shards if snapshot.heat else ():
        if one.outside:
            yield f"{one.shard_id}: {one.outside} of {one.user_records} user records have keys of other shards"


def _credentials(snapshot: Snapshot) -> Iterable[str]:
    for action in sorted({one.action for one in snapshot.missing if one.code in STALE_CREDENTIALS}):
        yield f"{action} was refused, because the credentials have expired or are not known"
    found = snapshot.credentials
    if found is None or found.renewed or not found.temporary:
        return
    if found.expires_at is None:
        yield "the credentials are temporary, and the environment gives them: nothing renews them"
    elif (left_s := (found.expires_at - snapshot.taken_at).total_seconds()) < EXPIRY_S:
        yield f"the credentials end in {span_text(max(0.0, left_s))}, and nothing renews them"


def _many_metrics(snapshot: Snapshot) -> Iterable[str]:
    metrics = snapshot.metrics
    if metrics is None:
        return
    if metrics.listed is not None and metrics.listed >= METRICS_MAX:
        price = metrics.listed * METRIC_PRICE
        yield f"the application has {metrics.listed} metrics, which cost about ${price:.0f} a month"
    if metrics.worker_ids >= WORKER_IDS_MAX:
        yield f"{metrics.worker_ids} names of workers are among the dimensions; each brings metrics of its own"


def _twins(snapshot: Snapshot) -> Iterable[str]:
    processes: dict[str, set[str]] = {}
    for one in _unfinished(snapshot):
        if one.owner is not None and one.process is not None:
            processes.setdefault(one.owner, set()).add(one.process)
    for owner, found in processes.items():
        if len(found) > 1:
            yield f"{len(found)} processes hold leases under the name {owner}"


def _poison(snapshot: Snapshot) -> Iterable[str]:
    switches = {one.key: one.switches for one in _unfinished(snapshot)}
    for one in snapshot.lag.shards if snapshot.lag else ():
        waits = one.behind_s is not None and one.behind_s > 0
        if waits and switches.get(one.lease, 0) >= POISON_SWITCHES and not _moves(snapshot, one.lease):
            yield f"{one.shard_id}: {switches[one.lease]} changes of owner at the checkpoint {one.checkpoint}"


def _moves(snapshot: Snapshot, lease: str) -> bool:
    """The checkpoint was seen to move."""
    return len({(one.sequence_number, one.sub_sequence_number) for one in snapshot.looks.get(lease, ())}) > 1


def _quotas(snapshot: Snapshot) -> Iterable[str]:
    limits = snapshot.limits
    if limits is not None and limits.open_shards >= LIMIT_SHARE * limits.shards_max:
        yield f"{limits.open_shards} of {limits.shards_max} shards that the account may have are open"
    if limits is not None and limits.on_demand_max and (limits.on_demand or 0) >= LIMIT_SHARE * limits.on_demand_max:
        yield f"there are {limits.on_demand} of {limits.on_demand_max} on-demand streams"
    for name, times in snapshot.refused.items():
        if name in ACCOUNT_CALLS:
            yield f"{name} was refused {times} times: other programs use up the rate of the account"


def _encryption(snapshot: Snapshot) -> Iterable[str]:
    for action, code in sorted({(one.action, one.code) for one in snapshot.missing if one.code.startswith("KMS")}):
        view = _stream(snapshot)
        key = f" (key {view.key_id})" if view is not None and view.key_id else ""
        yield f"{action} was refused: {code}{key}"


def _channels(snapshot: Snapshot) -> Iterable[str]:
    view = _stream(snapshot)
    if view is not None and view.channels:
        yield f"{view.channels} channels deliver from the stream; one that has FAILED does not go on by itself"
    if view is not None and view.queues:
        yield f"{view.queues} queues are fed by the stream; each counts as a registered consumer"


def _producer_late(snapshot: Snapshot) -> Iterable[str]:
    return _counted(snapshot, "UserRecordExpired")


def _lease_moves(snapshot: Snapshot) -> Iterable[str]:
    for key, looks in snapshot.looks.items():
        owners = [one.owner for one in looks if one.owner is not None]
        moves = sum(before != after for before, after in itertools.pairwise(owners))
        if moves >= MOVES_MIN:
            yield f"{key} changed hands {moves} times within {span_text(looks[-1].at_s - looks[0].at_s)}"


def _idle_workers(snapshot: Snapshot) -> Iterable[str]:
    workers = [one for one in snapshot.application.workers if not one.leaving] if snapshot.application else []
    idle = [one.worker_id for one in workers if not one.leases]
    if idle:
        leases = len(_unfinished(snapshot))
        yield f"{', '.join(idle[:NAMED_MAX])} have no lease: there are {len(workers)} workers for {leases} leases"


def _leader(snapshot: Snapshot) -> Iterable[str]:
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


def _handoffs(snapshot: Snapshot) -> Iterable[str]:
    for key, looks in snapshot.looks.items():
        last = looks[-1]
        if last.next_owner is None:
            continue
        since_s = _since_s(looks, lambda one: (one.owner, one.next_owner))
        if since_s >= STANDS_S:
            yield f"{key}: {last.owner} has not given it to {last.next_owner} for {span_text(since_s)}"


def _pending(snapshot: Snapshot) -> Iterable[str]:
    for key, looks in snapshot.looks.items():
        last = looks[-1]
        since_s = _since_s(looks, lambda one: one.pending)
        if last.pending is not None and since_s >= STANDS_S:
            yield f"{key}: the checkpoint {last.pending} is prepared, and not settled for {span_text(since_s)}"


def _since_s(looks: Sequence[Look], what: Callable[[Look], object]) -> float:
    """For how long the newest looks have shown the same."""
    kept = [one.at_s for one in itertools.takewhile(lambda one: what(one) == what(looks[-1]), reversed(looks))]
    return kept[0] - kept[-1]


def _not_active(snapshot: Snapshot) -> Iterable[str]:
    view = _stream(snapshot)
    if view is not None and view.status != "ACTIVE":
        yield f"the stream {view.name} is {view.status}"
    for table in snapshot.application.tables if snapshot.application else ():
        if table.status != "ACTIVE":
            yield f"the table {table.name} is {table.status}"


def _is_deleting(snapshot: Snapshot) -> bool:
    return any("DELETING" in one for one in _not_active(snapshot))


def _half_tables(snapshot: Snapshot) -> Iterable[str]:
    application = snapshot.application
    if application is None:
        return
    there = [one for one in (COORDINATOR_SUFFIX, METRICS_SUFFIX) if one in application.beside]
    if len(there) == 1:
        gone = METRICS_SUFFIX if there == [COORDINATOR_SUFFIX] else COORDINATOR_SUFFIX
        yield f"{application.name}{there[0]} is there, and {application.name}{gone} is not"
    if application.listed and not application.leases:
        yield f"the table of {application.name} holds no lease"


def _no_position(snapshot: Snapshot) -> Iterable[str]:
    for one in _unfinished(snapshot):
        if one.checkpoint in ("LATEST", "AT_TIMESTAMP"):
            yield f"{one.shard_id}: its checkpoint is {one.checkpoint}"


def _out_of_order(snapshot: Snapshot) -> Iterable[str]:
    unfinished = {(one.stream, one.shard_id) for one in _unfinished(snapshot)}
    for one in _unfinished(snapshot):
        before = [parent for parent in one.parents if (one.stream, parent) in unfinished]
        if before and one.checkpoint[:1].isdigit():
            yield f"{one.shard_id} is read, and its parent {before[0]} is not read to its end"


def _rewound(snapshot: Snapshot) -> Iterable[str]:
    return _reasons(snapshot, State.REWOUND)


def _uneven(snapshot: Snapshot) -> Iterable[str]:
    shards = [one for one in snapshot.stream.shards or () if one.open] if snapshot.stream else []
    if len(shards) < 2:
        return
    small, large = min(shards, key=lambda one: one.hash_share), max(shards, key=lambda one: one.hash_share)
    if large.hash_share >= UNEVEN * small.hash_share:
        yield (
            f"{large.shard_id} has {large.hash_share:.1%} of the hash keys, and {small.shard_id} {small.hash_share:.1%}"
        )


def _worker_clocks(snapshot: Snapshot) -> Iterable[str]:
    for one in snapshot.application.workers if snapshot.application else ():
        if one.updated_at is None:
            continue
        ahead_s = (one.updated_at - snapshot.taken_at).total_seconds()
        if ahead_s > CLOCK_MAX_S:
            yield f"{one.worker_id} wrote its row {span_text(ahead_s)} in the future"


def _table_refuses(snapshot: Snapshot) -> Iterable[str]:
    yield from _counted(snapshot, "WriteThrottleEvents")
    yield from _counted(snapshot, "ReadThrottleEvents")
    if times := snapshot.refused.get("Scan"):
        yield f"Scan was refused {times} times while this snapshot was taken"


def _workers_differ(snapshot: Snapshot) -> Iterable[str]:
    workers = [one for one in snapshot.application.workers if not one.leaving] if snapshot.application else []
    versions = sorted({one.version for one in workers if one.version is not None})
    failovers = sorted({one.failover_s for one in workers if one.failover_s is not None})
    if len(versions) > 1:
        yield f"workers run the versions {', '.join(versions)}"
    if len(failovers) > 1:
        yield f"workers have failover times of {', '.join(f'{one:g} s' for one in failovers)}"


def _old_leases(snapshot: Snapshot) -> Iterable[str]:
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
    """A figure of CloudWatch that should be 0."""
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


def _named(evidence: Sequence[str]) -> list[str]:
    if len(evidence) <= NAMED_MAX:
        return list(evidence)
    return [*evidence[:NAMED_MAX], f"and {len(evidence) - NAMED_MAX} more"]


# --- the table ------------------------------------------------------------------------------------

_LISTED = (
    Symptom(
        id="PST-D001",
        title="the lease table is too small for its leases",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="its provisioned writes, beside the renewals of its leases",
        do="bill the table by request (UpdateTable, BillingMode PAY_PER_REQUEST), or give it and its index more",
        verify="leases stop moving between workers, and the table's WriteThrottleEvents are 0",
        evidence=_table_too_small,
    ),
    Symptom(
        id="PST-D002",
        title="shards are owned, and nothing happens",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="the lease is renewed, and its checkpoint stands still while records wait",
        do=(
            "look at the owner: its handler waits or fails at one record (penstock records get, at the "
            "checkpoint), or the program never checkpoints; then restart that worker"
        ),
        verify="penstock app lag --window 3m shows that the checkpoint moves",
        evidence=_stalled,
    ),
    Symptom(
        id="PST-D003",
        title="shards that no worker reads",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="leases without owner, open shards without lease",
        do=(
            "start workers, or raise the number of leases that each may hold; after a reshard wait for the next "
            "look at the shards (a minute or two) first"
        ),
        verify="penstock check leases ends with 0",
        evidence=_without_reader,
    ),
    Symptom(
        id="PST-D004",
        title="a hole in the hash range: records with these keys are not read",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="open shards, or unfinished leases, leave hash keys out",
        do=(
            "look again in a minute, since a reshard shows holes for a moment; then restart a worker, which looks"
            " for missing leases when it starts"
        ),
        verify="this finding is gone",
        evidence=_hole,
    ),
    Symptom(
        id="PST-D005",
        title="the lag grows",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the trend over the window",
        do=(
            "if few shards fall behind, look for a hot key (penstock stream heat) or a slow worker; if most do, "
            "add workers, make the handler faster, or split shards"
        ),
        verify="penstock app lag --window 1m says catching up",
        evidence=_falls_behind,
    ),
    Symptom(
        id="PST-D006",
        title="records may be gone: a checkpoint is older than the retention",
        severity=Severity.CRITICAL,
        confidence=Confidence.POSSIBLE,
        seen_by="a checkpoint behind the retention's horizon",
        do=(
            "lengthen the retention at once, which keeps what is still there; a shard without records since then "
            "has lost nothing"
        ),
        verify="penstock app lag shows no shard that may have lost records",
        evidence=_lost,
    ),
    Symptom(
        id="PST-D007",
        title="iterators expire before they are used",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the KCL's metric `ExpiredIterator`",
        do=(
            "make the handler return sooner, or give it smaller batches: an iterator is good for 5 minutes; then "
            "look at the worker's clock"
        ),
        verify="the metric ExpiredIterator stays at 0",
        evidence=_iterators,
    ),
    Symptom(
        id="PST-D008",
        title="shards refuse reads",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the stream's metric `ReadProvisionedThroughputExceeded`, and reads that were refused meanwhile",
        do=(
            "count the programs that read: 5 calls and 2 MiB a second are for all of them together; read less "
            "often, or register consumers for enhanced fan-out"
        ),
        verify="the metric ReadProvisionedThroughputExceeded stays at 0",
        evidence=_reads_refused,
    ),
    Symptom(
        id="PST-D009",
        title="a shard is hot",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the load of the last minute by shards and keys, and refused writes",
        do=(
            "ask penstock stream heat where to split the shard; where one partition key has most of the load, "
            "spread that key"
        ),
        verify="penstock stream heat marks no shard as hot",
        evidence=_hot_shards,
    ),
    Symptom(
        id="PST-D010",
        title="an on-demand stream refuses writes",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the mode, and the metric `WriteProvisionedThroughputExceeded`",
        do=(
            "an on-demand stream takes twice the peak of 30 days, and needs minutes to grow: raise its warm "
            "throughput before a known peak, and look for a hot key (penstock stream heat)"
        ),
        verify="the metric WriteProvisionedThroughputExceeded stays at 0",
        evidence=_on_demand_refuses,
    ),
    Symptom(
        id="PST-D011",
        title="there are far more shards than the load needs",
        severity=Severity.INFO,
        confidence=Confidence.LIKELY,
        seen_by="open shards, beside the busiest hour of 14 days",
        do="merge shards of a provisioned stream (UpdateShardCount); lower the warm throughput of one on demand",
        verify="penstock stream describe shows fewer open shards, and none is hot",
        evidence=_too_many_shards,
    ),
    Symptom(
        id="PST-D012",
        title="consumers of enhanced fan-out that cannot be used",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="their status, and their number",
        do="wait until a new consumer is ACTIVE, and deregister those that no program uses",
        verify="penstock stream describe shows each consumer as ACTIVE",
        evidence=_consumers,
    ),
    Symptom(
        id="PST-D013",
        title="the index by owner is not ready",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="its status",
        do="wait: DynamoDB fills an index in minutes; workers of the KCL 3.x read all leases until then",
        verify="penstock app describe shows the index as ACTIVE",
        evidence=_index,
    ),
    Symptom(
        id="PST-D014",
        title="a migration to the KCL 3.x is under way",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the rows `Migration3.0` and `TableMigration3.5`",
        do=(
            "if it stays so after all workers run the new version, look for a worker of the 2.x that still renews"
            " leases"
        ),
        verify="penstock app describe shows CLIENT_VERSION_3X",
        evidence=_migration,
    ),
    Symptom(
        id="PST-D015",
        title="leases of another stream, or of a former one with this name",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="shards that the stream does not have, checkpoints from before it was made",
        do=(
            "give the application a new name for this stream; or remove these leases once their records are of no"
            " interest"
        ),
        verify="penstock app lag shows no shard as gone",
        evidence=_other_stream,
    ),
    Symptom(
        id="PST-D016",
        title="the handler fails, and records may be skipped",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the metric `RecordsFailedProcessing`",
        do=(
            "read the worker's log; the KCL before 3.5.4 goes on behind a batch that its processor raised at, so "
            "handle errors inside of the processor there"
        ),
        verify="the metric RecordsFailedProcessing stays at 0",
        evidence=_failed_records,
    ),
    Symptom(
        id="PST-D017",
        title="leases changed hands since their last checkpoint: records are handed out again",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="`ownerSwitchesSinceCheckpoint`",
        do="checkpoint more often, or drain before a worker stops; make the handler take duplicates",
        verify="the number is 0 after the next checkpoint",
        evidence=_switches,
    ),
    Symptom(
        id="PST-D018",
        title="owners do not renew their leases",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="counters that stand still for twice the failover time",
        do=(
            "these workers have ended, hang, or cannot write to the lease table; no other worker has taken over, "
            "so look whether any lives"
        ),
        verify="penstock app lag --window 30s shows no shard as stopped",
        evidence=_stopped,
    ),
    Symptom(
        id="PST-D019",
        title="aggregates hold user records of other shards, which readers leave out",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="the newest records of each shard, opened",
        do=(
            "find the producer that aggregates by an old map of the shards, and restart it; what it put has to be"
            " put again"
        ),
        verify="penstock doctor finds it no more for records that are put from now on",
        evidence=_outside,
    ),
    Symptom(
        id="PST-D020",
        title="the credentials end, or have ended",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="calls that were refused, and what the credentials tell of their end",
        do=(
            "use a source that renews them (a role, or a profile with one) in place of what was copied into the "
            "environment"
        ),
        verify="penstock stream describe works a day later with the same process",
        evidence=_credentials,
    ),
    Symptom(
        id="PST-D021",
        title="this machine's clock is wrong",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the time in the service's answers",
        do="set the clock by NTP: requests that are signed more than five minutes off are refused",
        verify="this finding is gone",
        evidence=_clock,
    ),
    Symptom(
        id="PST-D022",
        title="the application's metrics are many, and cost",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the metrics in its namespace",
        do=(
            "let workers send their summary level only, without names of workers and shards; metrics that are not"
            " sent any more cost nothing from the next hour on"
        ),
        verify="CloudWatch lists fewer metrics in the namespace after two weeks",
        evidence=_many_metrics,
    ),
    Symptom(
        id="PST-D023",
        title="two processes have one worker's name",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="the processes that the leases of one owner name",
        do="give each process a worker id of its own",
        verify="penstock app describe shows a worker for each process",
        evidence=_twins,
    ),
    Symptom(
        id="PST-D024",
        title="several owners have given up at the same record",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="changes of owner at a checkpoint that stands still while records wait",
        do=(
            "look at the record behind the checkpoint (penstock records get): each owner fails or hangs at it; "
            "let the handler skip it or write it as a dead letter"
        ),
        verify="penstock app lag --window 3m shows that the checkpoint moves",
        evidence=_poison,
    ),
    Symptom(
        id="PST-D025",
        title="a limit of the account is near, or its rate of calls is used up",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the account's limits, and calls that were refused meanwhile",
        do="ask for a higher quota; look which program lists and describes streams all the time",
        verify="this finding is gone",
        evidence=_quotas,
    ),
    Symptom(
        id="PST-D026",
        title="the stream's key is refused",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="what the service answers to reads",
        do="give the readers kms:Decrypt on that key (docs/iam), and see that the key is enabled",
        verify="penstock records tail shows records",
        evidence=_encryption,
    ),
    Symptom(
        id="PST-D027",
        title="channels or queues hang on the stream",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="their number",
        do="look at their state in the console of AWS, and at their dead letters; delete them before the stream",
        verify="penstock stream describe shows the number that is wanted",
        evidence=_channels,
    ),
    Symptom(
        id="PST-D028",
        title="much of the retention is used up",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the lag beside the retention",
        do=(
            "lengthen the retention before anything else (IncreaseStreamRetentionPeriod), then find out why the "
            "lag grew"
        ),
        verify="penstock check lag ends with 0",
        evidence=_retention,
        is_worse=lambda snapshot: _retention_used(snapshot) > CRITICAL_LAG_OF_RETENTION,
    ),
    Symptom(
        id="PST-D029",
        title="a producer's records are too late, and given up",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the KPL's metric `UserRecordExpired`",
        do=(
            "look for refused writes and a hot shard first; then let the producer wait when its buffer is full, "
            "so that its memory does not grow"
        ),
        verify="the metric UserRecordExpired stays at 0",
        evidence=_producer_late,
    ),
    Symptom(
        id="PST-D030",
        title="permissions lack, so some symptoms could not be looked for",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="calls that were refused",
        do="give these credentials the policy docs/iam/inspect.json",
        verify="this finding is gone",
        evidence=_permissions,
    ),
    Symptom(
        id="PST-D031",
        title="rows of the lease table cannot be read",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the rows",
        do="find out what wrote them; workers of the KCL before 3.5 fail at rows that are no leases",
        verify="penstock app describe tells no such row",
        evidence=_unreadable,
    ),
    Symptom(
        id="PST-D032",
        title="leases go from worker to worker",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the owners that were seen",
        do=(
            "look for workers that hang for longer than the failover time, for throttled writes of the lease "
            "table, and for two processes with one name"
        ),
        verify="penstock app describe shows the same owners a minute later",
        evidence=_lease_moves,
    ),
    Symptom(
        id="PST-D033",
        title="workers have nothing to do",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="workers without a lease",
        do="stop them, or split shards: one shard is read by one worker",
        verify="penstock app describe shows leases for each worker",
        evidence=_idle_workers,
    ),
    Symptom(
        id="PST-D034",
        title="the leader of the workers is gone",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        seen_by="the row `Leader`, and the rows of the workers' metrics",
        do="restart the worker that it names; without a leader no lease is assigned",
        verify="penstock app describe shows a leader",
        evidence=_leader,
    ),
    Symptom(
        id="PST-D035",
        title="a lease is not handed over",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="both owners, unchanged for two failover times",
        do="look at the old owner: it waits for its handler before it gives the lease up; restart it if it hangs",
        verify="penstock app describe shows one owner for each lease",
        evidence=_handoffs,
    ),
    Symptom(
        id="PST-D036",
        title="a prepared checkpoint is not settled",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the pending checkpoint, unchanged for two failover times",
        do=(
            "look at the program between its prepared checkpoint and its commit; workers of the KCL before 3.5 "
            "may hang there, so update them"
        ),
        verify="penstock app describe -o json shows no pending_checkpoint",
        evidence=_pending,
    ),
    Symptom(
        id="PST-D037",
        title="the stream or its lease table is not active",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="their status",
        do=("wait for an update to end; a stream that is DELETING does not come back, so find out what deletes it"),
        verify="penstock check stream ends with 0",
        evidence=_not_active,
        is_worse=_is_deleting,
    ),
    Symptom(
        id="PST-D038",
        title="half of an application's tables",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="the tables of the KCL 3.0 to 3.4, of which one is missing; a table without leases",
        do=(
            "restore the table from a backup, or let one worker make it anew; see whether the application's name "
            "is right"
        ),
        verify="penstock app describe shows leases",
        evidence=_half_tables,
    ),
    Symptom(
        id="PST-D039",
        title="leases without a position: a restart may leave records out",
        severity=Severity.INFO,
        confidence=Confidence.POSSIBLE,
        seen_by="the checkpoints `LATEST` and `AT_TIMESTAMP`",
        do="checkpoint once for each shard: a worker that takes such a lease over begins at what is newest then",
        verify="penstock app export tells each position as exact",
        evidence=_no_position,
    ),
    Symptom(
        id="PST-D040",
        title="a shard is read before its parent is read to its end",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="leases of parents and children",
        do="see which program moved these checkpoints: records of one key are handled out of order",
        verify="penstock app describe shows SHARD_END for the parent",
        evidence=_out_of_order,
    ),
    Symptom(
        id="PST-D041",
        title="a checkpoint went back",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        seen_by="the checkpoints that were seen",
        do="ask which program or person moved it: records are handed out again from there",
        verify="penstock app lag --history says it no more after an hour",
        evidence=_rewound,
    ),
    Symptom(
        id="PST-D042",
        title="shards have very different parts of the hash keys",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the hash ranges of the open shards",
        do=(
            "split the large shards, or merge small ones that are neighbours: with many keys a shard's load "
            "follows its part"
        ),
        verify="penstock stream shards shows even parts",
        evidence=_uneven,
    ),
    Symptom(
        id="PST-D043",
        title="a worker's clock is wrong",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        seen_by="rows of workers that are written in the future",
        do="set that machine's clock by NTP: a leader takes its worker for gone, or for alive",
        verify="this finding is gone",
        evidence=_worker_clocks,
    ),
    Symptom(
        id="PST-D044",
        title="the lease table refuses calls",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        seen_by="the table's `WriteThrottleEvents` and `ReadThrottleEvents`, and scans that were refused meanwhile",
        do=("bill the table by request, or give it and its index more: workers that cannot renew lose their leases"),
        verify="the table's WriteThrottleEvents and ReadThrottleEvents stay at 0",
        evidence=_table_refuses,
    ),
    Symptom(
        id="PST-D045",
        title="workers differ in version or failover time",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="the rows of Penstock's workers",
        do=(
            "finish the deployment; where two failover times stay, a worker with the longer one is taken for dead"
            " too soon"
        ),
        verify="penstock app describe shows one version",
        evidence=_workers_differ,
    ),
    Symptom(
        id="PST-D046",
        title="leases of shards that are long gone fill the table",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        seen_by="ended leases of shards that the stream does not list",
        do=(
            "let the cleanup of ended leases run (it is on by default in the KCL and in Penstock): each scan "
            "reads them all"
        ),
        verify="penstock app describe shows few ended leases",
        evidence=_old_leases,
    ),
)

SYMPTOMS = {one.id: one for one in _LISTED}
"""All symptoms by their ids."""
