"""Lease tables and records as the tests of several commands make them."""

from __future__ import annotations

from typing import Any

SHARDS = ["shardId-000000000000", "shardId-000000000001"]


def make_table(dynamodb: Any, name: str, *items: dict[str, Any], key: str = "leaseKey") -> None:
    """A table of DynamoDB with these rows."""
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for item in items:
        dynamodb.put_item(TableName=name, Item=item)


def lease(shard_id: str, checkpoint: str, counter: int = 1, owner: str | None = "w1") -> dict[str, Any]:
    """A row as the KCL 1.x writes it."""
    row = {
        "leaseKey": {"S": shard_id},
        "leaseCounter": {"N": str(counter)},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
    }
    return row if owner is None else {**row, "leaseOwner": {"S": owner}}


def put(kinesis: Any, stream: str, shard: int, data: bytes = b"x") -> str:
    """Put a record into the first or the last shard."""
    hash_key = "0" if shard == 0 else str(2**128 - 1)
    answer = kinesis.put_record(StreamName=stream, PartitionKey="k", ExplicitHashKey=hash_key, Data=data)
    return str(answer["SequenceNumber"])
