"""Calls to a DynamoDB: to the model in this process, or to another one over HTTP."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from shardway.local.dynamodb import DynamoError, DynamoModel

START_S = 1_800_000_000.0
SCOPE = "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
TYPE_JSON = "application/x-amz-json-1.0"


class RefusedError(Exception):
    """The code, the text and the whole body of an error."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.code = str(body["__type"]).rpartition("#")[2]
        self.text = str(body.get("message", body.get("Message", "")))
        self.body = body
        super().__init__(f"{self.code}: {self.text}")


class Ours:
    """The model, whose clock a test moves."""

    is_ours = True

    def __init__(self, *, settle_s: float = 0.0) -> None:
        self.now_s = START_S
        self.model = DynamoModel(clock=lambda: self.now_s, settle_s=settle_s)

    def __call__(self, operation: str, **members: Any) -> dict[str, Any]:
        """Make a call. Raises RefusedError."""
        return self.raw(operation, json.dumps(members).encode())

    def raw(self, operation: str, body: bytes) -> dict[str, Any]:
        """Make a call with any body."""
        try:
            answer = self.model.handle(operation, body)
        except DynamoError as fault:
            raise RefusedError(json.loads(fault.body())) from None
        return dict(json.loads(answer or b"{}"))


class OverHttp:
    """A DynamoDB at an address."""

    is_ours = False

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._wire = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)

    def __call__(self, operation: str, **members: Any) -> dict[str, Any]:
        """Make a call. Raises RefusedError."""
        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "Content-Type": TYPE_JSON,
            "Authorization": SCOPE,
            "X-Amz-Date": "20260101T000000Z",
        }
        self._wire.request("POST", "/", json.dumps(members), headers)
        answer = self._wire.getresponse()
        body = json.loads(answer.read() or b"{}")
        if answer.status != 200:
            raise RefusedError(body)
        return dict(body)

    def close(self) -> None:
        self._wire.close()


def lease_table(dynamodb: Any, name: str = "leases", **more: Any) -> None:
    """Make a table as the KCL 3.x makes it, with its index."""
    dynamodb(
        "CreateTable",
        **{
            "TableName": name,
            "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            "AttributeDefinitions": [
                {"AttributeName": "leaseKey", "AttributeType": "S"},
                {"AttributeName": "leaseOwner", "AttributeType": "S"},
            ],
            "BillingMode": "PAY_PER_REQUEST",
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "LeaseOwnerToLeaseKeyIndex",
                    "KeySchema": [
                        {"AttributeName": "leaseOwner", "KeyType": "HASH"},
                        {"AttributeName": "leaseKey", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
            **more,
        },
    )


def ranged_table(dynamodb: Any, name: str = "ranged") -> None:
    """Make a table with a sort key, which is a number."""
    dynamodb(
        "CreateTable",
        TableName=name,
        KeySchema=[{"AttributeName": "h", "KeyType": "HASH"}, {"AttributeName": "r", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "h", "AttributeType": "S"},
            {"AttributeName": "r", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
