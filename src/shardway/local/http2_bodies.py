"""Bodies of requests that come in over HTTP/2, which the client's windows keep within the bytes that are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from h2.connection import H2Connection

    from shardway.local.http2_stream import Http2Stream

STREAM_WINDOW_BYTES = 1024 * 1024
"""The bytes that a client may send on a stream ahead of what is granted."""
CONNECTION_WINDOW_BYTES = 64 * 1024 * 1024
BODIES_BYTES_MAX = 64 * 1024 * 1024
"""The bytes of unfinished bodies on a connection from which on only the oldest body is granted more than its first
window.
"""


class IncomingBodies:
    """The bodies of one connection's requests that are not whole. ``streams``: those of the connection, oldest first;
    ``bytes_max``: with more of such bodies only the oldest request is let on.
    """

    def __init__(self, h2: H2Connection, streams: Mapping[int, Http2Stream], bytes_max: int) -> None:
        self._h2 = h2
        self._streams = streams
        self._bytes_max = bytes_max
        self.bytes = 0
        """The bytes of requests that are not whole."""
        self._ungranted_bytes = 0
        """The bytes taken from the connection's window."""

    def take_from_window(self, took: int) -> None:
        """Note bytes that came in on any stream, and give the connection's window back now and then."""
        self._ungranted_bytes += took
        if self._ungranted_bytes >= CONNECTION_WINDOW_BYTES // 2:
            self._h2.increment_flow_control_window(self._ungranted_bytes)
            self._ungranted_bytes = 0

    def add(self, stream: Http2Stream, data: bytes, took: int) -> None:
        """Put a piece to a request's body. ``took``: what it took of the windows, padding included."""
        stream.body.append(data)
        stream.body_bytes += len(data)
        stream.ungranted_bytes += took
        self.bytes += len(data)

    def let_on(self, stream: Http2Stream) -> None:
        """Let the client send on, unless too much data of other streams is here already."""
        if stream.whole or stream.ungranted_bytes < STREAM_WINDOW_BYTES // 2:
            return
        if self.bytes < self._bytes_max or stream is self._oldest_unfinished():
            self._h2.increment_flow_control_window(stream.ungranted_bytes, stream.number)
            stream.ungranted_bytes = 0

    def _oldest_unfinished(self) -> Http2Stream | None:
        return next((stream for stream in self._streams.values() if not stream.whole), None)

    def is_over(self, stream: Http2Stream) -> None:
        """Note that nothing more of this request is waited for; others may have waited for its room."""
        if stream.whole:
            return
        stream.whole = True
        crowded = self.bytes >= self._bytes_max
        self.bytes -= stream.body_bytes
        stream.body_bytes = 0
        if crowded:
            for other in self._streams.values():
                self.let_on(other)
