"""How far an application is behind, as lines of text: the worst shard first, in the colours of its verdict."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from shardway.cli.tables import Line, table_lines
from shardway.inspect.moments import counted, span_text
from shardway.shown import one_line

if TYPE_CHECKING:
    from shardway.inspect import LagReport, ShardLag

RED, YELLOW, GREEN, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"
HEAD = ("SHARD", "VERDICT", "BEHIND", "LOSES DATA IN", "OWNER", "WHY")
HEAD_WITH_TREND = ("SHARD", "VERDICT", "BEHIND", "TREND", "LOSES DATA IN", "OWNER", "WHY")
COLOURS = {
    "ok": GREEN, "ended": GREEN, "catching up": GREEN, "steady": YELLOW, "not known yet": YELLOW, "far behind": YELLOW,
    "falling behind": YELLOW,
}  # fmt: skip
"""The colours of verdicts. One that is not named here is bad, and red."""


def headline(report: LagReport) -> str:
    """Return the line that says of an application what counts: the worst verdict, how far it is behind, and the time
    until it loses records.
    """
    behind = "" if report.behind_s is None else f", {span_text(report.behind_s)} behind"
    loses = "" if report.loses_in_s is None else f", loses data in {span_text(report.loses_in_s)}"
    not_known = "" if not report.not_known else f", of {counted(report.not_known, 'shard')} it is not known"
    return one_line(f"{report.application} on {report.stream}: {report.state.value}{behind}{loses}{not_known}")


def lag_lines(report: LagReport, columns: int | None, *, trend: bool = False) -> list[Line]:
    """Return the lines of the table of a report, the worst shard first. ``columns``: the width that they are to fit."""
    rows: list[tuple[Any, ...]] = [
        (one, "unowned", None, *[None] * trend, None, None, "there is no lease for this open shard")
        for one in report.without_lease
    ]
    rows += [_row(one, trend=trend) for one in report.shards]
    verdicts = [str(row[1]) for row in rows]
    lines = table_lines(HEAD_WITH_TREND if trend else HEAD, rows, columns)
    return [one if one.row is None else one._replace(tone=COLOURS.get(verdicts[one.row], RED)) for one in lines]


def painted(line: Line) -> str:
    """Return a line in its colour, where standard output is a terminal that is to have colours (``NO_COLOR``)."""
    if not line.tone or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return line.text
    return f"{line.tone}{line.text}{PLAIN}"


def _row(one: ShardLag, *, trend: bool) -> tuple[Any, ...]:
    slope = None if one.slope is None else f"{one.slope:+.2f} s/s"
    loses = "may have lost" if one.may_have_lost else None if one.loses_in_s is None else span_text(one.loses_in_s)
    behind = None if one.behind_s is None else ("" if one.exact else "up to ") + span_text(one.behind_s)
    return one.shard_id, one.state.value, behind, *[slope] * trend, loses, one.owner, one.why
