"""Write and read shard iterators and list tokens.

Iterators and list tokens are opaque texts: base64 of a packed value with a keyed digest, so that the service tells a
made-up or damaged text from a real one. They hold no reference to memory: a service that was stopped and started again
on its data still understands them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from typing import Any, NamedTuple

import msgspec

ITERATOR_LIFE_MS = 300_000
LIST_TOKEN_LIFE_MS = 300_000
AT_ORDINAL = 0
EXPIRED_NUMBER = 1
_HEAD = b"\0\0\0\0\0\0\0\1"
_FIELDS = struct.Struct(">QQQQIBQB")
_DIGEST_BYTES = 16
_NAME_AT = len(_HEAD) + _FIELDS.size
_KEY = b"shardway local kinesis"
_keyed_hash = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=_KEY)


class IteratorState(NamedTuple):
    """Where an iterator stands."""

    created_ms: int
    stream_uid: int
    value: int
    serial: int
    """A number of its own for each iterator, so that no two iterators are the same text."""
    shard_index: int
    kind: int
    """AT_ORDINAL: the next record is the one with ordinal ``value``, or the oldest kept one after it. EXPIRED_NUMBER:
    the iterator was made from a sequence number of a trimmed time, which is ``value`` in ms; it never finds anything.
    """
    reached_ms: int = 0
    """AT_ORDINAL: the time of arrival up to which the log is crossed."""


def _digest(payload: bytes) -> bytes:
    digest = _keyed_hash.copy()
    digest.update(payload)
    return digest.digest()


def write_iterator(state: IteratorState, stream_name: str) -> str:
    """Return the text of an iterator: 204 to 376 characters, as many as AWS's has for a stream of that name."""
    name = stream_name.encode()
    payload = _HEAD + _FIELDS.pack(*state, len(name)) + name
    size = 152 + (len(name) + 2) // 16 * 16
    payload = payload.ljust(size - _DIGEST_BYTES, b"\x5a")
    return binascii.b2a_base64(payload + _digest(payload), newline=False).decode()


def read_iterator(text: str) -> tuple[IteratorState, str] | None:
    """Return (state, stream name) from an iterator's text; None when this service has not written the text."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    payload = raw[:-_DIGEST_BYTES]
    if not payload.startswith(_HEAD) or _digest(payload) != raw[-_DIGEST_BYTES:]:
        return None
    *fields, name_length = _FIELDS.unpack_from(payload, len(_HEAD))
    return IteratorState(*fields), payload[_NAME_AT : _NAME_AT + name_length].decode()


class BadTokenError(ValueError):
    """A text is no list token for this purpose."""


def write_token(purpose: str, now_ms: int, state: Any) -> str:
    """Return a list token for ``purpose`` (the operation's name) that carries a state of lists, maps, texts and
    numbers.
    """
    payload = msgspec.msgpack.encode([purpose, now_ms, state])
    return base64.urlsafe_b64encode(_digest(payload) + payload).decode()


def read_token(purpose: str, text: str) -> tuple[int, Any]:
    """Return (time of issue in ms, state) from a list token. Raises BadTokenError."""
    try:
        raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        digest, payload = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if _digest(payload) != digest:
            raise BadTokenError("damaged")
        kind, issued_ms, state = msgspec.msgpack.decode(payload)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise BadTokenError("not a list token") from error
    if kind != purpose:
        raise BadTokenError("a list token of another operation")
    return issued_ms, state
