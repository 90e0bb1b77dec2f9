"""Plain values and DynamoDB's typed ones: str, int, float, bytes, frozenset[str], and what else an item may hold."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Typed = dict[str, Any]
"""A value as DynamoDB's JSON has it: ``{"S": "text"}``."""


def typed(value: Any) -> Typed:
    """Return a plain value with its type. Raises TypeError for a value that has none."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, float):
        return {"N": format(value, ".6f")}  # the KCL prints its only such number so
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode("ascii")}
    if isinstance(value, frozenset) and value and all(isinstance(one, str) for one in value):
        return {"SS": sorted(value)}
    if isinstance(value, list):
        return {"L": [typed(one) for one in value]}
    if isinstance(value, dict):
        return {"M": typed_item(value)}
    raise TypeError(f"{type(value).__name__} is not stored in a lease table")


def plain(value: Typed) -> Any:
    """Return the value without its type; whole numbers are int. Raises ValueError for an unknown type."""
    ((kind, content),) = value.items()
    match kind:
        case "S" | "BOOL":
            return content
        case "N":
            return _number(content)
        case "B":
            return base64.b64decode(content)
        case "SS":
            return frozenset(content)
        case "NS":
            return frozenset(map(_number, content))
        case "BS":
            return frozenset(map(base64.b64decode, content))
        case "NULL":
            return None
        case "L":
            return [plain(one) for one in content]
        case "M":
            return {name: plain(one) for name, one in content.items()}
        case _:
            raise ValueError(f"DynamoDB's type {kind!r} is not known")


def typed_item(attributes: Mapping[str, Any]) -> dict[str, Typed]:
    """Return an item made of plain attributes."""
    return {name: typed(value) for name, value in attributes.items()}


def plain_item(item: Mapping[str, Typed]) -> dict[str, Any]:
    """Return the plain attributes of an item."""
    return {name: plain(value) for name, value in item.items()}


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return int(number) if number.is_integer() and "e" not in text.lower() else number
