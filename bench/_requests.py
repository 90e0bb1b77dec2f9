"""Ready-made calls of AWS's JSON services: their bytes, and one call with its answer."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Service(NamedTuple):
    """What the requests of a service have in common."""

    target: str
    media_type: str
    scope: str


KINESIS = Service("Kinesis_20131202", "application/x-amz-json-1.1", "kinesis")
DYNAMODB = Service("DynamoDB_20120810", "application/x-amz-json-1.0", "dynamodb")


def request(service: Service, operation: str, fields: Mapping[str, object]) -> bytes:
    """Return the bytes of a ready-made call."""
    body = json.dumps(fields, separators=(",", ":")).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {service.media_type}\r\n"
        f"X-Amz-Target: {service.target}.{operation}\r\nX-Amz-Date: 20260101T000000Z\r\n"
        f"Authorization: AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/{service.scope}/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=00\r\nUser-Agent: shardway/bench tag/bench\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def call(port: int, service: Service, operation: str, fields: Mapping[str, object]) -> dict[str, Any]:
    """Make one call, and return its answer. Raises RuntimeError when it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    head, _, body = request(service, operation, fields).partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    connection.request("POST", "/", body, headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(answer.decode())
    return json.loads(answer) if answer else {}
