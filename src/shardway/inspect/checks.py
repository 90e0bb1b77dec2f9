"""Make of reports what a monitoring system wants: one of four statuses, a line for people, figures with thresholds.

The statuses and the line are those of Nagios' plugins, which many systems read.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from shardway.inspect.lag.reports import FAILOVER_S, LOOK_INTERVAL_S, State
from shardway.inspect.moments import counted, span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.inspect.applications.stores import Store
    from shardway.inspect.applications.views import ApplicationReport, ApplicationView, LeaseView, WorkerView
    from shardway.inspect.inspector import Inspector
    from shardway.inspect.lag.reports import LagReport
    from shardway.inspect.values import Missing, StreamReport

REMARKS_MAX = 5
"""Shards that are named in the line."""


class Status(IntEnum):
    """The exit status of a check."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A number that a monitoring system may draw."""

    name: str
    value: float
    unit: str = ""
    """``s``, or nothing for a count."""
    warning: float | None = None
    critical: float | None = None
    low_is_bad: bool = False
    """True: a value below a threshold is bad. False: a value above it is bad."""

    @property
    def text(self) -> str:
        """The figure in the plugins' form: ``behind=12.5s;60;600``; ``loses_in=7200s;43200:;21600:`` where low is
        bad.
        """
        end = ":" if self.low_is_bad else ""
        limits = ["" if one is None else f"{one:.12g}{end}" for one in (self.warning, self.critical)]
        return ";".join([f"{self.name}={self.value:.12g}{self.unit}", *limits]).rstrip(";")


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found."""

    schema: str = "shardway.check/1"
    check: str
    status: Status
    summary: str
    remarks: list[str] = []
    figures: list[Figure] = []

    @property
    def line(self) -> str:
        """The check's line: ``LAG OK - billing on orders: 12 s behind | behind=12s;60;600``."""
        shown = self.remarks[:REMARKS_MAX]
        if len(self.remarks) > REMARKS_MAX:
            shown = [*shown, f"and {len(self.remarks) - REMARKS_MAX} more"]
        text = "; ".join([self.summary, *shown]).replace("|", "/")
        figures = " ".join(one.text for one in self.figures)
        return f"{self.check.upper()} {self.status.name} - {text}" + (f" | {figures}" if figures else "")


class LagLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits from which on a check warns of a lag, or calls it critical."""

    warning_s: float = 300.0
    critical_s: float = 3600.0
    loses_warning_s: float = 12 * 3600.0
    loses_critical_s: float = 6 * 3600.0
    """Seconds until records are lost: less than this is critical, as less than ``loses_warning_s`` is a warning."""


_OF_STATE = {
    State.FALLING_BEHIND: Status.WARNING,
    State.FAR_BEHIND: Status.WARNING,
    State.STALLED: Status.CRITICAL,
    State.REWOUND: Status.WARNING,
    State.STOPPED: Status.CRITICAL,
    State.UNOWNED: Status.CRITICAL,
    State.GONE: Status.CRITICAL,
}
"""The status of each state that is bad by itself. A shard in any other state is as bad as its lag."""


def check_lag(report: LagReport, limits: LagLimits) -> Checked:
    """Check whether an application keeps up. The worst shard counts. A lag that is not known is UNKNOWN, if nothing
    is worse.
    """
    statuses, remarks = [Status.OK], []
    for shard in report.shards:
        found = [_OF_STATE.get(shard.state, Status.OK)]
        if shard.behind_s is not None:
            found.append(_status_above(shard.behind_s, limits.warning_s, limits.critical_s))
        if shard.loses_in_s is not None:
            found.append(_status_below(shard.loses_in_s, limits.loses_warning_s, limits.loses_critical_s))
        if shard.may_have_lost:
            found.append(Status.CRITICAL)
        if max(found) is not Status.OK:
            why = "may have lost records" if shard.may_have_lost else shard.why
            remarks.append(f"{shard.shard_id}: {shard.state.value}, {why}")
        statuses += found
    if report.without_lease:
        statuses.append(Status.CRITICAL)
        remarks.append(f"no lease for {', '.join(report.without_lease[:REMARKS_MAX])}")
    worst = max(statuses)
    unknown = [one for one in report.shards if one.behind_s is None and one.state is State.UNKNOWN]
    if worst is Status.OK and unknown:
        worst = Status.UNKNOWN
        remarks.append(f"{unknown[0].shard_id}: {unknown[0].why}")
    behind = "" if report.behind_s is None else f", {span_text(report.behind_s)} behind"
    return Checked(
        check="lag",
        status=worst,
        summary=f"{report.application} on {report.stream}: {report.state.value}{behind}",
        remarks=[*remarks, *_not_shown([one for one in report.missing if one.action.startswith("kinesis:")])],
        figures=_lag_figures(report, limits),
    )


class Renewals:
    """Knows which owners are at work, by what looks at an application's leases and workers have shown."""

    def __init__(self) -> None:
        self._since_s: dict[str, tuple[str | None, int, float]] = {}
        self._renewed_leases: set[str] = set()
        self._now_s = 0.0

    def see(self, application: ApplicationView, now_s: float) -> None:
        """Note one look, made at ``now_s`` by the service's time (epoch seconds)."""
        self._now_s = now_s
        for one in application.leases:
            before = self._since_s.get(one.key)
            if before is None or before[:2] != (one.owner, one.counter):
                self._since_s[one.key] = (one.owner, one.counter, now_s)
            if before is not None and before[:2] != (one.owner, one.counter):
                self._renewed_leases.add(one.key)

    def silent_s(self, worker: WorkerView) -> float | None:
        """Return for how long a worker has not written its own row; None: it has no row that tells it."""
        if worker.kind != "shardway" or worker.updated_at is None:
            return None
        return max(0.0, self._now_s - worker.updated_at.timestamp())

    def dead(self, application: ApplicationView) -> dict[str, float]:
        """Return for how long each owner has given no sign of life that should have given one: the seconds by its
        name.
        """
        found: dict[str, float] = {}
        workers = {one.worker_id: one for one in application.workers}
        for one in _owned_leases(application):
            worker = workers.get(one.owner or "")
            silent_s = None if worker is None else self.silent_s(worker)
            if silent_s is None or one.key in self._renewed_leases:
                silent_s = self._now_s - self._since_s[one.key][2]
            failover_s = (None if worker is None else worker.failover_s) or FAILOVER_S
            if silent_s > 2 * failover_s:
                found[one.owner or ""] = max(silent_s, found.get(one.owner or "", 0.0))
        return found

    def not_known(self, application: ApplicationView) -> list[str]:
        """Return the owners that may or may not be at work: no look has shown it yet."""
        workers, dead = {one.worker_id: one for one in application.workers}, self.dead(application)
        found: list[str] = []
        for one in _owned_leases(application):
            worker = workers.get(one.owner or "")
            tells = worker is not None and self.silent_s(worker) is not None
            if not tells and one.key not in self._renewed_leases and one.owner not in dead:
                found.append(one.owner or "")
        return list(dict.fromkeys(found))


def _owned_leases(application: ApplicationView) -> list[LeaseView]:
    return [one for one in application.leases if one.owner is not None and not one.ended]


async def look_for_renewals(
    inspector: Inspector, application: str, store: Store | None, *, window_s: float, interval_s: float = LOOK_INTERVAL_S
) -> tuple[ApplicationReport, Renewals]:
    """Look at an application until it is known of each owner whether it is at work, for ``window_s`` at most. Workers
    whose rows tell it need one look, others one renewal: some seconds. Raises ShardwayError.
    """
    renewals = Renewals()
    end_s = inspector.wire.now() + window_s
    while True:
        report = await inspector.application(application, store)
        renewals.see(report.application, inspector.now_s)
        left_s = end_s - inspector.wire.now()
        if left_s <= 0 or not renewals.not_known(report.application):
            return report, renewals
        await asyncio.sleep(min(interval_s, left_s))


def check_leases(
    application: ApplicationView, missing: Sequence[Missing] = (), renewals: Renewals | None = None
) -> Checked:
    """Check whether a worker that lives has each lease, and whether each row can be read.

    ``missing`` is what the application's report does not show. ``renewals`` is what the looks have shown of the owners;
    without it, an owner's name in a row is all that counts.
    """
    if not application.listed:
        return unknown("leases", f"{application.name}: the leases are not shown", _not_shown(missing))
    free = [one.shard_id for one in application.leases if one.owner is None and one.query is None and not one.ended]
    held = sum(one.owner is not None and not one.ended for one in application.leases)
    remarks = [f"{one}: no worker has it" for one in free]
    remarks += [f"{key}: {why}" for key, why in application.unreadable.items()]
    if not application.leases:
        remarks.append("there are no leases")
    leases = {one.worker_id: one.leases for one in application.workers}
    for owner, silent_s in ({} if renewals is None else renewals.dead(application)).items():
        named = f"is named as the owner of {counted(leases.get(owner, 0), 'lease')}"
        remarks.append(f"{owner} {named}, and has given no sign of life for {span_text(silent_s)}")
    open_questions = [] if renewals is None else renewals.not_known(application)
    status = Status.CRITICAL if remarks else Status.UNKNOWN if open_questions else Status.OK
    remarks += [f"{one}: no look has shown whether it renews its leases: look for longer" for one in open_questions]
    workers = len([one for one in application.workers if one.leases])
    return Checked(
        check="leases",
        status=status,
        summary=f"{application.name}: {counted(held, 'lease')} held by {counted(workers, 'worker')}",
        remarks=remarks,
        figures=[
            Figure(name="held", value=held),
            Figure(name="free", value=len(free), critical=0),
            Figure(name="workers", value=workers),
        ],
    )


def check_stream(report: StreamReport) -> Checked:
    """Check whether a stream is active, its open shards cover all hash keys, and its registered consumers are
    active.
    """
    view, remarks, status = report.stream, [], Status.OK
    if view is None or report.shards is None:
        return unknown("stream", f"{report.name}: it is not shown", _not_shown(report.missing))
    if view.status != "ACTIVE":
        status = Status.CRITICAL if view.status == "DELETING" else Status.WARNING
        remarks.append(f"it is {view.status}")
    elif report.holes:
        status = Status.CRITICAL
        remarks.append(f"no open shard takes {counted(len(report.holes), 'range')} of hash keys")
    for one in report.consumers or ():
        if one.status != "ACTIVE":
            status = max(status, Status.WARNING)
            remarks.append(f"the consumer {one.name} is {one.status}")
    open_shards = sum(one.open for one in report.shards)
    return Checked(
        check="stream",
        status=status,
        summary=f"{report.name}: {view.status}, {counted(open_shards, 'open shard')}",
        remarks=[*remarks, *_not_shown(report.missing)],
        figures=[
            Figure(name="open_shards", value=open_shards),
            Figure(name="holes", value=len(report.holes), critical=0),
        ],
    )


def unknown(check: str, why: str, remarks: Sequence[str] = ()) -> Checked:
    """Return the result of a check that could not be made."""
    return Checked(check=check, status=Status.UNKNOWN, summary=why, remarks=list(remarks))


def _not_shown(missing: Sequence[Missing]) -> list[str]:
    """Return why parts of the check could not be made: a check that saw only a part must not succeed in silence."""
    return list(dict.fromkeys(one.why for one in missing))


def _lag_figures(report: LagReport, limits: LagLimits) -> list[Figure]:
    figures = [Figure(name="shards", value=len(report.shards))]
    if report.behind_s is not None:
        figures.append(
            Figure(
                name="behind",
                value=round(report.behind_s, 3),
                unit="s",
                warning=limits.warning_s,
                critical=limits.critical_s,
            )
        )
    if report.loses_in_s is not None:
        figures.append(
            Figure(
                name="loses_in",
                value=round(report.loses_in_s, 3),
                unit="s",
                warning=limits.loses_warning_s,
                critical=limits.loses_critical_s,
                low_is_bad=True,
            )
        )
    return figures


def _status_above(value: float, warning: float, critical: float) -> Status:
    return Status.CRITICAL if value > critical else Status.WARNING if value > warning else Status.OK


def _status_below(value: float, warning: float, critical: float) -> Status:
    return Status.CRITICAL if value < critical else Status.WARNING if value < warning else Status.OK
