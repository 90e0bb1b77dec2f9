"""Put, update and delete items, each under its condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardway.local.dynamodb import legacy
from shardway.local.dynamodb.attribute_values import ITEM_BYTES_MAX, Item, checked_item, item_bytes
from shardway.local.dynamodb.capacity import Cost, index_write_units, wants_capacity, write_units
from shardway.local.dynamodb.errors import condition_failed, constraint, invalid_values, validation
from shardway.local.dynamodb.expressions.bound import bound
from shardway.local.dynamodb.expressions.conditions import Node
from shardway.local.dynamodb.expressions.placeholders import Scope
from shardway.local.dynamodb.expressions.updates import Update
from shardway.local.dynamodb.keys import Position
from shardway.local.dynamodb.requests import Delete, Put, Write
from shardway.local.dynamodb.requests import Update as UpdateRequest
from shardway.local.dynamodb.state import State
from shardway.local.dynamodb.table import Row, Table

_RETURNS = frozenset({"ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"})
_NO_ITEM: Item = {}


class Action:
    """A write that is checked, and not done yet: it can be looked at, and then done."""

    __slots__ = ("condition", "is_check", "make", "position", "scope", "shows_old", "table", "update")

    def __init__(self, table: Table, position: Position, make: Callable[[Item | None], Item | None]) -> None:
        self.table = table
        self.position = position
        self.make = make
        """Return the item as it will be, of the item that is there; None: no item."""
        self.condition: Node | None = None
        self.scope: Scope
        self.shows_old = False
        """Whether an answer that the condition does not hold shows the item."""
        self.update: Update | None = None
        self.is_check = False
        """True: nothing is written."""

    def row(self) -> Row | None:
        """Return the row that is there."""
        return self.table.rows.get(self.position)

    def is_allowed(self, row: Row | None) -> bool:
        """Return whether the condition holds."""
        condition = self.condition
        return condition is None or condition.holds(_NO_ITEM if row is None else row.item, self.scope)

    def made(self, row: Row | None) -> tuple[Item | None, int]:
        """Return the item as it will be, and its size. Raises DynamoError."""
        item = self.make(None if row is None else row.item)
        if item is None:
            return None, 0
        size = item_bytes(item)
        if size > ITEM_BYTES_MAX:
            if self.update is not None:
                raise validation("Item size to update has exceeded the maximum allowed size")
            raise validation("Item size has exceeded the maximum allowed size")
        if self.table.indexes:
            self.table.check_indexes(item, updated=self.update is not None)
        return item, size


def prepared_put(state: State, request: Put) -> Action:
    """Return the write of a Put. Raises DynamoError."""
    table = state.table(request.table_name)
    if request.item is None:
        raise constraint(None, "item", "not be null")
    item = checked_item(request.item)
    action = Action(table, table.keys.position_of_item(item), lambda _: item)
    _conditional(action, request)
    return action


def prepared_delete(state: State, request: Delete) -> Action:
    """Return the write of a Delete. Raises DynamoError."""
    table = state.table(request.table_name)
    action = Action(table, table.keys.position_of_key(_key(request.key)), lambda _: None)
    _conditional(action, request)
    return action


def prepared_check(state: State, request: Delete) -> Action:
    """Return a check of a condition, which writes nothing. Raises DynamoError."""
    if request.condition_expression is None:
        raise constraint(None, "conditionExpression", "not be null")
    action = prepared_delete(state, request)
    action.is_check = True
    return action


def prepared_update(state: State, request: UpdateRequest) -> Action:
    """Return the write of an Update. Raises DynamoError."""
    table = state.table(request.table_name)
    key = _key(request.key)
    position = table.keys.position_of_key(key)
    action = Action(table, position, lambda old: dict(key) if old is None else old)
    _conditional(action, request, request.update_expression, request.attribute_updates)
    update = action.update
    if update is not None:
        scope = action.scope
        for name in update.roots(scope):
            if name in table.keys.names:
                raise invalid_values(f"Cannot update attribute {name}. This attribute is part of the key")
        action.make = lambda old: update.applied(key if old is None else old, scope)
    else:
        action.update = Update()
    return action


def _key(key: dict[str, Any] | None) -> Item:
    if key is None:
        raise constraint(None, "key", "not be null")
    return checked_item(key)


def _conditional(
    action: Action, request: Write, update: str | None = None, older_update: dict[str, Any] | None = None
) -> None:
    """Read the condition of a write, and its update. Raises DynamoError."""
    is_update = isinstance(request, UpdateRequest)
    expressions = {"ConditionExpression": request.condition_expression}
    if is_update:
        expressions = {"UpdateExpression": update, **expressions}
    older = (
        {"AttributeUpdates": older_update, "Expected": request.expected}
        if is_update
        else {"Expected": request.expected}
    )
    found = bound(request.expression_attribute_names, request.expression_attribute_values, expressions, older)
    action.scope = found.scope
    if update is not None:
        action.update = found.update(update)
    elif older_update is not None:
        action.update = legacy.updates(older_update)
    if request.condition_expression is not None:
        action.condition = found.condition("ConditionExpression", request.condition_expression)
    elif request.expected is not None or request.conditional_operator is not None:
        action.condition = legacy.joined(request.expected, request.conditional_operator, "Expected")
    found.finish()
    shown = request.return_values_on_condition_check_failure
    if shown not in (None, "NONE", "ALL_OLD"):
        raise constraint(shown, "returnValuesOnConditionCheckFailure", "satisfy enum value set: [ALL_OLD, NONE]")
    action.shows_old = shown == "ALL_OLD"


def put_item(state: State, request: Put) -> dict[str, Any]:
    """Do a PutItem."""
    _check_returns(request.return_values, "PutItem")
    return _do_write(prepared_put(state, request), request)


def delete_item(state: State, request: Delete) -> dict[str, Any]:
    """Do a DeleteItem."""
    _check_returns(request.return_values, "DeleteItem")
    return _do_write(prepared_delete(state, request), request)


def update_item(state: State, request: UpdateRequest) -> dict[str, Any]:
    """Do an UpdateItem."""
    _check_returns(request.return_values, "UpdateItem")
    return _do_write(prepared_update(state, request), request)


def _check_returns(wanted: str | None, operation: str) -> None:
    if wanted is None:
        return
    if wanted not in _RETURNS:
        rule = "satisfy enum value set: [ALL_NEW, UPDATED_OLD, ALL_OLD, NONE, UPDATED_NEW]"
        raise constraint(wanted, "returnValues", rule)
    if operation != "UpdateItem" and wanted not in ("NONE", "ALL_OLD"):
        raise validation("Return values set to invalid value")


def _do_write(action: Action, request: Write) -> dict[str, Any]:
    """Do a write, and return its answer. Raises DynamoError."""
    wants_cost = wants_capacity(request.return_consumed_capacity)
    old = action.row()
    if not action.is_allowed(old):
        raise condition_failed(old.item if old is not None and action.shows_old else None)
    item, size = action.made(old)
    if item is not None or old is not None:
        action.table.store(action.position, item, size)
    answer: dict[str, Any] = {}
    wanted = request.return_values
    if wanted is not None and wanted != "NONE":
        shown = _returned_item(action, wanted, None if old is None else old.item, item)
        if shown:
            answer["Attributes"] = shown
    if wants_cost:
        answer["ConsumedCapacity"] = cost_of(action, old).shown(request.return_consumed_capacity)
    return answer


def cost_of(action: Action, old: Row | None, cost: Cost | None = None, *, times: float = 1.0) -> Cost:
    """Return what a write that is done costs, added to ``cost``. A check costs as a write that changes nothing."""
    cost = cost or Cost(action.table)
    new = action.row()
    size = max(0 if old is None else old.size, 0 if new is None else new.size)
    cost.add(write_units(size), index_write_units(action.table, old, new), times=times)
    return cost


def _returned_item(action: Action, wanted: str, old: Item | None, new: Item | None) -> Item | None:
    source = new if wanted.endswith("NEW") else old
    if source is None or wanted.startswith("ALL"):
        return source
    assert action.update is not None
    names = action.scope.names
    roots = [path.root(names) for path in action.update.paths() if path.find(source, names) is not None]
    return {name: source[name] for name in roots}
