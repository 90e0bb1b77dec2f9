"""Opaque texts that callers hand back: shard iterators and list tokens.

Both are base64 of a packed value with a keyed digest, so that a made-up or damaged one is told from a real one. They
hold no reference to memory: a service that was stopped and started again on its data still understands them.
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
_KEY = b"penstock local kinesis"
_keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=_KEY)


class IteratorState(NamedTuple):
    """Where an iterator stands."""

    created_ms: int
    stream_uid: int
    value: int
    serial: int
    """No two iterators are the same text."""
    shard_index: int
    kind: int
    """AT_ORDINAL: the next record is the one with ordinal ``value``, or the oldest kept one after it. EXPIRED_NUMBER:
    made from a sequence number of a trimmed time, ``value`` is that time in ms; it never finds anything."""
    reached_ms: int = 0
    """AT_ORDINAL: up to when the log is crossed, in its times of arrival."""


def _digest(payload: bytes) -> bytes:
    digest = _keyed.copy()
    digest.update(payload)
    return digest.digest()


def write_iterator(state: IteratorState, stream_name: str) -> str:
    """The text of an iterator: 204 to 376 characters, as long as AWS's is for a stream of that name."""
    name = stream_name.encode()
    payload = _HEAD + _FIELDS.pack(*state, len(name)) + name
    size = 152 + (len(name) + 2) // 16 * 16
    payload = payload.ljust(size - _DIGEST_BYTES, b"\x5a")
    return binascii.b2a_base64(payload + _digest(payload), newline=False).decode()


def read_iterator(text: str) -> tuple[IteratorState, str] | None:
    """(state, stream name) in an iterator's text; None when it is not one of ours."""
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
    """The text is not a list token of that purpose."""


def write_token(purpose: str, now_ms: int, state: Any) -> str:
    """A list token for ``purpose`` (the operation's name) that carries a state of lists, maps, texts and numbers."""
    payload = msgspec.msgpack.encode([purpose, now_ms, state])
    return base64.urlsafe_b64encode(_digest(payload) + payload).decode()


def read_token(purpose: str, text: str) -> tuple[int, Any]:
    """(time of issue in ms, state) of a list token. Raises BadTokenError."""
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
