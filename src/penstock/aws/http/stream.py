"""What an HTTP/2 connection is made of: its bounds, the library's state, and a request's stream and headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from hpack import HeaderTuple, NeverIndexedHeaderTuple

from penstock.aws.http.exchange import Answer, Exchange
from penstock.aws.http.frames import FRAME_BYTES_MAX

if TYPE_CHECKING:
    import asyncio

    from penstock.aws.http.exchange import Limits, Request

HEADERS_BYTES_MAX = 64 * 1024
"""Of one answer, as RFC 9113 counts them (6.5.2)."""
SECRETS = frozenset({"authorization", "x-amz-security-token"})
"""Headers that no table of the connection keeps (RFC 7541, 7.1.3)."""


class Multiplexing(NamedTuple):
    """Of one connection: what may wait on each stream, how many there are at most, and when it is asked for a sign of
    life and given up.
    """

    window_bytes: int
    streams_max: int
    ping_interval_s: float
    ping_timeout_s: float


class Stream(Exchange):
    """With what only HTTP/2 has: a number, and an end of its own."""

    __slots__ = ("head", "id", "is_reset")

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, *, streamed: bool) -> None:
        super().__init__(loop, limits, streamed=streamed)
        self.id = 0
        self.head: Answer | None = None
        self.is_reset = False

    def complete_now(self) -> None:
        """The answer is whole."""
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
    """The library's state of a connection, with our settings."""
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
    """The request's headers. ``host`` is said as ``:authority``, which a signature takes for it."""
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
