"""HTTP by hand, for tests that must see what is on the wire."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SIGNED = {
    "Authorization": (
        "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/kinesis/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=00"
    ),
    "X-Amz-Date": "20260101T000000Z",
}
TIMEOUT_S = 20.0


class Reply(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request_bytes(
    body: bytes = b"",
    *,
    method: str = "POST",
    path: str = "/",
    headers: dict[str, str] | None = None,
    host: str = "127.0.0.1",
) -> bytes:
    lines = {"Host": host, "Content-Length": str(len(body))} | (headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def call_bytes(operation: str, fields: Mapping[str, object], **headers: str) -> bytes:
    """A signed JSON call to Kinesis."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    usual = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": "application/x-amz-json-1.1"}
    return request_bytes(json.dumps(fields).encode(), headers=usual | SIGNED | named)


class Wire:
    """One connection."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_S)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> Reply:
        """Read one answer; raises EOFError when the connection ends instead."""
        first = self._file.readline()
        if not first:
            raise EOFError("closed without an answer")
        headers = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        status = int(first.split()[1])
        length = int(headers.get("content-length", "0"))
        body = self._file.read(length)
        if len(body) < length:
            raise EOFError(f"closed after {len(body)} of {length} bytes of the body")
        return Reply(status, headers, body)

    def call(self, data: bytes) -> Reply:
        self.send(data)
        return self.reply()

    def ended(self) -> bool:
        """True when the other side has closed in order."""
        return self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
