"""A table: its rows in order, its indexes, and what was set up for it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from shardway.local.dynamodb.attribute_values import Item
from shardway.local.dynamodb.errors import DynamoError
from shardway.local.dynamodb.keys import KeySchema, Position

PAY_PER_REQUEST = "PAY_PER_REQUEST"
PROVISIONED = "PROVISIONED"


class Row:
    """An item that is stored. It is replaced, and never changed."""

    __slots__ = ("item", "position", "size")

    def __init__(self, item: Item, size: int, position: Position) -> None:
        self.item = item
        self.size = size
        self.position = position


class Rows:
    """Rows by their position, in its order."""

    def __init__(self) -> None:
        self.positions: list[Position] = []
        self._rows: dict[Position, Row] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def get(self, position: Position) -> Row | None:
        """Return the row that lies there."""
        return self._rows.get(position)

    def at(self, index: int) -> Row:
        """Return the row with this number in the order."""
        return self._rows[self.positions[index]]

    def put(self, position: Position, row: Row) -> None:
        """Put a row, in place of the one that lies there."""
        old = self._rows.get(position)
        if old is None:
            insort(self.positions, position)
        else:
            self.size -= old.size
        self._rows[position] = row
        self.size += row.size

    def remove(self, position: Position) -> None:
        """Remove the row that lies there."""
        self.size -= self._rows.pop(position).size
        del self.positions[bisect_left(self.positions, position)]


class Index:
    """A secondary index. It holds the rows that have its whole key, and shows the attributes that it projects."""

    def __init__(self, name: str, keys: KeySchema, projection: dict[str, Any], *, is_global: bool = True) -> None:
        self.name = name
        self.keys = keys
        self.projection = projection
        self.is_global = is_global
        self.throughput: dict[str, int] | None = None
        self.ready_at_s = 0.0
        """When the index is made, in the service's time."""
        self.rows = Rows()

    def attributes(self, base: KeySchema) -> frozenset[str] | None:
        """Return the names of the attributes that it projects; None: all."""
        if self.projection["ProjectionType"] == "ALL":
            return None
        return frozenset((*base.names, *self.keys.names, *self.projection.get("NonKeyAttributes", ())))

    def position(self, row: Row) -> Position | None:
        """Return where a row of the table lies here; None: nowhere."""
        keys = self.keys
        return (*keys.position(row.item), row.position) if keys.has_all(row.item) else None

    def replace(self, old: Row | None, new: Row | None) -> None:
        """Follow a change of the table."""
        before = None if old is None else self.position(old)
        after = None if new is None else self.position(new)
        if before is not None and before != after:
            self.rows.remove(before)
        if after is not None and new is not None:
            self.rows.put(after, new)


class Table:
    """One table. All times are the service's."""

    def __init__(self, name: str, arn: str, table_id: str, created_s: float) -> None:
        self.name = name
        self.arn = arn
        self.table_id = table_id
        self.created_s = created_s
        self.keys: KeySchema
        self.definitions: dict[str, str] = {}
        """The types of the attributes that are in a key."""
        self.indexes: dict[str, Index] = {}
        self.billing_mode = PROVISIONED
        self.on_demand_since_s: float | None = None
        self.throughput = {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0}
        self.is_protected = False
        self.table_class = "STANDARD"
        self.tags: dict[str, str] = {}
        self.ttl_attribute: str | None = None
        self.recoverable_since_s: float | None = None
        self.changing: str | None = None
        """CREATING, UPDATING or DELETING until ``changed_at_s``."""
        self.changed_at_s = 0.0
        self.rows = Rows()

    def status(self, now_s: float) -> str:
        """Return the state that DescribeTable shows."""
        return self.changing if self.changing is not None and now_s < self.changed_at_s else "ACTIVE"

    def is_gone(self, now_s: float) -> bool:
        """Return whether the table is deleted by now."""
        return self.changing == "DELETING" and now_s >= self.changed_at_s

    def change(self, state: str, until_s: float) -> None:
        """Begin a change that takes until then."""
        self.changing, self.changed_at_s = state, until_s

    def check_indexes(self, item: Item, *, updated: bool) -> None:
        """Raise DynamoError when an index's key in an item is wrong. ``updated``: the item comes of an update."""
        for index in self.indexes.values():
            fault: DynamoError | None = index.keys.index_fault(index.name, item, updated=updated)
            if fault is not None:
                raise fault

    def store(self, position: Position, item: Item | None, size: int) -> None:
        """Put the item with this position, or remove it (None)."""
        old = self.rows.get(position)
        new = None if item is None else Row(item, size, position)
        if new is not None:
            self.rows.put(position, new)
        elif old is not None:
            self.rows.remove(position)
        for index in self.indexes.values():
            index.replace(old, new)
