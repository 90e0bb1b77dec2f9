"""Make, list, show and delete tables."""

from __future__ import annotations

import uuid
from typing import Any

from shardway.local.dynamodb import schemas
from shardway.local.dynamodb.errors import DynamoError, constraint, in_use, invalid_values, validation
from shardway.local.dynamodb.requests import CreateTable, ListTables, StreamAsked, TableCall
from shardway.local.dynamodb.state import TABLES_MAX, State
from shardway.local.dynamodb.table import PAY_PER_REQUEST, Index, Table
from shardway.local.dynamodb.table_views import described

LISTED_MAX = 100


def create_table(state: State, request: CreateTable) -> dict[str, Any]:
    """Do a CreateTable."""
    name = schemas.check_name(request.table_name, "tableName")
    refuse_streams(request.stream_specification)
    billing = schemas.billing_mode(request.billing_mode)
    kinds = schemas.definitions(request.attribute_definitions)
    keys = schemas.key_schema(request.key_schema, kinds)
    throughput = schemas.throughput(request.provisioned_throughput, billing)
    indexes = _indexes(request, kinds, billing)
    used = {*keys.names, *(part for index in indexes.values() for part in index.keys.names)}
    if used != kinds.keys():
        raise invalid_values(
            "Number of attributes in KeySchema does not exactly match number of attributes defined in "
            "AttributeDefinitions"
        )
    if any(not one.is_global and one.keys.hash_name != keys.hash_name for one in indexes.values()):
        raise invalid_values("Index KeySchema does not have the same leading hash key as table KeySchema for index")
    tags = schemas.tags(request.tags)
    now = state.clock()
    state.sweep()
    if name in state.tables:
        raise in_use(f"Table already exists: {name}")
    if len(state.tables) >= TABLES_MAX:
        raise DynamoError("LimitExceededException", f"there are {TABLES_MAX} tables already")
    state.serial += 1
    table = Table(name, state.arn + name, str(uuid.uuid5(uuid.NAMESPACE_URL, f"{state.arn}{name}/{state.serial}")), now)
    table.keys, table.definitions, table.indexes = keys, kinds, indexes
    table.billing_mode, table.throughput = billing, throughput
    table.on_demand_since_s = now if billing == PAY_PER_REQUEST else None
    table.is_protected = bool(request.deletion_protection_enabled)
    table.table_class = schemas.table_class(request.table_class)
    table.tags = tags
    if state.settle_s:
        table.change("CREATING", now + state.settle_s)
        for index in indexes.values():
            index.ready_at_s = now + state.settle_s
    state.tables[name] = table
    return {"TableDescription": described(table, now)}


def refuse_streams(asked: StreamAsked | None) -> None:
    """Raise DynamoError when a call asks for a stream of changes."""
    if asked is not None and asked.stream_enabled:
        raise validation("the local DynamoDB has no streams of changes (StreamSpecification): leave them disabled")


def _indexes(request: CreateTable, kinds: dict[str, str], billing: str) -> dict[str, Index]:
    found: dict[str, Index] = {}
    for asked, most, is_global in (
        (request.global_secondary_indexes, schemas.INDEXES_MAX, True),
        (request.local_secondary_indexes, schemas.LOCAL_INDEXES_MAX, False),
    ):
        word = "Global" if is_global else "Local"
        if asked is None:
            continue
        if not asked:
            raise invalid_values(f"List of {word}SecondaryIndexes is empty")
        if len(asked) > most:
            raise DynamoError(
                "LimitExceededException", f"{word}SecondaryIndex count exceeds the per-table limit of {most}"
            )
        for one in asked:
            index = schemas.index(one, kinds, billing, is_global=is_global)
            if index.name in found:
                raise invalid_values(f"Duplicate index name: {index.name}")
            found[index.name] = index
    return found


def describe_table(state: State, request: TableCall) -> dict[str, Any]:
    """Do a DescribeTable."""
    return {"Table": described(state.described(request.table_name), state.clock())}


def delete_table(state: State, request: TableCall) -> dict[str, Any]:
    """Do a DeleteTable."""
    table, now = state.described(request.table_name), state.clock()
    if table.is_protected:
        raise validation(
            "Resource cannot be deleted as it is currently protected against deletion. "
            "Disable deletion protection first."
        )
    check_active(table, now)
    table.change("DELETING", now + state.settle_s)
    view = described(table, now) | {"TableStatus": "DELETING"}
    state.sweep()
    return {"TableDescription": view}


def check_active(table: Table, now_s: float) -> None:
    """Raise DynamoError while a change of the table goes on."""
    status = table.status(now_s)
    if status != "ACTIVE":
        word = {"CREATING": "created", "UPDATING": "updated", "DELETING": "deleted"}[status]
        raise in_use(f"Attempt to change a resource which is still in use: Table is being {word}: {table.name}")


def list_tables(state: State, request: ListTables) -> dict[str, Any]:
    """Do a ListTables."""
    limit = LISTED_MAX if request.limit is None else request.limit
    if not 1 <= limit <= LISTED_MAX:
        rule = "greater than or equal to 1" if limit < 1 else f"less than or equal to {LISTED_MAX}"
        raise constraint(limit, "limit", f"have value {rule}")
    state.sweep()
    after = request.exclusive_start_table_name
    names = sorted(name for name in state.tables if after is None or name > after)
    answer: dict[str, Any] = {"TableNames": names[:limit]}
    if len(names) > limit:
        answer["LastEvaluatedTableName"] = names[limit - 1]
    return answer
