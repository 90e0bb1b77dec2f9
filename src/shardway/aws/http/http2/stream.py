"""A stream carries one request of an HTTP/2 connection and its answer; the library's state of a connection has our
bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from hpack import HeaderTuple, NeverIndexedHeaderTuple

from shardway.aws.http.exchange import Answer, BrokenError, Exchange, NotProcessedError, TooLongError
from shardway.aws.http.http2.frames import FRAME_BYTES_MAX

if TYPE_CHECKING:
    import asyncio

    from h2.events import DataReceived, ResponseReceived, StreamReset

    from shardway.aws.http.exchange import Limits, Request

HEADERS_BYTES_MAX = 64 * 1024
"""The most bytes of one answer's headers, as RFC 9113 counts them (6.5.2)."""
NOTHING_DONE = (ErrorCodes.REFUSED_STREAM, ErrorCodes.HTTP_1_1_REQUIRED)
"""The codes that reset a stream which the other side has not begun (RFC 9113, 8.7 and 9.2)."""
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

    def take_head(self, event: ResponseReceived) -> None:
        """Take the status and the headers of the answer."""
        self.heard = True
        status, headers = 0, {}
        for name, value in event.headers:
            if name == b":status":
                status = int(value)
            else:
                headers[bytes(name).decode("latin-1")] = bytes(value).decode("latin-1")
        self.head = Answer(status, headers, b"")
        if self.streamed:
            if not self.answer.done():
                self.answer.set_result(self.head)
        elif int(headers.get("content-length", "0")) > self.limits.bytes_max:
            self.fail(TooLongError())

    def take_data(self, event: DataReceived) -> int:
        """Take a part of the body. Return how many bytes are to be acknowledged at once."""
        data = event.data or b""
        kept = len(data) if self.failed is None else 0
        if kept:
            self.parts.append(data)
            self.waiting_bytes += kept
        if self.streamed:
            self.wake()
            return event.flow_controlled_length - kept  # padding; the caller acknowledges the data as it takes it
        if self.waiting_bytes > self.limits.bytes_max and self.failed is None:
            self.fail(TooLongError())
        return event.flow_controlled_length

    def take_reset(self, event: StreamReset) -> None:
        """Take note that the other side has ended the stream before its time."""
        self.is_reset = True
        if self.complete or self.failed is not None:
            return
        code = event.error_code
        reason = code.name if isinstance(code, ErrorCodes) else f"error code {code}"
        if code in NOTHING_DONE and not self.heard:
            self.fail(NotProcessedError(f"the service refused the request ({reason})"))
        else:
            self.fail(BrokenError(f"the service broke it off ({reason})", heard=True))

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
