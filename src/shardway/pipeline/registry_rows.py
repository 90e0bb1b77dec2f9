"""Read records in the frame of a schema registry in Spark's tasks: each becomes the JSON that the job's schema is for.

The registry's schema says how a record was written, and the job's DDL which fields it becomes. JSON between the two
lets fields be found by their names, so that a writer may add, move and leave out fields while the job runs.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from shardway.aws.options import ConnectionOptions
from shardway.errors import RegistryError
from shardway.payloads.avro_data import value_of
from shardway.payloads.frames import CONFLUENT, confluent_frame, glue_frame
from shardway.payloads.opening import unpacked
from shardway.payloads.registry_values import read_by
from shardway.payloads.schema_cache import AWAY_AGAIN_S, SchemaCache, confluent_schemas, glue_schemas

if TYPE_CHECKING:
    from shardway.payloads.avro_schemas import Type
    from shardway.payloads.opening import Compression
    from shardway.payloads.registry_schemas import Schema


class RegistryPlace(NamedTuple):
    """Where a schema registry is. It goes to the tasks, so it has no secret."""

    frame: str
    url: str = ""
    """The address of a registry of Confluent's protocol."""
    region: str | None = None
    endpoint_url: str | None = None
    """Where Glue is; None: as the environment of the task says."""
    wait_s: float = 60.0
    """A task waits this long for a registry that is away. Then it fails, and with it the batch, which the next start of
    the job does again.
    """


class FramedData(NamedTuple):
    """Makes JSON of records in a frame. A task has the schemas of a registry once, for all its batches."""

    place: RegistryPlace
    compression: Compression | None
    opened_bytes_max: int
    kind: pa.DataType = pa.binary()

    def of(self, data: bytes) -> tuple[bytes, int]:
        """Return the record as JSON, and its size. Raises PayloadError; RegistryError where the registry is away for
        longer than the place says.
        """
        if self.compression is not None:
            data = unpacked(data, self.compression, opened_bytes_max=self.opened_bytes_max)
        if self.place.frame == CONFLUENT:
            identity, inner = confluent_frame(data)
        else:
            identity, inner = glue_frame(data, opened_bytes_max=self.opened_bytes_max)
        made = read_by(_schema(self.place, identity), inner, of_avro=_json_of_avro, of_json=lambda text, _: text)
        return made, len(made)


def _json_of_avro(schema: Type, data: bytes) -> bytes:
    return msgspec.json.encode(value_of(schema, data))


def _schema(place: RegistryPlace, identity: str) -> Schema:
    """Return a schema from the registry, and wait for a registry that is away."""
    schemas, until_s = _schemas(place), time.monotonic() + place.wait_s
    while True:
        try:
            return schemas.of(identity)
        except RegistryError:
            if time.monotonic() >= until_s:
                raise
        time.sleep(AWAY_AGAIN_S)


@functools.lru_cache(maxsize=16)
def _schemas(place: RegistryPlace) -> SchemaCache:
    if place.frame == CONFLUENT:
        return confluent_schemas(place.url, option="decode.registry.url")
    return glue_schemas(ConnectionOptions(region=place.region, endpoint_url=place.endpoint_url))
