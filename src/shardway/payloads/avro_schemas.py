"""Parse a schema of Avro, within bounds."""

from __future__ import annotations

import json
from typing import Any

from shardway.core.unicode import writable
from shardway.errors import ShardwayError

DEPTH_MAX = 64
"""How deep values may lie in values, and types in types."""
NODES_MAX = 10_000
"""The types that one schema may have."""
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class AvroError(ShardwayError):
    """A text is no Avro schema, or data does not match its schema. The message shows no data."""


class Type:
    """A type of a schema. The parts of a type may contain the type itself again."""

    __slots__ = ("kind", "logical", "names", "names_chars", "parts", "scale", "size")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[Type] = []
        """The types of a record's fields, of a union's branches, or of the values of an array or a map."""
        self.names: list[str] = []
        """The names of a record's fields, or an enum's symbols."""
        self.names_chars = 0
        """The characters of all names of a record's fields together."""
        self.size = 0
        """The size of a ``fixed``, in bytes."""
        self.logical = ""
        self.scale = 0


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
        self._named_types: dict[str, Type] = {}
        self._nodes_left = NODES_MAX

    def type_of(self, found: Any, space: str, depth: int) -> Type:
        self._nodes_left -= 1
        if self._nodes_left < 0 or depth > DEPTH_MAX:
            raise AvroError(f"the schema has more than {NODES_MAX} types, or they lie more than {DEPTH_MAX} deep")
        if isinstance(found, str):
            return self._type_of(found, space)
        if isinstance(found, list):
            made = Type("union")
            made.parts = [self.type_of(one, space, depth + 1) for one in found]
            return made
        kind = found["type"]
        if not isinstance(kind, str):  # {"type": {"type": ...}}
            return self.type_of(kind, space, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._make(kind, found, space, depth)
        if kind in ("array", "map"):
            made = Type(kind)
            made.parts = [self.type_of(found["items" if kind == "array" else "values"], space, depth + 1)]
            return made
        made = self._type_of(kind, space)
        return _with_logical(made, found) if kind in _PRIMITIVES else made

    def _type_of(self, name: str, space: str) -> Type:
        if name in _PRIMITIVES:
            return Type(name)
        known = self._named_types.get(_full(name, space)) or self._named_types.get(name)
        if known is None:
            raise AvroError("the schema names a type that it does not define: it refers to another schema")
        return known

    def _make(self, kind: str, found: dict[str, Any], space: str, depth: int) -> Type:
        made = Type("record" if kind == "error" else kind)
        full = _full(str(found["name"]), str(found.get("namespace") or space))
        self._named_types[full] = made  # before its fields, which may refer to it
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
            made.names_chars = sum(map(len, made.names))
        return _with_logical(made, found)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _with_logical(made: Type, found: dict[str, Any]) -> Type:
    logical = found.get("logicalType")
    if isinstance(logical, str):
        made.logical = logical
        made.scale = int(found.get("scale") or 0)
    return made
