"""Where a row lies: by the hash of its partition key, then by its sort key."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

from shardway.local.dynamodb.attribute_values import Item, Value, binary_bytes, comparable, kind_of, text_bytes
from shardway.local.dynamodb.errors import DynamoError, invalid_values, validation

Position: TypeAlias = tuple[Any, ...]
"""The hash of the partition key, the partition key, and the sort key if there is one; in an index, the table's own
position, too.
"""
HASHES = 2**32
HASH_KEY_BYTES_MAX = 2048
RANGE_KEY_BYTES_MAX = 1024
_NO_MATCH = "The provided key element does not match the schema"


class KeySchema:
    """The attributes of a table's or an index's key, and their types."""

    __slots__ = ("hash_kind", "hash_name", "names", "range_kind", "range_name")

    def __init__(self, hash_name: str, range_name: str | None, kinds: Mapping[str, str]) -> None:
        self.hash_name = hash_name
        self.hash_kind = kinds[hash_name]
        self.range_name = range_name
        self.range_kind = None if range_name is None else kinds[range_name]
        self.names = (hash_name,) if range_name is None else (hash_name, range_name)

    def shown(self) -> list[dict[str, str]]:
        """Return the schema as the API writes it."""
        kinds = ("HASH", "RANGE")
        return [{"AttributeName": name, "KeyType": kinds[at]} for at, name in enumerate(self.names)]

    def key_of(self, item: Item) -> Item:
        """Return the key's attributes of an item."""
        return {name: item[name] for name in self.names}

    def has_all(self, item: Item) -> bool:
        """Return whether an item has the whole key."""
        return self.hash_name in item and (self.range_name is None or self.range_name in item)

    def position(self, item: Item) -> Position:
        """Return where an item with a checked key lies."""
        partition = item[self.hash_name]
        if self.range_name is None:
            return partition_of(partition)
        return (*partition_of(partition), comparable(item[self.range_name]))

    def position_of_item(self, item: Item) -> Position:
        """Return where an item lies. Raises DynamoError when its key is missing or wrong."""
        for name, kind in self._kinds():
            value = item.get(name)
            if value is None:
                raise invalid_values(f"Missing the key {name} in the item")
            if kind not in value:
                raise invalid_values(f"Type mismatch for key {name} expected: {kind} actual: {kind_of(value)}")
            self._check_length(name, value)
        return self.position(item)

    def position_of_key(self, key: Item) -> Position:
        """Return where the item with this key lies. Raises DynamoError for what is no key of this table."""
        if len(key) != len(self.names):
            raise validation(_NO_MATCH)
        for name, kind in self._kinds():
            value = key.get(name)
            if value is None or kind not in value:
                raise validation(_NO_MATCH)
            self._check_length(name, value)
        return self.position(key)

    def _kinds(self) -> list[tuple[str, str]]:
        kinds = [(self.hash_name, self.hash_kind)]
        if self.range_name is not None and self.range_kind is not None:
            kinds.append((self.range_name, self.range_kind))
        return kinds

    def _check_length(self, name: str, value: Value) -> None:
        size = key_bytes(value)
        if not size:
            kind = "string" if "S" in value else "binary"
            raise validation(
                "One or more parameter values are not valid. The AttributeValue for a key attribute "
                f"cannot contain an empty {kind} value. Key: {name}"
            )
        fault = length_fault(size, is_hash=name == self.hash_name)
        if fault is not None:
            raise fault

    def index_fault(self, index: str, item: Item, *, updated: bool = False) -> DynamoError | None:
        """Return what is wrong with an index's key in an item. A key that is not there is right."""
        for name, kind in self._kinds():
            value = item.get(name)
            if value is None:
                continue
            if kind not in value:
                return invalid_values(
                    f"Type mismatch for Index Key {name} Expected: {kind} Actual: {kind_of(value)} IndexName: {index}"
                )
            size = key_bytes(value)
            if not size:
                word = "string" if kind == "S" else "binary"
                what = (
                    "The update expression attempted to update a secondary index key to a value that is not supported."
                    if updated
                    else "A value specified for a secondary index key is not supported."
                )
                return validation(
                    f"One or more parameter values are not valid. {what} The AttributeValue for a key attribute cannot "
                    f"contain an empty {word} value. IndexName: {index}, IndexKey: {name}"
                )
            fault = length_fault(size, is_hash=name == self.hash_name)
            if fault is not None:
                return fault
        return None


def key_bytes(value: Value) -> int:
    """Return the length of a key's value; a number is never empty."""
    ((kind, content),) = value.items()
    if kind == "S":
        return text_bytes(content)
    return binary_bytes(content) if kind == "B" else 1


def length_fault(size: int, *, is_hash: bool) -> DynamoError | None:
    """Return the error for a key's value that is too long, else None."""
    if is_hash and size > HASH_KEY_BYTES_MAX:
        return invalid_values(f"Size of hashkey has exceeded the maximum size limit of{HASH_KEY_BYTES_MAX} bytes")
    if not is_hash and size > RANGE_KEY_BYTES_MAX:
        return invalid_values(
            f"Aggregated size of all range keys has exceeded the size limit of {RANGE_KEY_BYTES_MAX} bytes"
        )
    return None


def partition_of(value: Value) -> Position:
    """Return where the rows with this partition key begin."""
    ((kind, content),) = value.items()
    if kind == "S":
        return zlib.crc32(content.encode()), content
    if kind == "N":
        return zlib.crc32(content.encode()), comparable(value)
    found = comparable(value)
    return zlib.crc32(found), found
