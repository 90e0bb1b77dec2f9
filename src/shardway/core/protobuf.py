"""Read and write the wire format of protobuf: varints, tags, and fields with a length.

Source: "Encoding" in the documentation of Protocol Buffers. Groups and tags in a longer form than needed are refused.
"""

from __future__ import annotations

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""The wire types that are in use."""
FIELD_1 = 1 << 3  # It is the least tag: fields count from 1.

VARINT_BYTES_MAX = 10
"""The most bytes of a varint, which carries 64 bits, seven a byte."""


class MalformedError(Exception):
    """The bytes are no message that can be read. The error says why, without payload."""


_UINT64 = 0xFFFF_FFFF_FFFF_FFFF
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """Return ``value`` (not negative) as a varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80,)) + varint(value >> 7)


def varint_bytes(value: int) -> int:
    """Return how many bytes ``varint(value)`` has."""
    return (value.bit_length() + 6) // 7 or 1


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the varint at ``at``, and where it ends. Raises IndexError when the message ends first."""
    value = shift = 0
    for position in range(at, at + VARINT_BYTES_MAX):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value & _UINT64, position + 1
        shift += 7
    raise MalformedError(f"a varint is longer than {VARINT_BYTES_MAX} bytes")


def read_tag(message: bytes, at: int) -> tuple[int, int]:
    """Return the tag of the field at ``at``, and where it ends."""
    tag, end = read_varint(message, at)
    if not FIELD_1 <= tag < 1 << 32:
        raise MalformedError("a field has no valid number")
    if end - at != varint_bytes(tag):
        raise MalformedError("a field's tag is not in its shortest form")
    return tag, end


def read_delimited(message: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes whose length stands at ``at``, and where they end."""
    size, start = read_varint(message, at)
    if start + size > len(message):
        raise MalformedError("a field reaches beyond the end of its message")
    return message[start : start + size], start + size


def skip_value(message: bytes, at: int, tag: int) -> int:
    """Return where the value of an unknown field ends: ``at`` is behind its tag."""
    wire_type = tag & 7
    if wire_type == VARINT:
        end = read_varint(message, at)[1]
    elif wire_type == DELIMITED:
        end = read_delimited(message, at)[1]
    elif wire_type == FIXED64:
        end = at + 8
    elif wire_type == FIXED32:
        end = at + 4
    else:
        raise MalformedError("a field has a wire type that is not in use")
    if end > len(message):
        raise MalformedError("a field reaches beyond the end of its message")
    return end
