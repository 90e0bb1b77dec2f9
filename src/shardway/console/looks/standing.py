"""How an application stands, as the overview orders and colours it: by the verdict, and by the part of the retention
that its lag has used up.

A lag is urgent by what is left until the retention removes unread records, not by its seconds: with a retention of a
day, every application has less than a day left.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from shardway.inspect.lag.reports import CRITICAL_OF_RETENTION, OK_S, STEADY, WARNING_OF_RETENTION, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.inspect import LagReport


USED_BAD, USED_WARN = CRITICAL_OF_RETENTION, WARNING_OF_RETENTION
"""Parts of the retention that a lag has used: from the first on the page warns in red, from the second on in yellow.
The alarms that Shardway's guides set up have the same two steps.
"""
_SICK = {
    State.GONE, State.UNOWNED, State.STOPPED, State.REWOUND, State.STALLED, State.FAR_BEHIND, State.FALLING_BEHIND,
}  # fmt: skip
_WELL_STATES = {State.OK, State.ENDED, State.CATCHING_UP}


class Urgency(IntEnum):
    """How much an application needs its operator, the most last."""

    WELL = 0
    OPEN = 1
    """Nothing is known of it yet."""
    WATCH = 2
    SICK = 3


class Standing(NamedTuple):
    """How one application stands on one stream."""

    need: Urgency
    used: float | None
    """The part of the retention that the worst shard's lag has used, from 0 to 1; None: it is not known."""
    slope: float | None
    """How many seconds the worst shard's lag grows in each second; None: no trend is known yet."""
    rank: int
    """The place of the verdict among all verdicts, the worst the largest."""

    @property
    def colour(self) -> str:
        """The class of the verdict's colour."""
        return {Urgency.WELL: "good", Urgency.OPEN: "open", Urgency.WATCH: "warn", Urgency.SICK: "bad"}[self.need]

    @property
    def used_colour(self) -> str:
        """The class of the colour of what is left until the loss of data; empty on a good day."""
        if self.used is None or self.used < USED_WARN:
            return ""
        return "loses" if self.used >= USED_BAD else "nears"

    @property
    def trend(self) -> tuple[str, str] | None:
        """An arrow and its meaning in words; None: no trend is known yet."""
        if self.slope is None:
            return None
        if abs(self.slope) < STEADY:
            return "→", "the lag stays"
        told = f"{abs(self.slope):.2f} s each second"
        return ("↗", f"the lag grows by {told}") if self.slope > 0 else ("↘", f"the lag shrinks by {told}")


NOT_SEEN = Standing(Urgency.OPEN, None, None, -1)
"""The standing of an application whose lag was not looked at yet."""


def standing_of(report: LagReport | None) -> Standing:
    """Return how the application of a report stands."""
    if report is None:
        return NOT_SEEN
    used = _used_retention(report)
    need = need_of(report.state, report.behind_s)
    if used is not None and used >= USED_WARN:
        need = max(need, Urgency.SICK if used >= USED_BAD else Urgency.WATCH)
    slopes = [one.slope for one in report.shards if one.slope is not None]
    order = list(State)
    return Standing(need, used, max(slopes, default=None), order.index(report.state))


def need_of(state: State, behind_s: float | None) -> Urgency:
    """Return how much a shard or an application with this verdict needs its operator. A verdict that is not known yet
    calls for a watch where records wait: that is how a handler that hangs looks at first.
    """
    if state in _SICK:
        return Urgency.SICK
    if state in _WELL_STATES:
        return Urgency.WELL
    if state is State.UNKNOWN:
        return Urgency.OPEN if behind_s is None or behind_s <= OK_S else Urgency.WATCH
    return Urgency.WATCH


def _used_retention(report: LagReport) -> float | None:
    """Return the largest part of the retention that any shard has used; None: no shard shows it."""
    if any(one.may_have_lost for one in report.shards):
        return 1.0
    parts = [
        one.behind_s / (one.behind_s + one.loses_in_s)
        for one in report.shards
        if one.behind_s is not None and one.loses_in_s is not None and one.behind_s + one.loses_in_s > 0
    ]
    return max(parts, default=None)


class Totals(NamedTuple):
    """What the head of the overview counts."""

    applications: int
    sick: int
    watch: int
    well: int
    open: int
    behind_s: float | None
    """The longest lag of all applications."""
    loses_in_s: float | None
    """The shortest time until any application loses data."""
    colour: str
    """The class of the colour of the shortest time."""


def totals_of(seen: Iterable[tuple[Standing, LagReport | None]]) -> Totals:
    """Return the counts of all applications."""
    found = list(seen)
    needs = [standing.need for standing, _ in found]
    reports = [report for _, report in found if report is not None]
    colours = {standing.used_colour for standing, _ in found}
    return Totals(
        applications=len(found),
        sick=needs.count(Urgency.SICK),
        watch=needs.count(Urgency.WATCH),
        well=needs.count(Urgency.WELL),
        open=needs.count(Urgency.OPEN),
        behind_s=max((one.behind_s for one in reports if one.behind_s is not None), default=None),
        loses_in_s=min((one.loses_in_s for one in reports if one.loses_in_s is not None), default=None),
        colour=next((one for one in ("loses", "nears") if one in colours), ""),
    )
