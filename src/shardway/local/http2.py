"""HTTP/2 on one asyncio connection: many requests at a time, each on a stream of its own.

The handlers and answers are the same as over HTTP/1.1; h2 keeps the protocol's rules and reads and makes its frames.
Streams with something to send take turns, a frame each, as far as their windows and the socket go. What a
connection keeps is bounded: bodies that come in by windows, what goes out by ``full`` and :meth:`drain` of
each stream, and a client that reads nothing at all is not read from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from shardway.local.http2_bodies import BODIES_BYTES_MAX, CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, IncomingBodies
from shardway.local.http2_protocol import ServerProtocol
from shardway.local.http2_stream import Http2Stream
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
from shardway.local.options import HTTP2_STREAMS_MAX
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from h2.events import Event

    from shardway.local.http_messages import ClientConnection, Handler


WORK_PER_STREAM_MAX = 4
"""The answers in the making, per stream, beyond which requests are refused: a client that takes its requests back
leaves such work behind.
"""
UNREAD_BYTES_MAX = 1024 * 1024
"""The unread bytes from which on the client is not read from: pings and refusals are answers, too, and have no window.
"""
_FIRST_WINDOW_BYTES = 65_535  # a connection's, by RFC 9113, section 6.9.2
_OF_ONE_CONNECTION = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"))
_INTERNAL_FAILURE = Answer(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
_TOO_LARGE = Answer(b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\n\r\n")


def headers_of(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of HTTP/2 for a head of HTTP/1.1, without those that are about one connection."""
    status, *lines = head.split(b"\r\n")
    fields = [(b":status", status[9:12])]
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if colon and name not in _OF_ONE_CONNECTION:
            fields.append((name, value.strip()))
    return fields


class Http2Connection(asyncio.Protocol):
    """One client connection of HTTP/2, after its TLS handshake or with the preface as its first bytes."""

    def __init__(
        self,
        handler: Handler,
        connections: set[ClientConnection],
        *,
        streams_max: int = HTTP2_STREAMS_MAX,
        body_bytes_max: int = REQUEST_BODY_BYTES_MAX,
        bodies_bytes_max: int = BODIES_BYTES_MAX,
        unread_bytes_max: int = UNREAD_BYTES_MAX,
    ) -> None:
        self._handler = handler
        self._connections = connections
        self._streams_max = streams_max
        self._body_bytes_max = body_bytes_max
        self._bodies_bytes_max = bodies_bytes_max
        self._unread_bytes_max = unread_bytes_max
        self._streams: dict[int, Http2Stream] = {}  # the streams that are not over, the oldest first
        self._ready: deque[Http2Stream] = deque()  # streams that have something to send and no known hindrance
        self._work_count = 0  # answers that are being made, also for streams that are over
        self._write_paused = False
        self._read_paused = False
        self._gone_streams: set[int] = set()  # streams that the client took back in the bytes that are being looked at
        self._is_leaving = False
        self._last_stream = 0  # the last one that is served once it is leaving
        self._actions: dict[type[Event], Callable[[Any], None]] = {
            RequestReceived: self._on_request,
            DataReceived: self._on_data,
            StreamEnded: self._on_request_end,
            WindowUpdated: self._on_window,
            RemoteSettingsChanged: self._on_settings,
        }

    # --- the connection's life --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: a client has connected; the settings go out."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._loop = asyncio.get_running_loop()
        self._peer = prepared(transport)
        self._h2 = ServerProtocol()
        announced = {
            SettingCodes.MAX_CONCURRENT_STREAMS: self._streams_max,
            SettingCodes.MAX_HEADER_LIST_SIZE: REQUEST_HEAD_BYTES_MAX,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
        }
        self._h2.local_settings = Settings(client=False, initial_values=announced)
        self._h2.initiate_connection()
        # h2 would end the connection of a client that opens too many before it has seen the number: they are refused.
        self._h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 2**31 - 1
        self._h2.local_settings.acknowledge()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        self._bodies = IncomingBodies(self._h2, self._streams, self._bodies_bytes_max)
        self._connections.add(self)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's argument
        """asyncio: the connection is gone, in order or not."""
        self._connections.discard(self)
        self._lose_streams()

    def _lose_streams(self) -> None:
        self._ready.clear()
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.lost()

    def shut(self) -> None:
        """Stop serving: tell the client so, and close (answers that are on their way are cut off)."""
        for stream in self._streams.values():
            if stream.task is not None:
                stream.task.cancel()
        if not self.transport.is_closing():
            self.go_away()
            self.transport.abort()  # what the socket has taken still arrives

    def go_away(self) -> None:
        """Take no further requests (GOAWAY), answer those that are here, then close."""
        if self._is_leaving or self.transport.is_closing():
            return
        self._leave()
        self._flush()
        # The frame is made by hand: h2 takes a connection for closed as soon as h2 has sent a goodbye.
        self.transport.write(GoAwayFrame(0, last_stream_id=self._last_stream).serialize())
        self._close_if_done()

    def _leave(self) -> None:
        self._is_leaving = True
        self._last_stream = self._h2.highest_inbound_stream_id

    def _close_if_done(self) -> None:
        if self._is_leaving and not self._streams:
            close_once(self.transport)

    # --- bytes in ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes have come in."""
        transport = self.transport
        if transport.is_closing():
            return
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self._flush()  # h2 has put down why
            self._lose_streams()
            close_once(transport)
            return
        self._gone_streams = set()
        for event in events:  # before all else: to h2 these streams are over by now, and nothing may be sent on them
            if type(event) is StreamReset:
                self._on_reset(event)
            elif type(event) is ConnectionTerminated:
                self._on_goodbye(event)
        for event in events:
            action = self._actions.get(type(event))
            if action is not None:
                action(event)
                if transport.is_closing():
                    return
        self._send_on()
        if not self._read_paused and transport.get_write_buffer_size() > self._unread_bytes_max:
            self._read_paused = True
            transport.pause_reading()

    def _on_request(self, event: RequestReceived) -> None:
        number = event.stream_id
        if number in self._gone_streams:
            return
        if (
            len(self._streams) >= self._streams_max
            or self._work_count >= self._streams_max * WORK_PER_STREAM_MAX
            or (self._is_leaving and number > self._last_stream)
        ):
            self._h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        headers = dict(event.headers or ())
        self._streams[number] = Http2Stream(number, headers, self._make_ready, self._end)
        if headers.get(b"expect", b"").lower() == b"100-continue":
            self._h2.send_headers(number, [(b":status", b"100")])

    def _on_data(self, event: DataReceived) -> None:
        took = event.flow_controlled_length or 0
        self._bodies.take_from_window(took)
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.whole:
            return
        self._bodies.add(stream, event.data or b"", took)
        if stream.body_bytes > self._body_bytes_max:
            self._bodies.is_over(stream)
            self._respond(stream, _TOO_LARGE)
        else:
            self._bodies.let_on(stream)

    def _on_request_end(self, event: StreamEnded) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.whole:
            return
        stream.ended_by_client = True
        self._bodies.is_over(stream)
        self._serve(stream, stream.request(self._peer))

    def _on_reset(self, event: StreamReset) -> None:
        self._gone_streams.add(event.stream_id)
        stream = self._streams.pop(event.stream_id, None)
        if stream is not None:
            self._bodies.is_over(stream)
            stream.lost()

    def _on_window(self, event: WindowUpdated) -> None:
        if event.stream_id:
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                self._queue(stream)
        else:
            self._on_settings(None)

    def _on_settings(self, _event: RemoteSettingsChanged | None) -> None:
        for stream in self._streams.values():
            self._queue(stream)

    def _on_goodbye(self, event: ConnectionTerminated) -> None:
        """Take the client's GOAWAY: it opens no more streams. Its requests are answered, and its subscriptions run on:
        the SDK for JavaScript says goodbye at the head of each, and then reads its events.
        """
        if event.error_code:
            self._lose_streams()
            close_once(self.transport)
        else:
            self._leave()

    # --- answers out ------------------------------------------------------------------------------

    def _serve(self, stream: Http2Stream, request: Request) -> None:
        try:
            answer = self._handler(request)
        except Exception as fault:
            self._report(fault)
            answer = _INTERNAL_FAILURE
        if type(answer) is Answer and answer.stream is None:
            self._respond(stream, answer)
        else:
            self._work_count += 1
            stream.task = spawn(self._serve_later(stream, answer), self._abort, loop=self._loop)

    async def _serve_later(self, stream: Http2Stream, answer: Answer | Awaitable[Answer]) -> None:
        try:
            ready = answer if isinstance(answer, Answer) else await answer
            if ready.stream is not None:
                if not stream.closed:
                    self._h2.send_headers(stream.number, headers_of(ready.head))
                    self._flush()  # before there is anything to send
                self._end(ready.ending)
                await ready.stream(stream)
                ready = Answer(b"", ending=ready.ending)
        except Exception as fault:
            self._report(fault)
            ready = Answer(b"", ending=AfterAnswer.RESET)  # the client must not take a broken answer for a whole one
        finally:
            self._work_count -= 1
        stream.task = None
        self._respond(stream, ready)
        self._send_on()

    def _abort(self, fault: BaseException) -> None:
        """Tear the connection down, so that the client sees at once that no answer comes any more."""
        self._report(fault)
        self.transport.abort()

    def _report(self, fault: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": "the local service failed on a request", "exception": fault, "protocol": self}
        )

    def _respond(self, stream: Http2Stream, answer: Answer) -> None:
        """Queue a whole answer."""
        if stream.closed:
            return
        self._end(answer.ending)
        if self.transport.is_closing():
            return
        if answer.head:
            self._h2.send_headers(stream.number, headers_of(answer.head))
        stream.answer(answer)
        self._queue(stream)

    def _end(self, ending: AfterAnswer) -> None:
        """Do what an answer's ending asks of the connection."""
        if ending is AfterAnswer.LEAVE:
            self.go_away()
        elif ending is AfterAnswer.DISCONNECT:
            tear_down(self.transport)

    def _queue(self, stream: Http2Stream) -> None:
        if not stream.queued and stream.has_something:
            stream.queued = True
            self._ready.append(stream)

    def _make_ready(self, stream: Http2Stream) -> None:
        """Put a stream that has something to send among those that send."""
        self._queue(stream)
        self._send_on()

    def _send_on(self) -> None:
        """Send what there is, a frame of each stream in turn, until the windows are used up or the socket is full."""
        ready = self._ready
        while True:
            room = WRITE_SLICE_BYTES
            while ready and room > 0 and not self._write_paused:
                room -= self._send_frame(ready.popleft())
            self._flush()
            if self._write_paused or not ready:
                break
        self._close_if_done()

    def _send_frame(self, stream: Http2Stream) -> int:
        """Send one frame of a stream, or its end, and return the bytes sent. A stream without window waits for its
        update.
        """
        stream.queued = False
        if stream.closed:
            return 0
        h2, data = self._h2, memoryview(b"")
        if stream.out:
            room = min(h2.local_flow_control_window(stream.number), h2.max_outbound_frame_size)
            if room <= 0:
                return 0
            data = stream.take(room)
        ends = not stream.out and stream.ending is AfterAnswer.KEEP
        if data or ends:
            h2.send_data(stream.number, data, end_stream=ends)
        if stream.out:
            self._queue(stream)
        elif stream.ending is None:
            stream.wake()
        else:
            self._end_stream(stream)
        return len(data)

    def _end_stream(self, stream: Http2Stream) -> None:
        """End a stream whose answer is out, or as much of it as was to go out."""
        if stream.ending is AfterAnswer.CLOSE:
            self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
        elif stream.ending is AfterAnswer.RESET:
            self._h2.reset_stream(stream.number, ErrorCodes.INTERNAL_ERROR)
        elif not stream.ended_by_client:  # the client still sends, and no handler reads it
            self._h2.reset_stream(stream.number, ErrorCodes.NO_ERROR)
        self._streams.pop(stream.number, None)
        self._bodies.is_over(stream)
        stream.over()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        """asyncio: the socket takes no more for now."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """asyncio: all that was written is with the socket."""
        self._write_paused = False
        if self._read_paused and not self.transport.is_closing():
            self._read_paused = False
            self.transport.resume_reading()
        self._send_on()
