"""Lease tables, by which the consumers of one application agree which of them reads which shard, and strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.public import loaded_from

if TYPE_CHECKING:
    from shardway.core.assignment.strategies import ByThroughput, EqualCounts, Fixed
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.runtime.shard.listener import Origin
    from shardway.stores.memory import MemoryLeaseTable
    from shardway.stores.postgres import PostgresLeaseTable
    from shardway.stores.sqlite import SqliteLeaseTable

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

_HOMES = {
    "ByThroughput": "shardway.core.assignment.strategies",
    "Checkpoint": "shardway.core.leases.checkpoint",
    "EqualCounts": "shardway.core.assignment.strategies",
    "Fixed": "shardway.core.assignment.strategies",
    "MemoryLeaseTable": "shardway.stores.memory",
    "Origin": "shardway.runtime.shard.listener",
    "PostgresLeaseTable": "shardway.stores.postgres",
    "SqliteLeaseTable": "shardway.stores.sqlite",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
