"""Tables as DescribeTable shows them."""

from __future__ import annotations

from typing import Any

from shardway.local.dynamodb.capacity import index_bytes
from shardway.local.dynamodb.table import PAY_PER_REQUEST, Index, Table


def described(table: Table, now_s: float) -> dict[str, Any]:
    """Return the description of a table. Unlike AWS's, its counts are of this moment."""
    found: dict[str, Any] = {
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in table.definitions.items()
        ],
        "TableName": table.name,
        "KeySchema": table.keys.shown(),
        "TableStatus": table.status(now_s),
        "CreationDateTime": table.created_s,
        "ProvisionedThroughput": _throughput(table.throughput),
        "TableSizeBytes": table.rows.size,
        "ItemCount": len(table.rows),
        "TableArn": table.arn,
        "TableId": table.table_id,
        "DeletionProtectionEnabled": table.is_protected,
    }
    if table.on_demand_since_s is not None:
        found["BillingModeSummary"] = {
            "BillingMode": table.billing_mode,
            "LastUpdateToPayPerRequestDateTime": table.on_demand_since_s,
        }
    if table.table_class != "STANDARD":
        found["TableClassSummary"] = {"TableClass": table.table_class}
    for is_global, member in ((True, "GlobalSecondaryIndexes"), (False, "LocalSecondaryIndexes")):
        indexes = [_index(table, one, now_s) for one in table.indexes.values() if one.is_global == is_global]
        if indexes:
            found[member] = indexes
    return found


def _index(table: Table, index: Index, now_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        "IndexName": index.name,
        "KeySchema": index.keys.shown(),
        "Projection": index.projection,
        "IndexSizeBytes": sum(index_bytes(index, table, row) for row in index.rows),
        "ItemCount": len(index.rows),
        "IndexArn": f"{table.arn}/index/{index.name}",
    }
    if index.is_global:
        is_ready = now_s >= index.ready_at_s
        found["IndexStatus"] = "ACTIVE" if is_ready else "CREATING"
        if not is_ready and table.status(now_s) != "CREATING":
            found["Backfilling"] = True
        none = {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0}
        on_demand = table.billing_mode == PAY_PER_REQUEST
        found["ProvisionedThroughput"] = _throughput(none if on_demand else index.throughput or none)
    return found


def _throughput(units: dict[str, int]) -> dict[str, int]:
    return {"NumberOfDecreasesToday": 0, **units}
