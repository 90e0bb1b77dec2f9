"""The read model: what streams, shards and applications are like now, with what it cost to look.

An `Inspector` only reads, leaves most of each shard's calls to others, and needs no running Penstock application. The
command-line tools show this model and nothing else. `plan_seek` and `plan_import` only read too; `apply_plan` is what
writes. Names are loaded when first used, so that commands that look at
nothing start as fast as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.public import loaded_from

if TYPE_CHECKING:
    from penstock.inspect.applications import (
        ApplicationFound,
        ApplicationReport,
        ApplicationsReport,
        ApplicationView,
        LeaseView,
        TableView,
        WorkerView,
    )
    from penstock.inspect.applying import Applied, ChangedError, apply_plan, lease_table
    from penstock.inspect.checks import (
        Checked,
        Figure,
        LagLimits,
        Status,
        check_lag,
        check_leases,
        check_stream,
        unknown,
    )
    from penstock.inspect.costs import CostReport, Item, Leases, ModeCost, Prices, Saving, Traffic, cost_of, prices_from
    from penstock.inspect.decoding import Decoded, Step, decode
    from penstock.inspect.doctor import Confidence, DoctorReport, Finding, Severity, examine
    from penstock.inspect.heat import HeatReport, HotKey, ShardHeat
    from penstock.inspect.inspector import Inspector
    from penstock.inspect.plans import Goal, Life, Move, Plan, Seen, plan_import, plan_seek
    from penstock.inspect.positions import PositionsReport, PositionsSource, PositionView, positions_from, positions_of
    from penstock.inspect.records import CountReport, Reading, RecordLine, SeenRecord, ShardCount
    from penstock.inspect.registries import Registries
    from penstock.inspect.snapshots import AccountLimits, MetricsView, MetricView, Snapshot
    from penstock.inspect.tables import Store
    from penstock.inspect.values import (
        ConsumerView,
        CredentialsView,
        Missing,
        ShardLimits,
        ShardView,
        StreamFound,
        StreamReport,
        StreamsReport,
        StreamView,
    )
    from penstock.inspect.verdicts import Judged, LagReport, LagTimes, Look, ShardLag, State, judge

__all__ = [
    "AccountLimits",
    "ApplicationFound",
    "ApplicationReport",
    "ApplicationView",
    "ApplicationsReport",
    "Applied",
    "ChangedError",
    "Checked",
    "Confidence",
    "ConsumerView",
    "CostReport",
    "CountReport",
    "CredentialsView",
    "Decoded",
    "DoctorReport",
    "Figure",
    "Finding",
    "Goal",
    "HeatReport",
    "HotKey",
    "Inspector",
    "Item",
    "Judged",
    "LagLimits",
    "LagReport",
    "LagTimes",
    "LeaseView",
    "Leases",
    "Life",
    "Look",
    "MetricView",
    "MetricsView",
    "Missing",
    "ModeCost",
    "Move",
    "Plan",
    "PositionView",
    "PositionsReport",
    "PositionsSource",
    "Prices",
    "Reading",
    "RecordLine",
    "Registries",
    "Saving",
    "Seen",
    "SeenRecord",
    "Severity",
    "ShardCount",
    "ShardHeat",
    "ShardLag",
    "ShardLimits",
    "ShardView",
    "Snapshot",
    "State",
    "Status",
    "Step",
    "Store",
    "StreamFound",
    "StreamReport",
    "StreamView",
    "StreamsReport",
    "TableView",
    "Traffic",
    "WorkerView",
    "apply_plan",
    "check_lag",
    "check_leases",
    "check_stream",
    "cost_of",
    "decode",
    "examine",
    "judge",
    "lease_table",
    "plan_import",
    "plan_seek",
    "positions_from",
    "positions_of",
    "prices_from",
    "unknown",
]

_HOMES = {
    "AccountLimits": "penstock.inspect.snapshots",
    "ApplicationFound": "penstock.inspect.applications",
    "ApplicationReport": "penstock.inspect.applications",
    "ApplicationView": "penstock.inspect.applications",
    "ApplicationsReport": "penstock.inspect.applications",
    "Applied": "penstock.inspect.applying",
    "ChangedError": "penstock.inspect.applying",
    "Checked": "penstock.inspect.checks",
    "Confidence": "penstock.inspect.doctor",
    "ConsumerView": "penstock.inspect.values",
    "CostReport": "penstock.inspect.costs",
    "CountReport": "penstock.inspect.records",
    "CredentialsView": "penstock.inspect.values",
    "Decoded": "penstock.inspect.decoding",
    "DoctorReport": "penstock.inspect.doctor",
    "Figure": "penstock.inspect.checks",
    "Finding": "penstock.inspect.doctor",
    "Goal": "penstock.inspect.plans",
    "HeatReport": "penstock.inspect.heat",
    "HotKey": "penstock.inspect.heat",
    "Inspector": "penstock.inspect.inspector",
    "Item": "penstock.inspect.costs",
    "Judged": "penstock.inspect.verdicts",
    "LagLimits": "penstock.inspect.checks",
    "LagReport": "penstock.inspect.verdicts",
    "LagTimes": "penstock.inspect.verdicts",
    "LeaseView": "penstock.inspect.applications",
    "Leases": "penstock.inspect.costs",
    "Life": "penstock.inspect.plans",
    "Look": "penstock.inspect.verdicts",
    "MetricView": "penstock.inspect.snapshots",
    "MetricsView": "penstock.inspect.snapshots",
    "Missing": "penstock.inspect.values",
    "ModeCost": "penstock.inspect.costs",
    "Move": "penstock.inspect.plans",
    "Plan": "penstock.inspect.plans",
    "PositionView": "penstock.inspect.positions",
    "PositionsReport": "penstock.inspect.positions",
    "PositionsSource": "penstock.inspect.positions",
    "Prices": "penstock.inspect.costs",
    "Reading": "penstock.inspect.records",
    "RecordLine": "penstock.inspect.records",
    "Registries": "penstock.inspect.registries",
    "Saving": "penstock.inspect.costs",
    "Seen": "penstock.inspect.plans",
    "SeenRecord": "penstock.inspect.records",
    "Severity": "penstock.inspect.doctor",
    "ShardCount": "penstock.inspect.records",
    "ShardHeat": "penstock.inspect.heat",
    "ShardLag": "penstock.inspect.verdicts",
    "ShardLimits": "penstock.inspect.values",
    "ShardView": "penstock.inspect.values",
    "Snapshot": "penstock.inspect.snapshots",
    "State": "penstock.inspect.verdicts",
    "Status": "penstock.inspect.checks",
    "Step": "penstock.inspect.decoding",
    "Store": "penstock.inspect.tables",
    "StreamFound": "penstock.inspect.values",
    "StreamReport": "penstock.inspect.values",
    "StreamView": "penstock.inspect.values",
    "StreamsReport": "penstock.inspect.values",
    "TableView": "penstock.inspect.applications",
    "Traffic": "penstock.inspect.costs",
    "WorkerView": "penstock.inspect.applications",
    "apply_plan": "penstock.inspect.applying",
    "check_lag": "penstock.inspect.checks",
    "check_leases": "penstock.inspect.checks",
    "check_stream": "penstock.inspect.checks",
    "cost_of": "penstock.inspect.costs",
    "decode": "penstock.inspect.decoding",
    "examine": "penstock.inspect.doctor",
    "judge": "penstock.inspect.verdicts",
    "lease_table": "penstock.inspect.applying",
    "plan_import": "penstock.inspect.plans",
    "plan_seek": "penstock.inspect.plans",
    "positions_from": "penstock.inspect.positions",
    "positions_of": "penstock.inspect.positions",
    "prices_from": "penstock.inspect.costs",
    "unknown": "penstock.inspect.checks",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
