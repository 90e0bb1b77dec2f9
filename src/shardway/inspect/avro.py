"""Read Avro's binary encoding for records of any origin: whatever the schema and the data are, the reader takes bounded
memory, bounded depth, and time linear in the data.

The reader is small on purpose: it makes values of JSON to look at, with the writer's schema alone. Libraries for Avro
read a schema that refers to itself until the stack ends, and as many empty values as the data claims.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
import uuid
from decimal import Decimal
from typing import Any

from shardway.core.unicode import writable
from shardway.errors import ShardwayError

DEPTH_MAX = 64
"""How deep values may lie in values, and types in types."""
VALUES_MAX = 200_000
"""The values that one record may have. Values without a byte, such as null, cost nothing in the data and count, too."""
NODES_MAX = 10_000
"""The types that one schema may have."""

_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_LONG_BYTES_MAX = 10
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class AvroError(ShardwayError):
    """A text is no Avro schema, or data does not match its schema. The message shows no data."""


class Type:
    """A type of a schema. The parts of a type may contain the type itself again."""

    __slots__ = ("kind", "logical", "names", "parts", "scale", "size")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[Type] = []
        """The types of a record's fields, of a union's branches, or of the values of an array or a map."""
        self.names: list[str] = []
        """The names of a record's fields, or an enum's symbols."""
        self.size = 0
        """The size of a ``fixed``, in bytes."""
        self.logical = ""
        self.scale = 0


# --- schemas --------------------------------------------------------------------------------------


def parse(text: str) -> Type:
    """Return the type that a schema's JSON describes. Raises AvroError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise AvroError("the schema is no JSON") from None
    try:
        return _Schema().type_of(found, "", 0)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise AvroError(f"the schema is no Avro schema ({type(fault).__name__})") from None


class _Schema:
    """The state of the parsing of one schema."""

    def __init__(self) -> None:
        self._named: dict[str, Type] = {}
        self._left = NODES_MAX

    def type_of(self, found: Any, space: str, depth: int) -> Type:
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX:
            raise AvroError(f"the schema has more than {NODES_MAX} types, or they lie more than {DEPTH_MAX} deep")
        if isinstance(found, str):
            return self._called(found, space)
        if isinstance(found, list):
            made = Type("union")
            made.parts = [self.type_of(one, space, depth + 1) for one in found]
            return made
        kind = found["type"]
        if not isinstance(kind, str):  # {"type": {"type": ...}}
            return self.type_of(kind, space, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._made(kind, found, space, depth)
        if kind in ("array", "map"):
            made = Type(kind)
            made.parts = [self.type_of(found["items" if kind == "array" else "values"], space, depth + 1)]
            return made
        made = self._called(kind, space)
        return _with_logical(made, found) if kind in _PRIMITIVES else made

    def _called(self, name: str, space: str) -> Type:
        if name in _PRIMITIVES:
            return Type(name)
        known = self._named.get(_full(name, space)) or self._named.get(name)
        if known is None:
            raise AvroError("the schema names a type that it does not define: it refers to another schema")
        return known

    def _made(self, kind: str, found: dict[str, Any], space: str, depth: int) -> Type:
        made = Type("record" if kind == "error" else kind)
        full = _full(str(found["name"]), str(found.get("namespace") or space))
        self._named[full] = made  # before its fields, which may refer to it
        below = full.rpartition(".")[0]
        if kind == "enum":
            made.names = [writable(str(one)) for one in found["symbols"]]
        elif kind == "fixed":
            made.size = int(found["size"])
            if made.size < 0:
                raise AvroError("the schema has a fixed type of less than no byte")
        else:
            for field in found["fields"]:
                made.names.append(writable(str(field["name"])))
                made.parts.append(self.type_of(field["type"], below, depth + 1))
        return _with_logical(made, found)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _with_logical(made: Type, found: dict[str, Any]) -> Type:
    logical = found.get("logicalType")
    if isinstance(logical, str):
        made.logical = logical
        made.scale = int(found.get("scale") or 0)
    return made


# --- data -----------------------------------------------------------------------------------------


def value_of(schema: Type, data: bytes) -> Any:
    """Return the value in JSON's types: binary data is base64, and a time, a date and a decimal are texts.

    Raises AvroError, also where bytes are left over, since then the data is of another schema.
    """
    reading = _Reading(data)
    value = reading.value(schema, 0)
    if reading.at != len(data):
        raise AvroError(f"{len(data) - reading.at} bytes are left over: the data is of another schema")
    return value


class _Reading:
    """The bytes of one record, and how far they are read."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._left = VALUES_MAX

    def value(self, of: Type, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise AvroError(f"it holds more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise AvroError(f"its values lie more than {DEPTH_MAX} deep")
        read = _READERS.get(of.kind)
        assert read is not None, of.kind
        found = read(self, of, depth)
        return found if not of.logical else _told(of, found)

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


def _boolean(reading: _Reading, of: Type, depth: int) -> bool:  # noqa: ARG001 - one of several
    return reading.take(1) != b"\0"


def _float(reading: _Reading, of: Type, depth: int) -> float | str:  # noqa: ARG001 - one of several
    (found,) = struct.unpack("<f", reading.take(4)) if of.kind == "float" else struct.unpack("<d", reading.take(8))
    number = float(found)
    return number if math.isfinite(number) else str(number)


def _bytes(reading: _Reading, of: Type, depth: int) -> bytes | str:  # noqa: ARG001 - one of several
    found = reading.take(of.size if of.kind == "fixed" else reading.long())
    return found if of.logical else base64.b64encode(found).decode()


def _enum(reading: _Reading, of: Type, depth: int) -> Any:  # noqa: ARG001 - one of several
    return _chosen(of.names, reading.long())


def _union(reading: _Reading, of: Type, depth: int) -> Any:
    return reading.value(_chosen(of.parts, reading.long()), depth + 1)


def _array(reading: _Reading, of: Type, depth: int) -> list[Any]:
    return [reading.value(of.parts[0], depth + 1) for count in reading.blocks() for _ in range(count)]


def _map(reading: _Reading, of: Type, depth: int) -> dict[str, Any]:
    return {reading.text(): reading.value(of.parts[0], depth + 1) for count in reading.blocks() for _ in range(count)}


def _record(reading: _Reading, of: Type, depth: int) -> dict[str, Any]:
    return {name: reading.value(part, depth + 1) for name, part in zip(of.names, of.parts, strict=True)}


def _chosen(among: list[Any], place: int) -> Any:
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


# --- logical types --------------------------------------------------------------------------------

_PARTS_OF_A_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


def _told(of: Type, found: Any) -> Any:
    """Return the value of a logical type as a text; or the plain value, where the type is not known or the value is
    beyond what a text can say.
    """
    if isinstance(found, bytes):
        if of.logical == "decimal" and 0 <= of.scale <= 1_000 and len(found) <= 1_000:
            number = Decimal(int.from_bytes(found, "big", signed=True)).as_tuple()
            told = Decimal((number.sign, number.digits, -of.scale))  # scaleb would round to 28 digits
            return format(told, "f")
        if of.logical == "uuid" and len(found) == 16:
            return str(uuid.UUID(bytes=found))
        return base64.b64encode(found).decode()
    if not isinstance(found, int):
        return found
    try:
        if of.logical == "date":
            return (_EPOCH + dt.timedelta(days=found)).date().isoformat()
        name, _, unit = of.logical.rpartition("-")
        if name in ("timestamp", "local-timestamp") and (parts := _PARTS_OF_A_SECOND.get(unit)):
            at = _EPOCH + dt.timedelta(microseconds=found * 1_000_000 // parts)
            return at.replace(tzinfo=None if name == "local-timestamp" else dt.UTC).isoformat()
    except OverflowError:
        pass
    return found
