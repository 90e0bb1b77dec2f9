"""Deserializers make a value of a record's bytes: ``Consumer(deserializer=...)`` takes them. Any function from bytes
will do.

A deserializer raises for what it cannot read; a consumer's ``unreadable`` says what becomes of that record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["json", "msgpack", "protobuf", "text"]

T = TypeVar("T")


def text(encoding: str = "utf-8") -> Callable[[bytes], str]:
    """Return a deserializer of text. A record that is not in this encoding cannot be read."""

    def read(data: bytes) -> str:
        return data.decode(encoding)

    return read


@overload
def json(type: type[T]) -> Callable[[bytes], T]: ...


@overload
def json(type: Any = ...) -> Callable[[bytes], Any]: ...


def json(type: Any = Any) -> Callable[[bytes], Any]:
    """Return a deserializer of JSON, checked against a type: a dataclass, a TypedDict, a ``msgspec.Struct``,
    ``list[int]``, a union ...

    Without a type it returns dictionaries, lists, strings, numbers. Raises TypeError for a type that JSON cannot hold.
    """
    return msgspec.json.Decoder(type).decode


@overload
def msgpack(type: type[T]) -> Callable[[bytes], T]: ...


@overload
def msgpack(type: Any = ...) -> Callable[[bytes], Any]: ...


def msgpack(type: Any = Any) -> Callable[[bytes], Any]:
    """Return a deserializer of MessagePack, checked against a type as `json` does."""
    return msgspec.msgpack.Decoder(type).decode


def protobuf(message: type[T]) -> Callable[[bytes], T]:
    """Return a deserializer of protobuf messages of this class, which a generated module has. Raises TypeError for any
    other class.

    A message of another type is often readable too: protobuf names no types.
    """
    read: Callable[[bytes], T] | None = getattr(message, "FromString", None)
    if read is None:
        raise TypeError(f"{message!r} is no protobuf message: it has no FromString")
    return read
