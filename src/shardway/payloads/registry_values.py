"""Make the value of a record whose schema a registry has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shardway.errors import PayloadError
from shardway.payloads.avro_data import python_value_of
from shardway.payloads.avro_schemas import AvroError
from shardway.payloads.json_text import value_as

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.payloads.avro_schemas import Type
    from shardway.payloads.registry_schemas import Schema
    from shardway.payloads.schema_cache import SchemaCache

T = TypeVar("T")

_ANY_DECODER = msgspec.json.Decoder(Any)


class RegistryValues:
    """Reads records in the frame of a registry; it is called with the data of each."""

    def __init__(self, frame: Callable[[bytes], tuple[str, bytes]], schemas: SchemaCache) -> None:
        self._frame = frame
        self._schemas = schemas

    def __call__(self, data: bytes) -> Any:
        """Return the value of a record. Raises PayloadError, or RegistryError where no schema is to be had now."""
        identity, inner = self._frame(data)
        found = self._schemas.of(identity)
        return read_by(found, inner, of_avro=python_value_of, of_json=_value_of_json)


def read_by(
    found: Schema, inner: bytes, *, of_avro: Callable[[Type, bytes], T], of_json: Callable[[bytes, str], T]
) -> T:
    """Return what one of two functions makes of data, by the format of its schema; that for JSON gets the schema's
    name, too. Raises PayloadError where the data is not of the schema, and where the schema cannot be used.
    """
    if found.schema is not None:
        try:
            return of_avro(found.schema, inner)
        except AvroError as fault:
            raise PayloadError(f"it is not of the schema {found.name}: {fault}") from None
    if found.format == "JSON":
        return of_json(inner, found.name)
    raise PayloadError(f"it cannot be read: {found.why}")


def _value_of_json(data: bytes, name: str) -> Any:
    return value_as(_ANY_DECODER, data, f"value of the schema {name}")
