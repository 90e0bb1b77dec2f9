"""Read Avro's binary encoding for records of any origin: whatever the schema and the data are, the reader takes bounded
memory, bounded depth, and time linear in the data.

The reader is small on purpose: it makes values of JSON to look at, with the writer's schema alone. Libraries for Avro
read a schema that refers to itself until the stack ends, and as many empty values as the data claims.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from shardway.payloads.avro_schemas import DEPTH_MAX, AvroError

if TYPE_CHECKING:
    from shardway.payloads.avro_schemas import Type


VALUES_MAX = 200_000
"""The values that one record may have. Values without a byte, such as null, cost nothing in the data and count, too."""
NAMES_CHARS_MAX = 16 * 1024 * 1024
"""The characters that the names of fields and the symbols of enums may have in one record's JSON, each counted as often
as it comes. They stand in the schema once, and cost nothing in the data.
"""
_LONG_BYTES_MAX = 10
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def value_of(schema: Type, data: bytes) -> Any:
    """Return the value in JSON's types: binary data is base64, and a time, a date and a decimal are texts.

    Raises AvroError, also where bytes are left over, since then the data is of another schema.
    """
    return _whole_value(schema, data, as_json=True)


def python_value_of(schema: Type, data: bytes) -> Any:
    """Return the value in Python's types: bytes, Decimal, date, datetime (aware, but for local timestamps) and UUID.

    Raises AvroError as `value_of` does.
    """
    return _whole_value(schema, data, as_json=False)


def _whole_value(schema: Type, data: bytes, *, as_json: bool) -> Any:
    reading = _ByteReader(data, as_json=as_json)
    value = reading.value(schema, 0)
    if reading.at != len(data):
        raise AvroError(f"{len(data) - reading.at} bytes are left over: the data is of another schema")
    return value


class _ByteReader:
    """The bytes of one record, and how far they are read."""

    def __init__(self, data: bytes, *, as_json: bool) -> None:
        self.at = 0
        self.as_json = as_json
        self._data = data
        self._values_left = VALUES_MAX
        self._names_chars_left = NAMES_CHARS_MAX

    def value(self, of: Type, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise AvroError(f"it holds more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise AvroError(f"its values lie more than {DEPTH_MAX} deep")
        read = _READERS.get(of.kind)
        assert read is not None, of.kind
        found = read(self, of, depth)
        if of.logical:
            found = _logical_value(of, found)
        return _as_json(found) if self.as_json else found

    def name(self, chars: int) -> None:
        """Count the characters of names that the value repeats."""
        self._names_chars_left -= chars
        if self._names_chars_left < 0:
            raise AvroError(f"the names of its fields have more than {NAMES_CHARS_MAX} characters together")

    def long(self) -> int:
        found = shift = 0
        for _ in range(_LONG_BYTES_MAX):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
        raise AvroError("a number has more than ten bytes")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self._data):
            raise AvroError("it ends too soon, or names a length that it does not have")
        found, self.at = self._data[self.at : end], end
        return found

    def text(self) -> str:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise AvroError("a text is not UTF-8") from None

    def blocks(self) -> Any:
        """Yield the number of items of each block of an array or a map."""
        while count := self.long():
            if count < 0:
                self.long()  # the block's size in bytes
            yield abs(count)


def _boolean(reading: _ByteReader, of: Type, depth: int) -> bool:  # noqa: ARG001 - one of several
    return reading.take(1) != b"\0"


def _float(reading: _ByteReader, of: Type, depth: int) -> float:  # noqa: ARG001 - one of several
    (found,) = struct.unpack("<f", reading.take(4)) if of.kind == "float" else struct.unpack("<d", reading.take(8))
    return float(found)


def _bytes(reading: _ByteReader, of: Type, depth: int) -> bytes:  # noqa: ARG001 - one of several
    return reading.take(of.size if of.kind == "fixed" else reading.long())


def _enum(reading: _ByteReader, of: Type, depth: int) -> Any:  # noqa: ARG001 - one of several
    symbol = _choose(of.names, reading.long())
    reading.name(len(symbol))
    return symbol


def _union(reading: _ByteReader, of: Type, depth: int) -> Any:
    return reading.value(_choose(of.parts, reading.long()), depth + 1)


def _array(reading: _ByteReader, of: Type, depth: int) -> list[Any]:
    return [reading.value(of.parts[0], depth + 1) for count in reading.blocks() for _ in range(count)]


def _map(reading: _ByteReader, of: Type, depth: int) -> dict[str, Any]:
    return {reading.text(): reading.value(of.parts[0], depth + 1) for count in reading.blocks() for _ in range(count)}


def _record(reading: _ByteReader, of: Type, depth: int) -> dict[str, Any]:
    reading.name(of.names_chars)
    return {name: reading.value(part, depth + 1) for name, part in zip(of.names, of.parts, strict=True)}


def _choose(among: list[Any], place: int) -> Any:
    if not 0 <= place < len(among):
        raise AvroError("it chooses what the schema does not have")
    return among[place]


_READERS: dict[str, Any] = {
    "null": lambda *_: None,
    "boolean": _boolean,
    "int": lambda reading, *_: reading.long(),
    "long": lambda reading, *_: reading.long(),
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "fixed": _bytes,
    "string": lambda reading, *_: reading.text(),
    "enum": _enum,
    "union": _union,
    "array": _array,
    "map": _map,
    "record": _record,
}
_PARTS_OF_A_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


def _logical_value(of: Type, found: Any) -> Any:
    """Return the value of a logical type; or the plain value, where the type is not known or Python has no such
    value.
    """
    if isinstance(found, bytes):
        if of.logical == "decimal" and 0 <= of.scale <= 1_000 and len(found) <= 1_000:
            number = Decimal(int.from_bytes(found, "big", signed=True)).as_tuple()
            return Decimal((number.sign, number.digits, -of.scale))  # scaleb would round to 28 digits
        if of.logical == "uuid" and len(found) == 16:
            return uuid.UUID(bytes=found)
        return found
    if not isinstance(found, int):
        return found
    try:
        if of.logical == "date":
            return (_EPOCH + dt.timedelta(days=found)).date()
        name, _, unit = of.logical.rpartition("-")
        if name in ("timestamp", "local-timestamp") and (parts := _PARTS_OF_A_SECOND.get(unit)):
            at = _EPOCH + dt.timedelta(microseconds=found * 1_000_000 // parts)
            return at.replace(tzinfo=None) if name == "local-timestamp" else at
    except OverflowError:
        pass
    return found


def _as_json(found: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    if isinstance(found, float):
        return found if math.isfinite(found) else str(found)
    if isinstance(found, Decimal):
        return format(found, "f")
    if isinstance(found, dt.date):  # a datetime is one
        return found.isoformat()
    return str(found) if isinstance(found, uuid.UUID) else found
