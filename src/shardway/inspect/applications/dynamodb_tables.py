"""Read the tables of applications in DynamoDB."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.calls.answers import reading
from shardway.aws.dynamodb.client import DynamoClient
from shardway.core.assignment.kcl.rows import COORDINATOR_KEY, METRICS_KEY
from shardway.core.leases.listing import listing_of
from shardway.core.leases.row import KEY
from shardway.core.leases.worker_row import worker_rows
from shardway.errors import NotFoundError, OptionError
from shardway.inspect.applications.views import (
    COORDINATOR_SUFFIX,
    METRICS_SUFFIX,
    SUFFIXES,
    WORKERS_SUFFIX,
    ApplicationFound,
    ApplicationRows,
    TableView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.inspect.reads.ports import Calls


TABLES_MAX = 10_000
"""The tables of DynamoDB that a listing takes."""


async def dynamodb_applications(inspector: Calls) -> list[ApplicationFound]:
    """Return the applications whose lease tables are there."""
    names = await inspector.shown("the list of tables", "dynamodb", _list_tables(inspector)) or []
    found, there = [], set(names)
    for name in names:
        if name.endswith(SUFFIXES) and any(name.removesuffix(one) in there for one in SUFFIXES):
            continue
        described = await inspector.shown(f"the table {name}", "dynamodb", _describe(inspector, name))
        if described is None or _hash_keys(described) != [KEY]:
            continue
        found.append(
            ApplicationFound(
                name=name,
                store="dynamodb",
                table=name,
                workers_table=name + WORKERS_SUFFIX in there,
                coordinator_table=name + COORDINATOR_SUFFIX in there,
                leases=described.get("ItemCount"),
            )
        )
    return found


async def _list_tables(inspector: Calls) -> list[str]:
    """Return the names of the tables. ListTables takes no table's name, unlike the other calls of `DynamoClient`, so
    the call goes by the wire.
    """
    names: list[str] = []
    parameters: dict[str, Any] = {}
    while len(names) < TABLES_MAX:
        body = await inspector.wire.call("dynamodb", "ListTables", msgspec.json.encode(parameters))
        with reading("ListTables"):
            answer = msgspec.json.decode(body, type=dict[str, Any])
            names += map(str, answer["TableNames"])
        last = answer.get("LastEvaluatedTableName")
        if not last:
            break
        parameters = {"ExclusiveStartTableName": last}
    return names


async def dynamodb_rows(table: str, inspector: Calls) -> ApplicationRows:
    """Return the rows of an application's tables. Raises OptionError for a table that is no lease table."""
    described = await inspector.shown(f"the settings of {table}", "dynamodb", _describe(inspector, table))
    if described is not None and (keys := _hash_keys(described)) != [KEY]:
        raise OptionError(f"the table {table} has the key {keys}, not [{KEY!r}]: it is no lease table")
    client = DynamoClient(inspector.wire)
    scanned = await inspector.shown(f"the leases in {table}", "dynamodb", client.scan(table, consistent=False))

    found: list[str] = []

    async def scan_beside(suffix: str) -> list[dict[str, Any]] | None:
        with contextlib.suppress(NotFoundError):
            rows = await inspector.shown(
                f"the table {table}{suffix}", "dynamodb", client.scan(table + suffix, consistent=False)
            )
            found.append(suffix)
            return None if rows is None else list(rows)
        return None

    workers, states, metrics = await asyncio.gather(
        *map(scan_beside, (WORKERS_SUFFIX, COORDINATOR_SUFFIX, METRICS_SUFFIX))
    )
    return ApplicationRows(
        listing=listing_of(scanned or ()),
        workers=worker_rows(workers or ()),
        states=None if states is None else {str(one.get(COORDINATOR_KEY)): one for one in states},
        metrics=None if metrics is None else {str(one.get(METRICS_KEY)): one for one in metrics},
        tables=[] if described is None else [_table_view(described)],
        listed=scanned is not None,
        beside=sorted(found),
    )


async def _describe(inspector: Calls, table: str) -> dict[str, Any]:
    answer = await DynamoClient(inspector.wire).call("DescribeTable", {"TableName": table})
    with reading(f"DescribeTable of {table}"):
        found: dict[str, Any] = answer["Table"]
        return found


def _hash_keys(described: Mapping[str, Any]) -> list[str]:
    with reading("DescribeTable"):
        return [one["AttributeName"] for one in described["KeySchema"]]


def _table_view(described: Mapping[str, Any]) -> TableView:
    with reading("DescribeTable"):
        capacity = described.get("ProvisionedThroughput") or {}
        provisioned = described.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED") == "PROVISIONED"
        return TableView(
            name=described["TableName"],
            status=described["TableStatus"],
            billing="provisioned" if provisioned else "on demand",
            read_units=capacity.get("ReadCapacityUnits") if provisioned else None,
            write_units=capacity.get("WriteCapacityUnits") if provisioned else None,
            items=described.get("ItemCount"),
            indexes={
                one["IndexName"]: one.get("IndexStatus", "") for one in described.get("GlobalSecondaryIndexes") or ()
            },
        )
