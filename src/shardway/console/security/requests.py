"""Read a request as the gate does: its headers, its cookies and the form in its body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from shardway.console.security.visitors import Refused

if TYPE_CHECKING:
    from shardway.console.security.protocol import Message, Receive, Scope


BODY_BYTES_MAX = 256 * 1024
FORM_S = 10.0
"""Seconds in which the body of a form has to come."""


class GateRequest:
    """A request, as the gate looks at it."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.peer: str = (scope.get("client") or ("", 0))[0]
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name.lower(), []).append(value)
        self.form: dict[str, str] = {}
        self._body: bytes | None = None

    def header(self, name: bytes) -> bytes:
        """Return the first value of a header; empty where there is none."""
        return self.headers.get(name, [b""])[0]

    def cookie(self, name: str) -> str:
        """Return the value of a cookie; empty where there is none."""
        for line in self.headers.get(b"cookie", []):
            for part in line.decode("latin-1").split(";"):
                found, _, value = part.strip().partition("=")
                if found == name:
                    return value
        return ""

    async def read_form(self, receive: Receive) -> None:
        """Read the body, within its bound, as the fields of a form. Raises Refused."""
        if self.header(b"content-type").partition(b";")[0].strip().lower() != b"application/x-www-form-urlencoded":
            raise Refused(415, "the console takes forms (application/x-www-form-urlencoded)")
        try:
            async with asyncio.timeout(FORM_S):
                self._body = await _body(receive)
        except TimeoutError:
            raise Refused(408, f"the form did not come within {FORM_S:g} s") from None
        try:
            fields = parse_qsl(self._body.decode(), keep_blank_values=True, max_num_fields=200, errors="strict")
        except ValueError:
            raise Refused(400, "the form cannot be read") from None
        self.form = dict(fields)

    def replayed(self, receive: Receive) -> Receive:
        """Return a ``receive`` that gives the application the body that was read already."""
        body, self._body = self._body, None

        async def receive_again() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        return receive_again


async def _body(receive: Receive) -> bytes:
    """Return the body of a request, within its bound. Raises Refused."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request broke off")
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise Refused(413, f"a form has at most {BODY_BYTES_MAX} bytes")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
