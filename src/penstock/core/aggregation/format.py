"""The bytes of a KPL aggregate: magic, one protobuf message, the MD5 of that message.

::

    F3 89 9A C2 | AggregatedRecord | MD5 of the AggregatedRecord (16 bytes)

    message AggregatedRecord {
      repeated string partition_key_table     = 1;
      repeated string explicit_hash_key_table = 2;
      repeated Record records                 = 3;
    }
    message Record {
      required uint64 partition_key_index     = 1;  // into the table, from 0
      optional uint64 explicit_hash_key_index = 2;  // only where the user gave a hash key
      required bytes  data                    = 3;
      repeated Tag    tags                    = 4;  // never written by the KPL
    }
    message Tag {
      required string key   = 1;
      optional string value = 2;
    }

Source: aggregation-format.md of the Kinesis Producer Library ("KPL Aggregated Record Format").
"""

from __future__ import annotations

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
FRAME_BYTES = len(MAGIC) + DIGEST_BYTES

# Wire types of protobuf, and the tags of the fields above: field number << 3 | wire type, one byte each.
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
PARTITION_KEY_TABLE = 1 << 3 | DELIMITED
EXPLICIT_HASH_KEY_TABLE = 2 << 3 | DELIMITED
RECORDS = 3 << 3 | DELIMITED
PARTITION_KEY_INDEX = 1 << 3 | VARINT
EXPLICIT_HASH_KEY_INDEX = 2 << 3 | VARINT
DATA = 3 << 3 | DELIMITED
TAGS = 4 << 3 | DELIMITED
TAG_KEY = 1 << 3 | DELIMITED

FIELD_1 = 1 << 3  # the least tag: fields count from 1

VARINT_BYTES_MAX = 10
"""A varint carries 64 bits, seven a byte."""


class MalformedError(Exception):
    """The bytes are no aggregate that can be opened. The message says why, without payload."""


_UINT64 = 0xFFFF_FFFF_FFFF_FFFF
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """``value`` (not negative) as a varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80,)) + varint(value >> 7)


def varint_bytes(value: int) -> int:
    """How many bytes ``varint(value)`` has."""
    return (value.bit_length() + 6) // 7 or 1


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The varint at ``at``, and where it ends. IndexError when the message ends first."""
    value = shift = 0
    for position in range(at, at + VARINT_BYTES_MAX):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value & _UINT64, position + 1
        shift += 7
    raise MalformedError(f"a varint is longer than {VARINT_BYTES_MAX} bytes")


def read_tag(message: bytes, at: int) -> tuple[int, int]:
    """The tag of the field at ``at``, and where it ends."""
    tag, end = read_varint(message, at)
    if not FIELD_1 <= tag < 1 << 32:
        raise MalformedError("a field has no valid number")
    if end - at != varint_bytes(tag):
        raise MalformedError("a field's tag is not in its shortest form")
    return tag, end


def read_delimited(message: bytes, at: int) -> tuple[bytes, int]:
    """The bytes whose length stands at ``at``, and where they end."""
    size, start = read_varint(message, at)
    if start + size > len(message):
        raise MalformedError("a field reaches beyond the end of its message")
    return message[start : start + size], start + size


def skip_value(message: bytes, at: int, tag: int) -> int:
    """Where the value of an unknown field ends: ``at`` is behind its tag."""
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
