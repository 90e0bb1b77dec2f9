"""HTTP/2 connections are kept by origin, each for many requests: as few as the other side's bounds allow."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from shardway.aws.http.exchange import BrokenError
from shardway.aws.http.http2.connection import MultiplexedConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.aws.http.dialing import Dialer, Origin
    from shardway.aws.http.http1.connection import Connection
    from shardway.aws.http.http2.stream import Multiplexing

log = logging.getLogger("shardway.aws")


class SharedPool:
    """Lends streams of connections. Belongs to one event loop.

    The oldest connection with room is filled first; a further one is opened when none has room, up to
    ``connections_max`` for an origin. Then callers wait. A connection without a request for ``keepalive_s`` is closed.
    """

    def __init__(
        self,
        dialer: Dialer,
        options: Multiplexing,
        *,
        connections_max: int,
        keepalive_s: float,
        on_http1: Callable[[Origin, Connection], None],
    ) -> None:
        """``on_http1`` gets the connection with which it was found out that an origin has no HTTP/2."""
        self._dialer = dialer
        self._options = options
        self._connections_max = connections_max
        self._keepalive_s = keepalive_s
        self._on_http1 = on_http1
        self._places: dict[Origin, _Place] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def take(self, origin: Origin) -> MultiplexedConnection | None:
        """Lend a stream; give it back with `give_back`, however it fared. None where the origin has no HTTP/2."""
        place = self._places.get(origin)
        if place is None:
            place = self._places[origin] = _Place(origin)
        asked_s = self._loop.time()
        while place.has_http2:
            connection = place.with_room()
            if connection is None:
                async with place.turn:
                    await self._make_room(origin, place, asked_s)
                continue
            connection.lent += 1
            try:
                if await connection.is_quiet():
                    return connection
            except BaseException:
                self.give_back(connection)
                raise
            self.give_back(connection)
        return None

    def give_back(self, connection: MultiplexedConnection) -> None:
        """Take a stream back."""
        connection.release()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._keepalive_s, self._close_old)

    def close(self) -> None:
        """Lend nothing any more. The dialer, which opened the connections, closes them."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._places.clear()

    async def _make_room(self, origin: Origin, place: _Place, asked_s: float) -> None:
        """Open a connection, or wait until one has room."""
        if not place.has_http2 or place.with_room() is not None:
            return
        if place.failed is not None and place.failed_s >= asked_s:
            # Another caller tried it while this one waited, and failed. All callers that waited since then fail with
            # it: else each would try in its turn, and the last would wait for as many timeouts.
            raise place.failed.with_traceback(None)
        if len(place.connections) >= self._connections_max:
            await place.change()
            return
        try:
            connection = await self._dialer.negotiate(
                origin, lambda: MultiplexedConnection(self._options, place.changed)
            )
        except Exception as error:
            place.failed, place.failed_s = error, self._loop.time()
            raise
        if not isinstance(connection, MultiplexedConnection):
            place.ask_by_http1("does not choose HTTP/2")
            self._on_http1(origin, connection)
        elif connection.room <= 0:
            connection.close()
            raise BrokenError("the service allows no request on a new connection", heard=False)
        else:
            place.add(connection)

    def _close_old(self) -> None:
        self._sweep = None
        oldest_s = self._loop.time() - self._keepalive_s
        left = False
        for place in self._places.values():
            for connection in place.connections:
                if connection.lent == 0 and connection.idle_since_s <= oldest_s:
                    connection.close()
                else:
                    left = True
        if left:
            self._sweep = self._loop.call_later(self._keepalive_s, self._close_old)


class _Place:
    """The connections that are open to one origin."""

    def __init__(self, origin: Origin) -> None:
        self.connections: list[MultiplexedConnection] = []
        self.has_http2 = True
        self.turn = asyncio.Lock()
        """The lock of the caller that opens a connection, or gets room next. The others wait behind it."""
        self.failed: Exception | None = None
        self.failed_s = 0.0
        self._change: asyncio.Future[None] | None = None
        self._origin = origin

    def add(self, connection: MultiplexedConnection) -> None:
        self.failed = None
        self.connections.append(connection)
        connection.lost.add_done_callback(lambda _: self._lose(connection))

    def with_room(self) -> MultiplexedConnection | None:
        for connection in self.connections:
            if connection.room > 0:
                return connection
        return None

    async def change(self) -> None:
        """Wait until a stream was given back, a bound was raised or a connection is gone."""
        self._change = asyncio.get_running_loop().create_future()
        await self._change

    def ask_by_http1(self, why: str) -> None:
        """Ask the origin by HTTP/1.1 from here on, and log that once."""
        if self.has_http2:
            self.has_http2 = False
            log.warning("%s:%d %s: it is asked by HTTP/1.1", self._origin.host, self._origin.port, why)

    def changed(self) -> None:
        if any(connection.wants_http1 for connection in self.connections):
            self.ask_by_http1("wants no HTTP/2 (HTTP_1_1_REQUIRED)")
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    def _lose(self, connection: MultiplexedConnection) -> None:
        self.connections.remove(connection)
        self.changed()
