"""Speak HTTP/2 as a client, by h2 (``pip install 'shardway[http2]'``), which is imported with this module."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hpack import HeaderTuple, NeverIndexedHeaderTuple

from shardway.aws.http.exchange import (
    Answer,
    BrokenError,
    Exchange,
    NotProcessedError,
    TooLongError,
    close_once,
    let_in,
)
from shardway.aws.http.http1 import BadAnswerError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from h2.events import Event

    from shardway.aws.http.dialing import Dialer, Origin
    from shardway.aws.http.exchange import Limits, Request
    from shardway.aws.http.http1 import Connection

# --- frames ---------------------------------------------------------------------------------------
# This part looks at HTTP/2's frames before the library sees them (RFC 9113, 4.1 and 6.8). There is no I/O in here.
#
# The library takes a GOAWAY for the end of the connection, and what comes after it for a fault. In truth the streams
# that the other side took on before it go on to their end, which for a subscription may be minutes later.

HEAD_BYTES = 9
GOAWAY = 7
FRAME_BYTES_MAX = 64 * 1024
"""The most bytes of a frame that the other side may send: frames are fewer then, and none keeps the others waiting for
long. A longer one is refused by its head, as the library would wait for all of it.
"""


class BadFrameError(Exception):
    """A frame that is looked at in here is not as RFC 9113 has it."""


class GoAway(NamedTuple):
    """The other side takes no further streams. It did nothing about those above ``last_stream_id``."""

    last_stream_id: int
    error_code: int

    @property
    def reason(self) -> str:
        """The GOAWAY as a message names it."""
        return "GOAWAY" if self.error_code == 0 else f"GOAWAY with error code {self.error_code}"


class FrameSplitter:
    """Takes GOAWAY frames out of what is received."""

    def __init__(self) -> None:
        self._left = 0  # bytes of the body of a frame that is passed on
        self._pending = bytearray()  # a frame's head that is not whole yet, or a GOAWAY

    def feed(self, data: bytes) -> list[bytes | GoAway]:
        """Return what to pass on, and the GOAWAYs in between, in the order of their arrival."""
        if self._pending:
            data = bytes(self._pending) + data
            self._pending.clear()
        found: list[bytes | GoAway] = []
        begin, at, end = 0, self._left, len(data)
        while at + HEAD_BYTES <= end:
            size = int.from_bytes(data[at : at + 3], "big")
            if size > FRAME_BYTES_MAX:
                raise BadFrameError(f"a frame of {size} bytes")
            if data[at + 3] != GOAWAY:
                at += HEAD_BYTES + size
                continue
            if size < 8:
                raise BadFrameError(f"a GOAWAY frame of {size} bytes")
            if at + HEAD_BYTES + size > end:
                break
            if begin < at:
                found.append(data[begin:at])
            found.append(_go_away(data[at + HEAD_BYTES : at + HEAD_BYTES + size]))
            begin = at = at + HEAD_BYTES + size
        if at < end:
            self._pending += data[at:]
        self._left = max(0, at - end)
        if begin < min(at, end):
            found.append(data[begin : min(at, end)])
        return found


def _go_away(body: bytes) -> GoAway:
    return GoAway(int.from_bytes(body[:4], "big") & 0x7FFF_FFFF, int.from_bytes(body[4:8], "big"))


# --- a stream -------------------------------------------------------------------------------------
# An HTTP/2 connection is made of its bounds, the library's state, and the stream and headers of each request.

HEADERS_BYTES_MAX = 64 * 1024
"""The most bytes of one answer's headers, as RFC 9113 counts them (6.5.2)."""
SECRETS = frozenset({"authorization", "x-amz-security-token"})
"""Headers that no table of the connection keeps (RFC 7541, 7.1.3)."""


class Multiplexing(NamedTuple):
    """The bounds of one connection: what may wait on each stream, how many streams there are at most, and when it is
    asked for a sign of life and given up.
    """

    window_bytes: int
    streams_max: int
    ping_interval_s: float
    ping_timeout_s: float


class Stream(Exchange):
    """An exchange with what only HTTP/2 has: a number, and an end of its own."""

    __slots__ = ("head", "id", "is_reset")

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, *, streamed: bool) -> None:
        super().__init__(loop, limits, streamed=streamed)
        self.id = 0
        self.head: Answer | None = None
        self.is_reset = False

    def complete_now(self) -> None:
        """Take note that the answer is whole."""
        if self.failed is not None:
            return
        self.complete = True
        if self.streamed:
            self.wake()
        elif not self.answer.done():
            assert self.head is not None
            self.answer.set_result(self.head._replace(body=b"".join(self.parts)))
            self.waiting_bytes = 0


def library_connection(options: Multiplexing) -> H2Connection:
    """Return the library's state of a connection, with our settings."""
    # Our headers are as they have to be; what comes is checked.
    connection = H2Connection(H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False))
    connection.local_settings = Settings(
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: options.window_bytes,
            SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES_MAX,
            SettingCodes.MAX_HEADER_LIST_SIZE: HEADERS_BYTES_MAX,
        }
    )
    connection.max_inbound_frame_size = FRAME_BYTES_MAX
    connection.decoder.max_header_list_size = HEADERS_BYTES_MAX
    return connection


def header_block(request: Request, scheme: bytes) -> list[HeaderTuple]:
    """Return the request's headers. ``host`` is sent as ``:authority``, which a signature takes for it."""
    headers = request.headers
    block = [
        HeaderTuple(b":method", request.method.encode("latin-1")),
        HeaderTuple(b":scheme", scheme),
        HeaderTuple(b":authority", headers["host"].encode("latin-1")),
        HeaderTuple(b":path", request.target.encode("latin-1")),
    ]
    for name, value in headers.items():
        lower = name.lower()
        if lower != "host":
            kind = NeverIndexedHeaderTuple if lower in SECRETS else HeaderTuple
            block.append(kind(lower.encode("latin-1"), value.encode("latin-1")))
    block.append(HeaderTuple(b"content-length", b"%d" % len(request.body)))
    return block


# --- a connection ---------------------------------------------------------------------------------
# A client's HTTP/2 connection carries many requests at a time, and gives their answers whole or as streams (RFC 9113).
#
# It needs the package h2 (``pip install 'shardway[http2]'``), which is imported with this module.

READ_BYTES = 256 * 1024
"""The most bytes that each connection receives at a time."""
UNSENT_BYTES_MAX = 1024 * 1024
"""The most bytes that may wait to leave a connection. Bodies wait until what is written has left; so what comes beyond
are answers to the other side's own frames, which it does not read: the connection is dropped then.
"""
NOTHING_DONE = (ErrorCodes.REFUSED_STREAM, ErrorCodes.HTTP_1_1_REQUIRED)
"""The codes by which a stream is reset that the other side has not begun (RFC 9113, 8.7 and 9.2)."""


class MultiplexedConnection(asyncio.BufferedProtocol):
    """A connection that ``loop.create_connection`` makes; the pool that owns it lends its streams."""

    is_shared: Literal[True] = True

    def __init__(self, options: Multiplexing, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when there may be room for further streams, or will be none any more."""
        self.exchanges = 0
        """The number of requests that were sent on it so far."""
        self.lost = asyncio.get_running_loop().create_future()
        """Done when the connection is closed."""
        self.idle_since_s = 0.0
        self.lent = 0
        """The number of streams that are promised or open."""
        self.reusable = True
        """False once no further request may follow."""
        self.wants_http1 = False
        """True where the other side has said that it is to be asked by HTTP/1.1."""
        self._options = options
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._scratch = memoryview(bytearray(READ_BYTES))
        self._splitter = FrameSplitter()
        self._h2 = library_connection(options)
        self._begun = self._loop.create_future()
        self._scheme = b"https"
        self._is_dismissed = False  # True once a GOAWAY came
        self._over = False  # nothing is sent or heard any more
        self._failed: Exception | None = None
        self._open: dict[int, Stream] = {}
        self._sending: dict[int, memoryview] = {}
        self._may_write = True
        self._heard_s = self._loop.time()
        self._pinged_s: float | None = None
        self._unsent_at_ping = 0
        self._watch: asyncio.TimerHandle | None = None

    # --- for the pool that lends it, and for its callers ---

    @property
    def room(self) -> int:
        """The number of further streams that may be opened on it."""
        if not self.reusable:
            return 0
        return min(self._options.streams_max, self._h2.remote_settings.max_concurrent_streams) - self.lent

    async def begun(self) -> None:
        """Wait for the other side's settings, which come first."""
        await self._begun
        if not self.reusable:
            raise self._failed or BrokenError("the connection was closed", heard=False)

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Send a request and wait for its whole answer."""
        stream = self._begin(request, limits, streamed=False)
        try:
            return await stream.answer
        finally:
            self._end(stream)

    async def stream(self, request: Request, limits: Limits) -> AsyncGenerator[Answer, None]:
        """Send a request; yield an `Answer` without a body when the head is there, then one for each part."""
        stream = self._begin(request, limits, streamed=True)
        try:
            first = await stream.answer
            yield first
            while (part := await stream.next_part()) is not None:
                self._taken(stream, len(part))
                yield first._replace(body=part)
        finally:
            self._end(stream)

    async def is_quiet(self) -> bool:
        """True if the connection may carry a request; the socket is looked at where nothing is expected of it."""
        if self.reusable and not self._open and self._transport is not None:
            await let_in(self._transport)
        return self.reusable

    def release(self) -> None:
        """Take back a stream that was lent (`lent`)."""
        self.lent -= 1
        self._on_change()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._no_more()
        self._over = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection in the orderly way; `lost` is done afterwards."""
        self._no_more()
        if self._over or self._transport is None:
            return
        with contextlib.suppress(ProtocolError):
            self._h2.close_connection()
            self._flush()
        self._over = True
        close_once(self._transport)

    # --- asyncio.BufferedProtocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin HTTP/2 on a transport. The event loop calls this, or the dialer when TLS has chosen HTTP/2."""
        self._transport = cast("asyncio.Transport", transport)
        self._scheme = b"http" if transport.get_extra_info("ssl_object") is None else b"https"
        self._heard_s = self.idle_since_s = self._loop.time()
        self._h2.initiate_connection()
        # The window is twice what all streams may hold: streams whose callers do not read leave room for the others in
        # any case.
        window_bytes = min(
            2 * self._options.streams_max * self._options.window_bytes, H2Connection.MAX_WINDOW_INCREMENT
        )
        grown_bytes = window_bytes - self._h2.inbound_flow_control_window
        if grown_bytes > 0:
            self._h2.increment_flow_control_window(grown_bytes)
        self._flush()
        self._watch = self._loop.call_later(self._options.ping_interval_s, self._look_after)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's argument
        """Return where the next bytes go. The event loop calls this."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Take in ``nbytes`` that have arrived. The event loop calls this."""
        self._heard_s = self._loop.time()
        if self._over:
            return
        try:
            for piece in self._splitter.feed(bytes(self._scratch[:nbytes])):
                self._read(piece)
            self._send_bodies()
        except (ProtocolError, BadFrameError, ValueError) as error:  # a status or a length that is no number
            self._break(BadAnswerError(f"the other side does not keep to HTTP/2 ({error or type(error).__name__})"))
            return
        self._flush()

    def pause_writing(self) -> None:
        """Write no more bodies, as what is written does not leave as fast. The event loop calls this."""
        self._may_write = False

    def resume_writing(self) -> None:
        """Write bodies again, as what was written has left. The event loop calls this."""
        self._may_write = True
        self._send_bodies()

    def eof_received(self) -> bool:
        """Have the connection closed, as the other side sends no more. The event loop calls this."""
        self._no_more()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End all streams, as the connection is gone. The event loop calls this."""
        self._no_more()
        self._over = True
        if self._watch is not None:
            self._watch.cancel()
        reason = "the connection was closed" if exc is None else f"the connection failed ({exc})"
        for stream in list(self._open.values()):
            if not stream.complete and stream.failed is None:
                # After a GOAWAY that counts the stream among those that were begun, the service has seen the request.
                stream.fail(BrokenError(reason, heard=stream.heard or self._is_dismissed))
        self._failed = self._failed or BrokenError(reason, heard=False)
        if not self._begun.done():
            self._begun.set_result(None)
        if not self.lost.done():
            self.lost.set_result(None)
        self._on_change()

    # --- requests ---

    def _begin(self, request: Request, limits: Limits, *, streamed: bool) -> Stream:
        stream = Stream(self._loop, limits, streamed=streamed)
        if not self.reusable:
            stream.fail(NotProcessedError("the connection takes no further requests"))
            return stream
        try:
            stream.id = self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream.id, header_block(request, self._scheme), end_stream=not request.body)
        except ProtocolError as error:  # no number is left, or the other side has lowered its bound just now
            stream.id = 0
            stream.fail(NotProcessedError(f"the connection takes no further requests ({error})"))
            return stream
        self.exchanges += 1
        self._open[stream.id] = stream
        if request.body:
            self._sending[stream.id] = memoryview(request.body)
        self._flush()
        self._send_bodies()
        stream.unsent = self._unsent()
        stream.timer = self._loop.call_at(stream.due_s(), self._check_time, stream)
        return stream

    def _end(self, stream: Stream) -> None:
        """Leave an exchange, however it ended. If the answer was not read to its end, its stream is reset; the others
        notice nothing.
        """
        if stream.timer is not None:
            stream.timer.cancel()
        if self._open.pop(stream.id, None) is None or self._over:
            return
        with contextlib.suppress(ProtocolError):
            if not (stream.complete and stream.id not in self._sending) and not stream.is_reset:
                self._h2.reset_stream(stream.id, ErrorCodes.CANCEL)
        self._sending.pop(stream.id, None)
        if stream.streamed:
            self._h2.acknowledge_received_data(stream.waiting_bytes, stream.id)
        self._flush()
        if not self._open:
            self.idle_since_s = self._loop.time()
            if not self.reusable:
                self.close()

    def _check_time(self, stream: Stream) -> None:
        """Time out, or look again later."""
        # The window is opened again when half of it was taken: until then the other side may have to wait for us.
        held_up = stream.streamed and stream.waiting_bytes >= self._options.window_bytes // 2
        overdue = stream.overdue(self._unsent(), held_up=held_up)
        if overdue is None:
            stream.timer = self._loop.call_at(stream.due_s(), self._check_time, stream)
        else:
            stream.fail(overdue)

    def _taken(self, stream: Stream, size: int) -> None:
        """Let the other side send as much again."""
        if size and not self._over:
            self._h2.acknowledge_received_data(size, stream.id)
            self._flush()

    def _send_bodies(self) -> None:
        """Send of each body in turn what its window and the socket let through."""
        went_on = True
        while went_on and self._sending and not self._over:
            went_on = False
            for stream_id, left in list(self._sending.items()):
                if not self._may_write:
                    return
                size = min(len(left), self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
                if size <= 0:
                    continue
                went_on = True
                self._h2.send_data(stream_id, left[:size], end_stream=size == len(left))
                self._open[stream_id].heard_s = self._loop.time()
                if size == len(left):
                    del self._sending[stream_id]
                else:
                    self._sending[stream_id] = left[size:]
                self._flush()

    # --- what comes ---

    def _read(self, piece: bytes | GoAway) -> None:
        if isinstance(piece, GoAway):
            self._go_away(piece)
        elif not self._over:  # a GOAWAY may have been the last that was waited for
            for event in self._h2.receive_data(piece):
                self._hear(event)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RemoteSettingsChanged):
            if not self._begun.done():
                self._begun.set_result(None)
            self._on_change()
            return
        stream = self._open.get(getattr(event, "stream_id", 0) or 0)
        if stream is None:
            if isinstance(event, DataReceived):  # its request was left, and is not read
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return
        stream.heard_s = self._heard_s
        if isinstance(event, DataReceived):
            self._take_data(stream, event)
        elif isinstance(event, ResponseReceived):
            stream.heard = True
            self._take_head(stream, event)
        elif isinstance(event, InformationalResponseReceived):
            stream.heard = True
        elif isinstance(event, StreamEnded):
            stream.complete_now()
        elif isinstance(event, StreamReset):
            self._take_reset(stream, event)

    def _take_head(self, stream: Stream, event: ResponseReceived) -> None:
        status, headers = 0, {}
        for name, value in event.headers:
            if name == b":status":
                status = int(value)
            else:
                headers[bytes(name).decode("latin-1")] = bytes(value).decode("latin-1")
        stream.head = Answer(status, headers, b"")
        if stream.streamed:
            if not stream.answer.done():
                stream.answer.set_result(stream.head)
        elif int(headers.get("content-length", "0")) > stream.limits.bytes_max:
            stream.fail(TooLongError())

    def _take_data(self, stream: Stream, event: DataReceived) -> None:
        data = event.data or b""
        kept = len(data) if stream.failed is None else 0
        if kept:
            stream.parts.append(data)
            stream.waiting_bytes += kept
        if stream.streamed:
            stream.wake()
            at_once = event.flow_controlled_length - kept  # padding; the caller acknowledges the data as it takes it
        else:
            at_once = event.flow_controlled_length
            if stream.waiting_bytes > stream.limits.bytes_max and stream.failed is None:
                stream.fail(TooLongError())
        if at_once:
            self._h2.acknowledge_received_data(at_once, stream.id)

    def _take_reset(self, stream: Stream, event: StreamReset) -> None:
        stream.is_reset = True
        self._sending.pop(stream.id, None)
        if stream.complete or stream.failed is not None:
            return
        if event.error_code == ErrorCodes.HTTP_1_1_REQUIRED:
            self.wants_http1 = True
            self._no_more()
        if event.error_code in NOTHING_DONE and not stream.heard:
            stream.fail(NotProcessedError(f"the service refused the request ({_code(event.error_code)})"))
        else:
            stream.fail(BrokenError(f"the service broke it off ({_code(event.error_code)})", heard=True))

    def _go_away(self, told: GoAway) -> None:
        """Take a GOAWAY: the other side takes no more. What it has not begun is failed, what it has begun goes on."""
        self._no_more()
        self._is_dismissed = True
        for stream in list(self._open.values()):
            if stream.id > told.last_stream_id and not stream.heard and stream.failed is None:
                self._sending.pop(stream.id, None)
                stream.fail(NotProcessedError(f"the service closes the connection first ({told.reason})"))
        if not self._open:
            self.close()

    # --- the connection's own life ---

    def _look_after(self) -> None:
        """Ask for a sign of life when there was none for long, and drop a connection that gives none."""
        if self._over:
            return
        options, now_s = self._options, self._loop.time()
        if self._unsent() < self._unsent_at_ping:
            self._unsent_at_ping, self._heard_s = self._unsent(), now_s  # this is a slow upload, which leaves
        if self._pinged_s is not None and self._heard_s >= self._pinged_s:
            self._pinged_s = None
        if self._pinged_s is not None and now_s >= self._pinged_s + options.ping_timeout_s:
            self._break(TimeoutError(f"the connection is dead: no answer to a PING within {options.ping_timeout_s} s"))
            return
        if self._pinged_s is None and self._open and now_s >= self._heard_s + options.ping_interval_s:
            self._h2.ping(b"shardway")
            self._flush()
            self._pinged_s, self._unsent_at_ping = now_s, self._unsent()
        due_s = (self._heard_s if self._open and self._pinged_s is None else now_s) + options.ping_interval_s
        if self._pinged_s is not None:
            due_s = min(due_s, self._pinged_s + options.ping_timeout_s)
        self._watch = self._loop.call_at(due_s, self._look_after)

    def _no_more(self) -> None:
        if self.reusable:
            self.reusable = False
            self._on_change()

    def _break(self, error: Exception) -> None:
        """Fail what is under way, and the connection with it."""
        self._over = True
        self._failed = error
        with contextlib.suppress(ProtocolError):
            self._flush()  # the library has said why in a GOAWAY
        for stream in list(self._open.values()):
            if not stream.complete and stream.failed is None:
                stream.fail(error)
        self.abort()

    def _unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if not data or self._transport is None:
            return
        self._transport.write(data)
        if self._unsent() > UNSENT_BYTES_MAX and not self._over:
            self._break(BadAnswerError("the other side does not read what it asks for"))


def _code(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else f"error code {code}"


# --- connections by origin ------------------------------------------------------------------------
# HTTP/2 connections are kept by origin, each for many requests: as few as the other side's bounds allow.

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
