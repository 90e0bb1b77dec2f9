"""A server on loopback that answers as a test's script says: whole, cut off, reset, silent, in chunks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType


@dataclass
class Received:
    """One request. Header names are lower-case."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Number of the connection, from 0: the same number twice means that it was kept."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What to answer. ``raw`` is written as it is; else status, headers and body are framed with their length."""

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    then: str = "keep"
    """``keep`` the connection, ``close`` or ``reset`` it, or be ``silent``: leave it open and say no more."""
    cut: int | None = None
    """Say no more than so many bytes of the body, below 0 not even a head."""

    def encoded(self) -> bytes:
        if self.raw is not None:
            return self.raw
        lines = [f"HTTP/1.1 {self.status} Some Reason"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        if self.cut is not None and self.cut < 0:
            return b""
        return "\r\n".join(lines).encode() + self.body[: self.cut]


def fault(code: str, message: str = "no", status: int = 400, **headers: str) -> Reply:
    """AWS's error answer."""
    body = json.dumps({"__type": f"com.amazonaws.kinesis.v20131202#{code}", "message": message}).encode()
    return Reply(body, status, headers={"x-amzn-RequestId": "request-1", **headers})


def ok(answer: Any = None, **headers: str) -> Reply:
    """A JSON answer."""
    return Reply(json.dumps({} if answer is None else answer).encode(), headers=headers)


class ScriptedServer:
    """Answers with ``replies`` in their order, then by ``otherwise``; keeps what it received in ``requests``."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.replies: deque[Reply] = deque()
        self.otherwise: Callable[[Received], Reply] = lambda received: ok()
        self.requests: list[Received] = []
        self.connections = 0
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        while self._writers:
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.connections = self.connections, self.connections + 1
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer, number):
                    pass
        finally:
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()
            self._writers.discard(writer)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip("\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in fields)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(line, headers, body, number)
        self.requests.append(received)
        reply = self.replies.popleft() if self.replies else self.otherwise(received)
        writer.write(reply.encoded())
        if reply.then == "reset":
            # Lingering for no time turns closing into a reset.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        await writer.drain()
        if reply.then == "silent":
            await reader.read()
        return reply.then == "keep"
