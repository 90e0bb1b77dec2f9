"""Make of reports what a monitoring system wants: one of four statuses, a line for people, figures with thresholds.

The statuses and the line are those of Nagios' plugins, which many systems read.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.inspect.lag import State
from penstock.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.inspect.applications import ApplicationView
    from penstock.inspect.lag import LagReport
    from penstock.inspect.values import Missing, StreamReport

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

    schema: str = "penstock.check/1"
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
            found.append(_above(shard.behind_s, limits.warning_s, limits.critical_s))
        if shard.loses_in_s is not None:
            found.append(_below(shard.loses_in_s, limits.loses_warning_s, limits.loses_critical_s))
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


def check_leases(application: ApplicationView, missing: Sequence[Missing] = ()) -> Checked:
    """Check whether a worker has each lease, and whether each row can be read. ``missing``: what the application's
    report does not show.
    """
    if not application.listed:
        return unknown("leases", f"{application.name}: the leases are not shown", _not_shown(missing))
    free = [one.shard_id for one in application.leases if one.owner is None and one.query is None and not one.ended]
    held = sum(one.owner is not None and not one.ended for one in application.leases)
    remarks = [f"{one}: no worker has it" for one in free]
    remarks += [f"{key}: {why}" for key, why in application.unreadable.items()]
    if not application.leases:
        remarks.append("there are no leases")
    workers = len([one for one in application.workers if one.leases])
    return Checked(
        check="leases",
        status=Status.CRITICAL if remarks else Status.OK,
        summary=f"{application.name}: {held} leases held by {workers} workers",
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
        remarks.append(f"no open shard takes {len(report.holes)} ranges of hash keys")
    for one in report.consumers or ():
        if one.status != "ACTIVE":
            status = max(status, Status.WARNING)
            remarks.append(f"the consumer {one.name} is {one.status}")
    open_shards = sum(one.open for one in report.shards)
    return Checked(
        check="stream",
        status=status,
        summary=f"{report.name}: {view.status}, {open_shards} open shards",
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


def _above(value: float, warning: float, critical: float) -> Status:
    return Status.CRITICAL if value > critical else Status.WARNING if value > warning else Status.OK


def _below(value: float, warning: float, critical: float) -> Status:
    return Status.CRITICAL if value < critical else Status.WARNING if value < warning else Status.OK
