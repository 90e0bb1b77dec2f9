"""Answers that are not what their call returns: one kind of error for whatever reading them raises.

The same call may be answered well the next time, as after an answer that was cut off; for a write the outcome is
unknown.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.errors import PenstockError, TransportError
from penstock.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREADABLE = (ValueError, OverflowError, RecursionError, LookupError, TypeError, AttributeError)
"""What reading an odd answer may raise: msgspec's errors and those of text are ValueErrors; nesting without end is a
RecursionError, a number of hundreds of digits an OverflowError.
"""
REASON_CHARACTERS_MAX = 300

T = TypeVar("T")


@contextlib.contextmanager
def reading(what: str, body: bytes | None = None) -> Iterator[None]:
    """Turns whatever is raised while an answer is read into a `TransportError` that names the call and the oddity.

    ``what`` is the call, with its stream or table: ``ListShards of orders``.
    """
    try:
        yield
    except PenstockError:
        raise
    except UNREADABLE as error:
        reason = one_line(f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX])
        size = "" if body is None else f" ({len(body)} bytes)"
        raise TransportError(f"{what}: the answer{size} is not what this call returns ({reason})") from error


def decoded(what: str, body: bytes, kind: type[T]) -> T:
    """JSON as the type that is wanted. Members that are null count as absent (some emulators write them)."""
    with reading(what, body):
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError:
            return msgspec.json.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(body))), type=kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(member) for member in value]
    return value
