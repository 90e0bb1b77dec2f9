"""The parameters that there were before expressions, which the KCL uses still: they become the same conditions."""

from __future__ import annotations

from typing import Any

from shardway.local.dynamodb.attribute_values import SETS, Value, checked, kind_of
from shardway.local.dynamodb.errors import constraint, invalid_values, validation
from shardway.local.dynamodb.expressions import conditions as made
from shardway.local.dynamodb.expressions.paths import Path, Step
from shardway.local.dynamodb.expressions.placeholders import NOTHING
from shardway.local.dynamodb.expressions.tokens import ExpressionError
from shardway.local.dynamodb.expressions.updates import Plain, Source, Update
from shardway.local.dynamodb.requests import Filters

_OPERATORS = {
    "EQ": 1,
    "NE": 1,
    "LE": 1,
    "LT": 1,
    "GE": 1,
    "GT": 1,
    "NOT_NULL": 0,
    "NULL": 0,
    "CONTAINS": 1,
    "NOT_CONTAINS": 1,
    "BEGINS_WITH": 1,
    "IN": None,
    "BETWEEN": 2,
}
"""The operators, and how many values each takes; None: one or more."""
_SIGNS = {"LE": "<=", "LT": "<", "GE": ">=", "GT": ">"}
_ENUM = "satisfy enum value set: [" + ", ".join(_OPERATORS) + "]"


def joined(filters: Filters | None, operator: str | None, member: str) -> made.Node | None:
    """Return the condition that the filters of a parameter make. Raises DynamoError."""
    if operator not in (None, "AND", "OR"):
        raise constraint(operator, "conditionalOperator", "satisfy enum value set: [OR, AND]")
    if not filters:
        if operator is not None:
            raise invalid_values(f"ConditionalOperator can only be used when {member} is specified")
        return None
    nodes = [_filter(name, given) for name, given in filters.items()]
    if len(nodes) == 1:
        return nodes[0]
    return made.Some(nodes) if operator == "OR" else made.Every(nodes)


def _filter(name: str, given: dict[str, Any]) -> made.Node:
    operand = made.Attribute(Path((name,), literal=True))
    operator, values = given.get("ComparisonOperator"), given.get("AttributeValueList")
    value, exists = given.get("Value"), given.get("Exists")
    if operator is None:
        if values is not None:
            raise invalid_values(f"AttributeValueList can only be used with a ComparisonOperator for Attribute: {name}")
        return _exists(name, operand, value, exists)
    if exists is not None:
        raise invalid_values(f"Exists and ComparisonOperator cannot be used together for Attribute: {name}")
    if values is not None and value is not None:
        raise invalid_values(f"Value and AttributeValueList cannot be used together for Attribute: {name}")
    if values is None:
        values = [] if value is None else [value]
    if not isinstance(values, list):
        raise validation("AttributeValueList is no list")
    return compared(operand, operator, [checked(one) for one in values])


def _exists(name: str, operand: made.Operand, value: object, exists: object) -> made.Node:
    if exists is False:
        if value is not None:
            raise invalid_values(f"Value cannot be used when Exists is false for Attribute: {name}")
        return made.Exists(operand, negated=True)
    if value is None:
        rule = "must be provided when Exists is true" if exists else "must be provided when Exists is null"
        raise invalid_values(f"Value {rule} for Attribute: {name}")
    return made.Equal(operand, made.Literal(checked(value)))


def compared(operand: made.Operand, operator: object, values: list[Value]) -> made.Node:
    """Return the condition of an operator and its values. Raises DynamoError."""
    if not isinstance(operator, str) or operator not in _OPERATORS:
        raise constraint(operator, "comparisonOperator", _ENUM)
    wanted = _OPERATORS[operator]
    if len(values) != wanted if wanted is not None else not values:
        raise invalid_values(f"Invalid number of argument(s) for the {operator} ComparisonOperator")
    node = _node(operand, operator, [made.Literal(value) for value in values])
    try:
        node.check(NOTHING)
    except ExpressionError as fault:
        if operator == "BETWEEN":
            raise invalid_values(str(fault)) from None
        kind = kind_of(values[0])
        text = f"ComparisonOperator {operator} is not valid for {kind} AttributeValue type"
        raise invalid_values(text) from None
    return node


def _node(operand: made.Operand, operator: str, values: list[made.Literal]) -> made.Node:
    match operator:
        case "EQ" | "NE":
            return made.Equal(operand, values[0], negated=operator == "NE")
        case "NOT_NULL" | "NULL":
            return made.Exists(operand, negated=operator == "NULL")
        case "CONTAINS":
            return made.Contains(operand, values[0])
        case "NOT_CONTAINS":  # holds for no attribute that is not there
            return made.Every([made.Exists(operand), made.Not(made.Contains(operand, values[0]))])
        case "BEGINS_WITH":
            return made.BeginsWith(operand, values[0])
        case "IN":
            return made.In(operand, values)
        case "BETWEEN":
            return made.Range(operand, values[0], values[1])
        case _:
            return made.Comparison(operand, _SIGNS[operator], values[0])


def updates(given: Filters) -> Update:
    """Return the update that AttributeUpdates make. Raises DynamoError."""
    sets: list[tuple[Path, Source]] = []
    removes: list[Path] = []
    adds: list[tuple[Path, made.Operand]] = []
    deletes: list[tuple[Path, made.Operand]] = []
    for name, change in given.items():
        action, value = change.get("Action") or "PUT", change.get("Value")
        path = Path((name,), literal=True)
        if action not in ("PUT", "ADD", "DELETE"):
            raise constraint(
                action, f"attributeUpdates.{name}.member.action", "satisfy enum value set: [ADD, PUT, DELETE]"
            )
        if value is None:
            if action != "DELETE":
                raise invalid_values("Only DELETE action is allowed when no attribute value is specified")
            removes.append(path)
            continue
        operand = made.Literal(checked(value))
        kind = kind_of(operand.value)
        if action == "PUT":
            sets.append((path, Plain(operand)))
        elif action == "ADD":
            if kind != "N" and kind not in SETS:
                raise invalid_values(f"ADD action is not supported for the type {kind}")
            adds.append((path, operand))
        else:
            if kind not in SETS:
                raise invalid_values(f"DELETE action with value is not supported for the type {kind}")
            deletes.append((path, operand))
    return Update(tuple(sets), tuple(removes), tuple(adds), tuple(deletes))


def attribute_paths(names: list[str]) -> list[tuple[Step, ...]]:
    """Return the paths of AttributesToGet. Raises DynamoError."""
    if not names:
        raise constraint("[]", "attributesToGet", "have length greater than or equal to 1")
    if len(set(names)) < len(names):
        raise invalid_values("Duplicate value in attribute name")
    return [(name,) for name in names]
