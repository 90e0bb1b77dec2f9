"""Requests and answers of HTTP, as the service sees them, and what may be done with a connection."""

from __future__ import annotations

import asyncio
import enum
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

REQUEST_BODY_BYTES_MAX = 16 * 1024 * 1024
"""PutRecords takes 10 MiB of data and keys; base64 and JSON make some 14 MiB of it."""
REQUEST_HEAD_BYTES_MAX = 64 * 1024
WRITE_SLICE_BYTES = 256 * 1024
_TAG = re.compile(rb"\btag/([A-Za-z0-9._-]{1,64})")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Request:
    """A whole request. Header names are lower case; ``target`` is path and query as sent."""

    __slots__ = ("body", "headers", "keep_alive", "method", "peer", "target")

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        keep_alive: bool,
        peer: str,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive
        self.peer = peer
        """The client's address ("" when the client is gone)."""


def tag_of(user_agent: bytes) -> str:
    """Return the name in the ``tag/<name>`` of a User-Agent, "" without one."""
    found = _TAG.search(user_agent)
    return found[1].decode() if found else ""


class AfterAnswer(enum.Enum):
    """What becomes of the connection after an answer; over HTTP/2, of the answer's stream where it says so."""

    KEEP = "keep"
    LEAVE = "leave"
    """The answer is whole, and the last one but for answers that are on their way: the connection is closed in order
    (FIN) after it; HTTP/2 says so at once (GOAWAY).
    """
    CLOSE = "close"
    """The connection is closed in order (FIN) after all bytes were sent. HTTP/2: the stream alone is given up then
    (RST_STREAM, CANCEL).
    """
    RESET = "reset"
    """The connection is torn down (RST); bytes that were not sent yet are lost. HTTP/2: the stream alone is torn down
    (RST_STREAM, INTERNAL_ERROR).
    """
    DISCONNECT = "disconnect"
    """The connection is torn down (RST), over HTTP/2 with every stream on it."""


class ChunkedOut(Protocol):
    """Where a streamed answer's chunks go."""

    @property
    def closed(self) -> bool:
        """True once the client is gone: nothing that is sent arrives."""

    @property
    def full(self) -> bool:
        """True while the client reads too slowly: make nothing new, await :meth:`drain`."""

    def send(self, data: bytes) -> None:
        """Send one chunk."""

    async def drain(self) -> None:
        """Wait until the client has taken what was sent (or is gone)."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once when the client goes away."""

    def break_off(self, ending: AfterAnswer) -> None:
        """End the answer as ``ending`` says, now and without ending the body. With LEAVE the body goes on to its
        end.
        """


Stream = Callable[[ChunkedOut], Awaitable[None]]


class Answer:
    """An answer: ``head`` from the status line to the empty line, then ``body`` or what ``stream`` sends.

    With ``stream`` the head must announce ``Transfer-Encoding: chunked``.
    """

    __slots__ = ("body", "ending", "head", "stream")

    def __init__(
        self, head: bytes, body: bytes = b"", ending: AfterAnswer = AfterAnswer.KEEP, stream: Stream | None = None
    ) -> None:
        self.head = head
        self.body = body
        self.ending = ending
        self.stream = stream


Handler = Callable[[Request], Answer | Awaitable[Answer]]


class ClientConnection(Protocol):
    """A client connection, as the server that stops sees it."""

    def shut(self) -> None:
        """Drop what waits and close."""


def prepared(transport: asyncio.Transport) -> str:
    """Set a new connection up for short answers, and return the client's address ("" when the client is gone)."""
    transport.set_write_buffer_limits(high=1)  # bytes; with 0 TLS pauses on an empty buffer, for ever
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def close_once(transport: asyncio.Transport) -> None:
    """Close in order, unless that is under way: by a second call TLS loses what `abort` needs (Python 3.11.2, Debian
    12's), and the client's own goodbye counts as the first.
    """
    if not transport.is_closing():
        transport.close()


def tear_down(transport: asyncio.Transport) -> None:
    """Close a connection at once, as one that is broken (RST)."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
