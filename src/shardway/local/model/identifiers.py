"""The identifiers that the service gives to callers, and understands when they come back: sequence numbers of AWS's
shape, shard ids, times, shard iterators and list tokens.

New sequence numbers have layout version 2: a 186-bit integer, 56 decimal digits. From its highest bits down:

- the version ``2`` at bit 184;
- the second in which its shard was created, 36 bits at bit 148;
- the lowest hex digit of the shard's index, 4 bits at bit 144;
- a counter, 64 bits at bit 80 (never above 2⁶³−1), then 8 bits that are zero;
- the second of arrival, 36 bits at bit 36;
- the shard's index, 32 bits at bit 4, and ``2`` again.

(The KCL's SequenceNumberValidator takes the version and the shard's index out of such numbers.) So numbers of one
shard grow with the counter, and those of a child, whose creation is later by at least a second, are above all of its
parents'. A closed shard's ending number has the highest counter there is: no record carries it.

Versions 0 and 1 are older layouts. Nothing here has such a number, but the service still understands them well enough
to say what is wrong with their use.

Iterators and list tokens are opaque texts: base64 of a packed value with a keyed digest, so that the service tells a
made-up or damaged text from a real one. They hold no reference to memory: a service that was stopped and started again
on its data still understands them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import time
from typing import Any, NamedTuple

import msgspec

# --- sequence numbers and shard ids ---------------------------------------------------------------

COUNTER_SHIFT = 80
COUNTER_STEP = 1 << COUNTER_SHIFT
COUNTER_MAX = 2**63 - 1
"""The counter of a closed shard's ending number; no record has it."""
SHARD_INDEX_MAX = 2**31 - 1

_TIME_SHIFT = 36
_VERSION_SHIFT = 184
_CREATED_SHIFT = 148
_DIGIT_SHIFT = 144
_SHARD_SHIFT = 4
_SECONDS_MASK = 2**36 - 1
_COUNTER_MASK = 2**64 - 1
_CREATED_S_LIMIT = 16_025_175_000
"""The second of creation from which on numbers are refused, as the service was seen to do."""
_OLD_BASE = 2**124
_OLD_LIMIT = 2**129


class Parts(NamedTuple):
    """The parts of a sequence number: its layout, the shard (index and second of creation), the counter, the
    arrival.
    """

    version: int
    shard_index: int
    shard_created_s: int
    counter: int
    arrived_s: int


def shard_base(shard_index: int, created_s: int) -> int:
    """Return the part that all sequence numbers of a shard share: counter and arrival time are added to it."""
    return (
        (2 << _VERSION_SHIFT)
        | (created_s << _CREATED_SHIFT)
        | ((shard_index & 15) << _DIGIT_SHIFT)
        | (shard_index << _SHARD_SHIFT)
        | 2
    )


def compose(base: int, counter: int, arrived_s: int) -> int:
    """Return the sequence number with this counter and arrival second in the shard whose base is given."""
    return base | (counter << COUNTER_SHIFT) | (arrived_s << _TIME_SHIFT)


def _signed_32(bits: int) -> int:
    """Return the shard's index as the service reads it: a signed integer of 32 bits."""
    bits &= 2**32 - 1
    return -bits if bits >> 31 else bits


def parse(number: int) -> Parts | None:
    """Take a sequence number apart; None when no layout fits."""
    if number < _OLD_LIMIT:
        return _parse_old(number if number >= _OLD_BASE else number + _OLD_BASE)
    version = number & 15
    if number >> _VERSION_SHIFT != 2 or version not in (1, 2):
        return None
    created_s = (number >> _CREATED_SHIFT) & _SECONDS_MASK
    shard_index = _signed_32(number >> _SHARD_SHIFT)
    if version == 1:
        return Parts(1, shard_index, created_s, (number >> 36) & 255, (number >> 100) & _SECONDS_MASK)
    counter = (number >> COUNTER_SHIFT) & _COUNTER_MASK
    if counter > COUNTER_MAX or created_s >= _CREATED_S_LIMIT:
        return None
    return Parts(2, shard_index, created_s, counter, (number >> _TIME_SHIFT) & _SECONDS_MASK)


def _parse_old(number: int) -> Parts | None:
    """Take a number of layout version 0 apart: 125 bits, with 16 bits for the shard's index and no time of arrival."""
    created_s = (number >> 88) & _SECONDS_MASK
    if created_s >= _CREATED_S_LIMIT:
        return None
    return Parts(0, number & 0xFFFF, created_s, 0, 0)


def shard_name(shard_index: int) -> str:
    """Return the id of the shard with this index: ``shardId-000000000012``."""
    return f"shardId-{shard_index:012d}"


def shard_index_of(shard_id: str) -> int | None:
    """Return the index in a shard id; None when there is none. AWS does not mind another prefix, none, or missing
    zeros.
    """
    pieces = shard_id.split("-")
    digits = pieces[1] if len(pieces) > 1 and pieces[1] else pieces[0]
    if not (digits.isascii() and digits.isdigit()):
        return None
    index = int(digits)
    return index if index <= SHARD_INDEX_MAX else None


# --- times ----------------------------------------------------------------------------------------
# Callers see times as epoch seconds with a fraction; inside of the model they are whole milliseconds.

_ROUNDING = 0.01
"""The part of a millisecond that a float of epoch seconds may lack (its precision is a quarter of a microsecond)."""


def epoch_ms(seconds: float) -> int:
    """Return the millisecond in which a moment lies: the service cuts off what is finer."""
    return int(seconds * 1000 + _ROUNDING)


def utc_text(moment_ms: int) -> str:
    """Return a time as messages of the service print it: ``Thu Jan 22 01:22:02 UTC 2015``."""
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(moment_ms // 1000))


# --- iterators and list tokens --------------------------------------------------------------------

ITERATOR_LIFE_MS = 300_000
LIST_TOKEN_LIFE_MS = 300_000

AT_ORDINAL = 0
EXPIRED_NUMBER = 1

_HEAD = b"\0\0\0\0\0\0\0\1"
_FIELDS = struct.Struct(">QQQQIBQB")
_DIGEST_BYTES = 16
_NAME_AT = len(_HEAD) + _FIELDS.size
_KEY = b"shardway local kinesis"
_keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=_KEY)


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
    digest = _keyed.copy()
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
