"""Read what schema registries answer, Glue's and those of Confluent's protocol, and make a schema to read data by, or
the reason why there is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from shardway.aws.calls.answers import reading
from shardway.payloads.avro_schemas import AvroError, Type, parse
from shardway.payloads.confluent import SCHEMA_BYTES_MAX


class Answer(msgspec.Struct, frozen=True):
    """What either kind of registry says of a schema."""

    definition: str
    format: str
    """``AVRO``, ``JSON`` or ``PROTOBUF``."""
    name: str
    refers: bool = False
    """True: the schema refers to other schemas, which are not fetched."""


class Schema(NamedTuple):
    """A schema, or why there is none."""

    name: str = ""
    format: str = ""
    schema: Type | None = None
    why: str = ""
    """Why nothing is decoded with it."""
    again_s: float = float("inf")
    """When the registry is asked again, in seconds of the clock of its keeper: one that did not answer may be back."""


class _Glue(msgspec.Struct):
    definition: str = msgspec.field(name="SchemaDefinition")
    format: str = msgspec.field(name="DataFormat")
    arn: str = msgspec.field(name="SchemaArn", default="")
    version: int | None = msgspec.field(name="VersionNumber", default=None)


class _Confluent(msgspec.Struct):
    definition: str = msgspec.field(name="schema")
    format: str = msgspec.field(name="schemaType", default="AVRO")
    references: list[Any] = []


def glue_answer(body: bytes) -> Answer:
    """Return what Glue's GetSchemaVersion says. Raises TransportError for what is no such answer."""
    with reading("GetSchemaVersion"):
        found = msgspec.json.decode(body, type=_Glue)
    name = found.arn.rpartition(":schema/")[2]
    version = "" if found.version is None else f" version {found.version}"
    return Answer(found.definition, found.format, f"{name}{version}")


def confluent_answer(body: bytes) -> Answer:
    """Return what a registry of Confluent's protocol says. Raises TransportError for what is no such answer."""
    with reading("the schema registry"):
        found = msgspec.json.decode(body, type=_Confluent)
    return Answer(found.definition, found.format, "", bool(found.references))


def schema_of(identity: str, answer: Answer) -> Schema:
    """Return the schema that an answer has, or why it cannot be used."""
    named = f"{answer.name} ({identity})" if answer.name else identity
    if len(answer.definition) > SCHEMA_BYTES_MAX:
        return Schema(named, why=f"its schema {named} has more than {SCHEMA_BYTES_MAX} characters")
    if answer.format != "AVRO":
        what = "JSON, which tells itself" if answer.format == "JSON" else f"{answer.format}, which is not decoded"
        return Schema(named, answer.format, why=f"the registry says that its schema {named} is {what}")
    if answer.refers:
        return Schema(named, answer.format, why=f"its schema {named} refers to others, which are not fetched")
    try:
        return Schema(named, answer.format, parse(answer.definition))
    except AvroError as fault:
        return Schema(named, answer.format, why=f"its schema {named} cannot be used: {fault}")
