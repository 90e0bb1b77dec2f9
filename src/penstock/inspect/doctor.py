"""What is wrong with an application and its stream: symptoms, each with a pure function that finds its evidence.

A snapshot holds no payload and no partition key, so it can be sent to somewhere else and be looked at there.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.core.leases.row import CLOCKS_DIFFER_S
from penstock.core.lineage import holes
from penstock.inspect.applications import ApplicationView
from penstock.inspect.moments import span_text, time_text
from penstock.inspect.values import Missing, StreamReport
from penstock.inspect.verdicts import LagReport, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.inspect.applications import LeaseView
    from penstock.inspect.values import StreamView
    from penstock.inspect.verdicts import ShardLag

RENEWALS_PER_S = 1 / 3.3
"""Of each lease, by the KCL's default failover time of 10 s."""
CLOCK_MAX_S = 60.0
CONSUMERS_MAX = 20
"""Registered consumers that a stream may have, if the account has no other limit."""
LAG_OF_RETENTION = 0.25
CRITICAL_LAG_OF_RETENTION = 0.5
NAMED_MAX = 5


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


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that the symptoms look at."""

    schema: str = "penstock.snapshot/1"
    taken_at: dt.datetime
    clock_off_s: float = 0.0
    """How far this machine's clock was behind the service's."""
    stream: StreamReport | None = None
    application: ApplicationView | None = None
    lag: LagReport | None = None
    missing: list[Missing] = []


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
    return (f"{action} is missing" for action in sorted({one.action for one in snapshot.missing}))


def _unreadable(snapshot: Snapshot) -> Iterable[str]:
    rows = snapshot.application.unreadable if snapshot.application else {}
    return (f"{key}: {why}" for key, why in rows.items())


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
)

SYMPTOMS = {one.id: one for one in _LISTED}
"""All symptoms by their ids."""
