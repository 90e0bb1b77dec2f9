"""Find in a key condition which partition is read, and which part of it."""

from __future__ import annotations

from typing import NamedTuple

from shardway.local.dynamodb.attribute_values import Value, comparable, kind_of
from shardway.local.dynamodb.errors import DynamoError, invalid_values, validation
from shardway.local.dynamodb.expressions import conditions as made
from shardway.local.dynamodb.expressions.placeholders import Scope
from shardway.local.dynamodb.keys import KeySchema

_UNSUPPORTED_TEXT = "Query key condition not supported"


class KeyRange(NamedTuple):
    """The rows of one partition whose sort key is from ``low`` to ``high``, or begins with ``prefix``."""

    partition: Value
    low: Value | None = None
    with_low: bool = True
    high: Value | None = None
    with_high: bool = True
    prefix: Value | None = None


def key_range(node: made.Node, schema: KeySchema, scope: Scope) -> KeyRange:
    """Return the rows that a key condition means. Raises DynamoError."""
    parts: dict[str, made.Node] = {}
    for part in _parts(node):
        name = _attribute(part, scope)
        if name in parts:
            raise validation("KeyConditionExpressions must only contain one condition per key")
        parts[name] = part
    if schema.hash_name not in parts:
        raise validation(f"Query condition missed key schema element: {schema.hash_name}")
    partition = _equal(parts.pop(schema.hash_name), schema, scope)
    if not parts:
        return KeyRange(partition)
    name, part = parts.popitem()
    if parts:
        raise validation("Conditions can be of length 1 or 2 only")
    if name != schema.range_name:
        if schema.range_name is None:
            raise validation(_UNSUPPORTED_TEXT)
        raise validation(f"Query condition missed key schema element: {schema.range_name}")
    return _key_range(partition, part, schema, scope)


def _parts(node: made.Node) -> list[made.Node]:
    if isinstance(node, made.Every):
        return [part for one in node.nodes for part in _parts(one)]
    if isinstance(node, made.Some | made.Not | made.In):
        name = {made.Some: "OR", made.Not: "NOT", made.In: "IN"}[type(node)]
        raise _operator(name)
    return [node]


def _operator(name: str) -> DynamoError:
    return validation(f"Invalid operator used in KeyConditionExpression: {name}")


def _attribute(part: made.Node, scope: Scope) -> str:
    match part:
        case made.Equal(negated=True):
            raise _operator("<>")
        case made.Equal(left=left) | made.Comparison(left=left):
            operand = left
        case made.Range(operand=operand) | made.BeginsWith(operand=operand):
            pass
        case made.Exists():
            raise _operator("attribute_not_exists" if part.negated else "attribute_exists")
        case made.HasType():
            raise _operator("attribute_type")
        case made.Contains():
            raise _operator("contains")
        case _:
            raise validation(_UNSUPPORTED_TEXT)
    if isinstance(operand, made.Size):
        raise _operator("size")
    if not isinstance(operand, made.Attribute):
        text = "Invalid condition in KeyConditionExpression: an attribute name must stand on the left side"
        raise validation(text)
    if len(operand.path.steps) > 1:
        raise validation("KeyConditionExpressions cannot have conditions on nested attributes")
    return operand.path.root(scope.names)


def _value(operand: made.Operand, kind: str, scope: Scope) -> Value:
    value = operand.given(scope)
    if value is None:
        raise validation("Invalid condition in KeyConditionExpression: No key attribute specified")
    if kind_of(value) != kind:
        raise invalid_values("Condition parameter type does not match schema type")
    return value


def _equal(part: made.Node, schema: KeySchema, scope: Scope) -> Value:
    if not isinstance(part, made.Equal):
        raise validation(_UNSUPPORTED_TEXT)
    return _value(part.right, schema.hash_kind, scope)


def _key_range(partition: Value, part: made.Node, schema: KeySchema, scope: Scope) -> KeyRange:
    kind = schema.range_kind
    assert kind is not None
    match part:
        case made.Equal(right=right):
            value = _value(right, kind, scope)
            return KeyRange(partition, low=value, high=value)
        case made.Comparison(sign=sign, right=right):
            value = _value(right, kind, scope)
            if sign in (">", ">="):
                return KeyRange(partition, low=value, with_low=sign == ">=")
            return KeyRange(partition, high=value, with_high=sign == "<=")
        case made.Range(low=low, high=high):
            found = KeyRange(partition, low=_value(low, kind, scope), high=_value(high, kind, scope))
            assert found.low is not None
            assert found.high is not None
            if comparable(found.low) > comparable(found.high):
                text = "The BETWEEN operator requires upper bound to be greater than or equal to lower bound"
                raise validation(f"Invalid KeyConditionExpression: {text}")
            return found
        case made.BeginsWith(prefix=prefix):
            value = _value(prefix, kind, scope)
            return KeyRange(partition, low=value, prefix=value)
        case _:
            raise validation(_UNSUPPORTED_TEXT)
