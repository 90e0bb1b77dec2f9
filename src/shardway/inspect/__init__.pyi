# Written by scripts/stubs.py from the list in __init__.py.

from shardway.inspect.applications.stores import Store as Store
from shardway.inspect.applications.views import ApplicationFound as ApplicationFound
from shardway.inspect.applications.views import ApplicationReport as ApplicationReport
from shardway.inspect.applications.views import ApplicationsReport as ApplicationsReport
from shardway.inspect.applications.views import ApplicationView as ApplicationView
from shardway.inspect.applications.views import LeaseView as LeaseView
from shardway.inspect.applications.views import QueryPosition as QueryPosition
from shardway.inspect.applications.views import TableView as TableView
from shardway.inspect.applications.views import WorkerView as WorkerView
from shardway.inspect.checks import Checked as Checked
from shardway.inspect.checks import Figure as Figure
from shardway.inspect.checks import LagLimits as LagLimits
from shardway.inspect.checks import Renewals as Renewals
from shardway.inspect.checks import Status as Status
from shardway.inspect.checks import check_lag as check_lag
from shardway.inspect.checks import check_leases as check_leases
from shardway.inspect.checks import check_stream as check_stream
from shardway.inspect.checks import look_for_renewals as look_for_renewals
from shardway.inspect.checks import unknown as unknown
from shardway.inspect.costs.items import Item as Item
from shardway.inspect.costs.prices import Prices as Prices
from shardway.inspect.costs.prices import prices_from as prices_from
from shardway.inspect.costs.reports import CostReport as CostReport
from shardway.inspect.costs.reports import ModeCost as ModeCost
from shardway.inspect.costs.reports import Saving as Saving
from shardway.inspect.costs.reports import cost_of as cost_of
from shardway.inspect.costs.traffic import Leases as Leases
from shardway.inspect.costs.traffic import Traffic as Traffic
from shardway.inspect.doctor.examination import examine as examine
from shardway.inspect.doctor.findings import Confidence as Confidence
from shardway.inspect.doctor.findings import DoctorReport as DoctorReport
from shardway.inspect.doctor.findings import Finding as Finding
from shardway.inspect.doctor.findings import NotLookedFor as NotLookedFor
from shardway.inspect.doctor.findings import Severity as Severity
from shardway.inspect.doctor.snapshots import AccountLimits as AccountLimits
from shardway.inspect.doctor.snapshots import MetricsView as MetricsView
from shardway.inspect.doctor.snapshots import MetricView as MetricView
from shardway.inspect.doctor.snapshots import Snapshot as Snapshot
from shardway.inspect.heat import HeatReport as HeatReport
from shardway.inspect.heat import HotKey as HotKey
from shardway.inspect.heat import ShardHeat as ShardHeat
from shardway.inspect.inspector import Inspector as Inspector
from shardway.inspect.jobs.jobs import jobs_at as jobs_at
from shardway.inspect.jobs.verdicts import judge_job as judge_job
from shardway.inspect.jobs.views import JobBatch as JobBatch
from shardway.inspect.jobs.views import JobExpectation as JobExpectation
from shardway.inspect.jobs.views import JobLook as JobLook
from shardway.inspect.jobs.views import JobsReport as JobsReport
from shardway.inspect.jobs.views import JobState as JobState
from shardway.inspect.jobs.views import JobStream as JobStream
from shardway.inspect.jobs.views import JobVerdict as JobVerdict
from shardway.inspect.jobs.views import JobView as JobView
from shardway.inspect.lag.reports import Judged as Judged
from shardway.inspect.lag.reports import LagReport as LagReport
from shardway.inspect.lag.reports import LagTimes as LagTimes
from shardway.inspect.lag.reports import Look as Look
from shardway.inspect.lag.reports import LossRisk as LossRisk
from shardway.inspect.lag.reports import ShardLag as ShardLag
from shardway.inspect.lag.reports import State as State
from shardway.inspect.lag.verdicts import judge as judge
from shardway.inspect.moves.applying import Applied as Applied
from shardway.inspect.moves.applying import ChangedError as ChangedError
from shardway.inspect.moves.applying import apply_plan as apply_plan
from shardway.inspect.moves.applying import lease_table as lease_table
from shardway.inspect.moves.documents import positions_from as positions_from
from shardway.inspect.moves.planning import plan_import as plan_import
from shardway.inspect.moves.planning import plan_seek as plan_seek
from shardway.inspect.moves.plans import Goal as Goal
from shardway.inspect.moves.plans import Life as Life
from shardway.inspect.moves.plans import Move as Move
from shardway.inspect.moves.plans import Plan as Plan
from shardway.inspect.moves.plans import Seen as Seen
from shardway.inspect.moves.positions import PositionsReport as PositionsReport
from shardway.inspect.moves.positions import PositionsSource as PositionsSource
from shardway.inspect.moves.positions import PositionView as PositionView
from shardway.inspect.moves.positions import positions_of as positions_of
from shardway.inspect.moves.skipping import Skip as Skip
from shardway.inspect.moves.skipping import plan_skip as plan_skip
from shardway.inspect.records.decoding import Decoded as Decoded
from shardway.inspect.records.decoding import Step as Step
from shardway.inspect.records.decoding import decode as decode
from shardway.inspect.records.reader import CountReport as CountReport
from shardway.inspect.records.reader import Reading as Reading
from shardway.inspect.records.reader import ShardCount as ShardCount
from shardway.inspect.records.registries import Registries as Registries
from shardway.inspect.records.seen_records import RecordLine as RecordLine
from shardway.inspect.records.seen_records import SeenRecord as SeenRecord
from shardway.inspect.values import ConsumerView as ConsumerView
from shardway.inspect.values import CredentialsView as CredentialsView
from shardway.inspect.values import Missing as Missing
from shardway.inspect.values import ShardLimits as ShardLimits
from shardway.inspect.values import ShardView as ShardView
from shardway.inspect.values import StreamFound as StreamFound
from shardway.inspect.values import StreamReport as StreamReport
from shardway.inspect.values import StreamsReport as StreamsReport
from shardway.inspect.values import StreamView as StreamView

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
    "JobBatch",
    "JobExpectation",
    "JobLook",
    "JobState",
    "JobStream",
    "JobVerdict",
    "JobView",
    "JobsReport",
    "Judged",
    "LagLimits",
    "LagReport",
    "LagTimes",
    "LeaseView",
    "Leases",
    "Life",
    "Look",
    "LossRisk",
    "MetricView",
    "MetricsView",
    "Missing",
    "ModeCost",
    "Move",
    "NotLookedFor",
    "Plan",
    "PositionView",
    "PositionsReport",
    "PositionsSource",
    "Prices",
    "QueryPosition",
    "Reading",
    "RecordLine",
    "Registries",
    "Renewals",
    "Saving",
    "Seen",
    "SeenRecord",
    "Severity",
    "ShardCount",
    "ShardHeat",
    "ShardLag",
    "ShardLimits",
    "ShardView",
    "Skip",
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
    "jobs_at",
    "judge",
    "judge_job",
    "lease_table",
    "look_for_renewals",
    "plan_import",
    "plan_seek",
    "plan_skip",
    "positions_from",
    "positions_of",
    "prices_from",
    "unknown",
]
