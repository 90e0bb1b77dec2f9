"""The read model says what streams, shards and applications are like now, and what calls the look has cost.

An `Inspector` only reads, leaves most of each shard's calls to other readers, and needs no running Shardway
application. The command-line tools show this model and nothing else. `plan_seek` and `plan_import` only read too;
`apply_plan` is what writes. A name is loaded when a program first uses it, so that commands that need no inspection
start as fast as without this package.

Read ``values`` and ``inspector`` first; ``reads`` is below them. ``applications``, ``lag``, ``heat`` and ``records``
are what an inspector reports. ``doctor``, ``checks`` and ``costs`` draw conclusions, ``moves`` changes positions, and
``jobs`` looks at Spark. ``moments`` and ``filters`` read what the caller writes.
"""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "AccountLimits": "shardway.inspect.doctor.snapshots",
    "ApplicationFound": "shardway.inspect.applications.views",
    "ApplicationReport": "shardway.inspect.applications.views",
    "ApplicationView": "shardway.inspect.applications.views",
    "ApplicationsReport": "shardway.inspect.applications.views",
    "Applied": "shardway.inspect.moves.applying",
    "ChangedError": "shardway.inspect.moves.applying",
    "Checked": "shardway.inspect.checks",
    "Confidence": "shardway.inspect.doctor.findings",
    "ConsumerView": "shardway.inspect.values",
    "CostReport": "shardway.inspect.costs.reports",
    "CountReport": "shardway.inspect.records.reader",
    "CredentialsView": "shardway.inspect.values",
    "Decoded": "shardway.inspect.records.decoding",
    "DoctorReport": "shardway.inspect.doctor.findings",
    "Figure": "shardway.inspect.checks",
    "Finding": "shardway.inspect.doctor.findings",
    "Goal": "shardway.inspect.moves.plans",
    "HeatReport": "shardway.inspect.heat",
    "HotKey": "shardway.inspect.heat",
    "Inspector": "shardway.inspect.inspector",
    "Item": "shardway.inspect.costs.items",
    "JobBatch": "shardway.inspect.jobs.views",
    "JobExpectation": "shardway.inspect.jobs.views",
    "JobLook": "shardway.inspect.jobs.views",
    "JobState": "shardway.inspect.jobs.views",
    "JobStream": "shardway.inspect.jobs.views",
    "JobVerdict": "shardway.inspect.jobs.views",
    "JobView": "shardway.inspect.jobs.views",
    "JobsReport": "shardway.inspect.jobs.views",
    "Judged": "shardway.inspect.lag.reports",
    "LagLimits": "shardway.inspect.checks",
    "LagReport": "shardway.inspect.lag.reports",
    "LagTimes": "shardway.inspect.lag.reports",
    "LeaseView": "shardway.inspect.applications.views",
    "Leases": "shardway.inspect.costs.traffic",
    "Life": "shardway.inspect.moves.plans",
    "Look": "shardway.inspect.lag.reports",
    "LossRisk": "shardway.inspect.lag.reports",
    "MetricView": "shardway.inspect.doctor.snapshots",
    "MetricsView": "shardway.inspect.doctor.snapshots",
    "Missing": "shardway.inspect.values",
    "ModeCost": "shardway.inspect.costs.reports",
    "Move": "shardway.inspect.moves.plans",
    "NotLookedFor": "shardway.inspect.doctor.findings",
    "Plan": "shardway.inspect.moves.plans",
    "PositionView": "shardway.inspect.moves.positions",
    "PositionsReport": "shardway.inspect.moves.positions",
    "PositionsSource": "shardway.inspect.moves.positions",
    "Prices": "shardway.inspect.costs.prices",
    "QueryPosition": "shardway.inspect.applications.views",
    "Reading": "shardway.inspect.records.reader",
    "RecordLine": "shardway.inspect.records.seen_records",
    "Registries": "shardway.inspect.records.registries",
    "Renewals": "shardway.inspect.checks",
    "Saving": "shardway.inspect.costs.reports",
    "Seen": "shardway.inspect.moves.plans",
    "SeenRecord": "shardway.inspect.records.seen_records",
    "Severity": "shardway.inspect.doctor.findings",
    "ShardCount": "shardway.inspect.records.reader",
    "ShardHeat": "shardway.inspect.heat",
    "ShardLag": "shardway.inspect.lag.reports",
    "ShardLimits": "shardway.inspect.values",
    "ShardView": "shardway.inspect.values",
    "Skip": "shardway.inspect.moves.skipping",
    "Snapshot": "shardway.inspect.doctor.snapshots",
    "State": "shardway.inspect.lag.reports",
    "Status": "shardway.inspect.checks",
    "Step": "shardway.inspect.records.decoding",
    "Store": "shardway.inspect.applications.stores",
    "StreamFound": "shardway.inspect.values",
    "StreamReport": "shardway.inspect.values",
    "StreamView": "shardway.inspect.values",
    "StreamsReport": "shardway.inspect.values",
    "TableView": "shardway.inspect.applications.views",
    "Traffic": "shardway.inspect.costs.traffic",
    "WorkerView": "shardway.inspect.applications.views",
    "apply_plan": "shardway.inspect.moves.applying",
    "check_lag": "shardway.inspect.checks",
    "check_leases": "shardway.inspect.checks",
    "check_stream": "shardway.inspect.checks",
    "cost_of": "shardway.inspect.costs.reports",
    "decode": "shardway.inspect.records.decoding",
    "examine": "shardway.inspect.doctor.examination",
    "jobs_at": "shardway.inspect.jobs.jobs",
    "judge": "shardway.inspect.lag.verdicts",
    "judge_job": "shardway.inspect.jobs.verdicts",
    "lease_table": "shardway.inspect.moves.applying",
    "look_for_renewals": "shardway.inspect.checks",
    "plan_import": "shardway.inspect.moves.planning",
    "plan_seek": "shardway.inspect.moves.planning",
    "plan_skip": "shardway.inspect.moves.skipping",
    "positions_from": "shardway.inspect.moves.documents",
    "positions_of": "shardway.inspect.moves.positions",
    "prices_from": "shardway.inspect.costs.prices",
    "unknown": "shardway.inspect.checks",
}
"""The module of each public name. A use of the name loads this module, and no other."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
