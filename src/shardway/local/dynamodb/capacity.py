"""What a call costs, in capacity units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardway.local.dynamodb.attribute_values import Item, item_bytes
from shardway.local.dynamodb.errors import constraint
from shardway.local.dynamodb.table import Index, Row, Table

WRITE_BYTES = 1024
READ_BYTES = 4096
_MODES = frozenset({"INDEXES", "TOTAL", "NONE"})


def wants_capacity(mode: str | None) -> bool:
    """Return whether a call wants to know its cost. Raises DynamoError for a mode that there is not."""
    if mode is not None and mode not in _MODES:
        raise constraint(mode, "returnConsumedCapacity", "satisfy enum value set: [INDEXES, TOTAL, NONE]")
    return mode in ("INDEXES", "TOTAL")


def write_units(size: int) -> float:
    """Return the units of a write; ``size`` is the larger of the item before and after."""
    return float(max(1, -(-size // WRITE_BYTES)))


def read_units(size: int, *, consistent: bool | None) -> float:
    """Return the units of a read of this many bytes."""
    units = max(1, -(-size // READ_BYTES))
    return float(units) if consistent else units / 2


def index_bytes(index: Index, table: Table, row: Row) -> int:
    """Return the bytes that a row takes in an index."""
    wanted = index.attributes(table.keys)
    if wanted is None:
        return row.size
    return item_bytes({name: value for name, value in row.item.items() if name in wanted})


def index_write_units(table: Table, old: Row | None, new: Row | None) -> dict[str, float]:
    """Return the units that the indexes took for a change of a row, for those that changed."""
    found: dict[str, float] = {}
    for index in table.indexes.values():
        before = None if old is None else index.position(old)
        after = None if new is None else index.position(new)
        units = 0.0
        if before is not None and before == after:
            assert old is not None
            assert new is not None
            if _projection(index, table, old.item) != _projection(index, table, new.item):
                units = write_units(max(index_bytes(index, table, old), index_bytes(index, table, new)))
        else:
            for row, position in ((old, before), (new, after)):
                if row is not None and position is not None:
                    units += write_units(index_bytes(index, table, row))
        if units:
            found[index.name] = units
    return found


def _projection(index: Index, table: Table, item: Item) -> Item:
    wanted = index.attributes(table.keys)
    return item if wanted is None else {name: value for name, value in item.items() if name in wanted}


class Cost:
    """What one call costs on one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.units = 0.0
        self.indexes: dict[str, float] = {}

    def add(self, units: float, indexes: Mapping[str, float] | None = None, *, times: float = 1.0) -> None:
        """Add units of the table and of its indexes."""
        self.units += units * times
        for name, more in (indexes or {}).items():
            self.indexes[name] = self.indexes.get(name, 0.0) + more * times

    def shown(self, mode: str | None, *, kind: str | None = None) -> dict[str, Any]:
        """Return the cost as the API writes it; ``kind`` is Read or Write in a transaction."""
        total = self.units + sum(self.indexes.values())
        found: dict[str, Any] = {"TableName": self.table.name, "CapacityUnits": total}
        if kind is not None:
            found[f"{kind}CapacityUnits"] = total
        if mode == "INDEXES":
            found["Table"] = _units(self.units, kind)
            for is_global, member in ((True, "GlobalSecondaryIndexes"), (False, "LocalSecondaryIndexes")):
                part = {
                    name: _units(units, kind)
                    for name, units in self.indexes.items()
                    if self.table.indexes[name].is_global == is_global
                }
                if part:
                    found[member] = part
        return found


def _units(units: float, kind: str | None) -> dict[str, float]:
    return {"CapacityUnits": units} | ({} if kind is None else {f"{kind}CapacityUnits": units})


def shown_costs(costs: Iterable[Cost], mode: str | None, *, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the costs of a call about several tables."""
    return [cost.shown(mode, kind=kind) for cost in costs]
