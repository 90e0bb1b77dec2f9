"""Checks: the worst of all shards counts, and the line is one that monitoring systems read."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from shardway.core.leases import LeaseRow
from shardway.inspect import (
    ApplicationView,
    LagLimits,
    LagReport,
    Renewals,
    ShardLag,
    State,
    WorkerView,
    check_lag,
    check_leases,
)
from shardway.inspect.applications.views import lease_view
from shardway.inspect.checks import Figure, Status
from shardway.inspect.lag.reports import worst
from shardway.inspect.moments import utc

LIMITS = LagLimits(warning_s=60, critical_s=600, loses_warning_s=7200, loses_critical_s=3600)
FIGURE = r"\w+=[\d.e+]+s?(;[\d.]*:?){0,2}"
LINE = re.compile(rf"[A-Z]+ (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n]+( \| {FIGURE}( {FIGURE})*)?")


def shard(number: int = 0, **more: Any) -> ShardLag:
    values: dict[str, Any] = {
        "lease": f"shard-{number}", "shard_id": f"shard-{number}", "owner": "w1", "state": State.OK, "why": "because",
        "checkpoint": "1", "sub_sequence_number": 0, "behind_s": 0.0, "exact": True, "slope": None, "left_s": None,
        "loses_in_s": None, "may_have_lost": False,
    }  # fmt: skip
    return ShardLag(**{**values, **more})


def report(*shards: ShardLag, without_lease: tuple[str, ...] = ()) -> LagReport:
    behind = [one.behind_s for one in shards if one.behind_s is not None]
    return LagReport(
        application="billing", stream="orders", taken_at=utc(0), window_s=0.0,
        state=worst([one.state for one in shards]),
        behind_s=max(behind, default=None), loses_in_s=None, shards=list(shards), without_lease=list(without_lease),
        missing=[], calls={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (report(shard()), Status.OK),
        (report(shard(behind_s=60.0)), Status.OK),
        (report(shard(behind_s=61.0, state=State.UNKNOWN)), Status.WARNING),
        (report(shard(behind_s=601.0, state=State.CATCHING_UP)), Status.CRITICAL),
        (report(shard(behind_s=30.0, state=State.FALLING_BEHIND)), Status.WARNING),
        (report(shard(behind_s=50.0, state=State.FAR_BEHIND)), Status.WARNING),
        (report(shard(state=State.STOPPED)), Status.CRITICAL),
        (report(shard(state=State.UNOWNED, behind_s=None)), Status.CRITICAL),
        (report(shard(), shard(1, state=State.STALLED, behind_s=30.0)), Status.CRITICAL),
        (report(shard(loses_in_s=7000.0)), Status.WARNING),
        (report(shard(loses_in_s=3000.0)), Status.CRITICAL),
        (report(shard(may_have_lost=True)), Status.CRITICAL),
        (report(shard(), without_lease=("shard-1",)), Status.CRITICAL),
        (report(shard(behind_s=None, state=State.UNKNOWN)), Status.UNKNOWN),
        (report(shard(behind_s=None, state=State.UNKNOWN), shard(1, behind_s=61.0)), Status.WARNING),
        (report(shard(behind_s=None, state=State.ENDED)), Status.OK),
        (report(), Status.OK),
    ],
)
def test_the_status_of_a_lag(found: LagReport, status: Status) -> None:
    checked = check_lag(found, LIMITS)
    assert checked.status is status
    assert (checked.remarks == []) == (status is Status.OK)
    assert LINE.fullmatch(checked.line), checked.line


def test_the_line_names_some_shards_and_counts_the_others() -> None:
    checked = check_lag(report(*(shard(number, state=State.STOPPED, why="a|b") for number in range(9))), LIMITS)
    assert checked.line.startswith(
        "LAG CRITICAL - billing on orders: stopped, 0 s behind; shard-0: stopped, a/b; shard-1"
    )
    assert checked.line.endswith("; and 4 more | shards=9 behind=0s;60;600")
    assert msgspec.json.decode(msgspec.json.encode(checked))["status"] == 2


def test_figures_have_the_thresholds_that_decide_and_say_on_which_side_of_them_it_is_bad() -> None:
    low = Figure(name="loses_in", value=7200.0, unit="s", warning=43_200.0, critical=21_600.0, low_is_bad=True)
    assert low.text == "loses_in=7200s;43200:;21600:"
    assert Figure(name="free", value=1, critical=0).text == "free=1;;0"
    assert Figure(name="held", value=1_000_000).text == "held=1000000"
    assert Figure(name="behind", value=1.0, unit="s", warning=1_234_567.0).text == "behind=1s;1234567"


# --- signs of life --------------------------------------------------------------------------------


def application(counter: int = 1, *, owner: str | None = "w1", worker: WorkerView | None = None) -> ApplicationView:
    row = lease_view(LeaseRow(key="shard-0", owner=owner, counter=counter))
    workers = [worker or WorkerView(worker_id="w1", leases=1, kind="kcl")]
    return ApplicationView(
        name="billing", store="dynamodb", kinds=[], streams=[], leases=[row], workers=workers, unreadable={},
        other_rows=[], client_version=None, table_migration=None, tables=[],
    )  # fmt: skip


def of_shardway(written_s: float | None, failover_s: float = 10.0) -> WorkerView:
    return WorkerView(
        worker_id="w1",
        leases=1,
        kind="shardway",
        failover_s=failover_s,
        updated_at=None if written_s is None else utc(written_s),
    )


@pytest.mark.parametrize(
    ("looks", "status"),
    [
        ([(0.0, application(1))], Status.UNKNOWN),
        ([(0.0, application(1)), (3.0, application(2))], Status.OK),
        ([(0.0, application(1)), (20.0, application(1))], Status.UNKNOWN),
        ([(0.0, application(1)), (21.0, application(1))], Status.CRITICAL),
        ([(0.0, application(1)), (3.0, application(2)), (30.0, application(2))], Status.CRITICAL),
        ([(0.0, application(1)), (21.0, application(1, owner="w2"))], Status.OK),
        ([(1000.0, application(worker=of_shardway(990.0)))], Status.OK),
        ([(1000.0, application(worker=of_shardway(979.0)))], Status.CRITICAL),
        ([(1000.0, application(worker=of_shardway(979.0, failover_s=20.0)))], Status.OK),
        ([(1000.0, application(worker=of_shardway(None)))], Status.UNKNOWN),
        ([(1000.0, application(worker=of_shardway(2000.0)))], Status.OK),
        ([(0.0, application(owner=None))], Status.CRITICAL),
    ],
)
def test_an_owner_counts_only_while_it_gives_signs_of_life(
    looks: list[tuple[float, ApplicationView]], status: Status
) -> None:
    renewals = Renewals()
    for at_s, seen in looks:
        renewals.see(seen, at_s)
    checked = check_leases(looks[-1][1], renewals=renewals)
    assert checked.status is status
    assert (checked.remarks == []) == (status is Status.OK)
    assert LINE.fullmatch(checked.line), checked.line
