"""The tables of one region, and the service's time."""

from __future__ import annotations

from collections.abc import Callable

from shardway.local.dynamodb.errors import constraint, not_found
from shardway.local.dynamodb.table import Table

TABLES_MAX = 10_000


class State:
    """All tables by their names. What is due by the service's time happens when a table is looked for."""

    def __init__(self, clock: Callable[[], float], region: str, account_id: str, settle_s: float) -> None:
        self.clock = clock
        self.settle_s = settle_s
        """How long a table or an index stays CREATING, UPDATING and DELETING."""
        self.region = region
        self.arn = f"arn:aws:dynamodb:{region}:{account_id}:table/"
        self.tables: dict[str, Table] = {}
        self.serial = 0
        """The number of tables that were made."""

    def present(self, name: str) -> Table | None:
        """Return the table of this name, or ARN, as long as it is there."""
        table = self.tables.get(name)
        if table is None:
            if not name.startswith(self.arn):
                return None
            table = self.tables.get(name[len(self.arn) :])
            if table is None:
                return None
        if table.changing == "DELETING" and table.is_gone(self.clock()):
            del self.tables[table.name]
            return None
        return table

    def table(self, name: str | None) -> Table:
        """Return the table whose rows a call is about. Raises DynamoError."""
        if name is None:
            raise constraint(None, "tableName", "not be null")
        table = self.present(name)
        if table is None or (table.changing is not None and table.status(self.clock()) in ("CREATING", "DELETING")):
            raise not_found()
        return table

    def described(self, name: str | None) -> Table:
        """Return the table that a call is about as a whole. Raises DynamoError."""
        if name is None:
            raise constraint(None, "tableName", "not be null")
        table = self.present(name)
        if table is None:
            raise not_found(f"Requested resource not found: Table: {name[:300]} not found")
        return table

    def sweep(self) -> None:
        """Forget the tables that are deleted by now."""
        now = self.clock()
        for name in [name for name, table in self.tables.items() if table.is_gone(now)]:
            del self.tables[name]
