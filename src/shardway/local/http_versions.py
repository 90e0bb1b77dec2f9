"""Find out which HTTP a new connection speaks: TLS (ALPN) says it, or the connection's first bytes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.local.http import HttpConnection
from shardway.local.http2 import Http2Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.http_messages import ClientConnection, Handler


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of HTTP/2 (RFC 9113, section 3.4)."""


class UndecidedConnection(asyncio.Protocol):
    """A connection whose client has not shown yet which HTTP it speaks. Once the client has, the protocol for that HTTP
    gets the transport.
    """

    def __init__(self, handler: Handler, connections: set[ClientConnection], *, streams_max: int) -> None:
        self._connections = connections
        self._http1: Callable[[], asyncio.Protocol] = lambda: HttpConnection(handler, connections)
        self._http2: Callable[[], asyncio.Protocol] = lambda: Http2Connection(
            handler, connections, streams_max=streams_max
        )
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: a client has connected, after its TLS handshake if there is one."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        tls = transport.get_extra_info("ssl_object")
        chosen = None if tls is None else tls.selected_alpn_protocol()
        if chosen is not None:
            self._hand_over(self._http2 if chosen == "h2" else self._http1)

    def data_received(self, data: bytes) -> None:
        """asyncio: the first bytes have come in."""
        self._buffer += data
        if self._buffer.startswith(PREFACE):
            self._hand_over(self._http2)
        elif not PREFACE.startswith(self._buffer):
            self._hand_over(self._http1)

    def _hand_over(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._connections.discard(self)
        protocol = make()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._buffer:
            protocol.data_received(self._buffer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's argument
        """asyncio: the connection is gone before the client sent anything."""
        self._connections.discard(self)

    def shut(self) -> None:
        """Close the connection."""
        self._transport.abort()
