"""Building KPL aggregates, byte for byte as the KPL does; their exact size is known before each addition."""

from __future__ import annotations

import sys
from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.aggregation.format import (
    DATA,
    EXPLICIT_HASH_KEY_INDEX,
    EXPLICIT_HASH_KEY_TABLE,
    FRAME_BYTES,
    MAGIC,
    PARTITION_KEY_INDEX,
    PARTITION_KEY_TABLE,
    RECORDS,
    varint,
    varint_bytes,
)
from penstock.core.aggregation.reader import DEFAULT_LIMITS, open_aggregate
from penstock.core.hashkeys import HASH_KEY_MAX, hash_key
from penstock.errors import AggregateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONTAINER_PARTITION_KEY = "a"
"""The partition key of all the KPL's aggregates; the explicit hash key beside it says where one goes."""

AGGREGATE_BYTES_MAX = 51_200
"""The KPL's default for AggregationMaxSize."""

_PARTITION_KEY_CHARACTERS_MAX = 256
_SHAPES_MAX = 4096

_RECORDS = bytes((RECORDS,))
_DATA = bytes((DATA,))
_PARTITION_KEY_INDEX = bytes((PARTITION_KEY_INDEX,))
_EXPLICIT_HASH_KEY_INDEX = bytes((EXPLICIT_HASH_KEY_INDEX,))
_PARTITION_KEY_TABLE = bytes((PARTITION_KEY_TABLE,))
_EXPLICIT_HASH_KEY_TABLE = bytes((EXPLICIT_HASH_KEY_TABLE,))

_COMMON_KEY_REFS_MAX = 2048
_COMMON_KEY_REFS = tuple(_PARTITION_KEY_INDEX + varint(index) for index in range(_COMMON_KEY_REFS_MAX))

_shapes: dict[int, tuple[bytes, bytes, int]] = {}
"""Remembered answers of ``_shape``, by the sizes of data and indexes."""


class Container(NamedTuple):
    """One Kinesis record to be put, and how many user records it holds."""

    data: bytes
    partition_key: str
    explicit_hash_key: int
    """Always given, as by the KPL: its first user record's own, or the MD5 of that one's partition key."""
    user_records: int


class Aggregator:
    """Collects user records into a container until it is full. Every predicted shard needs its own.

    A container has at most ``bytes_max`` bytes and ``records_max`` user records. But a user record of any
    size goes into an empty one: alone in its container it is sent as it is, without framing.
    """

    __slots__ = (
        "_first",
        "_hash_entries",
        "_hash_refs",
        "_key_entries",
        "_key_refs",
        "_parts",
        "bytes_max",
        "framed_bytes",
        "records_max",
        "user_records",
    )

    def __init__(self, *, bytes_max: int = AGGREGATE_BYTES_MAX, records_max: int = DEFAULT_LIMITS.records_max) -> None:
        if bytes_max < 1 or records_max < 1:
            raise ValueError("bytes_max and records_max must be at least 1")
        self.bytes_max = bytes_max
        self.records_max = records_max
        self._clear()

    def _clear(self) -> None:
        self.user_records = 0
        """How many are in the container."""
        self.framed_bytes = FRAME_BYTES
        """The container's exact size as an aggregate, magic and digest included."""
        self._first: tuple[str, int | None] = ("", None)
        self._key_refs: dict[str, bytes] = {}  # partition key -> the field that points at its table entry
        self._key_entries: list[bytes] = []
        self._hash_refs: dict[int, bytes] = {}
        self._hash_entries: list[bytes] = []
        self._parts: list[bytes] = []  # of the user records

    def __len__(self) -> int:
        return self.user_records

    def add(self, partition_key: str, data: bytes, explicit_hash_key: int | None = None) -> bool:
        """Add a user record. False if the container has no room for it: nothing was added, ``finish`` is due.

        Raises AggregateError for a partition key that is empty, longer than 256 characters or without a UTF-8
        form, and for a hash key outside 0 … 2¹²⁸-1.
        """
        key_entry: tuple[bytes, ...] = ()
        hash_entry: tuple[bytes, ...] = ()
        entries_bytes = 0
        key_ref = self._key_refs.get(partition_key)
        if key_ref is None:
            key_ref = _PARTITION_KEY_INDEX + varint(len(self._key_refs))
            key_text = _checked_key(partition_key)
            key_entry = (_PARTITION_KEY_TABLE, varint(len(key_text)), key_text)
            entries_bytes = _entry_bytes(len(key_text))
        refs, hash_ref = key_ref, b""
        if explicit_hash_key is not None:
            known = self._hash_refs.get(explicit_hash_key)
            hash_ref = known or _EXPLICIT_HASH_KEY_INDEX + varint(len(self._hash_refs))
            if known is None:
                hash_text = _checked_hash_key(explicit_hash_key)
                hash_entry = (_EXPLICIT_HASH_KEY_TABLE, varint(len(hash_text)), hash_text)
                entries_bytes += _entry_bytes(len(hash_text))
            refs += hash_ref
        before, middle, total = _shape(len(data), len(refs))
        framed_bytes = self.framed_bytes + entries_bytes + total
        if not self.user_records:
            self._first = (partition_key, explicit_hash_key)
        elif framed_bytes > self.bytes_max or self.user_records >= self.records_max:
            return False
        self.framed_bytes = framed_bytes
        self.user_records += 1
        self._parts += (before, refs, middle, data)
        self._key_entries += key_entry
        self._hash_entries += hash_entry
        self._key_refs[partition_key] = key_ref
        if explicit_hash_key is not None:
            self._hash_refs[explicit_hash_key] = hash_ref
        return True

    def add_many(
        self, partition_keys: Sequence[str], datas: Sequence[bytes], start: int = 0, stop: int | None = None
    ) -> int:
        """Add user records without explicit hash keys out of two columns, from ``start`` on.

        Returns the index of the first that did not fit, or ``stop`` (by default the end of the columns) when
        all did. Raises as ``add``; then those before the bad one were added.
        """
        number, stop = start, len(datas) if stop is None else stop
        while number < stop:
            if self.user_records:
                number = self._add_common(partition_keys, datas, number, stop)
                if number == stop:
                    break
            if not self.add(partition_keys[number], datas[number]):
                break
            number += 1
        return number

    def _add_common(self, partition_keys: Sequence[str], datas: Sequence[bytes], start: int, stop: int) -> int:
        """``add`` for the usual case, unrolled, because producers live in it: keys of up to 127 bytes.

        Returns the index of the first that is not usual or does not fit. The container must hold one already.
        """
        key_refs, key_entries, parts, shapes = self._key_refs, self._key_entries, self._parts, _shapes
        room = self.bytes_max - self.framed_bytes
        last = min(stop, start + self.records_max - self.user_records)
        number = start
        try:
            for number in range(start, last):
                key, data = partition_keys[number], datas[number]
                size = len(data)
                ref = key_refs.get(key)
                if ref is None:
                    if len(key_refs) >= _COMMON_KEY_REFS_MAX:
                        break
                    ref = _COMMON_KEY_REFS[len(key_refs)]
                    text = key.encode()
                    text_bytes = len(text)
                    before, middle, total = shapes.get(size << 5 | len(ref)) or _shape(size, len(ref))
                    total += 2 + text_bytes
                    if total > room or not 0 < text_bytes <= 0x7F:
                        break
                    key_refs[key] = ref
                    key_entries += (_PARTITION_KEY_TABLE, varint(text_bytes), text)
                else:
                    before, middle, total = shapes.get(size << 5 | len(ref)) or _shape(size, len(ref))
                    if total > room:
                        break
                room -= total
                parts += (before, ref, middle, data)
            else:
                number = last
        except UnicodeEncodeError:
            pass  # the general way says it in our words
        self.user_records += number - start
        self.framed_bytes = self.bytes_max - room
        return number

    def framed_bytes_with(self, partition_key: str, data_bytes: int, explicit_hash_key: int | None = None) -> int:
        """What ``framed_bytes`` would be after adding a user record with that much data."""
        entries_bytes, refs_bytes = 0, 0
        if (ref := self._key_refs.get(partition_key)) is None:
            entries_bytes += _entry_bytes(len(partition_key.encode()))
            refs_bytes += 1 + varint_bytes(len(self._key_refs))
        else:
            refs_bytes += len(ref)
        if explicit_hash_key is not None:
            if (ref := self._hash_refs.get(explicit_hash_key)) is None:
                entries_bytes += _entry_bytes(len(str(explicit_hash_key)))
                refs_bytes += 1 + varint_bytes(len(self._hash_refs))
            else:
                refs_bytes += len(ref)
        return self.framed_bytes + entries_bytes + _shape(data_bytes, refs_bytes)[2]

    def finish(self) -> Container | None:
        """The container with what was added since the last call, or None if nothing was; the next begins empty.

        A single user record is sent as it is. But one that is itself a whole aggregate is framed, against
        the KPL's habit: readers would open it, and its user would not get back what was put.
        """
        if not self.user_records:
            return None
        partition_key, explicit_hash_key = self._first
        where = hash_key(partition_key) if explicit_hash_key is None else explicit_hash_key
        if self.user_records == 1 and open_aggregate(self._parts[-1]) is None:
            container = Container(self._parts[-1], partition_key, where, 1)
        else:
            container = Container(self._framed(), CONTAINER_PARTITION_KEY, where, self.user_records)
        self._clear()
        return container

    def _framed(self) -> bytes:
        message = b"".join(self._key_entries + self._hash_entries + self._parts)
        return b"".join((MAGIC, message, md5(message, usedforsecurity=False).digest()))


def encode_aggregate(records: Iterable[tuple[str, bytes, int | None]]) -> bytes:
    """The bytes of one aggregate of all these (partition key, data, explicit hash key), framed even if it is one.

    Raises AggregateError if there is no record, and as :meth:`Aggregator.add` does.
    """
    aggregator = Aggregator(bytes_max=sys.maxsize, records_max=sys.maxsize)
    for record in records:
        aggregator.add(*record)
    if not len(aggregator):
        raise AggregateError("an aggregate holds at least one user record")
    return aggregator._framed()


def _shape(data_bytes: int, refs_bytes: int) -> tuple[bytes, bytes, int]:
    """What stands before the indexes of a user record, what before its data, and its whole size."""
    known = _shapes.get(data_bytes << 5 | refs_bytes)
    if known is not None:
        return known
    middle = _DATA + varint(data_bytes)
    inner = refs_bytes + len(middle) + data_bytes
    before = _RECORDS + varint(inner)
    if len(_shapes) >= _SHAPES_MAX:
        _shapes.clear()
    shape = _shapes[data_bytes << 5 | refs_bytes] = (before, middle, len(before) + inner)
    return shape


def _entry_bytes(text_bytes: int) -> int:
    """The size of a table entry with that many bytes of text."""
    return 1 + varint_bytes(text_bytes) + text_bytes


def _checked_key(partition_key: str) -> bytes:
    if not 1 <= len(partition_key) <= _PARTITION_KEY_CHARACTERS_MAX:
        raise AggregateError(
            f"a partition key has 1 to {_PARTITION_KEY_CHARACTERS_MAX} characters, not {len(partition_key)}"
        )
    try:
        return partition_key.encode()
    except UnicodeEncodeError:
        raise AggregateError("a partition key has no UTF-8 form (lone surrogates)") from None


def _checked_hash_key(explicit_hash_key: int) -> bytes:
    if not 0 <= explicit_hash_key <= HASH_KEY_MAX:
        raise AggregateError("an explicit hash key lies between 0 and 2**128-1")
    return str(explicit_hash_key).encode()
