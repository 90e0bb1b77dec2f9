"""Frames of an event stream (``application/vnd.amazon.eventstream``), in which SubscribeToShard answers.

A frame is: total length, header length, CRC-32 of these eight bytes, headers, payload, CRC-32 of all before it; numbers
are unsigned 32-bit, most significant byte first. A header is: name length (1 byte), name, type 7 (string), value length
(2 bytes), value. (AWS: "Event stream encoding".)
"""

from __future__ import annotations

import struct
import zlib

_PRELUDE = struct.Struct(">II")
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_STRING_TYPE = 7


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return one frame with string headers."""
    head = b"".join(_header(name, value) for name, value in headers.items())
    prelude = _PRELUDE.pack(16 + len(head) + len(payload), len(head))
    prelude += _CRC.pack(zlib.crc32(prelude))
    crc = zlib.crc32(payload, zlib.crc32(head, zlib.crc32(prelude)))
    return b"".join((prelude, head, payload, _CRC.pack(crc)))


def event(event_type: str, payload: bytes, content_type: str = "application/x-amz-json-1.1") -> bytes:
    """Return a frame that carries an event (``initial-response``, ``SubscribeToShardEvent``)."""
    return frame({":event-type": event_type, ":content-type": content_type, ":message-type": "event"}, payload)


def exception(exception_type: str, payload: bytes, content_type: str = "application/x-amz-json-1.1") -> bytes:
    """Return a frame that ends the stream with one of its modelled errors (``ResourceInUseException``)."""
    return frame(
        {":exception-type": exception_type, ":content-type": content_type, ":message-type": "exception"},
        payload,
    )


def message(name: str, payload: bytes, content_type: str = "application/x-amz-json-1.1") -> bytes:
    """Return the frame of this name: an error where the name ends in ``Exception``, and else an event."""
    make = exception if name.endswith("Exception") else event
    return make(name, payload, content_type)


def _header(name: str, value: str) -> bytes:
    raw_name, raw_value = name.encode(), value.encode()
    return b"".join(
        (bytes((len(raw_name),)), raw_name, bytes((_STRING_TYPE,)), _LENGTH.pack(len(raw_value)), raw_value)
    )
