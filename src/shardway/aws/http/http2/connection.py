"""A client's HTTP/2 connection carries many requests, and gives their answers whole or as streams (RFC 9113)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal, cast

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

from shardway.aws.http.exchange import BadAnswerError, BrokenError, NotProcessedError, close_once, let_in
from shardway.aws.http.http2.frames import BadFrameError, FrameSplitter, GoAway
from shardway.aws.http.http2.liveness import Liveness
from shardway.aws.http.http2.stream import Stream, header_block, library_connection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from h2.events import Event

    from shardway.aws.http.exchange import Answer, Limits, Request
    from shardway.aws.http.http2.stream import Multiplexing

READ_BYTES = 256 * 1024
"""The most bytes that each connection receives at a time."""
UNSENT_BYTES_MAX = 1024 * 1024
"""The most bytes that may wait to leave a connection. Bodies wait until what is written has left; so what comes beyond
are answers to the other side's own frames, which it does not read: the connection is dropped then.
"""


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
        self._start = self._loop.create_future()
        self._scheme = b"https"
        self._is_dismissed = False  # True once a GOAWAY came
        self._is_over = False  # nothing is sent or heard any more
        self._failure: Exception | None = None
        self._open: dict[int, Stream] = {}
        self._bodies: dict[int, memoryview] = {}
        self._may_write = True
        self._life = Liveness(options.ping_interval_s, options.ping_timeout_s, self._loop.time())
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
        await self._start
        if not self.reusable:
            raise self._failure or BrokenError("the connection was closed", heard=False)

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
                self._acknowledge(stream, len(part))
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
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection in the orderly way; `lost` is done afterwards."""
        self._no_more()
        if self._is_over or self._transport is None:
            return
        with contextlib.suppress(ProtocolError):
            self._h2.close_connection()
            self._flush()
        self._is_over = True
        close_once(self._transport)

    # --- asyncio.BufferedProtocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin HTTP/2 on a transport. The event loop calls this, or the dialer when TLS has chosen HTTP/2."""
        self._transport = cast("asyncio.Transport", transport)
        self._scheme = b"http" if transport.get_extra_info("ssl_object") is None else b"https"
        self._life.heard_s = self.idle_since_s = self._loop.time()
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
        self._life.heard_s = self._loop.time()
        if self._is_over:
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
        self._is_over = True
        if self._watch is not None:
            self._watch.cancel()
        reason = "the connection was closed" if exc is None else f"the connection failed ({exc})"
        for stream in list(self._open.values()):
            if not stream.complete and stream.failed is None:
                # After a GOAWAY that counts the stream among those that were begun, the service has seen the request.
                stream.fail(BrokenError(reason, heard=stream.heard or self._is_dismissed))
        self._failure = self._failure or BrokenError(reason, heard=False)
        if not self._start.done():
            self._start.set_result(None)
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
            self._bodies[stream.id] = memoryview(request.body)
        self._flush()
        self._send_bodies()
        stream.unsent = self._unsent_bytes()
        stream.timer = self._loop.call_at(stream.due_s(), self._check_time, stream)
        return stream

    def _end(self, stream: Stream) -> None:
        """Leave an exchange, however it ended. If the answer was not read to its end, its stream is reset; the others
        notice nothing.
        """
        if stream.timer is not None:
            stream.timer.cancel()
        if self._open.pop(stream.id, None) is None or self._is_over:
            return
        with contextlib.suppress(ProtocolError):
            if not (stream.complete and stream.id not in self._bodies) and not stream.is_reset:
                self._h2.reset_stream(stream.id, ErrorCodes.CANCEL)
        self._bodies.pop(stream.id, None)
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
        overdue = stream.overdue(self._unsent_bytes(), held_up=held_up)
        if overdue is None:
            stream.timer = self._loop.call_at(stream.due_s(), self._check_time, stream)
        else:
            stream.fail(overdue)

    def _acknowledge(self, stream: Stream, size: int) -> None:
        """Let the other side send as much again."""
        if size and not self._is_over:
            self._h2.acknowledge_received_data(size, stream.id)
            self._flush()

    def _send_bodies(self) -> None:
        """Send of each body in turn what its window and the socket let through."""
        went_on = True
        while went_on and self._bodies and not self._is_over:
            went_on = False
            for stream_id, left in list(self._bodies.items()):
                if not self._may_write:
                    return
                size = min(len(left), self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
                if size <= 0:
                    continue
                went_on = True
                self._h2.send_data(stream_id, left[:size], end_stream=size == len(left))
                self._open[stream_id].heard_s = self._loop.time()
                if size == len(left):
                    del self._bodies[stream_id]
                else:
                    self._bodies[stream_id] = left[size:]
                self._flush()

    # --- what comes ---

    def _read(self, piece: bytes | GoAway) -> None:
        if isinstance(piece, GoAway):
            self._go_away(piece)
        elif not self._is_over:  # a GOAWAY may have been the last that was waited for
            for event in self._h2.receive_data(piece):
                self._hear(event)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RemoteSettingsChanged):
            if not self._start.done():
                self._start.set_result(None)
            self._on_change()
            return
        stream = self._open.get(getattr(event, "stream_id", 0) or 0)
        if stream is None:
            if isinstance(event, DataReceived):  # its request was left, and is not read
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return
        stream.heard_s = self._life.heard_s
        if isinstance(event, DataReceived):
            if at_once := stream.take_data(event):
                self._h2.acknowledge_received_data(at_once, stream.id)
        elif isinstance(event, ResponseReceived):
            stream.take_head(event)
        elif isinstance(event, InformationalResponseReceived):
            stream.heard = True
        elif isinstance(event, StreamEnded):
            stream.complete_now()
        elif isinstance(event, StreamReset):
            self._bodies.pop(stream.id, None)
            is_under_way = not stream.complete and stream.failed is None
            if is_under_way and event.error_code == ErrorCodes.HTTP_1_1_REQUIRED:
                self.wants_http1 = True
                self._no_more()
            stream.take_reset(event)

    def _go_away(self, told: GoAway) -> None:
        """Take a GOAWAY: the other side takes no more. What it has not begun is failed, what it has begun goes on."""
        self._no_more()
        self._is_dismissed = True
        for stream in list(self._open.values()):
            if stream.id > told.last_stream_id and not stream.heard and stream.failed is None:
                self._bodies.pop(stream.id, None)
                stream.fail(NotProcessedError(f"the service closes the connection first ({told.reason})"))
        if not self._open:
            self.close()

    # --- the connection's own life ---

    def _look_after(self) -> None:
        """Ask for a sign of life when there was none for long, and drop a connection that gives none."""
        if self._is_over:
            return
        now_s, is_used = self._loop.time(), bool(self._open)
        if self._life.is_dead(now_s, self._unsent_bytes()):
            timeout_s = self._options.ping_timeout_s
            self._break(TimeoutError(f"the connection is dead: no answer to a PING within {timeout_s} s"))
            return
        if is_used and self._life.wants_ping(now_s):
            self._h2.ping(b"shardway")
            self._flush()
            self._life.note_ping(now_s, self._unsent_bytes())
        self._watch = self._loop.call_at(self._life.due_s(now_s, is_used=is_used), self._look_after)

    def _no_more(self) -> None:
        if self.reusable:
            self.reusable = False
            self._on_change()

    def _break(self, error: Exception) -> None:
        """Fail what is under way, and the connection with it."""
        self._is_over = True
        self._failure = error
        with contextlib.suppress(ProtocolError):
            self._flush()  # the library has said why in a GOAWAY
        for stream in list(self._open.values()):
            if not stream.complete and stream.failed is None:
                stream.fail(error)
        self.abort()

    def _unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if not data or self._transport is None:
            return
        self._transport.write(data)
        if self._unsent_bytes() > UNSENT_BYTES_MAX and not self._is_over:
            self._break(BadAnswerError("the other side does not read what it asks for"))
