"""Read HTTP/1.1 from the wire, without any I/O: heads of answers, and how their bodies are framed (RFC 9112)."""

from __future__ import annotations

from typing import NamedTuple

from shardway.aws.http.exchange import BadAnswerError

CHUNK_LINE_BYTES_MAX = 4096
"""The most bytes of the line before a chunk, and of each trailer."""

LENGTH_DIGITS_MAX = 18
"""The most digits of a Content-Length: they are more bytes than any disk holds."""


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
        self._bytes_left = length
        self.done = length == 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received and return the parts of the body in it."""
        if len(data) > self._bytes_left:
            raise BadAnswerError("more came than the answer's Content-Length says")
        self._bytes_left -= len(data)
        self.done = self._bytes_left == 0
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
        self._buffer = bytearray()
        self._bytes_left = 0
        self._in_trailer = False
        self.done = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received and return the parts of the body in it."""
        self._buffer += data
        parts: list[bytes] = []
        while not self.done and self._step(parts):
            pass
        if self.done and self._buffer:
            raise BadAnswerError("more came after the answer's last chunk")
        return parts

    def _step(self, parts: list[bytes]) -> bool:
        """Take one piece of syntax off what is pending; False when more must come first."""
        pending = self._buffer
        if self._bytes_left > 2:
            part = bytes(pending[: self._bytes_left - 2])
            if not part:
                return False
            del pending[: len(part)]
            self._bytes_left -= len(part)
            parts.append(part)
            return True
        if self._bytes_left:  # the line end after a chunk's data
            if len(pending) < self._bytes_left:
                return False
            if pending[: self._bytes_left] != b"\r\n"[-self._bytes_left :]:
                raise BadAnswerError("a chunk of the answer has not the length that it says")
            del pending[: self._bytes_left]
            self._bytes_left = 0
            return True
        return self._line()

    def _line(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > CHUNK_LINE_BYTES_MAX:
                raise BadAnswerError("a chunk header of the answer is too long")
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        if self._in_trailer:
            self.done = not line
            return True
        size = line.partition(b";")[0].strip()
        if not size or len(size) > 15 or size.strip(b"0123456789abcdefABCDEF"):
            raise BadAnswerError("a chunk header of the answer is malformed")
        length = int(size, 16)
        self._in_trailer = length == 0
        self._bytes_left = length + 2 if length else 0
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
