"""Keep leases in DynamoDB in the KCL's shape: in a table that KCL workers share with ours, and a second one for our
workers.

Each write is sent once. A write that comes back with an error, or not in time, has an unknown outcome: only the row
tells.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shardway.aws.calls.answers import reading
from shardway.aws.calls.retry import NEVER
from shardway.aws.dynamodb.client import DynamoClient
from shardway.aws.wire import Wire
from shardway.core.assignment.kcl.fleet import Place
from shardway.core.assignment.kcl.rows import COORDINATOR_KEY, METRICS_KEY, coordination
from shardway.core.leases import Done, Kind, Refused, Unknown, lease_row
from shardway.core.leases import row as names
from shardway.core.leases.listing import listing_of
from shardway.core.leases.worker_row import PROCESS, WORKER_ID, worker_rows
from shardway.errors import (
    AccessDeniedError,
    ConditionFailedError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ServiceError,
    ShardwayError,
)
from shardway.options.leases import LeaseOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from shardway.aws.options import ConnectionOptions
    from shardway.core.assignment.kcl.fleet import Coordination
    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.listing import Listing
    from shardway.core.leases.worker_row import WorkerRow

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
        states, metrics = await asyncio.gather(self._scan_all(self._coordinator), self._scan_all(self._metrics))
        if states is None and metrics is None:
            return None
        return coordination(
            {str(one.get(COORDINATOR_KEY)): one for one in states or ()},
            {str(one.get(METRICS_KEY)): one for one in metrics or ()},
        )

    async def _scan_all(self, table: str) -> list[dict[str, Any]] | None:
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
