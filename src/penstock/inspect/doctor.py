"""What is wrong with an application and its stream: symptoms, each a pure function over a snapshot.

A snapshot holds no payload and no partition key, so it can be sent to somewhere else and be looked at there.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.core.leases.row import CLOCKS_DIFFER_S
from penstock.core.lineage import holes
from penstock.inspect.applications import ApplicationView
from penstock.inspect.moments import span_text, time_text
from penstock.inspect.values import Missing, StreamReport
from penstock.inspect.verdicts import LagReport, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RENEWALS_PER_S = 1 / 3.3
"""Of each lease, by the KCL's default failover time of 10 s."""
CLOCK_MAX_S = 60.0
CONSUMERS_MAX = 20
"""Registered consumers that a stream may have, if the account has no other limit."""
LAG_OF_RETENTION = 0.25
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


def examine(snapshot: Snapshot) -> DoctorReport:
    """Look for all symptoms."""
    found = [finding for symptom in SYMPTOMS.values() if (finding := symptom(snapshot)) is not None]
    found.sort(key=lambda one: (list(Severity).index(one.severity), one.id))
    return DoctorReport(taken_at=snapshot.taken_at, findings=found, looked_for=[*SYMPTOMS], missing=snapshot.missing)


def _table_too_small(snapshot: Snapshot) -> Finding | None:
    application = snapshot.application
    if application is None:
        return None
    live = sum(one.owner is not None and not one.ended for one in application.leases)
    needed = live * RENEWALS_PER_S
    small = [one for one in application.tables if one.write_units is not None and one.write_units < needed]
    if not small:
        return None
    return Finding(
        id="PST-D001",
        title="the lease table is too small for its leases",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        evidence=[
            f"{one.name} takes {one.write_units} writes a second; {live} leases are renewed {needed:.1f} times a "
            "second at a failover time of 10 s, and each checkpoint is a write too"
            for one in small
        ],
        do="bill the table by request (UpdateTable, BillingMode PAY_PER_REQUEST), or give it and its index more",
        verify="leases stop moving between workers, and the table's WriteThrottleEvents are 0",
    )


def _stalled(snapshot: Snapshot) -> Finding | None:
    shards = _shards(snapshot, State.STALLED)
    if not shards:
        return None
    leases = snapshot.application.leases if snapshot.application else []
    pending = {one.shard_id for one in leases if one.pending_checkpoint}
    evidence = [why + ("; a checkpoint is pending" if shard in pending else "") for shard, why in shards]
    return Finding(
        id="PST-D002",
        title="shards are owned, and nothing happens",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        evidence=_named(evidence),
        do="look at the owner: its handler waits or fails at one record (penstock records get, at the checkpoint), or "
        "the program never checkpoints; then restart that worker",
        verify="penstock app lag --window 3m shows that the checkpoint moves",
    )


def _without_reader(snapshot: Snapshot) -> Finding | None:
    lag, application = snapshot.lag, snapshot.application
    evidence = [f"{one.shard_id}: no worker has the lease" for one in (application.leases if application else [])
                if one.owner is None and not one.ended]  # fmt: skip
    evidence += [f"{one}: there is no lease for this open shard" for one in (lag.without_lease if lag else [])]
    if not evidence:
        return None
    return Finding(
        id="PST-D003",
        title="shards that no worker reads",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        evidence=_named(evidence),
        do="start workers, or raise the number of leases that each may hold; after a reshard wait for the next look at "
        "the shards (a minute or two) first",
        verify="penstock check leases ends with 0",
    )


def _hole(snapshot: Snapshot) -> Finding | None:
    report, application = snapshot.stream, snapshot.application
    evidence = []
    if report is not None and report.stream is not None and report.stream.status == "ACTIVE":
        evidence = [f"no open shard takes the hash keys {first} to {last}" for first, last in report.holes]
    live = [one for one in (application.leases if application else []) if not one.ended]
    ranges = [
        (int(one.first_hash_key), int(one.last_hash_key))
        for one in live
        if one.first_hash_key is not None and one.last_hash_key is not None
    ]
    if application and ranges and len(ranges) == len(live) and len(application.streams) < 2:
        evidence += [f"no unfinished lease covers the hash keys {first} to {last}" for first, last in holes(ranges)]
    if not evidence:
        return None
    return Finding(
        id="PST-D004",
        title="a hole in the hash range: records with these keys are not read",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        evidence=_named(evidence),
        do="look again in a minute, since a reshard shows holes for a moment; then restart a worker, which looks for "
        "missing leases when it starts",
        verify="this finding is gone",
    )


def _falls_behind(snapshot: Snapshot) -> Finding | None:
    shards = _shards(snapshot, State.FALLING_BEHIND)
    if not shards or snapshot.lag is None:
        return None
    some = len(shards) < len([one for one in snapshot.lag.shards if one.state is not State.ENDED]) / 2
    return Finding(
        id="PST-D005",
        title="the lag grows",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        evidence=_named([why for _, why in shards]),
        do="few shards fall behind: look for a hot key (penstock stream heat), or a slow worker"
        if some
        else "most shards fall behind: add workers, make the handler faster, or split shards",
        verify="penstock app lag --window 1m says catching up",
    )


def _lost(snapshot: Snapshot) -> Finding | None:
    lost = [one for one in (snapshot.lag.shards if snapshot.lag else []) if one.may_have_lost]
    if not lost:
        return None
    return Finding(
        id="PST-D006",
        title="records may be gone: a checkpoint is older than the retention",
        severity=Severity.CRITICAL,
        confidence=Confidence.POSSIBLE,
        evidence=_named([f"{one.shard_id}: its checkpoint {one.checkpoint} lies behind the horizon" for one in lost]),
        do="lengthen the retention at once, which keeps what is still there; a shard without records since then has "
        "lost nothing",
        verify="penstock app lag shows no shard that may have lost records",
    )


def _consumers(snapshot: Snapshot) -> Finding | None:
    consumers = snapshot.stream.consumers if snapshot.stream and snapshot.stream.consumers else []
    evidence = [f"the consumer {one.name} is {one.status}" for one in consumers if one.status != "ACTIVE"]
    if len(consumers) >= CONSUMERS_MAX:
        evidence.append(f"{len(consumers)} consumers are registered; further ones are refused")
    if not evidence:
        return None
    return Finding(
        id="PST-D012",
        title="consumers of enhanced fan-out that cannot be used",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        evidence=_named(evidence),
        do="wait until a new consumer is ACTIVE, and deregister those that no program uses",
        verify="penstock stream describe shows each consumer as ACTIVE",
    )


def _index(snapshot: Snapshot) -> Finding | None:
    application = snapshot.application
    if application is None:
        return None
    evidence = [
        f"the index {name} of {table.name} is {status}"
        for table in application.tables
        for name, status in table.indexes.items()
        if status not in ("ACTIVE", "")
    ]
    if not evidence:
        return None
    return Finding(
        id="PST-D013",
        title="the index by owner is not ready",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        evidence=evidence,
        do="wait: DynamoDB fills an index in minutes; workers of the KCL 3.x read all leases until then",
        verify="penstock app describe shows the index as ACTIVE",
    )


def _migration(snapshot: Snapshot) -> Finding | None:
    application = snapshot.application
    if application is None:
        return None
    evidence = []
    if application.client_version not in (None, "CLIENT_VERSION_3X"):
        evidence.append(f"the fleet's mode is {application.client_version}")
    if application.table_migration not in (None, "TABLE_MIGRATION_STATUS_COMPLETE"):
        evidence.append(f"the move of its tables is at {application.table_migration}")
    if not evidence:
        return None
    return Finding(
        id="PST-D014",
        title="a migration to the KCL 3.x is under way",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        evidence=evidence,
        do="if it stays so after all workers run the new version, look for a worker of the 2.x that still renews "
        "leases",
        verify="penstock app describe shows CLIENT_VERSION_3X",
    )


def _other_stream(snapshot: Snapshot) -> Finding | None:
    view = snapshot.stream.stream if snapshot.stream else None
    evidence = [
        f"{one.shard_id}: {one.why}" for one in (snapshot.lag.shards if snapshot.lag else []) if one.state is State.GONE
    ]
    for lease in snapshot.application.leases if snapshot.application else []:
        if view is None or lease.checkpoint_at is None or lease.stream not in (None, view.name):
            continue
        if (view.created_at - lease.checkpoint_at).total_seconds() > CLOCKS_DIFFER_S:
            evidence.append(
                f"{lease.shard_id}: its checkpoint is of {time_text(lease.checkpoint_at)}, before the stream was made "
                f"({time_text(view.created_at)})"
            )
    if not evidence:
        return None
    return Finding(
        id="PST-D015",
        title="leases of another stream, or of a former one with this name",
        severity=Severity.CRITICAL,
        confidence=Confidence.LIKELY,
        evidence=_named(evidence),
        do="give the application a new name for this stream; or remove these leases once their records are of no "
        "interest",
        verify="penstock app lag shows no shard as gone",
    )


def _switches(snapshot: Snapshot) -> Finding | None:
    application = snapshot.application
    leases = [one for one in (application.leases if application else []) if one.switches and not one.ended]
    if not leases:
        return None
    return Finding(
        id="PST-D017",
        title="leases changed hands since their last checkpoint: records are handed out again",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        evidence=_named([f"{one.shard_id}: {one.switches} changes of owner" for one in leases]),
        do="checkpoint more often, or drain before a worker stops; make the handler take duplicates",
        verify="the number is 0 after the next checkpoint",
    )


def _stopped(snapshot: Snapshot) -> Finding | None:
    shards = _shards(snapshot, State.STOPPED)
    if not shards:
        return None
    lags = snapshot.lag.shards if snapshot.lag else []
    owners = Counter(one.owner for one in lags if one.state is State.STOPPED)
    return Finding(
        id="PST-D018",
        title="owners do not renew their leases",
        severity=Severity.CRITICAL,
        confidence=Confidence.CERTAIN,
        evidence=_named([f"{owner}: {count} leases" for owner, count in owners.most_common()]),
        do="these workers have ended, hang, or cannot write to the lease table; no other worker has taken over, so "
        "look whether any lives",
        verify="penstock app lag --window 30s shows no shard as stopped",
    )


def _clock(snapshot: Snapshot) -> Finding | None:
    if abs(snapshot.clock_off_s) < CLOCK_MAX_S:
        return None
    return Finding(
        id="PST-D021",
        title="this machine's clock is wrong",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        evidence=[f"it differs by {span_text(abs(snapshot.clock_off_s))} from the time in the service's answers"],
        do="set the clock by NTP: requests that are signed more than five minutes off are refused",
        verify="this finding is gone",
    )


def _retention(snapshot: Snapshot) -> Finding | None:
    lag, view = snapshot.lag, snapshot.stream.stream if snapshot.stream else None
    if lag is None or view is None or lag.behind_s is None:
        return None
    retention_s = view.retention_hours * 3600
    if lag.behind_s <= LAG_OF_RETENTION * retention_s:
        return None
    return Finding(
        id="PST-D028",
        title="much of the retention is used up",
        severity=Severity.CRITICAL if lag.behind_s > 0.5 * retention_s else Severity.WARNING,
        confidence=Confidence.CERTAIN,
        evidence=[
            f"the oldest unread record is {span_text(lag.behind_s)} old; the retention is {span_text(retention_s)}"
        ],
        do="lengthen the retention before anything else (IncreaseStreamRetentionPeriod), then find out why the lag "
        "grew",
        verify="penstock check lag ends with 0",
    )


def _permissions(snapshot: Snapshot) -> Finding | None:
    if not snapshot.missing:
        return None
    actions = sorted({one.action for one in snapshot.missing})
    return Finding(
        id="PST-D030",
        title="permissions lack, so some symptoms could not be looked for",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        evidence=[f"{action} is missing" for action in actions],
        do="give these credentials the policy docs/iam/inspect.json",
        verify="this finding is gone",
    )


def _unreadable(snapshot: Snapshot) -> Finding | None:
    rows = snapshot.application.unreadable if snapshot.application else {}
    if not rows:
        return None
    return Finding(
        id="PST-D031",
        title="rows of the lease table cannot be read",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        evidence=_named([f"{key}: {why}" for key, why in rows.items()]),
        do="find out what wrote them; workers of the KCL before 3.5 fail at rows that are no leases",
        verify="penstock app describe tells no such row",
    )


SYMPTOMS: dict[str, Callable[[Snapshot], Finding | None]] = {
    "PST-D001": _table_too_small,
    "PST-D002": _stalled,
    "PST-D003": _without_reader,
    "PST-D004": _hole,
    "PST-D005": _falls_behind,
    "PST-D006": _lost,
    "PST-D012": _consumers,
    "PST-D013": _index,
    "PST-D014": _migration,
    "PST-D015": _other_stream,
    "PST-D017": _switches,
    "PST-D018": _stopped,
    "PST-D021": _clock,
    "PST-D028": _retention,
    "PST-D030": _permissions,
    "PST-D031": _unreadable,
}
"""All symptoms by their ids."""


def _shards(snapshot: Snapshot, state: State) -> list[tuple[str, str]]:
    """Shards in a state, and what is to be said of each."""
    found = snapshot.lag.shards if snapshot.lag else []
    return [(one.shard_id, f"{one.shard_id}: {one.why}") for one in found if one.state is state]


def _named(evidence: Iterable[str]) -> list[str]:
    listed = list(evidence)
    if len(listed) <= NAMED_MAX:
        return listed
    return [*listed[:NAMED_MAX], f"and {len(listed) - NAMED_MAX} more"]
