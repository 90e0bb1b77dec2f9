# Written by scripts/stubs.py from the list in leases.py.

from shardway.core.assignment.strategies import ByThroughput as ByThroughput
from shardway.core.assignment.strategies import EqualCounts as EqualCounts
from shardway.core.assignment.strategies import Fixed as Fixed
from shardway.core.leases.checkpoint import Checkpoint as Checkpoint
from shardway.runtime.shard.listener import Origin as Origin
from shardway.stores.memory import MemoryLeaseTable as MemoryLeaseTable
from shardway.stores.postgres import PostgresLeaseTable as PostgresLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable as SqliteLeaseTable

__all__ = [
    "ByThroughput",
    "Checkpoint",
    "EqualCounts",
    "Fixed",
    "MemoryLeaseTable",
    "Origin",
    "PostgresLeaseTable",
    "SqliteLeaseTable",
]
