"""Ask schema registries, where the caller wants it: Glue's, and those that speak Confluent's protocol.

A record names its schema by an id. Each schema is fetched once and kept, or the reason why it could not be fetched.
Schemas are data from elsewhere: their size, their number and what is decoded with them are bounded.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from shardway.errors import ShardwayError
from shardway.inspect.records.decoding import Decoded, Step
from shardway.payloads.avro_data import value_of
from shardway.payloads.avro_schemas import AvroError
from shardway.payloads.confluent import checked_url, text_at
from shardway.payloads.registry_schemas import Answer, Schema, confluent_answer, glue_answer, schema_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shardway.inspect.reads.wire import ReadingWire


SCHEMAS_MAX = 500
"""The schemas that are kept at a time; the least recently used one is dropped first."""
AGAIN_S = 30.0
"""A schema that could not be fetched is asked for again after this time."""


def opened_by(known: Mapping[tuple[str, str], Schema | None], found: Decoded) -> Decoded:
    """Return ``found`` with the data behind the framing decoded by its schema, or with the reason why it is not
    decoded. ``known`` has the schemas by the kind of their registry and their id.
    """
    if found.schema is None or found.framed is None:
        return found
    place, framing = found.schema
    schema = known.get((framing.kind, framing.schema_id or ""))
    if schema is None:
        return found
    outer = found.steps[: place + 1]
    if schema.schema is None:
        told = f"{framing.why}; {schema.why}"
        steps = [*outer[:-1], msgspec.structs.replace(framing, why=told), *found.steps[place + 1 :]]
        return msgspec.structs.replace(found, steps=steps)
    try:
        value = value_of(schema.schema, found.framed)
    except AvroError as fault:
        told = f"it is not of the schema {schema.name}: {fault}"
        return Decoded(steps=[*outer, Step(kind="binary", why=told, opened=False)], data=found.framed)
    step = Step(kind="avro", why=f"the registry says that it is Avro, of the schema {schema.name}")
    text = json.dumps(value, ensure_ascii=False)
    return Decoded(steps=[*outer, step], data=found.framed, text=text, value=value, framed=found.framed)


class Registries:
    """Decodes what stands behind the framing of a schema registry."""

    def __init__(
        self,
        wire: ReadingWire,
        *,
        glue: bool = False,
        url: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``glue``: the Glue registries of the region are asked; ``url``: the registry at this address, which speaks
        Confluent's protocol, is asked. Raises OptionError.
        """
        self._wire = wire
        self._url = None if url is None else checked_url(url)
        self._now = now
        self._asks: dict[str, Callable[[str], Awaitable[Answer]]] = {}
        if glue:
            self._asks["glue"] = self._from_glue
        if url is not None:
            self._asks["confluent"] = self._from_confluent
        self._schemas: OrderedDict[tuple[str, str], Schema] = OrderedDict()

    async def opened(self, found: Decoded) -> Decoded:
        """Return ``found`` with the data behind the framing decoded by its schema, or with the reason why it is not
        decoded.
        """
        if found.schema is None:
            return found
        key = found.schema[1].kind, found.schema[1].schema_id or ""
        return opened_by({key: await self.schema(*key)}, found)

    async def schema(self, kind: str, identity: str) -> Schema | None:
        """Return the schema of an id; None where no registry of this kind is to be asked. ``kind``: as in `Step`."""
        return await self._schema(kind, identity) if kind in self._asks else None

    async def _schema(self, kind: str, identity: str) -> Schema:
        key = kind, identity
        known = self._schemas.get(key)
        if known is None or known.again_s <= self._now():
            known = self._schemas[key] = await self._fetch(kind, identity)
        self._schemas.move_to_end(key)
        while len(self._schemas) > SCHEMAS_MAX:
            self._schemas.popitem(last=False)
        return known

    async def _fetch(self, kind: str, identity: str) -> Schema:
        try:
            answer = await self._asks[kind](identity)
        except ShardwayError as fault:
            return Schema(why=f"its schema cannot be fetched: {fault}", again_s=self._now() + AGAIN_S)
        return schema_of(identity, answer)

    async def _from_glue(self, identity: str) -> Answer:
        body = await self._wire.call("glue", "GetSchemaVersion", msgspec.json.encode({"SchemaVersionId": identity}))
        return glue_answer(body)

    async def _from_confluent(self, identity: str) -> Answer:
        assert self._url is not None
        body = await asyncio.to_thread(text_at, f"{self._url}/schemas/ids/{int(identity)}")
        return confluent_answer(body)
