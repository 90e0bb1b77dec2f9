"""Connections by origin: opened when none is idle, kept for a while, never more than a bound in use."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from penstock.aws.http.connection import BrokenError, Connection, Limits
from penstock.errors import OptionError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

CLOSE_WAIT_S = 1.0
"""How long `Pool.close` waits for connections to close in the orderly way."""
HAPPY_EYEBALLS_DELAY_S = 0.25
"""After this long the host's next address is tried as well (RFC 8305)."""
PROXY_ANSWER_BYTES_MAX = 64 * 1024


class Proxy(NamedTuple):
    """An HTTP proxy. ``authorization`` is the value of Proxy-Authorization, if its URL holds a user."""

    host: str
    port: int
    authorization: str | None = None

    @classmethod
    def from_url(cls, url: str) -> Proxy:
        """Read ``http://user:password@host:port``."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise OptionError(
                f"the proxy of the environment must be http://host:port, not {parts.scheme}://{parts.hostname}"
            )
        authorization = None
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        return cls(parts.hostname, parts.port or 80, authorization)


class Origin(NamedTuple):
    """What a connection leads to."""

    host: str
    port: int
    tls: bool
    proxy: Proxy | None = None


class TunnelRefusedError(Exception):
    """The proxy does not let us through."""


class Pool:
    """Lends connections. Belongs to one event loop.

    At most ``in_use_max`` are lent at a time, further callers wait; as many may be idle per origin, each for
    ``keepalive_s``. The newest idle one is lent first, so that a quiet pool shrinks.
    """

    def __init__(
        self, *, in_use_max: int, keepalive_s: float, connect_timeout_s: float, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        self._keepalive_s = keepalive_s
        self._connect_timeout_s = connect_timeout_s
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._free = asyncio.Semaphore(in_use_max)
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def take(self, origin: Origin) -> Connection:
        """Lend an idle connection, or open one. Give it back with `give_back`, however it fared."""
        await self._free.acquire()
        try:
            idle = self._idle.get(origin)
            while idle:
                connection = idle.pop()
                young = self._loop.time() - connection.idle_since_s < self._keepalive_s
                if young and await connection.is_quiet():
                    return connection
                connection.close()
            return await self._connect(origin)
        except BaseException:
            self._free.release()
            raise

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """Take a connection back: it becomes idle if it may carry another request."""
        self._free.release()
        if not connection.reusable:
            connection.close()
            return
        connection.idle_since_s = self._loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._keepalive_s, self._close_old)

    async def close(self) -> None:
        """Close all connections, lent ones too."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        waiting = [connection.lost for connection in self._open]
        for connection in self._open:
            connection.close()
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_WAIT_S)
        for connection in self._open:
            connection.abort()
        await asyncio.sleep(0)

    def _close_old(self) -> None:
        self._sweep = None
        oldest_s = self._loop.time() - self._keepalive_s
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since_s <= oldest_s:
                    connection.close()
            kept = [connection for connection in idle if connection.reusable]
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        if self._idle:
            self._sweep = self._loop.call_later(self._keepalive_s, self._close_old)

    async def _connect(self, origin: Origin) -> Connection:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                if origin.proxy is None:
                    return await self._dial(origin.host, origin.port, origin.host if origin.tls else None)
                connection = await self._dial(origin.proxy.host, origin.proxy.port, None)
                if origin.tls:
                    await self._tunnel(connection, origin)
                return connection
        except TimeoutError:
            raise TimeoutError(f"no connection within {self._connect_timeout_s} s") from None

    async def _dial(self, host: str, port: int, tls_host: str | None) -> Connection:
        _, connection = await self._loop.create_connection(
            Connection,
            host,
            port,
            ssl=self._context() if tls_host is not None else None,
            server_hostname=tls_host,
            # An address has no other beside it to race; and a race that is cancelled at its end leaves its socket to
            # the garbage collector (asyncio.staggered, Python 3.11).
            happy_eyeballs_delay=None if _is_address(host) else HAPPY_EYEBALLS_DELAY_S,
        )
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    async def _tunnel(self, connection: Connection, origin: Origin) -> None:
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
            await connection.begin_tls(self._context(), origin.host)
        except BaseException:
            connection.abort()
            with contextlib.suppress(asyncio.CancelledError, BrokenError):
                await asyncio.sleep(0)
            raise

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = self._make_tls()
        return self._tls


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
