"""Read the tables of applications, wherever they are: DynamoDB, SQLite, PostgreSQL. Nothing is written or made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.leases.listing import listing_of
from shardway.core.leases.worker_row import worker_rows
from shardway.errors import NotFoundError
from shardway.inspect.applications.dynamodb_tables import dynamodb_applications, dynamodb_rows
from shardway.inspect.applications.sql_tables import padded, sql_rows
from shardway.inspect.applications.views import ApplicationFound, ApplicationRows
from shardway.stores.sql import (
    APPLICATION,
    LEASE_COLUMNS,
    WORKER_COLUMNS,
    lease_attributes,
    worker_attributes,
)

if TYPE_CHECKING:
    from shardway.inspect.applications.stores import Store
    from shardway.inspect.reads.ports import Calls


async def applications_in(store: Store, inspector: Calls) -> list[ApplicationFound]:
    """Return the applications that have leases in the store. Raises ShardwayError."""
    if store.kind == "dynamodb":
        return await dynamodb_applications(inspector)
    found: dict[str, int] = {}
    leases, _ = await sql_rows(store)
    for row in leases:
        name = str(row.get(APPLICATION) or "")
        found[name] = found.get(name, 0) + 1
    table = store.table or "leases"
    return [
        ApplicationFound(name=name, store=store.kind, table=table, workers_table=True, leases=count)
        for name, count in sorted(found.items())
    ]


async def rows_of(application: str, store: Store, inspector: Calls) -> ApplicationRows:
    """Return all rows of an application. Raises NotFoundError where the application has none, and OptionError for a
    table of another kind.
    """
    if store.kind == "dynamodb":
        return await dynamodb_rows(store.table or application, inspector)
    leases, workers = await sql_rows(store)
    mine = [row for row in leases if row.get(APPLICATION) in (application, None)]
    if not mine:
        names = sorted({str(row.get(APPLICATION)) for row in leases})
        raise NotFoundError(
            "ResourceNotFoundException",
            f"the application {application!r} has no leases in {store.place}; there are: "
            + (", ".join(names) or "none"),
            operation=store.kind,
        )
    return ApplicationRows(
        listing=listing_of(lease_attributes(padded(row, LEASE_COLUMNS)) for row in mine),
        workers=worker_rows(
            worker_attributes(padded(row, WORKER_COLUMNS))
            for row in workers
            if row.get(APPLICATION) in (application, None)
        ),
    )
