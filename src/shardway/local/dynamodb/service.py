"""The service model, which has one entry for all operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from shardway.local.dynamodb import (
    batches,
    reads,
    requests,
    settings,
    table_changes,
    tables,
    transactions,
    writes,
)
from shardway.local.dynamodb.errors import DynamoError, serialization
from shardway.local.dynamodb.state import State
from shardway.local.dynamodb.transactions import Tokens

_encode = msgspec.json.Encoder().encode
_OPERATIONS: dict[str, tuple[Any, Callable[[State, Any], dict[str, Any] | None]]] = {
    "BatchGetItem": (requests.BatchGet, batches.batch_get_item),
    "BatchWriteItem": (requests.BatchWrite, batches.batch_write_item),
    "CreateTable": (requests.CreateTable, tables.create_table),
    "DeleteItem": (requests.Delete, writes.delete_item),
    "DeleteTable": (requests.TableCall, tables.delete_table),
    "DescribeContinuousBackups": (requests.TableCall, settings.describe_continuous_backups),
    "DescribeLimits": (requests.Nothing, settings.describe_limits),
    "DescribeTable": (requests.TableCall, tables.describe_table),
    "DescribeTimeToLive": (requests.TableCall, settings.describe_time_to_live),
    "GetItem": (requests.Get, reads.get_item),
    "ListTables": (requests.ListTables, tables.list_tables),
    "ListTagsOfResource": (requests.Tagging, settings.list_tags_of_resource),
    "PutItem": (requests.Put, writes.put_item),
    "Query": (requests.Query, reads.query),
    "Scan": (requests.Scan, reads.scan),
    "TagResource": (requests.Tagging, settings.tag_resource),
    "TransactGetItems": (requests.TransactGet, transactions.transact_get_items),
    "UntagResource": (requests.Tagging, settings.untag_resource),
    "UpdateContinuousBackups": (requests.Backups, settings.update_continuous_backups),
    "UpdateItem": (requests.Update, writes.update_item),
    "UpdateTable": (requests.UpdateTable, table_changes.update_table),
    "UpdateTimeToLive": (requests.TimeToLive, settings.update_time_to_live),
}
OPERATIONS = frozenset(_OPERATIONS) | {"TransactWriteItems"}
"""The operations that the service has."""
_ADVICE = "name a DynamoDB that has it (--dynamodb-endpoint-url), if you need it"


class DynamoModel:
    """DynamoDB without the network: JSON in, JSON out. The time is passed in.

    ``clock`` gives epoch seconds; it may jump ahead. ``settle_s`` is how long a table stays CREATING, UPDATING and
    DELETING. Only one thread at a time may use a model.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        region: str = "us-east-1",
        account_id: str = "000000000000",
        settle_s: float = 0.0,
    ) -> None:
        self.state = State(clock, region, account_id, settle_s)
        tokens = Tokens()
        self._calls: dict[str, tuple[Any, Callable[[Any], dict[str, Any] | None]]] = {
            name: (requests.decoder(kind), partial(do, self.state)) for name, (kind, do) in _OPERATIONS.items()
        }
        self._calls["TransactWriteItems"] = (
            requests.decoder(requests.TransactWrite),
            partial(transactions.transact_write_items, self.state, tokens),
        )

    def handle(self, operation: str, body: bytes) -> bytes:
        """Do a call, and return the answer's body. Raises DynamoError."""
        call = self._calls.get(operation)
        if call is None:
            raise DynamoError(
                "UnknownOperationException", f"the local DynamoDB has no operation {operation[:100]}: {_ADVICE}"
            )
        decoder, do = call
        try:
            request = decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise serialization(f"the body is not what {operation} takes: {fault}") from None
        answer = do(request)
        return b"" if answer is None else _encode(answer)
