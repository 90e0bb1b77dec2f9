"""Change tables that are there: their billing, their protection, their indexes."""

from __future__ import annotations

from typing import Any

from shardway.local.dynamodb import schemas
from shardway.local.dynamodb.errors import DynamoError, in_use, invalid_values, not_found, validation
from shardway.local.dynamodb.requests import IndexAsked, IndexUpdate, UpdateTable
from shardway.local.dynamodb.state import State
from shardway.local.dynamodb.table import PAY_PER_REQUEST, Table
from shardway.local.dynamodb.table_views import described
from shardway.local.dynamodb.tables import check_active, refuse_streams


def update_table(state: State, request: UpdateTable) -> dict[str, Any]:
    """Do an UpdateTable."""
    table, now = state.described(request.table_name), state.clock()
    refuse_streams(request.stream_specification)
    if request.replica_updates:
        raise validation("the local DynamoDB has no replicas (ReplicaUpdates): each region has its own tables")
    settings = (
        request.billing_mode,
        request.provisioned_throughput,
        request.deletion_protection_enabled,
        request.table_class,
    )
    changes = request.global_secondary_index_updates or []
    if not changes and all(one is None for one in settings):
        raise validation(
            "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates or "
            "SSESpecification or ReplicaUpdates is required"
        )
    check_active(table, now)
    if any(now < one.ready_at_s for one in table.indexes.values()):
        raise in_use(f"Attempt to change a resource which is still in use: Table is being updated: {table.name}")
    if sum(one.create is not None or one.delete is not None for one in changes) > 1:
        raise DynamoError(
            "LimitExceededException",
            "Subscriber limit exceeded: Only 1 online index can be created or deleted simultaneously per table",
        )
    kinds = dict(table.definitions)
    if request.attribute_definitions is not None:
        kinds |= schemas.definitions(request.attribute_definitions)
    _set(table, request, now)
    for one in changes:
        _change_index(state, table, one, kinds)
    if request.deletion_protection_enabled is not None:
        table.is_protected = request.deletion_protection_enabled
    if state.settle_s and (changes or request.billing_mode or request.provisioned_throughput):
        table.change("UPDATING", now + state.settle_s)
    return {"TableDescription": described(table, now)}


def _set(table: Table, request: UpdateTable, now_s: float) -> None:
    if request.billing_mode is not None or request.provisioned_throughput is not None:
        billing = table.billing_mode if request.billing_mode is None else schemas.billing_mode(request.billing_mode)
        throughput = schemas.throughput(request.provisioned_throughput, billing)
        if billing == PAY_PER_REQUEST and table.billing_mode != PAY_PER_REQUEST:
            table.on_demand_since_s = now_s
        table.billing_mode, table.throughput = billing, throughput
    if request.table_class is not None:
        table.table_class = schemas.table_class(request.table_class)


def _change_index(state: State, table: Table, change: IndexUpdate, kinds: dict[str, str]) -> None:
    if change.create is not None:
        _create_index(state, table, change.create, kinds)
    elif change.delete is not None:
        name = change.delete.index_name or ""
        if name not in table.indexes:
            raise not_found("Requested resource not found")
        del table.indexes[name]
        used = {*table.keys.names, *(part for one in table.indexes.values() for part in one.keys.names)}
        table.definitions = {part: kind for part, kind in table.definitions.items() if part in used}
    elif change.update is not None:
        index = table.indexes.get(change.update.index_name or "")
        if index is None:
            raise not_found("Requested resource not found")
        index.throughput = schemas.throughput(change.update.provisioned_throughput, table.billing_mode)
    else:
        raise invalid_values("One of GlobalSecondaryIndexUpdate's Create, Update and Delete must not be null")


def _create_index(state: State, table: Table, asked: IndexAsked, kinds: dict[str, str]) -> None:
    if asked.index_name in table.indexes:
        raise validation("Attempting to create an index which already exists")
    if len(table.indexes) >= schemas.INDEXES_MAX:
        raise DynamoError(
            "LimitExceededException", f"GlobalSecondaryIndex count exceeds the per-table limit of {schemas.INDEXES_MAX}"
        )
    index = schemas.index(asked, kinds, table.billing_mode)
    for row in table.rows:
        if index.keys.index_fault(index.name, row.item) is None:  # AWS leaves out rows whose attribute does not fit
            index.replace(None, row)
    index.ready_at_s = state.clock() + state.settle_s
    table.indexes[index.name] = index
    used = {*table.keys.names, *(part for one in table.indexes.values() for part in one.keys.names)}
    table.definitions = {part: kind for part, kind in kinds.items() if part in used}
