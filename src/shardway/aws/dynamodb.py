"""Keep leases in DynamoDB, by the few calls that a lease table makes, with plain attributes in place of typed values.

Names, shapes and error codes: Amazon DynamoDB API reference, version 2012-08-10.
"""

from __future__ import annotations

import asyncio
import base64
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from shardway.aws.calls import NEVER, reading
from shardway.aws.wire import Wire
from shardway.core.assignment.kcl.fleet import Place
from shardway.core.assignment.kcl.rows import COORDINATOR_KEY, METRICS_KEY, coordination
from shardway.core.leases import Done, Kind, LeaseRow, Outcome, Refused, Unknown, Write, lease_row
from shardway.core.leases import row as names
from shardway.core.leases.listing import Listing, listing_of
from shardway.core.leases.worker_row import PROCESS, WORKER_ID, WorkerRow, worker_rows
from shardway.errors import (
    AccessDeniedError,
    ConditionFailedError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ServiceError,
    ShardwayError,
    TransportError,
)
from shardway.options.leases import LeaseOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from shardway.aws.calls import RetryPolicy
    from shardway.aws.options import ConnectionOptions
    from shardway.core.assignment.kcl.fleet import Coordination


# --- typed values ---------------------------------------------------------------------------------
# DynamoDB has typed values; the plain ones are str, int, float, bytes, frozenset[str], and what else an item may hold.

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


# --- the calls ------------------------------------------------------------------------------------

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


# --- a lease table --------------------------------------------------------------------------------
# Leases are in DynamoDB in the KCL's shape: in a table that KCL workers share with ours, and a second one for our
# workers.
#
# Each write is sent once. A write that comes back with an error, or not in time, has an unknown outcome: only the row
# tells.

OWNER_INDEX = "LeaseOwnerToLeaseKeyIndex"
"""The KCL 3.x's index of leases by owner."""

WORKERS_SUFFIX = "-Workers"
LEASES_GONE = (
    "it has the checkpoints. Restore it from a backup under this name, and start the consumers again; or start them "
    "without it: they make an empty table, and begin in each shard at starting_position"
)
WORKERS_GONE = "start the consumers again: one of them makes it, and no checkpoint is in it"
MAKE_TIMEOUT_S = 600.0
"""Seconds that the tables may take to become active after they were made."""
POLL_INTERVAL_S = 0.25
"""Seconds between two looks at a table that is being made."""

_BUSY = ("ResourceInUseException", "LimitExceededException", "ValidationException")
"""The codes that UpdateTable answers to a worker when another one makes the index at the same time, or while the table
changes.
"""


class DynamoLeaseTable:
    """The lease table ``name``, over a wire of its own. It belongs to one event loop."""

    def __init__(self, name: str, connection: ConnectionOptions, options: LeaseOptions | None = None) -> None:
        self.name = name
        self.options = options or LeaseOptions()
        self._workers = self.options.workers_table or f"{name}{WORKERS_SUFFIX}"
        self._coordinator = self.options.coordinator_table or f"{name}-CoordinatorState"
        self._metrics = self.options.metrics_table or f"{name}-WorkerMetricStats"
        self._client = DynamoClient(Wire(connection), {name: LEASES_GONE, self._workers: WORKERS_GONE})

    # --- tables -----------------------------------------------------------------------------------

    async def ensure(self) -> None:
        """See `shardway.ports.LeaseTable`. Raises OptionError for a table that is there and has another key.

        The index is asked for, not waited for: on a large table it takes minutes, and only a KCL fleet reads it.
        """
        try:
            async with asyncio.timeout(MAKE_TIMEOUT_S):
                await asyncio.gather(
                    self._ensure(self.name, names.KEY, leases=True),
                    self._ensure(self._workers, WORKER_ID, leases=False),
                )
        except TimeoutError:
            raise NotFoundError(
                "ResourceNotFoundException",
                f"the tables {self.name} and {self._workers} are not active after {MAKE_TIMEOUT_S:g} s",
                operation="CreateTable",
            ) from None

    async def _ensure(self, table: str, key: str, *, leases: bool) -> None:
        found = await self._describe(table)
        while found is None or found["TableStatus"] not in ("ACTIVE", "UPDATING"):
            if found is None:  # it may also be one that was being deleted
                await self._make(table, key, index=leases)
            else:
                await asyncio.sleep(POLL_INTERVAL_S)
            found = await self._describe(table)
        hash_keys = [one["AttributeName"] for one in found["KeySchema"]]
        if hash_keys != [key]:
            raise OptionError(f"the table {table} has the key {hash_keys}, not [{key!r}]: name another table")
        if leases and self.options.owner_index:
            await self._ensure_index(table, found)

    async def _describe(self, table: str) -> dict[str, Any] | None:
        try:
            answer = await self._client.call("DescribeTable", {"TableName": table})
        except NotFoundError:
            return None
        with reading(f"DescribeTable of {table}"):
            found: dict[str, Any] = answer["Table"]
            found["TableStatus"], [one["AttributeName"] for one in found["KeySchema"]], _has_index(found)
        return found

    async def _make(self, table: str, key: str, *, index: bool) -> None:
        parameters: dict[str, Any] = {
            "TableName": table,
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
            "AttributeDefinitions": _text_attributes(key, *[names.OWNER] * index),
            **self._billing(),
        }
        if self.options.tags:
            parameters["Tags"] = [{"Key": name, "Value": value} for name, value in self.options.tags.items()]
        if self.options.deletion_protection:
            parameters["DeletionProtectionEnabled"] = True
        if index:
            parameters["GlobalSecondaryIndexes"] = [self._index()]
        try:
            await self._client.call("CreateTable", parameters)
        except ServiceError as fault:
            if fault.code != "ResourceInUseException":  # another worker was first
                raise

    async def _ensure_index(self, table: str, found: Mapping[str, Any]) -> None:
        parameters = {
            "TableName": table,
            "AttributeDefinitions": _text_attributes(names.KEY, names.OWNER),
            "GlobalSecondaryIndexUpdates": [{"Create": self._index()}],
        }
        while not _has_index(found):
            try:
                await self._client.call("UpdateTable", parameters, retry=NEVER)
                return
            except ShardwayError as fault:
                # Another worker may have been first, or the table is changing: neither is a failure.
                found = await self._describe(table) or {}
                code = fault.code if isinstance(fault, ServiceError) else ""
                wrong = code == "ValidationException" and found.get("TableStatus") == "ACTIVE"
                if not _has_index(found) and (wrong or not (fault.retryable or code in _BUSY)):
                    raise
            await asyncio.sleep(POLL_INTERVAL_S)

    def _billing(self) -> dict[str, Any]:
        capacity = self._capacity()
        return capacity if capacity else {"BillingMode": "PAY_PER_REQUEST"}

    def _capacity(self) -> dict[str, Any]:
        read, write = self.options.read_capacity_units, self.options.write_capacity_units
        if read is None or write is None:
            return {}
        return {"ProvisionedThroughput": {"ReadCapacityUnits": read, "WriteCapacityUnits": write}}

    def _index(self) -> dict[str, Any]:
        return {
            "IndexName": OWNER_INDEX,
            "KeySchema": [
                {"AttributeName": names.OWNER, "KeyType": "HASH"},
                {"AttributeName": names.KEY, "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
            **self._capacity(),
        }

    # --- leases -----------------------------------------------------------------------------------

    async def create(self, row: LeaseRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        known = {name: value for name, value in row.attributes().items() if name in names.ATTRIBUTES}

        async def put() -> Outcome:
            await self._client.put(self.name, known, absent=names.KEY, retry=NEVER)
            return Done(row)

        return await self._outcome(put(), row.key)

    async def write(self, write: Write) -> Outcome:
        """See `shardway.ports.LeaseTable`."""

        async def change() -> Outcome:
            key = {names.KEY: write.key}
            if write.kind is Kind.DELETE:
                await self._client.delete(self.name, key, write.expects, retry=NEVER)
                return Done(None)
            found = await self._client.update(self.name, key, write.changes, write.expects, retry=NEVER)
            return Done(lease_row(found))

        return await self._outcome(change(), write.key)

    async def get(self, key: str) -> LeaseRow | None:
        """See `shardway.ports.LeaseTable`."""
        found = await self._client.get(self.name, {names.KEY: key})
        return None if found is None else lease_row(found)

    async def scan(self, *, consistent: bool = False) -> Listing:
        """See `shardway.ports.LeaseTable`."""
        return listing_of(await self._client.scan(self.name, consistent=consistent))

    # --- beside KCL workers -----------------------------------------------------------------------

    async def owned_keys(self, worker_id: str) -> list[str] | None:
        """See `shardway.ports.SharedWithKcl`. The index of the KCL 3.x is asked; None where it is not there, or not
        ready.
        """
        try:
            found = await self._client.query_index(self.name, OWNER_INDEX, names.OWNER, worker_id)
        except (InvalidArgumentError, NotFoundError, AccessDeniedError) as error:
            if error.retryable:  # the credentials have ended: nothing is known of the index
                raise
            return None
        return [one[names.KEY] for one in found]

    async def coordination(self) -> Coordination | None:
        """See `shardway.ports.SharedWithKcl`. Tables that this program may not read count as none: where KCL workers
        keep rows in them, the program's role has to allow reading them.
        """
        states, metrics = await asyncio.gather(self._all(self._coordinator), self._all(self._metrics))
        if states is None and metrics is None:
            return None
        return coordination(
            {str(one.get(COORDINATOR_KEY)): one for one in states or ()},
            {str(one.get(METRICS_KEY)): one for one in metrics or ()},
        )

    async def _all(self, table: str) -> list[dict[str, Any]] | None:
        try:
            return await self._client.scan(table, consistent=False)
        except (NotFoundError, AccessDeniedError) as error:
            if error.retryable:  # the credentials have ended: a fleet must not count as gone for that
                raise
            return None

    async def show_metrics(self, place: Place, row: Mapping[str, Any]) -> Outcome:
        """See `shardway.ports.SharedWithKcl`."""

        async def put() -> Outcome:
            await self._client.put(self._metrics_in(place), row, absent=None, retry=NEVER)
            return Done(None)

        return await self._outcome(put(), None)

    async def withdraw_metrics(self, place: Place, worker_id: str) -> Outcome:
        """See `shardway.ports.SharedWithKcl`."""

        async def delete() -> Outcome:
            key = {METRICS_KEY if place is Place.OWN_TABLES else names.KEY: worker_id}
            await self._client.delete(self._metrics_in(place), key, (), retry=NEVER)
            return Done(None)

        return await self._outcome(delete(), None)

    def _metrics_in(self, place: Place) -> str:
        return self._metrics if place is Place.OWN_TABLES else self.name

    # --- workers ----------------------------------------------------------------------------------

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""

        async def put() -> Outcome:
            item = row.attributes()
            if row.process:
                await self._client.put_unless_newer(self._workers, item, counter=names.COUNTER, of=PROCESS, retry=NEVER)
            else:
                await self._client.put(self._workers, item, absent=None, retry=NEVER)
            return Done(None)

        return await self._outcome(put(), None)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """See `shardway.ports.LeaseTable`."""
        return worker_rows(await self._client.scan(self._workers, consistent=consistent))

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """See `shardway.ports.LeaseTable`."""

        async def delete() -> Outcome:
            key = {WORKER_ID: worker_id}
            expects = () if counter is None else ((names.COUNTER, counter),)
            try:
                await self._client.delete(self._workers, key, expects, retry=NEVER)
            except ConditionFailedError:
                return Done(None) if await self._client.get(self._workers, key) is None else Refused(None)
            return Done(None)

        return await self._outcome(delete(), None)

    async def close(self) -> None:
        """See `shardway.ports.LeaseTable`."""
        await self._client.wire.close()

    # --- outcomes ---------------------------------------------------------------------------------

    async def _outcome(self, change: Awaitable[Outcome], key: str | None) -> Outcome:
        try:
            async with asyncio.timeout(self.options.request_timeout_s):
                try:
                    return await change
                except ConditionFailedError:
                    return Refused(None if key is None else await self.get(key))
        except TimeoutError:
            return Unknown(f"no answer within {self.options.request_timeout_s:g} s")
        except ShardwayError as fault:
            if not fault.retryable:
                raise
            return Unknown(fault.code if isinstance(fault, ServiceError) else type(fault).__name__)


def _has_index(described: Mapping[str, Any]) -> bool:
    return any(one["IndexName"] == OWNER_INDEX for one in described.get("GlobalSecondaryIndexes") or ())


def _text_attributes(*attributes: str) -> list[dict[str, str]]:
    return [{"AttributeName": name, "AttributeType": "S"} for name in attributes]
