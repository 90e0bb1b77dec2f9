"""Speak HTTP/1.1 as a client: messages on the wire, a connection, and connections that are lent one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from shardway.aws.http.exchange import Answer, BrokenError, Exchange, Limits, Request, TooLongError, close_once, let_in

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from shardway.aws.http.dialing import Dialer, Origin

# --- on the wire ----------------------------------------------------------------------------------
# This part reads HTTP/1.1 from the wire: heads of answers, and how their bodies are framed (RFC 9112). There is no I/O
# in here.

CHUNK_LINE_BYTES_MAX = 4096
"""The most bytes of the line before a chunk, and of each trailer."""

LENGTH_DIGITS_MAX = 18
"""The most digits of a Content-Length: they are more bytes than any disk holds."""


class BadAnswerError(Exception):
    """What came is not HTTP/1.1 as RFC 9112 has it."""


class Head(NamedTuple):
    """Status line and headers of an answer. Header names are lower-case; of repeated ones the last counts."""

    status: int
    headers: dict[str, str]
    keeps_alive: bool


def parse_head(raw: bytes) -> Head:
    """Parse a head, given without the empty line that ends it."""
    lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    status_text = rest[:3]
    if not version.startswith("HTTP/1.") or not (
        status_text.isascii() and status_text.isdigit() and len(status_text) == 3
    ):
        raise BadAnswerError("the answer does not begin with an HTTP/1.1 status line")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadAnswerError("a header line of the answer is malformed")
        headers[name.lower()] = value.strip()
    connection = headers.get("connection", "").lower()
    keeps_alive = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
    return Head(int(status_text), headers, keeps_alive)


def content_length(head: Head) -> int | None:
    """Return the length of the body if the head says it; None for chunks and bodies that end with the connection."""
    if head.status in (204, 304):
        return 0
    if "transfer-encoding" in head.headers:
        return None
    text = head.headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= LENGTH_DIGITS_MAX):
        raise BadAnswerError("the answer's Content-Length is no number")
    return int(text)


class SizedBody:
    """A body of known length."""

    ends_with_connection = False

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received and return the parts of the body in it."""
        if len(data) > self._left:
            raise BadAnswerError("more came than the answer's Content-Length says")
        self._left -= len(data)
        self.done = self._left == 0
        return [data] if data else []


class UntilClose:
    """A body that ends with the connection."""

    ends_with_connection = True
    done = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received and return the parts of the body in it."""
        return [data] if data else []


class ChunkedBody:
    """A body in chunks. Extensions and trailers are passed over."""

    ends_with_connection = False

    def __init__(self) -> None:
        self._pending = bytearray()
        self._left = 0
        self._in_trailer = False
        self.done = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received and return the parts of the body in it."""
        self._pending += data
        parts: list[bytes] = []
        while not self.done and self._step(parts):
            pass
        if self.done and self._pending:
            raise BadAnswerError("more came after the answer's last chunk")
        return parts

    def _step(self, parts: list[bytes]) -> bool:
        """Take one piece of syntax off what is pending; False when more must come first."""
        pending = self._pending
        if self._left > 2:
            part = bytes(pending[: self._left - 2])
            if not part:
                return False
            del pending[: len(part)]
            self._left -= len(part)
            parts.append(part)
            return True
        if self._left:  # the line end after a chunk's data
            if len(pending) < self._left:
                return False
            if pending[: self._left] != b"\r\n"[-self._left :]:
                raise BadAnswerError("a chunk of the answer has not the length that it says")
            del pending[: self._left]
            self._left = 0
            return True
        return self._line()

    def _line(self) -> bool:
        end = self._pending.find(b"\r\n")
        if end < 0:
            if len(self._pending) > CHUNK_LINE_BYTES_MAX:
                raise BadAnswerError("a chunk header of the answer is too long")
            return False
        line = bytes(self._pending[:end])
        del self._pending[: end + 2]
        if self._in_trailer:
            self.done = not line
            return True
        size = line.partition(b";")[0].strip()
        if not size or len(size) > 15 or size.strip(b"0123456789abcdefABCDEF"):
            raise BadAnswerError("a chunk header of the answer is malformed")
        length = int(size, 16)
        self._in_trailer = length == 0
        self._left = length + 2 if length else 0
        return True


Framing = SizedBody | UntilClose | ChunkedBody


def framing(head: Head) -> Framing:
    """Return the framing of the body after this head."""
    length = content_length(head)
    if length is not None:
        return SizedBody(length)
    encoding = head.headers.get("transfer-encoding")
    if encoding is None:
        return UntilClose()
    if encoding.lower() != "chunked":
        raise BadAnswerError(f"the answer comes in the transfer encoding {encoding[:40]!r}, which was not asked for")
    return ChunkedBody()


# --- a connection ---------------------------------------------------------------------------------
# A client's HTTP/1.1 connection carries one request at a time, and gives its answer whole or as a stream.
#
# A body of known length is received straight into the buffer that the caller gets.

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
        self._filled = 0
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
        return self._target[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take in ``nbytes`` that have arrived. The event loop calls this."""
        self._filled += nbytes
        exchange = self._exchange
        if exchange is None or exchange.complete:
            # This belongs to no request, such as a 408 before the other side closes an idle connection.
            self._filled = 0
            self.abort()
            return
        exchange.heard = True
        exchange.heard_s = self._loop.time()
        try:
            if self._target is not self._scratch:
                if self._filled == len(self._target):
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
        self._target, self._filled = self._scratch, 0
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
        self._target, self._filled = self._scratch, 0
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
        end = received.find(b"\r\n\r\n", max(0, self._filled - nbytes - 3), self._filled)
        while end >= 0:
            head = parse_head(bytes(self._scratch[:end]))
            rest = bytes(self._scratch[end + 4 : self._filled])
            if head.status >= 200:
                self._take_head(exchange, head, rest)
                return
            # The status is 1xx: the real head follows.
            self._filled = len(rest)
            self._scratch[: self._filled] = rest
            end = received.find(b"\r\n\r\n", 0, self._filled)
        if self._filled == HEAD_BYTES_MAX:
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
        self._filled = len(rest)

    def _feed(self, exchange: _Exchange, data: bytes) -> None:
        self._filled = 0
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
        self._target, self._filled = self._scratch, 0
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


# --- connections by origin ------------------------------------------------------------------------
# HTTP/1.1 connections are kept by origin: one is opened when none is idle, and kept for a while; never more than a
# bound are in use.


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
