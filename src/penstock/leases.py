"""Lease tables, by which the consumers of one application agree which of them reads which shard, and strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.public import loaded_from

if TYPE_CHECKING:
    from penstock.core.assignment.strategies import ByThroughput, EqualCounts, Fixed
    from penstock.core.leases.row import Checkpoint
    from penstock.runtime.shard.listener import Origin
    from penstock.stores.memory import MemoryLeaseTable
    from penstock.stores.postgres import PostgresLeaseTable
    from penstock.stores.sqlite import SqliteLeaseTable

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
    "ByThroughput": "penstock.core.assignment.strategies",
    "Checkpoint": "penstock.core.leases.row",
    "EqualCounts": "penstock.core.assignment.strategies",
    "Fixed": "penstock.core.assignment.strategies",
    "MemoryLeaseTable": "penstock.stores.memory",
    "Origin": "penstock.runtime.shard.listener",
    "PostgresLeaseTable": "penstock.stores.postgres",
    "SqliteLeaseTable": "penstock.stores.sqlite",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
