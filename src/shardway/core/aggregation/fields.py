"""The fields of an aggregate's message, encoded one at a time and by columns.

By columns there is no step of the interpreter per user record: sizes, headers and data are lists that are looked up,
interleaved and joined whole. What is remembered for it is bounded, and depends on sizes and positions only: it holds no
key and no data. Several threads may use it, because an entry is only ever replaced by an equal one, or by a longer list
of equal ones.
"""

from __future__ import annotations

from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING

from shardway.core.aggregation.wire_format import (
    DATA,
    EXPLICIT_HASH_KEY_INDEX,
    EXPLICIT_HASH_KEY_TABLE,
    PARTITION_KEY_INDEX,
    PARTITION_KEY_TABLE,
    RECORDS,
    TAG_KEY,
    TAG_VALUE,
    TAGS,
)
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.protobuf import varint, varint_bytes
from shardway.errors import AggregateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


COLUMN_INDEX_MAX = (1 << 14) - 1
"""The largest index of user records by column: they point at the first entries of the table only, in one or two
bytes.
"""

_PARTITION_KEY_CHARACTERS_MAX = 256
_SHAPES_MAX = 4096
_READY_SIZES_MAX = 32
_READY_HEADERS_MAX = 1024  # They are of one size: with 32 sizes less than 2 MiB.
_ONE_BYTE_MAX = 0x7F

_RECORDS = bytes((RECORDS,))
_DATA = bytes((DATA,))
_PARTITION_KEY_INDEX = bytes((PARTITION_KEY_INDEX,))
_EXPLICIT_HASH_KEY_INDEX = bytes((EXPLICIT_HASH_KEY_INDEX,))
_PARTITION_KEY_TABLE = bytes((PARTITION_KEY_TABLE,))
_EXPLICIT_HASH_KEY_TABLE = bytes((EXPLICIT_HASH_KEY_TABLE,))

_key_refs = tuple(_PARTITION_KEY_INDEX + varint(index) for index in range(_ONE_BYTE_MAX + 1))
_ready_headers: dict[int, list[bytes]] = {}  # What stands before the data, by its size and table index.

# This is what stands before a key in the table, by the key's length, for keys in ASCII. There is no key of length 0, so
# what stands there is not ASCII, as longer keys have no entry here: both are left to the way that finds out what is
# wrong.
_ASCII_HEADS = ("\x80", *(chr(PARTITION_KEY_TABLE) + chr(length) for length in range(1, _ONE_BYTE_MAX + 1)))


class _Shapes(dict[int, tuple[bytes, bytes, int]]):
    """The shapes of user records by the size of the data: the bytes before the indexes and before the data, and the
    whole size.
    """

    def __init__(self, refs_bytes: int) -> None:
        self._refs_bytes = refs_bytes

    def __missing__(self, data_bytes: int) -> tuple[bytes, bytes, int]:
        middle = _DATA + varint(data_bytes)
        inner = self._refs_bytes + len(middle) + data_bytes
        before = _RECORDS + varint(inner)
        if len(self) >= _SHAPES_MAX:
            self.clear()
        shape = self[data_bytes] = (before, middle, len(before) + inner)
        return shape


SHAPES = tuple(_Shapes(refs_bytes) for refs_bytes in range(23))  # Two indexes have at most 2 x 11 bytes.
"""The shape of every user record: ``before, middle, total = SHAPES[refs_bytes][data_bytes]``."""


def key_ref(index: int) -> bytes:
    """Return the field of a user record that points at its partition key in the table."""
    return _key_refs[index] if index <= _ONE_BYTE_MAX else _PARTITION_KEY_INDEX + varint(index)


def hash_key_ref(index: int) -> bytes:
    """Return the field of a user record that points at its explicit hash key in the table."""
    return _EXPLICIT_HASH_KEY_INDEX + varint(index)


def tag_fields(tags: Iterable[tuple[str, str]]) -> bytes:
    """Return the fields of a user record that hold its tags. They stand behind its data."""
    return b"".join(
        _field(TAGS, _field(TAG_KEY, key.encode()) + _field(TAG_VALUE, value.encode())) for key, value in tags
    )


def tagged_head(inner_bytes: int) -> bytes:
    """Return what stands before a user record of ``inner_bytes`` bytes: `SHAPES` has that of records without tags."""
    return _RECORDS + varint(inner_bytes)


def _field(tag: int, value: bytes) -> bytes:
    return bytes((tag,)) + varint(len(value)) + value


def ref_bytes(index: int) -> int:
    """Return the size of the field that points at a key or a hash key."""
    return 1 + varint_bytes(index)


def key_entry(partition_key: str) -> bytes:
    """Return the table entry of a partition key. Raises AggregateError if Kinesis does not take it."""
    if not 1 <= len(partition_key) <= _PARTITION_KEY_CHARACTERS_MAX:
        raise AggregateError(
            f"a partition key has 1 to {_PARTITION_KEY_CHARACTERS_MAX} characters, not {len(partition_key)}"
        )
    try:
        text = partition_key.encode()
    except UnicodeEncodeError:
        raise AggregateError("a partition key has no UTF-8 form (lone surrogates)") from None
    return _PARTITION_KEY_TABLE + varint(len(text)) + text


def hash_key_entry(explicit_hash_key: int) -> bytes:
    """Return the table entry of an explicit hash key. Raises AggregateError if it is none."""
    if not 0 <= explicit_hash_key <= HASH_KEY_MAX:
        raise AggregateError("an explicit hash key lies between 0 and 2**128-1")
    text = str(explicit_hash_key).encode()
    return _EXPLICIT_HASH_KEY_TABLE + varint(len(text)) + text


def key_entries(partition_keys: Sequence[str]) -> bytes:
    """Return the table entries of these partition keys, one behind the other. Raises AggregateError like
    ``key_entry``.
    """
    try:
        lengths = list(map(len, partition_keys))
        if lengths.count(lengths[0]) == len(lengths):
            head = _ASCII_HEADS[lengths[0]]
            text = head + head.join(partition_keys)
        else:
            parts = [""] * (2 * len(lengths))
            parts[::2] = itemgetter(*lengths)(_ASCII_HEADS)
            parts[1::2] = partition_keys
            text = "".join(parts)
        if text.isascii():  # Every length in characters is the length in bytes.
            return text.encode()
    except IndexError:
        pass  # There is no key, or a long one.
    return b"".join(map(key_entry, partition_keys))


def first_refused(partition_keys: Iterable[str]) -> int:
    """Return the position of the first partition key that Kinesis does not take; their count if it takes them all."""
    refused = 0
    with suppress(AggregateError):
        for key in partition_keys:
            key_entry(key)
            refused += 1
    return refused


def user_records(indexes: Sequence[int], index_max: int, datas: Sequence[bytes], sizes: list[int]) -> bytes:
    """Return user records without explicit hash keys, one behind the other: at least two.

    ``indexes`` point into the table, none beyond ``index_max``, which is at most ``COLUMN_INDEX_MAX``; ``sizes``
    are those of ``datas``. All three have one length.
    """
    count = len(sizes)
    if sizes.count(sizes[0]) == count:
        headers = _headers_of(sizes[0], index_max, count)
        if headers is not None:
            parts = [b""] * (2 * count)
            parts[::2] = itemgetter(*indexes)(headers)
            parts[1::2] = datas
            return b"".join(parts)
    short, long = SHAPES[2], SHAPES[3]
    parts = [b""] * (4 * count)
    if index_max <= _ONE_BYTE_MAX:
        shapes = itemgetter(*sizes)(short)
    else:
        shapes = [(short if index <= _ONE_BYTE_MAX else long)[size] for index, size in zip(indexes, sizes, strict=True)]
    parts[::4] = [one[0] for one in shapes]
    parts[1::4] = itemgetter(*indexes)(_key_refs_to(index_max))
    parts[2::4] = [one[1] for one in shapes]
    parts[3::4] = datas
    return b"".join(parts)


def _headers_of(data_bytes: int, index_max: int, worth: int) -> list[bytes] | None:
    """Return all that stands before data of this size, by table index; None where the shapes of any size are quicker.

    That is so when more headers than ``worth`` would have to be made.
    """
    headers = _ready_headers.get(data_bytes, [])
    known = len(headers)
    if known <= index_max:
        if index_max >= _READY_HEADERS_MAX or index_max - known >= worth:
            return None
        refs = _key_refs_to(index_max)[known : index_max + 1]
        shapes = [SHAPES[len(ref)][data_bytes] for ref in refs]
        headers = headers + [before + ref + middle for ref, (before, middle, _) in zip(refs, shapes, strict=True)]
        if not known and len(_ready_headers) >= _READY_SIZES_MAX:
            _ready_headers.clear()
        _ready_headers[data_bytes] = headers
    return headers


def _key_refs_to(index_max: int) -> tuple[bytes, ...]:
    """Return the fields that point at partition keys, by table index, up to this one at least."""
    global _key_refs
    refs = _key_refs
    if len(refs) <= index_max:
        refs = _key_refs = refs + tuple(map(key_ref, range(len(refs), min(2 * index_max, COLUMN_INDEX_MAX) + 1)))
    return refs
