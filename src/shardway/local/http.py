"""HTTP/1.1 on one asyncio connection: requests come in, and answers go out in the order of the requests.

The module only transports: the handler knows what a request means. A handler returns an :class:`Answer` at
once (the usual case, no task is made) or an awaitable of one. Large bodies are handed to the socket in
slices of the answer's own memory, never joined or queued whole; a connection whose reader is slow is not
read from either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httptools

from shardway.local.http_messages import (
    REQUEST_BODY_BYTES_MAX,
    REQUEST_HEAD_BYTES_MAX,
    WRITE_SLICE_BYTES,
    AfterAnswer,
    Answer,
    Request,
    close_once,
    prepared,
    tear_down,
)
from shardway.tasks import spawn

if TYPE_CHECKING:
    from shardway.local.http_messages import ClientConnection, Handler


HEAD_PIECES_MAX = 4_096
"""The most pieces in which a head may come: the parser copies what it has of a header with each piece."""
PIPELINED_REQUESTS_MAX = 32
"""A connection on which this many requests wait, or the bytes of one full body, is not read from."""
JOINED_BODY_BYTES_MAX = 64 * 1024
"""The bytes of the largest body that is joined with its head and written in one call."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_INTERNAL_FAILURE = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class HttpConnection(asyncio.Protocol):
    """One client connection: keep-alive, pipelining, chunked requests, ``Expect: 100-continue``."""

    def __init__(
        self,
        handler: Handler,
        connections: set[ClientConnection],
        *,
        body_bytes_max: int = REQUEST_BODY_BYTES_MAX,
    ) -> None:
        self._handler = handler
        self._connections = connections
        self._body_bytes_max = body_bytes_max
        self._waiting_requests: deque[Request] = deque()
        self._waiting_bytes = 0
        self._busy = False  # an answer is being made or written
        self._write_paused = False
        self._read_paused = False
        self._is_closing = False  # no further request is served
        self._view: memoryview | None = None  # what is left of a large body
        self._answer_under_way = Answer(b"")  # the answer whose body is being written
        self._after_keep_alive = True
        self._task: asyncio.Task[None] | None = None
        self._drain: asyncio.Future[None] | None = None
        self._close_callbacks: list[Callable[[], None]] = []
        self._peer = ""
        self._expects_continue = False
        self._start_message()

    # --- the connection's life --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: a client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._peer = prepared(transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's argument
        """asyncio: the connection is gone, in order or not."""
        self._connections.discard(self)
        self._is_closing = True
        self._waiting_requests.clear()
        self._view = None
        self._wake_drain()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    def shut(self) -> None:
        """Stop serving: drop what waits and close (a streamed answer is cut off)."""
        self._is_closing = True
        self._waiting_requests.clear()
        if self._task is not None:
            self._task.cancel()
        self.transport.abort()

    # --- bytes in ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes have come in."""
        rest: bytes | memoryview = data
        while rest and not self._is_closing:
            # A parser that is given a header in pieces copies it with each, so bytes and pieces are bounded. Both count
            # from the last piece of a body, since trailers and the extensions of chunks have no other end.
            if self._head_pieces >= HEAD_PIECES_MAX or self._head_bytes >= REQUEST_HEAD_BYTES_MAX:
                self._refuse(_BAD_REQUEST)
                return
            piece, room = rest, REQUEST_HEAD_BYTES_MAX - self._head_bytes
            if self._head_is_open and len(rest) > room:
                piece = memoryview(rest)[:room]
            self._head_pieces += 1
            self._head_bytes += len(piece)
            taken = self._feed(piece)
            rest = memoryview(rest)[taken:] if taken < len(rest) else b""

    def _feed(self, data: bytes | memoryview) -> int:
        """Give bytes to the parser, and return how many of them it has taken."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Only HTTP/1.1 is spoken: the request is taken as such, and what follows it is the next one.
            offering, self._parser = self._parser, httptools.HttpRequestParser(self)
            if not self._head_is_open:
                head = self._head_without_offer(offering)
                self._start_message()
                self._feed(head)
            return int(upgrade.args[0])
        except httptools.HttpParserError:
            self._refuse(_BAD_REQUEST)
        return len(data)

    def _head_without_offer(self, parser: httptools.HttpRequestParser) -> bytes:
        """Return the head of a request that offered an upgrade, as if it had not. 100 Continue is not sent again."""
        version, headers = parser.get_http_version().encode(), dict(self._headers)
        offer = [option.strip().lower() for option in headers.pop(b"connection", b"").split(b",")]
        for name in (b"upgrade", b"expect"):
            headers.pop(name, None)
        headers[b"connection"] = b"close" if b"close" in offer else b"keep-alive"
        lines = b"".join(b"%s: %s\r\n" % header for header in headers.items())
        return b"%s %s HTTP/%s\r\n%s\r\n" % (parser.get_method(), self._target, version, lines)

    def _start_message(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_is_open = True
        self._head_bytes = 0
        self._head_pieces = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """httptools: a piece of the request's target."""
        self._target = self._target + url if self._target else url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: a header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """httptools: the head is whole."""
        self._head_is_open = False
        if b"expect" in self._headers and self._headers[b"expect"].lower() == b"100-continue":
            self._expects_continue = True
            self._send_continue()

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of the body, chunks taken apart."""
        self._head_bytes = self._head_pieces = 0
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            self._refuse(_TOO_LARGE)
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        if self._is_closing:
            return
        if b"upgrade" in self._headers and self._parser.should_upgrade():
            return  # the parser has left a body out, and `_feed` gives it the request once more, without the offer
        self._expects_continue = False
        parts = self._body
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        request = Request(
            self._parser.get_method(),
            self._target,
            self._headers,
            body,
            self._parser.should_keep_alive(),
            self._peer,
        )
        self._start_message()
        self._waiting_requests.append(request)
        self._waiting_bytes += len(body)
        if not self._busy:
            self._serve_waiting()
        if self._waiting_too_much() and not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def _waiting_too_much(self) -> bool:
        return len(self._waiting_requests) >= PIPELINED_REQUESTS_MAX or self._waiting_bytes >= self._body_bytes_max

    def _send_continue(self) -> None:
        """Ask for the body, unless an earlier answer is still on its way, which comes first on the wire."""
        if self._expects_continue and not self._busy and not self._waiting_requests:
            self._expects_continue = False
            self.transport.write(_CONTINUE)

    def _refuse(self, head: bytes) -> None:
        """Answer with this head, and close; earlier requests that are not answered yet stay unanswered."""
        if not self._is_closing:
            self._is_closing = True
            self._waiting_requests.clear()
            if not self._busy:
                self.transport.write(head)
            close_once(self.transport)

    # --- answers out ------------------------------------------------------------------------------

    def _serve_waiting(self) -> None:
        while self._waiting_requests and not self._busy and not self._is_closing:
            request = self._waiting_requests.popleft()
            self._waiting_bytes -= len(request.body)
            self._busy = True
            try:
                answer = self._handler(request)
            except Exception as fault:
                self._report(fault)
                answer = Answer(_INTERNAL_FAILURE, ending=AfterAnswer.CLOSE)
            if type(answer) is Answer and answer.stream is None:
                self._send(answer, request.keep_alive)
            else:
                self._task = spawn(self._send_later(answer, request.keep_alive), self._abort, loop=self._loop)
        if self._read_paused and not self._waiting_too_much() and not self._is_closing:
            self._read_paused = False
            self.transport.resume_reading()
        self._send_continue()

    async def _send_later(self, answer: Answer | Awaitable[Answer], keep_alive: bool) -> None:
        try:
            ready = answer if isinstance(answer, Answer) else await answer
            if ready.stream is not None:
                if not self.transport.is_closing():
                    self.transport.write(ready.head)
                chunks = _Chunks(self)
                await ready.stream(chunks)
                self._close_callbacks.clear()
                keep_alive = keep_alive and not chunks.leaving
                ready = Answer(b"0\r\n\r\n", ending=ready.ending)  # dropped where the client is gone
        except Exception as fault:
            self._report(fault)
            ready = Answer(b"", ending=AfterAnswer.RESET)  # the client must not take a broken answer for a whole one
        self._task = None
        self._send(ready, keep_alive)
        self._serve_waiting()

    def _abort(self, fault: BaseException) -> None:
        """Tear the connection down, so that the client sees at once that no answer comes any more."""
        self._report(fault)
        self.transport.abort()

    def _report(self, fault: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": "the local service failed on a request", "exception": fault, "protocol": self}
        )

    def _send(self, answer: Answer, keep_alive: bool) -> None:
        transport = self.transport
        if transport.is_closing():
            return
        self._answer_under_way = answer
        self._after_keep_alive = keep_alive
        body = answer.body
        if len(body) <= JOINED_BODY_BYTES_MAX:
            head = answer.head
            if head or body:
                transport.write(head + body if body else head)
        else:
            transport.write(answer.head)
            self._view = memoryview(body)
        self._write_on()

    def _write_on(self) -> None:
        """Write slices until the socket is full or the body is out; then end the answer."""
        view = self._view
        while view is not None:
            if self._write_paused:
                self._view = view
                return
            if self.transport.is_closing():
                self._view = None
                return
            self.transport.write(view[:WRITE_SLICE_BYTES])
            view = view[WRITE_SLICE_BYTES:] if len(view) > WRITE_SLICE_BYTES else None
        self._view = None
        ending = self._answer_under_way.ending
        if ending is AfterAnswer.RESET or ending is AfterAnswer.DISCONNECT:
            self._reset()
        elif ending is not AfterAnswer.KEEP or not self._after_keep_alive:
            self._is_closing = True
            close_once(self.transport)
        elif not self._write_paused:
            self._busy = False

    def _reset(self) -> None:
        self._is_closing = True
        tear_down(self.transport)

    def pause_writing(self) -> None:
        """asyncio: the socket takes no more for now."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """asyncio: all that was written is with the socket."""
        self._write_paused = False
        self._wake_drain()
        if self._busy and self._task is None and not self._is_closing:
            self._write_on()
            self._serve_waiting()

    def _wake_drain(self) -> None:
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)


class _Chunks:
    """The chunked body of one streamed answer."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self.leaving = False

    @property
    def closed(self) -> bool:
        return self._connection.transport.is_closing()

    @property
    def full(self) -> bool:
        return self._connection._write_paused

    def send(self, data: bytes) -> None:
        if data and not self.closed:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def drain(self) -> None:
        connection = self._connection
        if connection._write_paused and not self.closed:
            connection._drain = connection._loop.create_future()
            await connection._drain

    def on_close(self, callback: Callable[[], None]) -> None:
        if self.closed:
            callback()
        else:
            self._connection._close_callbacks.append(callback)

    def break_off(self, ending: AfterAnswer) -> None:
        if ending is AfterAnswer.LEAVE:
            self.leaving = True
        elif ending is not AfterAnswer.CLOSE:
            self._connection._reset()
        else:
            self._connection._is_closing = True
            close_once(self._connection.transport)
