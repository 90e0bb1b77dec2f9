"""Lease tables, where the consumers of one application agree which of them reads which shard, and strategies."""

from __future__ import annotations

from shardway.public import loaded_from

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

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
