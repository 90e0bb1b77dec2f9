"""Calls about several items that have nothing to do with each other."""

from __future__ import annotations

from typing import Any

from shardway.local.dynamodb.capacity import Cost, read_units, shown_costs, wants_capacity
from shardway.local.dynamodb.errors import constraint, validation
from shardway.local.dynamodb.keys import Position
from shardway.local.dynamodb.reads import Reader, reader_of
from shardway.local.dynamodb.requests import BatchGet, BatchWrite, Delete, Get, KeysToGet, Put, WriteInBatch
from shardway.local.dynamodb.state import State
from shardway.local.dynamodb.writes import Action, cost_of, prepared_delete, prepared_put

WRITES_MAX = 25
READS_MAX = 100
READ_BYTES_MAX = 16 * 1024 * 1024
_DUPLICATES = "Provided list of item keys contains duplicates"


def batch_write_item(state: State, request: BatchWrite) -> dict[str, Any]:
    """Do a BatchWriteItem. All of it is checked before anything is written."""
    wants_cost = wants_capacity(request.return_consumed_capacity)
    if not request.request_items or not all(request.request_items.values()):
        raise constraint("{}", "requestItems", "have length greater than or equal to 1")
    if sum(map(len, request.request_items.values())) > WRITES_MAX:
        raise validation("Too many items requested for the BatchWriteItem call")
    actions = [_write(state, name, one) for name, writes in request.request_items.items() for one in writes]
    if len({(action.table.name, action.position) for action in actions}) < len(actions):
        raise validation(_DUPLICATES)
    made = [(action, action.row(), action.made(action.row())) for action in actions]
    costs: dict[str, Cost] = {}
    for action, old, (item, size) in made:
        if item is not None or old is not None:
            action.table.store(action.position, item, size)
        if wants_cost:
            costs[action.table.name] = cost_of(action, old, costs.get(action.table.name))
    answer: dict[str, Any] = {"UnprocessedItems": {}}
    if wants_cost:
        answer["ConsumedCapacity"] = shown_costs(costs.values(), request.return_consumed_capacity)
    return answer


def _write(state: State, table: str, one: WriteInBatch) -> Action:
    if (one.put_request is None) == (one.delete_request is None):
        raise validation(
            "Supplied AttributeValue has more than one datatypes set, "
            "must contain exactly one of the supported datatypes"
            if one.put_request is not None
            else "Supplied WriteRequest is empty: it must contain exactly one of PutRequest and DeleteRequest"
        )
    if one.put_request is not None:
        return prepared_put(state, Put(table_name=table, item=one.put_request.item))
    assert one.delete_request is not None
    return prepared_delete(state, Delete(table_name=table, key=one.delete_request.key))


def batch_get_item(state: State, request: BatchGet) -> dict[str, Any]:
    """Do a BatchGetItem. What an answer has no room for is left to the next call."""
    wants_cost = wants_capacity(request.return_consumed_capacity)
    if not request.request_items:
        raise constraint("{}", "requestItems", "have length greater than or equal to 1")
    if sum(len(one.keys or ()) for one in request.request_items.values()) > READS_MAX:
        raise validation("Too many items requested for the BatchGetItem call")
    found: dict[str, list[Any]] = {}
    left: dict[str, Any] = {}
    costs: list[Cost] = []
    room = READ_BYTES_MAX
    for name, wanted in request.request_items.items():
        reads = _reads(state, name, wanted)
        cost = Cost(reads[0][0].table)
        costs.append(cost)
        items = found[name] = []
        for at, (reader, position, _) in enumerate(reads):
            row = reader.table.rows.get(position)
            size = 0 if row is None else row.size
            if size > room:
                left[name] = _rest(wanted, [key for _, _, key in reads[at:]])
                break
            room -= size
            cost.add(read_units(size, consistent=wanted.consistent_read))
            if row is not None:
                items.append(reader.shown(row.item))
    answer: dict[str, Any] = {"Responses": found, "UnprocessedKeys": left}
    if wants_cost:
        answer["ConsumedCapacity"] = shown_costs(costs, request.return_consumed_capacity)
    return answer


def _reads(state: State, name: str, wanted: KeysToGet) -> list[tuple[Reader, Position, dict[str, Any]]]:
    if not wanted.keys:
        raise constraint("[]", f"requestItems.{name}.member.keys", "have length greater than or equal to 1")
    reader = reader_of(
        state,
        Get(
            table_name=name,
            projection_expression=wanted.projection_expression,
            attributes_to_get=wanted.attributes_to_get,
            expression_attribute_names=wanted.expression_attribute_names,
        ),
    )
    reads = [(reader, reader.position(key), key) for key in wanted.keys]
    if len({position for _, position, _ in reads}) < len(reads):
        raise validation(_DUPLICATES)
    return reads


def _rest(wanted: KeysToGet, keys: list[dict[str, Any]]) -> dict[str, Any]:
    rest = {
        "Keys": keys,
        "ConsistentRead": wanted.consistent_read,
        "ProjectionExpression": wanted.projection_expression,
        "AttributesToGet": wanted.attributes_to_get,
        "ExpressionAttributeNames": wanted.expression_attribute_names,
    }
    return {name: value for name, value in rest.items() if value is not None}
