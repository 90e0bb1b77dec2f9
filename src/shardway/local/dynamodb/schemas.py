"""What a call asks of a table's key, indexes and billing, checked."""

from __future__ import annotations

import re
from typing import Any

from shardway.local.dynamodb.errors import constraint, invalid_values, validation
from shardway.local.dynamodb.keys import KeySchema
from shardway.local.dynamodb.requests import Definition, IndexAsked, KeyPart, Tag, Throughput
from shardway.local.dynamodb.table import PAY_PER_REQUEST, PROVISIONED, Index

INDEXES_MAX = 20
LOCAL_INDEXES_MAX = 5
TAGS_MAX = 50
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
NAME_CHARS = (3, 255)


def check_name(name: str | None, member: str) -> str:
    """Return a table's or an index's name. Raises DynamoError for what is none."""
    if name is None:
        raise constraint(None, member, "not be null")
    low, high = NAME_CHARS
    if len(name) < low:
        raise constraint(name, member, f"have length greater than or equal to {low}")
    if len(name) > high:
        raise constraint(name[:100] + "...", member, f"have length less than or equal to {high}")
    if not _NAME.fullmatch(name):
        raise constraint(name, member, "satisfy regular expression pattern: [a-zA-Z0-9_.-]+")
    return name


def definitions(asked: list[Definition] | None) -> dict[str, str]:
    """Return the types of attributes by their names. Raises DynamoError."""
    if asked is None:
        raise constraint(None, "attributeDefinitions", "not be null")
    found: dict[str, str] = {}
    for at, one in enumerate(asked, 1):
        if one.attribute_type not in ("S", "N", "B"):
            member = f"attributeDefinitions.{at}.member.attributeType"
            raise constraint(one.attribute_type, member, "satisfy enum value set: [B, N, S]")
        if not one.attribute_name:
            raise constraint(one.attribute_name, f"attributeDefinitions.{at}.member.attributeName", "not be null")
        if found.setdefault(one.attribute_name, one.attribute_type) != one.attribute_type:
            raise invalid_values(f"Duplicate AttributeName in AttributeDefinitions: {one.attribute_name}")
    return found


def key_schema(parts: list[KeyPart] | None, kinds: dict[str, str]) -> KeySchema:
    """Return a key. Raises DynamoError."""
    if parts is None:
        raise constraint(None, "keySchema", "not be null")
    if not 1 <= len(parts) <= 2:
        rule = "less than or equal to 2" if parts else "greater than or equal to 1"
        raise constraint("[...]" if parts else "[]", "keySchema", f"have length {rule}")
    for at, part in enumerate(parts, 1):
        if part.key_type not in ("HASH", "RANGE"):
            member = f"keySchema.{at}.member.keyType"
            raise constraint(part.key_type, member, "satisfy enum value set: [HASH, RANGE]")
    if parts[0].key_type != "HASH":
        raise validation("Invalid KeySchema: The first KeySchemaElement is not a HASH key type")
    if len(parts) == 2 and parts[1].key_type != "RANGE":
        raise validation("Invalid KeySchema: The second KeySchemaElement is not a RANGE key type")
    names = [str(part.attribute_name) for part in parts]
    if len(set(names)) < len(names):
        raise invalid_values("Both the Hash Key and the Range Key element in the KeySchema have the same name")
    if not set(names) <= kinds.keys():
        raise invalid_values(
            "Some index key attributes are not defined in AttributeDefinitions. "
            f"Keys: [{', '.join(names)}], AttributeDefinitions: [{', '.join(kinds)}]"
        )
    return KeySchema(names[0], names[1] if len(names) == 2 else None, kinds)


def index(asked: IndexAsked, kinds: dict[str, str], billing: str, *, is_global: bool = True) -> Index:
    """Return an index without rows. Raises DynamoError."""
    name = check_name(asked.index_name, "globalSecondaryIndexes.member.indexName")
    keys = key_schema(asked.key_schema, kinds)
    projection = asked.projection
    if projection is None:
        raise constraint(None, "globalSecondaryIndexes.member.projection", "not be null")
    kind, others = projection.projection_type, projection.non_key_attributes
    if kind is None:
        raise invalid_values("Unknown ProjectionType: null")
    if kind not in ("ALL", "INCLUDE", "KEYS_ONLY"):
        raise constraint(kind, "projection.projectionType", "satisfy enum value set: [ALL, INCLUDE, KEYS_ONLY]")
    if kind == "INCLUDE" and not others:
        raise invalid_values("ProjectionType is INCLUDE, but NonKeyAttributes is not specified")
    if kind != "INCLUDE" and others is not None:
        raise invalid_values(f"ProjectionType is {kind}, but NonKeyAttributes is specified")
    shown: dict[str, Any] = {"ProjectionType": kind} | ({"NonKeyAttributes": others} if others else {})
    made = Index(name, keys, shown, is_global=is_global)
    if is_global and (billing == PROVISIONED or asked.provisioned_throughput is not None):
        made.throughput = throughput(asked.provisioned_throughput, billing, f" for index: {name}")
    return made


def throughput(asked: Throughput | None, billing: str, of: str = "") -> dict[str, int]:
    """Return the units of a table or an index. Raises DynamoError when they do not fit the billing."""
    read = None if asked is None else asked.read_capacity_units
    write = None if asked is None else asked.write_capacity_units
    if billing == PAY_PER_REQUEST:
        if asked is not None:
            raise invalid_values(
                "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is "
                f"PAY_PER_REQUEST{of}"
            )
        return {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0}
    if read is None or write is None:
        raise invalid_values(
            f"ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED{of}"
        )
    for value, member in ((read, "readCapacityUnits"), (write, "writeCapacityUnits")):
        if value < 1:
            raise constraint(value, f"provisionedThroughput.{member}", "have value greater than or equal to 1")
    return {"ReadCapacityUnits": read, "WriteCapacityUnits": write}


def billing_mode(asked: str | None) -> str:
    """Return a billing mode. Raises DynamoError for what is none."""
    if asked not in (None, PROVISIONED, PAY_PER_REQUEST):
        raise constraint(asked, "billingMode", f"satisfy enum value set: [{PROVISIONED}, {PAY_PER_REQUEST}]")
    return asked or PROVISIONED


def table_class(asked: str | None) -> str:
    """Return a table class. Raises DynamoError for what is none."""
    classes = ("STANDARD", "STANDARD_INFREQUENT_ACCESS")
    if asked is not None and asked not in classes:
        raise constraint(asked, "tableClass", f"satisfy enum value set: [{', '.join(classes)}]")
    return asked or classes[0]


def tags(asked: list[Tag] | None) -> dict[str, str]:
    """Return tags. Raises DynamoError."""
    found: dict[str, str] = {}
    for at, one in enumerate(asked or (), 1):
        if not one.key or one.value is None:
            raise constraint(None, f"tags.{at}.member.{'value' if one.key else 'key'}", "not be null")
        found[one.key] = one.value
    return found
