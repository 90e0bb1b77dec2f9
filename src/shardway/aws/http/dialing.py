"""Open connections: find addresses, begin TLS, which may choose a protocol, and ask proxies for tunnels."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import socket
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from shardway.aws.http.exchange import BrokenError, Limits
from shardway.aws.http.http1.connection import Connection
from shardway.errors import OptionError
from shardway.tasks import awaited, drop

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from shardway.aws.http.http2.connection import MultiplexedConnection

CLOSE_WAIT_S = 1.0
"""Seconds that `Dialer.close` waits for connections to close in the orderly way."""
HAPPY_EYEBALLS_DELAY_S = 0.25
"""Seconds after which the host's next address is tried as well (RFC 8305)."""
PROXY_ANSWER_BYTES_MAX = 64 * 1024

P = TypeVar("P", bound=asyncio.BaseProtocol)
C = TypeVar("C", "Connection", "MultiplexedConnection")


class Proxy(NamedTuple):
    """An HTTP proxy. ``authorization`` is the value of Proxy-Authorization, if its URL holds a user."""

    host: str
    port: int
    authorization: str | None = None

    @classmethod
    def from_url(cls, url: str) -> Proxy:
        """Read ``http://user:password@host:port``."""
        try:
            parts = urlsplit(url)
            port = parts.port or 80
        except ValueError:  # its text may hold a part of the password
            raise OptionError("the proxy of the environment is no URL: it must be http://host:port") from None
        if parts.scheme != "http" or not parts.hostname:
            raise OptionError(
                f"the proxy of the environment must be http://host:port, not {parts.scheme}://{parts.hostname}"
            )
        authorization = None
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        return cls(parts.hostname, port, authorization)


class Origin(NamedTuple):
    """The place that a connection leads to."""

    host: str
    port: int
    tls: bool
    proxy: Proxy | None = None


class TunnelRefusedError(Exception):
    """The proxy does not let us through."""


class Dialer:
    """Opens connections, and closes those that are open at the end. Belongs to one event loop."""

    def __init__(self, *, connect_timeout_s: float, tls: Callable[[], ssl.SSLContext]) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._make_tls = tls
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._loop = asyncio.get_running_loop()
        self.open: set[Connection | MultiplexedConnection] = set()

    async def connect(self, origin: Origin) -> Connection:
        """Open a connection for HTTP/1.1."""
        async with self._in_time():
            if origin.proxy is None:
                context = self._context() if origin.tls else None
                _, connection = await self._dial(Connection, origin.host, origin.port, context)
                return self._keep(connection)
            _, connection = await self._dial(Connection, origin.proxy.host, origin.proxy.port, None)
            self._keep(connection)
            if origin.tls:
                connection.connection_made(await self._tunnel(connection, origin, self._context(), connection))
            return connection

    async def negotiate(
        self, origin: Origin, make: Callable[[], MultiplexedConnection]
    ) -> Connection | MultiplexedConnection:
        """Open a connection whose protocol the other side chooses (ALPN): HTTP/2 if it can, else HTTP/1.1.

        Without TLS there is no such choice: HTTP/2 is spoken at once ("prior knowledge", RFC 9113, 3.3).
        """
        async with self._in_time():
            if not origin.tls:
                _, plain = await self._dial(make, origin.host, origin.port, None)
                return await self._begin(plain)
            context, early = self._context("h2", "http/1.1"), _EarlyBytes()
            if origin.proxy is None:
                transport, _ = await self._dial(lambda: early, origin.host, origin.port, context)
            else:
                _, way = await self._dial(Connection, origin.proxy.host, origin.proxy.port, None)
                transport = await self._tunnel(self._keep(way), origin, context, early)
                self.open.discard(way)
            if transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
                return await self._begin(early.continue_as(make(), transport))
            return self._keep(early.continue_as(Connection(), transport))

    async def close(self) -> None:
        """Close all connections, lent ones too."""
        waiting = [connection.lost for connection in self.open]
        for connection in self.open:
            connection.close()
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_WAIT_S)
        aborted = [connection.lost for connection in self.open]
        for connection in self.open:
            connection.abort()
        if aborted:  # uvloop needs more than a turn for it; a loop that is closed before leaves the sockets open
            await asyncio.wait(aborted, timeout=CLOSE_WAIT_S)
        await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                yield
        except TimeoutError:
            raise TimeoutError(f"no connection within {self._connect_timeout_s} s") from None

    async def _dial(
        self, make: Callable[[], P], host: str, port: int, context: ssl.SSLContext | None
    ) -> tuple[asyncio.Transport, P]:
        server_hostname = host if context is not None else None
        if _is_address(host):  # an address has no other one beside it to race
            return await self._loop.create_connection(make, host, port, ssl=context, server_hostname=server_hostname)
        # The race is ours on each loop: uvloop tries one address after the other, and one that swallows packets would
        # use up the whole time; asyncio's race leaves its socket to the garbage collector when it is cancelled at its
        # end (asyncio.staggered, Python 3.11).
        connected = await _race(self._loop, host, port)
        try:
            return await self._loop.create_connection(
                make, sock=connected, ssl=context, server_hostname=server_hostname
            )
        except BaseException:  # a caller that is cancelled here has no transport that would close it
            if not isinstance(self._loop, asyncio.BaseEventLoop):  # asyncio's loops close it, after they let go of it
                connected.close()
            raise

    async def _tunnel(
        self, connection: Connection, origin: Origin, context: ssl.SSLContext, protocol: asyncio.BaseProtocol
    ) -> asyncio.Transport:
        """Ask the proxy at the other end for a tunnel; TLS and ``protocol`` go on in it."""
        assert origin.proxy is not None
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"Host: {host}:{origin.port}"]
        if origin.proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {origin.proxy.authorization}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        try:
            answer = await connection.tunnel(head, Limits(PROXY_ANSWER_BYTES_MAX, self._connect_timeout_s))
            if answer.status != 200:
                raise TunnelRefusedError(
                    f"the proxy {origin.proxy.host}:{origin.proxy.port} answered {answer.status} to CONNECT"
                )
            return await connection.begin_tls(context, origin.host, protocol)
        except BaseException:
            connection.abort()
            self.open.discard(connection)
            with contextlib.suppress(asyncio.CancelledError, BrokenError):
                await asyncio.sleep(0)
            raise

    async def _begin(self, connection: MultiplexedConnection) -> MultiplexedConnection:
        self._keep(connection)
        try:
            await connection.begun()
        except BaseException:
            connection.abort()
            raise
        return connection

    def _keep(self, connection: C) -> C:
        self.open.add(connection)
        connection.lost.add_done_callback(lambda _: self.open.discard(connection))
        return connection

    def _context(self, *protocols: str) -> ssl.SSLContext:
        context = self._contexts.get(protocols)
        if context is None:
            context = self._make_tls()
            if protocols:
                context.set_alpn_protocols(list(protocols))
            self._contexts[protocols] = context
        return context


class _EarlyBytes(asyncio.Protocol):
    """Holds what comes before it is seen which protocol was chosen."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._end: tuple[Exception | None] | None = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._end = (exc,)

    def continue_as(self, protocol: C, transport: asyncio.Transport) -> C:
        """Give the connection, and what came on it, to a protocol."""
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        left = memoryview(self._buffer)
        while left:
            room = protocol.get_buffer(len(left))
            size = min(len(room), len(left))
            room[:size] = left[:size]
            protocol.buffer_updated(size)
            left = left[size:]
        if self._end is not None:
            protocol.connection_lost(*self._end)
        return protocol


async def _race(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a socket that is connected to one of the host's addresses: the next address is tried as well after each
    delay, or as soon as one fails (RFC 8305). Raises OSError when none is left.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    waiting = _by_turns(list(dict.fromkeys((family, address) for family, _, _, _, address in found)))
    trying: dict[asyncio.Task[None], socket.socket] = {}
    failed: OSError = OSError(f"{host} has no address")
    try:
        while waiting or trying:
            if waiting:
                family, address = waiting.pop(0)
                one = socket.socket(family, socket.SOCK_STREAM)
                one.setblocking(False)
                trying[awaited(loop.sock_connect(one, address))] = one
            delay_s = HAPPY_EYEBALLS_DELAY_S if waiting else None
            done, _ = await asyncio.wait(trying, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                one = trying.pop(task)
                error = task.exception()
                if error is None:
                    return one
                one.close()
                failed = error if isinstance(error, OSError) else OSError(str(error))
        raise failed
    finally:  # nothing is waited for here: a caller that is cancelled meanwhile would leave the winner open
        for task, one in trying.items():
            drop(task)
            task.add_done_callback(partial(_close, one))  # after the loop has let go of it


def _close(one: socket.socket, _: object) -> None:
    one.close()


Address = tuple[int, Any]
"""A family of addresses, and one address of it."""


def _by_turns(addresses: list[Address]) -> list[Address]:
    """Return addresses whose families alternate, beginning with that of the first address: each family has its chance
    early.
    """
    first = [one for one in addresses if one[0] == addresses[0][0]]
    others = [one for one in addresses if one[0] != addresses[0][0]]
    turns = [one for pair in zip_longest(first, others) for one in pair]
    return [one for one in turns if one is not None]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
