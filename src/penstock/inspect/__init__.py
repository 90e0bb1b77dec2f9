"""The read model: what streams, shards and applications are like now, with what it cost to look.

It only reads, it leaves most of each shard's calls to others, and it needs no running Penstock application. The
command-line tools show this model and nothing else.
"""

from penstock.inspect.applications import (
    ApplicationFound,
    ApplicationReport,
    ApplicationsReport,
    ApplicationView,
    LeaseView,
    TableView,
    WorkerView,
)
from penstock.inspect.checks import Checked, Figure, LagLimits, Status, check_lag, check_leases, check_stream, unknown
from penstock.inspect.decoding import Decoded, Step, decode
from penstock.inspect.doctor import Confidence, DoctorReport, Finding, Severity, Snapshot, examine
from penstock.inspect.heat import HeatReport, HotKey, ShardHeat
from penstock.inspect.inspector import Inspector
from penstock.inspect.positions import PositionsReport, PositionsSource, PositionView
from penstock.inspect.records import CountReport, Reading, RecordLine, SeenRecord, ShardCount
from penstock.inspect.tables import Store
from penstock.inspect.values import (
    ConsumerView,
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
    "ApplicationFound",
    "ApplicationReport",
    "ApplicationView",
    "ApplicationsReport",
    "Checked",
    "Confidence",
    "ConsumerView",
    "CountReport",
    "Decoded",
    "DoctorReport",
    "Figure",
    "Finding",
    "HeatReport",
    "HotKey",
    "Inspector",
    "Judged",
    "LagLimits",
    "LagReport",
    "LagTimes",
    "LeaseView",
    "Look",
    "Missing",
    "PositionView",
    "PositionsReport",
    "PositionsSource",
    "Reading",
    "RecordLine",
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
    "WorkerView",
    "check_lag",
    "check_leases",
    "check_stream",
    "decode",
    "examine",
    "judge",
    "unknown",
]
