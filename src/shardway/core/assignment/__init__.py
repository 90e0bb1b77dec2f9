"""Assignment decides which worker reads which shard, and which leases there are, from what a worker sees, without any
I/O.
"""

from shardway.core.assignment.decide import Decision, Plan, decide, plan, receiver_for
from shardway.core.assignment.kcl import Coordination, Finding, Fleet, FleetWatch, Place
from shardway.core.assignment.strategies import (
    EQUAL_COUNTS,
    ByThroughput,
    Custom,
    EqualCounts,
    Fixed,
    LeaseView,
    Strategy,
    WorkerView,
    is_free,
    startable,
)
from shardway.core.assignment.upkeep import (
    Birth,
    HoleAudit,
    births,
    births_at_end,
    births_beyond_end,
    children_of,
    needs_search,
    served,
)

__all__ = [
    "EQUAL_COUNTS",
    "Birth",
    "ByThroughput",
    "Coordination",
    "Custom",
    "Decision",
    "EqualCounts",
    "Finding",
    "Fixed",
    "Fleet",
    "FleetWatch",
    "HoleAudit",
    "LeaseView",
    "Place",
    "Plan",
    "Strategy",
    "WorkerView",
    "births",
    "births_at_end",
    "births_beyond_end",
    "children_of",
    "decide",
    "is_free",
    "needs_search",
    "plan",
    "receiver_for",
    "served",
    "startable",
]
