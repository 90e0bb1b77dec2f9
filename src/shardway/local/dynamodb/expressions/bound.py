"""Bring a request's expressions and its placeholders together, and check them as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardway.local.dynamodb.attribute_values import Item
from shardway.local.dynamodb.errors import validation
from shardway.local.dynamodb.expressions.condition_parser import parse_condition
from shardway.local.dynamodb.expressions.conditions import Node
from shardway.local.dynamodb.expressions.paths import Step
from shardway.local.dynamodb.expressions.placeholders import (
    NOTHING,
    Scope,
    check_used,
    checked_names,
    checked_values,
    undefined,
)
from shardway.local.dynamodb.expressions.projections import checked_paths, parse_projection
from shardway.local.dynamodb.expressions.tokens import ExpressionError
from shardway.local.dynamodb.expressions.update_parser import parse_update
from shardway.local.dynamodb.expressions.updates import Update


class Bound:
    """What stands behind one request's names and values. Each of its expressions is parsed here, then `finish` is
    called. All raise DynamoError.
    """

    __slots__ = ("_names", "_values", "scope")

    def __init__(self, names: dict[str, str] | None, values: dict[str, Any] | None) -> None:
        self.scope = Scope(checked_names(names), checked_values(values)) if names or values else NOTHING
        self._names: frozenset[str] = frozenset()
        self._values: frozenset[str] = frozenset()

    def condition(self, member: str, text: str) -> Node:
        """Return the condition of the parameter ``member``."""
        try:
            parsed = parse_condition(text)
            self._use(member, parsed.names, parsed.values)
            parsed.node.check(self.scope)
        except ExpressionError as fault:
            raise validation(f"Invalid {member}: {fault}") from None
        return parsed.node

    def update(self, text: str) -> Update:
        """Return the update."""
        try:
            parsed = parse_update(text)
            self._use("UpdateExpression", parsed.names, parsed.values)
            parsed.update.check(self.scope)
        except ExpressionError as fault:
            raise validation(f"Invalid UpdateExpression: {fault}") from None
        return parsed.update

    def projection(self, text: str) -> list[tuple[Step, ...]]:
        """Return the paths of the projection."""
        try:
            parsed = parse_projection(text)
            self._use("ProjectionExpression", parsed.names, frozenset())
            return checked_paths(parsed.paths, self.scope.names)
        except ExpressionError as fault:
            raise validation(f"Invalid ProjectionExpression: {fault}") from None

    def _use(self, member: str, names: frozenset[str], values: frozenset[str]) -> None:
        scope = self.scope
        if not (names <= scope.names.keys() and values <= scope.values.keys()):
            fault = undefined(f"Invalid {member}", names, values, scope)
            if fault is not None:
                raise fault
        self._names |= names
        self._values |= values

    def finish(self) -> None:
        """Check that each name and value that is given is used."""
        check_used("Names", self.scope.names, self._names)
        check_used("Values", self.scope.values, self._values)


def bound(
    names: dict[str, str] | None,
    values: dict[str, Any] | None,
    expressions: Mapping[str, str | None],
    older: Mapping[str, object] | None = None,
) -> Bound:
    """Return a request's names and values. Raises DynamoError when there is no expression that they are for, and when
    the request has expressions and ``older`` parameters, too.
    """
    present = [name for name, text in expressions.items() if text is not None]
    if older is not None:
        mixed = [name for name, value in older.items() if value is not None]
        if mixed and present:
            raise validation(
                "Can not use both expression and non-expression parameters in the same request: "
                f"Non-expression parameters: {{{', '.join(mixed)}}} "
                f"Expression parameters: {{{', '.join(present)}}}"
            )
    if not present:
        if names is not None:
            raise validation("ExpressionAttributeNames can only be specified when using expressions")
        if values is not None:
            missing = next(iter(name for name in expressions if name != "ProjectionExpression"), "FilterExpression")
            raise validation(
                f"ExpressionAttributeValues can only be specified when using expressions: {missing} is null"
            )
    elif names is not None and not names:
        raise validation("ExpressionAttributeNames must not be empty")
    elif values is not None and not values:
        raise validation("ExpressionAttributeValues must not be empty")
    return Bound(names, values)


def holds(node: Node | None, item: Item | None, scope: Scope) -> bool:
    """Return whether a condition holds for an item, or for its absence."""
    return node is None or node.holds(item or {}, scope)
