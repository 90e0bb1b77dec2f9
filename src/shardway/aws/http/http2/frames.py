"""Look at HTTP/2's frames before the library sees them (RFC 9113, 4.1 and 6.8). There is no I/O in here.

The library takes a GOAWAY for the end of the connection, and what comes after it for a fault. In truth the streams that
the other side took on before it go on to their end, which for a subscription may be minutes later.
"""

from __future__ import annotations

from typing import NamedTuple

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
        self._bytes_left = 0  # bytes of the body of a frame that is passed on
        self._buffer = bytearray()  # a frame's head that is not whole yet, or a GOAWAY

    def feed(self, data: bytes) -> list[bytes | GoAway]:
        """Return what to pass on, and the GOAWAYs in between, in the order of their arrival."""
        if self._buffer:
            data = bytes(self._buffer) + data
            self._buffer.clear()
        found: list[bytes | GoAway] = []
        begin, at, end = 0, self._bytes_left, len(data)
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
            self._buffer += data[at:]
        self._bytes_left = max(0, at - end)
        if begin < min(at, end):
            found.append(data[begin : min(at, end)])
        return found


def _go_away(body: bytes) -> GoAway:
    return GoAway(int.from_bytes(body[:4], "big") & 0x7FFF_FFFF, int.from_bytes(body[4:8], "big"))
