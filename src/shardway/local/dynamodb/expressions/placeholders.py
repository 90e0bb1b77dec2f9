"""The names and values beside a request's expressions: each must be right, and must be used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

from shardway.local.dynamodb.attribute_values import Value, checked
from shardway.local.dynamodb.errors import DynamoError, validation
from shardway.local.dynamodb.expressions.paths import Names

_NONE_GIVEN: dict[str, Any] = {}
_NAME = re.compile(r"#[A-Za-z0-9_]+")
_VALUE = re.compile(r":[A-Za-z0-9_]+")
ATTRIBUTE_NAME_BYTES_MAX = 65_535


class Scope:
    """What stands behind the names and values of one request's expressions."""

    __slots__ = ("names", "values")

    def __init__(self, names: Names, values: Mapping[str, Value]) -> None:
        self.names = names
        self.values = values


NOTHING = Scope(_NONE_GIVEN, _NONE_GIVEN)


def checked_names(given: dict[str, str] | None) -> Names:
    """Return the given names. Raises DynamoError."""
    if given is None:
        return _NONE_GIVEN
    if not given:
        raise validation("ExpressionAttributeNames must not be empty")
    for place, name in given.items():
        if not _NAME.fullmatch(place):
            raise validation(f'ExpressionAttributeNames contains invalid key: Syntax error; key: "{place[:100]}"')
        if not name or len(name) > ATTRIBUTE_NAME_BYTES_MAX:
            text = "must have length greater than or equal to 1" if not name else "is too long"
            raise validation(f"ExpressionAttributeNames contains invalid value: the name for key {place} {text}")
    return given


def checked_values(given: dict[str, Any] | None) -> Mapping[str, Value]:
    """Return the given values in their canonical form. Raises DynamoError."""
    if given is None:
        return _NONE_GIVEN
    if not given:
        raise validation("ExpressionAttributeValues must not be empty")
    values: dict[str, Value] = {}
    for place, value in given.items():
        if not _VALUE.fullmatch(place):
            raise validation(f'ExpressionAttributeValues contains invalid key: Syntax error; key: "{place[:100]}"')
        try:
            values[place] = checked(value)
        except DynamoError as fault:
            if fault.code != "ValidationException":
                raise
            text = f"ExpressionAttributeValues contains invalid value: {fault.message} for key {place}"
            raise validation(text) from None
    return values


def check_used(kind: str, given: Mapping[str, Any], used: Set[str]) -> None:
    """Raise DynamoError when a name or value is given that no expression uses. ``kind`` is Names or Values."""
    if given.keys() == used:
        return
    unused = sorted(given.keys() - used)
    if unused:
        shown = ", ".join(unused[:20])
        raise validation(f"Value provided in ExpressionAttribute{kind} unused in expressions: keys: {{{shown}}}")


def undefined(prefix: str, names: Set[str], values: Set[str], scope: Scope) -> DynamoError | None:
    """Return the error when an expression uses a name or a value that is not given; else None."""
    for name in sorted(names - scope.names.keys()):
        text = "An expression attribute name used in the document path is not defined; attribute name"
        return validation(f"{prefix}: {text}: {name}")
    for value in sorted(values - scope.values.keys()):
        text = "An expression attribute value used in expression is not defined; attribute value"
        return validation(f"{prefix}: {text}: {value}")
    return None
