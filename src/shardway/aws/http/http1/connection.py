"""A client's HTTP/1.1 connection carries one request at a time, and gives its answer whole or as a stream.

A body of known length is received straight into the buffer that the caller gets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, cast

from shardway.aws.http.exchange import Answer, BadAnswerError, BrokenError, Exchange, TooLongError, close_once, let_in
from shardway.aws.http.http1.messages import content_length, framing, parse_head

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from shardway.aws.http.exchange import Limits, Request
    from shardway.aws.http.http1.messages import Framing, Head

HEAD_BYTES_MAX = 64 * 1024
"""The most bytes of one answer's status line and headers; also the size of each connection's receive buffer."""
JOIN_BYTES_MAX = 64 * 1024
"""The size up to which a request's body leaves in one write with its head."""
COPY_BYTES_MAX = 64 * 1024
"""The size up to which bodies are given as bytes; larger ones are given as the bytearray they were received into."""
WAITING_BYTES_MAX = 1024 * 1024
"""The bytes of a stream that may wait to be taken before the connection is read no more."""


class Connection(asyncio.BufferedProtocol):
    """A connection that ``loop.create_connection`` makes, and that a pool owns and lends to one caller at a time."""

    is_shared: Literal[False] = False

    def __init__(self) -> None:
        self.exchanges = 0
        """The number of requests that were sent on it so far."""
        self.lost = asyncio.get_running_loop().create_future()
        """Done when the connection is closed."""
        self.idle_since_s = 0.0
        self.reusable = True
        """False once no further request may follow."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._scratch = memoryview(bytearray(HEAD_BYTES_MAX))
        self._target = self._scratch
        self._filled_bytes = 0
        self._exchange: _Exchange | None = None

    # --- for the pool and its callers ---

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Send a request and wait for its whole answer."""
        exchange = self._begin(_head(request), request.body, limits, streamed=False)
        try:
            return await exchange.answer
        finally:
            self._end(exchange)

    async def tunnel(self, head: bytes, limits: Limits) -> Answer:
        """Ask a proxy for a tunnel (CONNECT). After status 200 the connection belongs to `begin_tls`."""
        exchange = self._begin(head, b"", limits, streamed=False)
        exchange.bodiless = True
        try:
            return await exchange.answer
        finally:
            self._end(exchange)

    async def begin_tls(self, context: ssl.SSLContext, host: str, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Go on in TLS, through a tunnel that was granted, as ``protocol``."""
        assert self._transport is not None
        self.exchanges = 0
        return cast(
            "asyncio.Transport",
            await self._loop.start_tls(self._transport, protocol, context, server_hostname=host),
        )

    async def stream(self, request: Request, limits: Limits) -> AsyncGenerator[Answer, None]:
        """Send a request; yield an `Answer` without a body when the head is there, then one for each part."""
        exchange = self._begin(_head(request), request.body, limits, streamed=True)
        try:
            first = await exchange.answer
            yield first
            while (part := await self._next_part(exchange)) is not None:
                yield first._replace(body=part)
        finally:
            self._end(exchange)

    async def is_quiet(self) -> bool:
        """True if the connection may carry a request: it is open, and nothing has come without a request.

        The connection looks at the socket itself. Bytes that wait there, which the event loop has not seen yet, would
        be taken for the next answer.
        """
        if self.reusable and self._transport is not None:
            await let_in(self._transport)
        return self.reusable

    def abort(self) -> None:
        """Drop the connection at once."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection in the orderly way; `lost` is done afterwards."""
        self.reusable = False
        if self._transport is not None:
            close_once(self._transport)

    # --- asyncio.BufferedProtocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. The event loop calls this, also when TLS was begun on the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's argument
        """Return where the next bytes go. The event loop calls this."""
        return self._target[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take in ``nbytes`` that have arrived. The event loop calls this."""
        self._filled_bytes += nbytes
        exchange = self._exchange
        if exchange is None or exchange.complete:
            # This belongs to no request, such as a 408 before the other side closes an idle connection.
            self._filled_bytes = 0
            self.abort()
            return
        exchange.heard = True
        exchange.heard_s = self._loop.time()
        try:
            if self._target is not self._scratch:
                if self._filled_bytes == len(self._target):
                    self._complete(exchange, exchange.whole)
            elif exchange.head is None:
                self._find_head(exchange, nbytes)
            else:
                self._feed(exchange, bytes(self._scratch[:nbytes]))
        except (BadAnswerError, TooLongError) as error:
            self._fail(exchange, error)

    def eof_received(self) -> bool:
        """Have the connection closed, as the other side sends no more. The event loop calls this."""
        self.reusable = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange, as the connection is gone. The event loop calls this."""
        self.reusable = False
        exchange = self._exchange
        if exchange is not None and not exchange.complete and exchange.failed is None:
            if exc is None and exchange.framing is not None and exchange.framing.ends_with_connection:
                self._complete(exchange, b"".join(exchange.parts))
            else:
                reason = "the connection was closed" if exc is None else f"the connection failed ({exc})"
                self._fail(exchange, BrokenError(reason, heard=exchange.heard))
        if not self.lost.done():
            self.lost.set_result(None)

    # --- the course of an exchange ---

    def _begin(self, head: bytes, body: bytes, limits: Limits, *, streamed: bool) -> _Exchange:
        assert self._exchange is None, "a connection carries one request at a time"
        exchange = _Exchange(self._loop, limits, streamed=streamed)
        transport = self._transport
        if transport is None or not self.reusable:
            exchange.answer.set_exception(BrokenError("the connection was closed", heard=False))
            return exchange
        self._exchange = exchange
        self._target, self._filled_bytes = self._scratch, 0
        self.exchanges += 1
        if len(body) <= JOIN_BYTES_MAX:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        exchange.unsent = transport.get_write_buffer_size()
        exchange.timer = self._loop.call_at(exchange.due_s(), self._check_time, exchange)
        return exchange

    def _end(self, exchange: _Exchange) -> None:
        """Leave an exchange, however it ended. A connection whose answer was not read to its end is of no
        more use.
        """
        if exchange.timer is not None:
            exchange.timer.cancel()
        self._exchange = None
        self._target, self._filled_bytes = self._scratch, 0
        if not exchange.complete:
            self.abort()
        elif exchange.paused and self._transport is not None:
            self._transport.resume_reading()

    def _check_time(self, exchange: _Exchange) -> None:
        """Time out, or look again later."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        overdue = exchange.overdue(unsent, held_up=exchange.paused)
        if overdue is None:
            exchange.timer = self._loop.call_at(exchange.due_s(), self._check_time, exchange)
        else:
            self._fail(exchange, overdue)

    def _find_head(self, exchange: _Exchange, nbytes: int) -> None:
        received = cast("bytearray", self._scratch.obj)
        end = received.find(b"\r\n\r\n", max(0, self._filled_bytes - nbytes - 3), self._filled_bytes)
        while end >= 0:
            head = parse_head(bytes(self._scratch[:end]))
            rest = bytes(self._scratch[end + 4 : self._filled_bytes])
            if head.status >= 200:
                self._take_head(exchange, head, rest)
                return
            # The status is 1xx: the real head follows.
            self._filled_bytes = len(rest)
            self._scratch[: self._filled_bytes] = rest
            end = received.find(b"\r\n\r\n", 0, self._filled_bytes)
        if self._filled_bytes == HEAD_BYTES_MAX:
            raise BadAnswerError(f"the head of the answer is longer than {HEAD_BYTES_MAX} bytes")

    def _take_head(self, exchange: _Exchange, head: Head, rest: bytes) -> None:
        exchange.head = head
        if not head.keeps_alive:
            self.reusable = False
        length = content_length(head)
        if length is not None and length > exchange.limits.bytes_max and not exchange.streamed:
            raise TooLongError
        if exchange.bodiless:
            self._complete(exchange, b"")
            return
        if length is None or exchange.streamed or length <= len(rest):
            exchange.framing = framing(head)
            if exchange.streamed:
                exchange.answer.set_result(Answer(head.status, head.headers, b""))
            self._feed(exchange, rest)
            return
        exchange.whole = bytearray(length)
        self._target = memoryview(exchange.whole)
        self._target[: len(rest)] = rest
        self._filled_bytes = len(rest)

    def _feed(self, exchange: _Exchange, data: bytes) -> None:
        self._filled_bytes = 0
        framed = exchange.framing
        assert framed is not None
        parts = framed.feed(data)
        exchange.parts += parts
        exchange.waiting_bytes += sum(map(len, parts))
        if exchange.streamed:
            exchange.wake()
            if exchange.waiting_bytes > WAITING_BYTES_MAX and not exchange.paused and self._transport is not None:
                exchange.paused = True
                self._transport.pause_reading()
        elif exchange.waiting_bytes > exchange.limits.bytes_max:
            raise TooLongError
        if framed.done:
            self._complete(exchange, b"" if exchange.streamed else b"".join(exchange.parts))

    async def _next_part(self, exchange: _Exchange) -> bytes | None:
        """Return the next part of a stream; None at its end."""
        part = await exchange.next_part()
        if exchange.paused and exchange.waiting_bytes <= WAITING_BYTES_MAX // 2 and self._transport is not None:
            exchange.paused = False
            self._transport.resume_reading()
        return part

    def _complete(self, exchange: _Exchange, body: bytes | bytearray) -> None:
        exchange.complete = True
        self._target, self._filled_bytes = self._scratch, 0
        if exchange.streamed:
            exchange.wake()
            return
        head = exchange.head
        assert head is not None
        if len(body) <= COPY_BYTES_MAX:
            body = bytes(body)
        if not exchange.answer.done():
            exchange.answer.set_result(Answer(head.status, head.headers, cast("bytes", body)))

    def _fail(self, exchange: _Exchange, error: Exception) -> None:
        exchange.fail(error)
        self.abort()


class _Exchange(Exchange):
    """An exchange with what only HTTP/1.1 has: a head, and a body by its framing."""

    __slots__ = ("bodiless", "framing", "head", "paused", "whole")

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, *, streamed: bool) -> None:
        super().__init__(loop, limits, streamed=streamed)
        self.bodiless = self.paused = False
        self.framing: Framing | None = None
        self.head: Head | None = None
        self.whole = bytearray()


def _head(request: Request) -> bytes:
    lines = "\r\n".join([f"{name}: {value}" for name, value in request.headers.items()])
    return (
        f"{request.method} {request.target} HTTP/1.1\r\n{lines}\r\ncontent-length: {len(request.body)}\r\n\r\n".encode(
            "latin-1"
        )
    )
