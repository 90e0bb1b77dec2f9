"""Typed attribute values: ``{"S": "text"}``. What is kept is canonical, so that equal values are equal dicts.

A value is never changed once it is checked: an update makes new ones, and rows and answers share the old.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeAlias

from shardway.local.dynamodb.errors import DynamoError, invalid_values, serialization, validation
from shardway.local.dynamodb.numbers import canonical, decimal_of, number_bytes

Value: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Value]

ITEM_BYTES_MAX = 400 * 1024
DEPTH_MAX = 32
"""The lists and maps that may lie in each other."""
SCALARS = frozenset({"S", "N", "B"})
SETS = {"SS": "S", "NS": "N", "BS": "B"}
TYPES = frozenset({"S", "N", "B", "SS", "NS", "BS", "L", "M", "BOOL", "NULL"})
_SET_NAMES = {"SS": "string", "NS": "number", "BS": "binary"}


def checked(value: object, depth: int = 0) -> Value:
    """Return a value in its canonical form. Raises DynamoError."""
    if not isinstance(value, dict):
        raise serialization(f"{_token(value)} cannot be converted to AttributeValue")
    kinds = [kind for kind, content in value.items() if content is not None and kind in TYPES]
    if not kinds:
        raise validation("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
    if len(kinds) > 1:
        raise validation(
            "Supplied AttributeValue has more than one datatypes set, "
            "must contain exactly one of the supported datatypes"
        )
    kind = kinds[0]
    content = value[kind]
    if kind == "S":
        if type(content) is not str:
            raise _wrong_type(content, "String")
        return value if len(value) == 1 else {"S": content}
    if kind == "N":
        if type(content) is not str:
            raise _wrong_type(content, "String")
        number = canonical(content)
        return value if number == content and len(value) == 1 else {"N": number}
    return _checked_other(kind, content, depth)


def _checked_other(kind: str, content: Any, depth: int) -> Value:
    if kind == "B":
        return {"B": _binary(content)}
    if kind in ("BOOL", "NULL"):
        if type(content) is not bool:
            raise _wrong_type(content, "Boolean")
        if kind == "NULL" and not content:
            raise invalid_values("Null attribute value types must have the value of true")
        return {kind: content}
    if kind in SETS:
        return {kind: _set(kind, content)}
    if depth >= DEPTH_MAX:
        raise validation("Nesting Levels have exceeded supported limits")
    if kind == "L":
        if type(content) is not list:
            raise _wrong_type(content, "List")
        return {"L": [checked(one, depth + 1) for one in content]}
    if type(content) is not dict:
        raise _wrong_type(content, "Map")
    return {"M": {name: checked(one, depth + 1) for name, one in content.items()}}


def checked_item(item: dict[str, Any]) -> Item:
    """Return all attributes in their canonical form. Raises DynamoError."""
    return {name: checked(value) for name, value in item.items()}


def _binary(content: object) -> str:
    if type(content) is not str:
        raise _wrong_type(content, "Blob")
    try:
        return base64.b64encode(base64.b64decode(content, validate=True)).decode("ascii")
    except (binascii.Error, ValueError):
        raise serialization("a value of the type B is not written in base64") from None


def _set(kind: str, content: object) -> list[str]:
    if type(content) is not list:
        raise _wrong_type(content, "List")
    if not content:
        raise invalid_values(f"An {_SET_NAMES[kind]} set  may not be empty")
    for one in content:
        if type(one) is not str:
            raise _wrong_type(one, "String")
    if kind == "NS":
        found = sorted(map(canonical, content), key=decimal_of)
    elif kind == "BS":
        found = sorted(map(_binary, content), key=base64.b64decode)
    else:
        found = sorted(content)
    if len(set(found)) < len(found):
        shown = ", ".join(content[:10])
        raise invalid_values(f"Input collection [{shown}]{' of type BS' if kind == 'BS' else ''} contains duplicates.")
    return found


def made_set(kind: str, members: set[str]) -> Value:
    """Return a set's value with these members, in the order in which sets are kept."""
    order: Any = {"NS": decimal_of, "BS": base64.b64decode}.get(kind)
    return {kind: sorted(members, key=order)}


def comparable(value: Value) -> Any:
    """Return what orders values of one type: text, a number or bytes. None for a type that has no order."""
    ((kind, content),) = value.items()
    if kind == "S":
        return content  # code points have the order of UTF-8's bytes
    if kind == "N":
        return decimal_of(content)
    return base64.b64decode(content) if kind == "B" else None


def kind_of(value: Value) -> str:
    """Return the name of the value's type."""
    return next(iter(value))


def text_bytes(text: str) -> int:
    """Return the length in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def binary_bytes(text: str) -> int:
    """Return the length of what canonical base64 stands for."""
    return len(text) // 4 * 3 - text.count("=")


def value_bytes(value: Value) -> int:
    """Return the bytes that a value counts for."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return text_bytes(content)
        case "N":
            return number_bytes(content)
        case "B":
            return binary_bytes(content)
        case "SS":
            return sum(map(text_bytes, content))
        case "NS":
            return sum(map(number_bytes, content))
        case "BS":
            return sum(map(binary_bytes, content))
        case "L":
            return 3 + sum(1 + value_bytes(one) for one in content)
        case "M":
            return 3 + sum(1 + text_bytes(name) + value_bytes(one) for name, one in content.items())
        case _:
            return 1


def item_bytes(item: Item) -> int:
    """Return the bytes that an item counts for: names and values."""
    total = 0
    for name, value in item.items():
        total += len(name) if name.isascii() else len(name.encode())
        total += value_bytes(value)
    return total


def depth_of(value: Value) -> int:
    """Return how many lists and maps lie in each other here."""
    ((kind, content),) = value.items()
    if kind == "L":
        return 1 + max(map(depth_of, content), default=0)
    if kind == "M":
        return 1 + max(map(depth_of, content.values()), default=0)
    return 0


def _token(value: object) -> str:
    match value:
        case bool():
            return "TRUE_VALUE" if value else "FALSE_VALUE"
        case int() | float():
            return "NUMBER_VALUE"
        case str():
            return "STRING_VALUE"
        case list():
            return "Start of list"
        case _:
            return "Start of structure or map"


def _wrong_type(value: object, wanted: str) -> DynamoError:
    if isinstance(value, list | dict):
        kind = "list" if isinstance(value, list) else "structure or map"
        return serialization(f"Start of {kind} found where not expected.")
    return serialization(f"{_token(value)} cannot be converted to {wanted}")
