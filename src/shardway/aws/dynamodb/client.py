"""Make the few calls to DynamoDB that a lease table needs, with plain attributes in place of typed values.

Names, shapes and error codes: Amazon DynamoDB API reference, version 2012-08-10.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from shardway.aws.calls.answers import reading
from shardway.aws.dynamodb.values import plain_item, typed, typed_item
from shardway.errors import NotFoundError, ServiceError, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.aws.calls.retry import RetryPolicy
    from shardway.aws.wire import Wire

PAGES_MAX = 10_000
"""The most pages of Scan or Query; a page has up to 1 MiB: some 2,500 leases."""

Pairs: TypeAlias = "Sequence[tuple[str, Any]]"
"""Attributes and values; a value of None says that the attribute is, or becomes, absent."""


class DynamoClient:
    """Makes calls over a wire. Raises what `Wire.call` raises; ConditionFailedError where a condition did not hold."""

    def __init__(self, wire: Wire, advice: Mapping[str, str] = MappingProxyType({})) -> None:
        """``advice`` says, by the name of a table, what to do when the table is gone."""
        self.wire = wire
        self._advice = advice

    async def call(
        self, operation: str, parameters: Mapping[str, Any], *, retry: RetryPolicy | None = None
    ) -> dict[str, Any]:
        """Make one call, with JSON in and out."""
        try:
            body = await self.wire.call("dynamodb", operation, msgspec.json.encode(parameters), retry=retry)
        except ServiceError as error:
            table, region = parameters["TableName"], error.where
            error.where = f"table {table}, {region}"
            if isinstance(error, NotFoundError) and table in self._advice:
                # The service's message names no table, and programs show `repr(error)`, which has the message alone.
                error.service_message = f"the table {table} is not in {region}: {self._advice[table]}"
                error.args = (error.service_message,)
            raise
        with reading(f"{operation} of {parameters['TableName']}"):
            return msgspec.json.decode(body or b"{}", type=dict[str, Any])

    async def put(self, table: str, item: Mapping[str, Any], *, absent: str | None, retry: RetryPolicy) -> None:
        """Call PutItem; with ``absent``, the item is put only if there is none yet that has this attribute."""
        parameters: dict[str, Any] = {"TableName": table, "Item": typed_item(item)}
        if absent is not None:
            words = _Words()
            parameters |= {"ConditionExpression": words.condition([(absent, None)]), **words.parameters()}
        await self.call("PutItem", parameters, retry=retry)

    async def put_unless_newer(
        self, table: str, item: Mapping[str, Any], *, counter: str, of: str, retry: RetryPolicy
    ) -> None:
        """Call PutItem, on condition that there is no item yet with the same value of the attribute ``of`` and a higher
        number in the attribute ``counter``.
        """
        words = _Words()
        fresh = words.condition([(of, None)])
        other = f"{words.name(of)} <> {words.value(item[of])}"
        older = f"{words.name(counter)} <= {words.value(item[counter])}"
        parameters = {"ConditionExpression": f"{fresh} OR {other} OR {older}", **words.parameters()}
        await self.call("PutItem", {"TableName": table, "Item": typed_item(item), **parameters}, retry=retry)

    async def update(
        self, table: str, key: Mapping[str, Any], changes: Pairs, expects: Pairs, *, retry: RetryPolicy
    ) -> dict[str, Any]:
        """Call UpdateItem under a condition, and return all attributes as they are since then."""
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
        """Call DeleteItem, under a condition unless that is empty."""
        words = _Words()
        parameters: dict[str, Any] = {"TableName": table, "Key": typed_item(key)}
        if expects:
            parameters |= {"ConditionExpression": words.condition(expects), **words.parameters()}
        await self.call("DeleteItem", parameters, retry=retry)

    async def get(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Call GetItem, with a consistent read."""
        answer = await self.call("GetItem", {"TableName": table, "Key": typed_item(key), "ConsistentRead": True})
        item = answer.get("Item")
        with reading(f"GetItem of {table}"):
            return None if item is None else plain_item(item)

    async def scan(self, table: str, *, consistent: bool) -> list[dict[str, Any]]:
        """Call Scan, for all pages."""
        return await self._pages("Scan", {"TableName": table, "ConsistentRead": consistent})

    async def query_index(self, table: str, index: str, attribute: str, value: str) -> list[dict[str, Any]]:
        """Query an index by its hash key, for all pages. Indexes are never consistent."""
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
    """The names and values of one request's expressions, which stand at places, since many names are reserved words."""

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
