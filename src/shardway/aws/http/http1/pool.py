"""HTTP/1.1 connections are kept by origin: one is opened when none is idle, and kept for a while; never more than a
bound are in use.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardway.aws.http.dialing import Dialer, Origin
    from shardway.aws.http.http1.connection import Connection


class Pool:
    """Lends connections. Belongs to one event loop.

    At most ``in_use_max`` are lent for calls at a time, further callers wait; as many may be idle per origin, each for
    ``keepalive_s``. The newest idle one is lent first, so that a quiet pool shrinks. Streams last for minutes: each has
    a connection of its own, which no call waits for.
    """

    def __init__(self, dialer: Dialer, *, in_use_max: int, keepalive_s: float) -> None:
        self._dialer = dialer
        self._keepalive_s = keepalive_s
        self._free = asyncio.Semaphore(in_use_max)
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def take(self, origin: Origin, *, streamed: bool) -> Connection:
        """Lend an idle connection, or open one. Give it back with `give_back`, however it fared."""
        if streamed:
            return await self._idle_or_new(origin)
        await self._free.acquire()
        try:
            return await self._idle_or_new(origin)
        except BaseException:
            self._free.release()
            raise

    def give_back(self, origin: Origin, connection: Connection, *, streamed: bool) -> None:
        """Take a connection back: it becomes idle if it may carry another request."""
        if not streamed:
            self._free.release()
        self.keep(origin, connection)

    def keep(self, origin: Origin, connection: Connection) -> None:
        """Keep a connection that no request uses, for the next request."""
        if not connection.reusable:
            connection.close()
            return
        connection.idle_since_s = self._loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._keepalive_s, self._close_old)

    def close(self) -> None:
        """Keep no connection any more. The dialer, which opened the connections, closes them."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()

    async def _idle_or_new(self, origin: Origin) -> Connection:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            young = self._loop.time() - connection.idle_since_s < self._keepalive_s
            if young and await connection.is_quiet():
                return connection
            connection.close()
        return await self._dialer.connect(origin)

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
