"""Add to each answer what all of them carry: the content security policy and its like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardway.console.security.protocol import Message, Scope, Send
    from shardway.console.security.requests import GateRequest
    from shardway.console.security.visitors import Refused


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # With no-referrer a browser sends `Origin: null` from our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"x-frame-options", b"DENY"),
]


class Answering:
    """Adds what every answer carries, and answers requests that are refused."""

    def __init__(self, send: Send, scope: Scope, *, strict_transport: bool) -> None:
        self._send = send
        self._scope = scope
        self._strict_transport = strict_transport
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send a message of the answer, with what every answer carries."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*self._add_headers(message.get("headers", []))]}
        await self._send(message)

    def _add_headers(self, headers: Any) -> list[tuple[bytes, bytes]]:
        given = {name.lower() for name, _ in headers}
        added = [*HEADERS, (b"cache-control", b"no-store")]
        if self._strict_transport:
            added.append((b"strict-transport-security", b"max-age=31536000"))
        return [*headers, *((name, value) for name, value in added if name not in given)]

    async def refuse(self, refused: Refused, asked: GateRequest) -> None:
        """Answer with a line of text, which holds nothing of the request."""
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        if refused.location is not None:
            headers.append((b"location", refused.location.encode()))
        if refused.status in (408, 413):
            headers.append((b"connection", b"close"))  # the rest of the form is not read
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        body = b"" if asked.method == "HEAD" else f"{refused.why}\n".encode()
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
