"""From a record's bytes to a value: what ``Consumer(deserializer=...)`` takes. Any function from bytes will do.

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
    """Text. A record that is not in this encoding cannot be read."""

    def read(data: bytes) -> str:
        return data.decode(encoding)

    return read


@overload
def json(type: type[T]) -> Callable[[bytes], T]: ...


@overload
def json(type: Any = ...) -> Callable[[bytes], Any]: ...


def json(type: Any = Any) -> Callable[[bytes], Any]:
    """JSON, checked against a type: a dataclass, a TypedDict, a ``msgspec.Struct``, ``list[int]``, a union ...

    Without a type: dictionaries, lists, strings, numbers. Raises TypeError for a type that JSON cannot hold.
    """
    return msgspec.json.Decoder(type).decode


@overload
def msgpack(type: type[T]) -> Callable[[bytes], T]: ...


@overload
def msgpack(type: Any = ...) -> Callable[[bytes], Any]: ...


def msgpack(type: Any = Any) -> Callable[[bytes], Any]:
    """MessagePack, checked against a type as `json`."""
    return msgspec.msgpack.Decoder(type).decode


def protobuf(message: type[T]) -> Callable[[bytes], T]:
    """A protobuf message of this class, which its generated module has. Raises TypeError for a class that is none.

    A message of another type is often readable too: protobuf tells no types.
    """
    read: Callable[[bytes], T] | None = getattr(message, "FromString", None)
    if read is None:
        raise TypeError(f"{message!r} is no protobuf message: it has no FromString")
    return read
