"""The few calls to DynamoDB that a lease table makes, with plain attributes in place of typed values.

Names, shapes and error codes: Amazon DynamoDB API reference, version 2012-08-10.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.aws.answers import reading
from penstock.errors import ServiceError, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.aws.calls import RetryPolicy
    from penstock.aws.wire import Wire

# --- typed values ---------------------------------------------------------------------------------
# DynamoDB's typed values and plain ones: str, int, float, bytes, frozenset[str], and what else an item may hold.

Typed = dict[str, Any]
"""A value as DynamoDB's JSON has it: ``{"S": "text"}``."""


def typed(value: Any) -> Typed:
    """A plain value with its type. Raises TypeError for one that has none."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, float):
        return {"N": format(value, ".6f")}  # as the KCL prints its only such number
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
    """The value without its type; whole numbers are int. Raises ValueError for an unknown type."""
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
    """An item from plain attributes."""
    return {name: typed(value) for name, value in attributes.items()}


def plain_item(item: Mapping[str, Typed]) -> dict[str, Any]:
    """Plain attributes of an item."""
    return {name: plain(value) for name, value in item.items()}


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return int(number) if number.is_integer() and "e" not in text.lower() else number


# --- the calls ------------------------------------------------------------------------------------

PAGES_MAX = 10_000
"""A page of Scan or Query has up to 1 MiB: some 2,500 leases."""

Pairs: TypeAlias = "Sequence[tuple[str, Any]]"
"""Attributes and values; None as a value: the attribute is, or becomes, absent."""


class DynamoClient:
    """Calls over a wire. Errors as `Wire.call` raises them; ConditionFailedError where a condition did not hold."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def call(
        self, operation: str, parameters: Mapping[str, Any], *, retry: RetryPolicy | None = None
    ) -> dict[str, Any]:
        """One call, JSON in and out."""
        try:
            body = await self.wire.call("dynamodb", operation, msgspec.json.encode(parameters), retry=retry)
        except ServiceError as error:
            error.where = f"table {parameters['TableName']}, {error.where}"
            raise
        with reading(f"{operation} of {parameters['TableName']}"):
            return msgspec.json.decode(body or b"{}", type=dict[str, Any])

    async def put(self, table: str, item: Mapping[str, Any], *, absent: str | None, retry: RetryPolicy) -> None:
        """PutItem; with ``absent``, only if there is no item yet that has this attribute."""
        parameters: dict[str, Any] = {"TableName": table, "Item": typed_item(item)}
        if absent is not None:
            words = _Words()
            parameters |= {"ConditionExpression": words.condition([(absent, None)]), **words.parameters()}
        await self.call("PutItem", parameters, retry=retry)

    async def update(
        self, table: str, key: Mapping[str, Any], changes: Pairs, expects: Pairs, *, retry: RetryPolicy
    ) -> dict[str, Any]:
        """UpdateItem under a condition; returns all attributes as they are since then."""
        words = _Words()
        sets = [f"{words.name(name)} = {words.value(value)}" for name, value in changes if value is not None]
        removes = [words.name(name) for name, value in changes if value is None]
        update = [f"SET {', '.join(sets)}"] * bool(sets) + [f"REMOVE {', '.join(removes)}"] * bool(removes)
        answer = await self.call(
            "UpdateItem",
            {
                "TableName": table,
                "Key": typed_item(key),
                "UpdateExpression": " ".join(update),
                "ConditionExpression": words.condition(expects),
                "ReturnValues": "ALL_NEW",
                **words.parameters(),
            },
            retry=retry,
        )
        with reading(f"UpdateItem of {table}"):
            return plain_item(answer["Attributes"])

    async def delete(self, table: str, key: Mapping[str, Any], expects: Pairs, *, retry: RetryPolicy) -> None:
        """DeleteItem, under a condition unless it is empty."""
        words = _Words()
        parameters: dict[str, Any] = {"TableName": table, "Key": typed_item(key)}
        if expects:
            parameters |= {"ConditionExpression": words.condition(expects), **words.parameters()}
        await self.call("DeleteItem", parameters, retry=retry)

    async def get(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """GetItem, consistent."""
        answer = await self.call("GetItem", {"TableName": table, "Key": typed_item(key), "ConsistentRead": True})
        item = answer.get("Item")
        with reading(f"GetItem of {table}"):
            return None if item is None else plain_item(item)

    async def scan(self, table: str, *, consistent: bool) -> list[dict[str, Any]]:
        """Scan, all pages."""
        return await self._pages("Scan", {"TableName": table, "ConsistentRead": consistent})

    async def query_index(self, table: str, index: str, attribute: str, value: str) -> list[dict[str, Any]]:
        """Query of an index by its hash key, all pages. Indexes are never consistent."""
        parameters = {
            "TableName": table,
            "IndexName": index,
            "KeyConditionExpression": "#a = :a",
            "ExpressionAttributeNames": {"#a": attribute},
            "ExpressionAttributeValues": {":a": typed(value)},
        }
        return await self._pages("Query", parameters)

    async def _pages(self, operation: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for _ in range(PAGES_MAX):
            answer = await self.call(operation, parameters)
            with reading(f"{operation} of {parameters['TableName']}"):
                items += map(plain_item, answer.get("Items", ()))
            last = answer.get("LastEvaluatedKey")
            if not last:
                return items
            parameters = {**parameters, "ExclusiveStartKey": last}
        raise TransportError(f"{operation} of {parameters['TableName']} has no end after {PAGES_MAX} pages")


class _Words:
    """Names and values of one request's expressions: all by places, since many names are reserved words."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def name(self, attribute: str) -> str:
        place = f"#{len(self._names)}"
        self._names[place] = attribute
        return place

    def value(self, value: Any) -> str:
        place = f":{len(self._values)}"
        self._values[place] = typed(value)
        return place

    def condition(self, expects: Pairs) -> str:
        parts = [
            f"attribute_not_exists({self.name(name)})" if value is None else f"{self.name(name)} = {self.value(value)}"
            for name, value in expects
        ]
        return " AND ".join(parts)

    def parameters(self) -> dict[str, Any]:
        values = {"ExpressionAttributeValues": self._values} if self._values else {}
        return {"ExpressionAttributeNames": self._names, **values}
