"""Check a request against the API's model, in the service's words.

The check makes two passes, as the service does: first the JSON types (SerializationException, for the first wrong one),
then the constraints (ValidationException, for up to ten at once). Members that the model does not know are dropped, and
null means absent.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from shardway.local.model.errors import serialization, validation
from shardway.local.model.requests import REQUESTS, Blob, Flag, Int32, Items, Pairs, Structure, Text, Time

if TYPE_CHECKING:
    from shardway.local.model.errors import ModelError
    from shardway.local.model.requests import Rule


ERRORS_MAX = 10
WHOLE_MAX = 2**31 - 1
_NUMBER_CLASS = "class com.amazon.coral.value.json.numbers.TruncatingBigNumber"
_NOT_BASE64 = re.compile(r"[^a-zA-Z0-9+/=]|=[^=]")


def check(operation: str, request: Any, *, data_bytes_max: int = 1_048_576, keys_optional: bool = False) -> Any:
    """Check a request, and return it with its types made right. Raises ModelError.

    ``data_bytes_max`` is the longest data that the stream takes; ``keys_optional``: its records need no partition key.
    """
    if not isinstance(request, dict):
        raise serialization()
    rule = REQUESTS[operation]
    typed = _members(request, rule)
    checker = _Checker(data_bytes_max, keys_optional)
    optional = "StreamName" if "StreamARN" in typed and "StreamName" in rule.rules else None
    checker.members("", typed, rule, optional)
    if operation == "CreateStream" and not {"StreamName", "ShardCount"} & typed.keys():
        checker.add("shardCount", None, "Member must not be null")
    checker.finish()
    return typed


def _unexpected_container(value: Any) -> ModelError:
    if isinstance(value, list):
        return serialization("Start of list found where not expected")
    return serialization("Start of structure or map found where not expected.")


def _wrong_class(value: Any, article: str, kind: str) -> ModelError:
    if isinstance(value, list | dict):
        return _unexpected_container(value)
    if isinstance(value, bool):
        name = "class java.lang.Boolean"
    elif isinstance(value, int | float):
        name = _NUMBER_CLASS
    else:
        name = "class java.lang.String"
    return serialization(f"{name} can not be converted to {article}{kind}")


def _text(value: Any, rule: Rule) -> str:
    if not isinstance(value, str):
        raise _wrong_class(value, "an ", "String")
    return value


def _whole_number(value: Any, rule: Rule) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_class(value, "an ", "Integer")
    return int(min(value, WHOLE_MAX))


def _flag(value: Any, rule: Rule) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.upper()
        if word in ("TRUE", "YES", "1"):
            return True
        if word in ("FALSE", "NO", "0"):
            return False
        raise serialization(f"'{word}' can not be converted to an Boolean")
    raise _wrong_class(value, "an ", "Boolean")


def _time(value: Any, rule: Rule) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_class(value, "", "milliseconds since epoch")
    return float(value)


def _blob(value: Any, rule: Rule) -> str:
    if not isinstance(value, str):
        raise _wrong_class(value, "a ", "Blob")
    wrong = None
    if len(value) % 4:
        wrong = f"Base64 encoded length is expected a multiple of 4 bytes but found: {len(value)}"
    elif match := _NOT_BASE64.search(value):
        wrong = f"Invalid Base64 character: '{match[0][0]}'"
    elif value and binascii.b2a_base64(binascii.a2b_base64(value), newline=False) != value.encode():
        wrong = "Invalid last non-pad Base64 character dectected"
    if wrong:
        raise serialization(f"'{value}' can not be converted to a Blob: {wrong}")
    return value


def _items(value: Any, rule: Items) -> list[Any]:
    if isinstance(value, dict):
        raise _unexpected_container(value)
    if not isinstance(value, list):
        raise serialization("Expected list or null")
    return [_check_type(item, rule.member) for item in value]


def _pairs(value: Any, rule: Pairs) -> dict[str, str]:
    if isinstance(value, list):
        raise _unexpected_container(value)
    if not isinstance(value, dict):
        raise serialization("Expected map or null")
    return {key: _text(item, rule.value) for key, item in value.items() if item is not None}


def _members(value: Any, rule: Structure) -> dict[str, Any]:
    if isinstance(value, list):
        raise _unexpected_container(value)
    if not isinstance(value, dict):
        raise serialization("Expected null")
    return {
        name: _check_type(value[name], member) for name, member in rule.rules.items() if value.get(name) is not None
    }


_TYPES: dict[type, Callable[[Any, Any], Any]] = {
    Text: _text,
    Int32: _whole_number,
    Flag: _flag,
    Time: _time,
    Blob: _blob,
    Items: _items,
    Pairs: _pairs,
    Structure: _members,
}


def _check_type(value: Any, rule: Rule) -> Any:
    return _TYPES[type(rule)](value, rule)


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _lower_first(name: str) -> str:
    return name[:1].lower() + name[1:]


def _length_of_base64(value: str) -> int:
    return len(value) // 4 * 3 - value[-2:].count("=")


class _Checker:
    """Collects what is wrong, in the service's words."""

    def __init__(self, data_bytes_max: int, keys_optional: bool) -> None:
        self._data_bytes_max = data_bytes_max
        self._keys_optional = keys_optional
        self._errors: list[str] = []

    def add(self, path: str, shown: str | None, constraint: str) -> None:
        """Note one broken constraint of the member at ``path``; ``shown`` None: it is absent."""
        if len(self._errors) < ERRORS_MAX:
            value = "null" if shown is None else f"'{shown}'"
            self._errors.append(f"Value {value} at '{path}' failed to satisfy constraint: {constraint}")

    def finish(self) -> None:
        """Raise the ValidationException, if anything is wrong."""
        if self._errors:
            plural = "s" if len(self._errors) > 1 else ""
            raise validation(f"{len(self._errors)} validation error{plural} detected: {'; '.join(self._errors)}")

    def members(self, path: str, value: dict[str, Any], rule: Structure, optional: str | None = None) -> None:
        for name, member in rule.rules.items():
            below = f"{path}.{_lower_first(name)}" if path else _lower_first(name)
            if name in value:
                self._one(below, value[name], member)
            elif name in rule.required and name != optional and not self._may_lack(name):
                self.add(below, None, "Member must not be null")

    def _may_lack(self, name: str) -> bool:
        return name == "PartitionKey" and self._keys_optional

    def _one(self, path: str, value: Any, rule: Rule) -> None:
        match rule:
            case Text():
                self._text(path, value, rule)
            case Int32():
                self._bounds(path, str(value), value, rule.min_value, rule.max_value, "value")
            case Blob():
                length = _length_of_base64(value)
                shown = f"java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]"
                self._bounds(path, shown, length, None, self._data_bytes_max, "length")
            case Items():
                self._items(path, value, rule)
            case Pairs():
                self._pairs(path, value, rule)
            case Structure():
                self.members(path, value, rule)

    def _bounds(self, path: str, shown: str, measured: int, least: int | None, most: int | None, what: str) -> None:
        if least is not None and measured < least:
            self.add(path, shown, f"Member must have {what} greater than or equal to {least}")
        if most is not None and measured > most:
            self.add(path, shown, f"Member must have {what} less than or equal to {most}")

    def _text(self, path: str, value: str, rule: Text) -> None:
        if rule.values is not None and value not in rule.values:
            self.add(path, value, f"Member must satisfy enum value set: [{', '.join(rule.values)}]")
        if rule.pattern is not None and not _matcher(rule.pattern).fullmatch(value):
            self.add(path, value, f"Member must satisfy regular expression pattern: {rule.pattern}")
        self._bounds(path, value, len(value), rule.min_length, rule.max_length, "length")

    def _items(self, path: str, value: list[Any], rule: Items) -> None:
        shown = f"[{', '.join(rule.printed or str(item) for item in value)}]"
        self._bounds(path, shown, len(value), rule.min_length, rule.max_length, "length")
        if isinstance(rule.member, Text) and rule.member.values is None:
            if not all(_fits(item, rule.member) for item in value):
                self.add(path, shown, f"Member must satisfy constraint: [{_lengths(rule.member)}]")
            return
        for number, item in enumerate(value, 1):
            self._one(f"{path}.{number}.member", item, rule.member)

    def _pairs(self, path: str, value: dict[str, str], rule: Pairs) -> None:
        shown = "{" + ", ".join(f"{key}={item}" for key, item in value.items()) + "}"
        self._bounds(path, shown, len(value), rule.min_length, rule.max_length, "length")
        if not all(_fits(key, rule.key) for key in value):
            self.add(path, shown, f"Map keys must satisfy constraint: [{_lengths(rule.key)}]")
        if not all(_fits(item, rule.value) for item in value.values()):
            self.add(path, shown, f"Map value must satisfy constraint: [{_lengths(rule.value)}]")


def _fits(value: str, rule: Text) -> bool:
    return (rule.min_length or 0) <= len(value) <= (rule.max_length or len(value))


def _lengths(rule: Text) -> str:
    return (
        f"Member must have length less than or equal to {rule.max_length}, "
        f"Member must have length greater than or equal to {rule.min_length}"
    )
