"""Make the value of a record whose schema a registry has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.errors import PayloadError
from shardway.payloads.avro_data import python_value_of
from shardway.payloads.avro_schemas import AvroError
from shardway.payloads.json_text import value_as

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.payloads.schema_cache import SchemaCache

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
        if found.schema is not None:
            try:
                return python_value_of(found.schema, inner)
            except AvroError as fault:
                raise PayloadError(f"it is not of the schema {found.name}: {fault}") from None
        if found.format == "JSON":
            return value_as(_ANY_DECODER, inner, f"value of the schema {found.name}")
        raise PayloadError(f"it cannot be read: {found.why}")
