"""Decode the frames of ``application/vnd.amazon.eventstream``, in which SubscribeToShard answers.

A frame has: total length, length of the headers (each 4 bytes, big-endian), CRC-32 of these 8 bytes, headers, payload,
CRC-32 of all before it. Source: "Event stream encoding" in the Amazon Transcribe and S3 Select documentation, and the
smithy specification of the same name. There is no I/O in here.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
import zlib
from typing import NamedTuple

from shardway.errors import TransportError

PRELUDE_BYTES = 12
CHECKSUM_BYTES = 4
HEADERS_BYTES_MAX = 128 * 1024
PAYLOAD_BYTES_MAX = 24 * 1024 * 1024
"""The bounds that AWS's own decoders have."""

HeaderValue = bool | int | bytes | str | dt.datetime | uuid.UUID

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_INTEGERS = {2: struct.Struct(">b"), 3: struct.Struct(">h"), 4: struct.Struct(">i"), 5: struct.Struct(">q")}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class EventStreamError(TransportError):
    """What came is not an event stream, or was damaged on its way. Ask for the stream again."""


class Message(NamedTuple):
    """One frame of an event stream."""

    headers: dict[str, HeaderValue]
    payload: bytes

    @property
    def kind(self) -> str:
        """The kind of the frame: ``event``, ``exception`` or ``error`` (header ``:message-type``)."""
        return str(self.headers.get(":message-type", ""))

    @property
    def name(self) -> str:
        """The kind of event, exception or error, such as ``SubscribeToShardEvent`` or ``ResourceInUseException``."""
        for header in (":event-type", ":exception-type", ":error-code"):
            if header in self.headers:
                return str(self.headers[header])
        return ""


class EventStreamDecoder:
    """Takes an answer in parts of any size and returns the frames that are whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of a frame that is not whole yet. More than 0 at the end of an answer means that it broke off."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Message]:
        """Add a part of the answer. Raises `EventStreamError` for bad checksums, lengths and headers."""
        received = self._buffer
        received += data
        messages: list[Message] = []
        start = 0
        with memoryview(received) as view:
            while len(received) - start >= PRELUDE_BYTES:
                total, headers_bytes, checksum = _PRELUDE.unpack_from(view, start)
                _check_prelude(view[start : start + 8], total, headers_bytes, checksum)
                if len(received) - start < total:
                    break
                messages.append(_message(view[start : start + total], headers_bytes))
                start += total
        del received[:start]
        return messages


def _check_prelude(lengths: memoryview, total: int, headers_bytes: int, checksum: int) -> None:
    if zlib.crc32(lengths) != checksum:
        raise EventStreamError("the event stream is damaged: a frame's prelude has the wrong checksum")
    payload_bytes = total - headers_bytes - PRELUDE_BYTES - CHECKSUM_BYTES
    if headers_bytes > HEADERS_BYTES_MAX or not 0 <= payload_bytes <= PAYLOAD_BYTES_MAX:
        raise EventStreamError(f"the event stream has a frame of {total} bytes with {headers_bytes} bytes of headers")


def _message(frame: memoryview, headers_bytes: int) -> Message:
    (checksum,) = _CHECKSUM.unpack_from(frame, len(frame) - CHECKSUM_BYTES)
    if zlib.crc32(frame[:-CHECKSUM_BYTES]) != checksum:
        raise EventStreamError("the event stream is damaged: a frame has the wrong checksum")
    headers_end = PRELUDE_BYTES + headers_bytes
    try:
        headers = _headers(bytes(frame[PRELUDE_BYTES:headers_end]))
    except (IndexError, struct.error, ValueError, OverflowError) as error:
        raise EventStreamError(f"the event stream has a frame with malformed headers ({error})") from error
    return Message(headers, bytes(frame[headers_end:-CHECKSUM_BYTES]))


def _headers(raw: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at = 0
    while at < len(raw):
        name_end = at + 1 + raw[at]
        name = raw[at + 1 : name_end].decode()
        kind = raw[name_end]
        headers[name], at = _value(raw, kind, name_end + 1)
    return headers


def _value(raw: bytes, kind: int, at: int) -> tuple[HeaderValue, int]:
    """Return the value of type ``kind`` at ``at``, and where it ends."""
    if kind in (0, 1):
        return kind == 0, at
    if kind in _INTEGERS:
        layout = _INTEGERS[kind]
        return int(layout.unpack_from(raw, at)[0]), at + layout.size
    if kind in (6, 7):
        end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if end > len(raw) or at + 2 > len(raw):
            raise ValueError("a value is longer than the headers")
        value = raw[at + 2 : end]
        return (value if kind == 6 else value.decode()), end
    if kind == 8:
        (millis,) = struct.unpack_from(">q", raw, at)
        return _EPOCH + dt.timedelta(milliseconds=millis), at + 8
    if kind == 9:
        return uuid.UUID(bytes=raw[at : at + 16]), at + 16
    raise ValueError(f"no value type {kind}")
