"""The writer of aggregates: it builds them byte for byte as the KPL does.

The exact size of an aggregate is known before each addition.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from hashlib import md5
from itertools import count, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.aggregation.aggregate import DEFAULT_LIMITS
from shardway.core.aggregation.fields import (
    COLUMN_INDEX_MAX,
    SHAPES,
    first_refused,
    hash_key_entry,
    hash_key_ref,
    key_entries,
    key_entry,
    key_ref,
    ref_bytes,
    tagged_head,
    user_records,
)
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.wire_format import FRAME_BYTES, MAGIC
from shardway.core.hashkeys import hash_key
from shardway.errors import AggregateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


CONTAINER_PARTITION_KEY = "a"
"""The partition key of all the KPL's aggregates; the explicit hash key beside it says where one goes."""

AGGREGATE_BYTES_MAX = 51_200
"""The size of an aggregate by default, which is the KPL's default for AggregationMaxSize."""

_SLICE_MIN = 10  # This was measured: fewer are added sooner one by one.


class Container(NamedTuple):
    """One Kinesis record to be put, and how many user records it holds."""

    data: bytes
    partition_key: str
    explicit_hash_key: int
    """The hash key, always given, as by the KPL: its first user record's own, or the MD5 of that one's
    partition key.
    """
    user_records: int


class Aggregator:
    """Collects user records into a container until it is full. Every predicted shard needs its own.

    A container has at most ``bytes_max`` bytes and ``records_max`` user records. But a user record of any
    size goes into an empty one: alone in its container it is sent as it is, without framing.
    """

    __slots__ = (
        "_extra_bytes",
        "_first_record",
        "_has_tags",
        "_hash_entries",
        "_hash_indexes",
        "_key_entries",
        "_key_indexes",
        "_parts",
        "_window",
        "bytes_max",
        "data_bytes",
        "framed_bytes",
        "records_max",
        "user_records",
    )

    def __init__(self, *, bytes_max: int = AGGREGATE_BYTES_MAX, records_max: int = DEFAULT_LIMITS.records_max) -> None:
        if bytes_max < 1 or records_max < 1:
            raise ValueError("bytes_max and records_max must be at least 1")
        self.bytes_max = bytes_max
        self.records_max = records_max
        # These only serve to guess how many user records fit; right or wrong, the containers are the same.
        self._extra_bytes = 16  # The bytes that a user record takes besides its data, lately.
        self._window = 512  # The number to look at: more than went into the last container.
        self._clear()

    def _clear(self) -> None:
        self.user_records = 0
        """The number of user records in the container."""
        self.data_bytes = 0
        """The data bytes of the user records, without anything around them."""
        self.framed_bytes = FRAME_BYTES
        """The container's exact size as an aggregate, magic and digest included."""
        self._first_record: tuple[str, int | None, bytes] = ("", None, b"")
        self._key_indexes: defaultdict[str, int] = defaultdict()  # The keys stand in the order of the table.
        self._key_entries: list[bytes] = []
        self._hash_indexes: dict[int, int] = {}
        self._hash_entries: list[bytes] = []
        self._parts: list[bytes] = []  # The parts are those of the user records.
        self._has_tags = False

    def __len__(self) -> int:
        return self.user_records

    def add(self, partition_key: str, data: bytes, explicit_hash_key: int | None = None, tags: bytes = b"") -> bool:
        """Add a user record. False if the container has no room for it: nothing was added, ``finish`` is due.

        Raises AggregateError for a partition key that is empty, longer than 256 characters or without a UTF-8
        form, and for a hash key outside 0 … 2¹²⁸-1. ``tags``: those of the user record (``tag_fields``).
        """
        new_key, new_hash = b"", b""
        index = self._key_indexes.get(partition_key)
        if index is None:
            index = len(self._key_indexes)
            new_key = key_entry(partition_key)
        refs = key_ref(index)
        if explicit_hash_key is not None:
            hash_index = self._hash_indexes.get(explicit_hash_key)
            if hash_index is None:
                hash_index = len(self._hash_indexes)
                new_hash = hash_key_entry(explicit_hash_key)
            refs += hash_key_ref(hash_index)
        before, middle, total = SHAPES[len(refs)][len(data)]
        if tags:
            inner = len(refs) + len(middle) + len(data) + len(tags)
            before = tagged_head(inner)
            total = len(before) + inner
        framed_bytes = self.framed_bytes + len(new_key) + len(new_hash) + total
        if not self.user_records:
            self._first_record = (partition_key, explicit_hash_key, data)
        elif framed_bytes > self.bytes_max or self.user_records >= self.records_max:
            return False
        self.framed_bytes = framed_bytes
        self.data_bytes += len(data)
        self.user_records += 1
        self._parts += (before, refs, middle, data, tags) if tags else (before, refs, middle, data)
        self._has_tags = self._has_tags or bool(tags)
        if new_key:
            self._key_entries.append(new_key)
            self._key_indexes[partition_key] = index
        if explicit_hash_key is not None and new_hash:
            self._hash_entries.append(new_hash)
            self._hash_indexes[explicit_hash_key] = len(self._hash_indexes)
        return True

    def add_many(
        self, partition_keys: Sequence[str], datas: Sequence[bytes], start: int = 0, stop: int | None = None
    ) -> int:
        """Add user records without explicit hash keys out of two columns, from ``start`` on.

        Returns the index of the first that did not fit, or ``stop`` (by default the end of the columns) when
        all did. Raises as ``add``; then those before the bad one were added. IndexError if a column ends before
        ``stop``; then nothing was added.
        """
        number, stop = start, len(datas) if stop is None else stop
        if stop > len(partition_keys) or stop > len(datas):
            raise IndexError(
                f"stop is {stop}, and there are {len(partition_keys)} partition keys and {len(datas)} datas"
            )
        while number < stop:
            reached = number
            if stop - number >= _SLICE_MIN:
                reached = self._add_slice(partition_keys, datas, number, stop)
            if reached == number:
                for reached in range(number, min(number + _SLICE_MIN, stop)):
                    if not self.add(partition_keys[reached], datas[reached]):
                        return reached
                reached += 1
            number = reached
        return number

    def _add_slice(self, partition_keys: Sequence[str], datas: Sequence[bytes], start: int, stop: int) -> int:
        """Add a slice of the columns as a whole; return where it ends. That is ``start`` when a slice is not worth it.

        How many fit is a guess, on the low side: to add some more takes less than to cut some off.
        """
        room = self.bytes_max - self.framed_bytes
        window = min(
            stop - start,
            self._window,
            self.records_max - self.user_records,
            COLUMN_INDEX_MAX + 1 - len(self._key_indexes),
        )
        if window < _SLICE_MIN or room < _SLICE_MIN * (len(datas[start]) + self._extra_bytes):
            return start
        sizes = list(map(len, datas[start : start + window]))
        data_bytes = sum(sizes)
        guess = data_bytes + self._extra_bytes * window
        if guess > room:
            fitting = room * window // guess
            if fitting < _SLICE_MIN:
                return start
            data_bytes -= sum(sizes[fitting:])
            del sizes[fitting:]
        elif window == self._window:
            self._window *= 2
        keys = partition_keys[start : start + len(sizes)]
        framed_bytes = self.framed_bytes
        try:
            added = self._add_columns(keys, datas[start : start + len(sizes)], sizes)
        except AggregateError:
            # The usual way as far as all is well; after it the bad one is met alone, and the error is its own.
            return self._add_slice(partition_keys, datas, start, start + first_refused(keys))
        if added:
            extra_bytes = self.framed_bytes - framed_bytes - data_bytes + sum(sizes[added:])
            self._extra_bytes = -(-extra_bytes // added)
        return start + added

    def _add_columns(self, keys: Sequence[str], datas: Sequence[bytes], sizes: list[int]) -> int:
        """Add as many of these user records as there is room for; return how many. Nothing was added if it raises."""
        key_indexes, known = self._key_indexes, len(self._key_indexes)
        key_indexes.default_factory = count(known).__next__
        try:
            indexes: tuple[int, ...] = itemgetter(*keys)(key_indexes)
            entries = key_entries(list(islice(key_indexes, known, None)))
            records = user_records(indexes, len(key_indexes) - 1, datas, sizes)
        except BaseException:
            self._cut_table(known)
            raise
        fitting, cut_bytes = len(sizes), 0
        over_bytes = self.framed_bytes + len(entries) + len(records) - self.bytes_max
        if over_bytes > 0:
            while fitting and cut_bytes < over_bytes:
                fitting -= 1
                cut_bytes += SHAPES[ref_bytes(indexes[fitting])][sizes[fitting]][2]
            if not fitting:
                self._cut_table(known)
                return 0
            records = records[: len(records) - cut_bytes]
            cut_keys = self._cut_table(max(known, max(indexes[:fitting]) + 1))
            entries = entries[: len(entries) - sum(len(key_entry(key)) for key in cut_keys)]
        if not self.user_records:
            self._first_record = (keys[0], None, datas[0])
        if entries:
            self._key_entries.append(entries)
        self._parts.append(records)
        self.framed_bytes += len(entries) + len(records)
        self.data_bytes += sum(sizes[:fitting]) if fitting < len(sizes) else sum(sizes)
        self.user_records += fitting
        return fitting

    def _cut_table(self, keys_kept: int) -> list[str]:
        """Take the last partition keys out of the table, down to this many; return those that were taken."""
        key_indexes = self._key_indexes
        return [key_indexes.popitem()[0] for _ in range(len(key_indexes) - keys_kept)]

    def finish(self) -> Container | None:
        """Return the container with what was added since the last call, or None if nothing was; the next begins empty.

        A single user record is sent as it is. But one that is itself a whole aggregate is framed, against
        the KPL's habit: readers would open it, and its user would not get back what was put. One with tags is
        framed, too, as only an aggregate carries them, unless that makes it too large.
        """
        if not self.user_records:
            return None
        partition_key, explicit_hash_key, data = self._first_record
        where = hash_key(partition_key) if explicit_hash_key is None else explicit_hash_key
        is_carrier = self._has_tags and self.framed_bytes <= self.bytes_max
        if self.user_records == 1 and not is_carrier and open_aggregate(data) is None:
            container = Container(data, partition_key, where, 1)
        else:
            container = Container(self.frame(), CONTAINER_PARTITION_KEY, where, self.user_records)
        self._window = self.user_records * 9 // 8 + _SLICE_MIN
        self._clear()
        return container

    def frame(self) -> bytes:
        """Return the bytes of what was added, as an aggregate even if it is one user record."""
        message = b"".join(self._key_entries + self._hash_entries + self._parts)
        return b"".join((MAGIC, message, md5(message, usedforsecurity=False).digest()))


def encode_aggregate(records: Iterable[tuple[str, bytes, int | None]]) -> bytes:
    """Return the bytes of one aggregate of all these (partition key, data, explicit hash key), framed even if it is
    one.

    Raises AggregateError if there is no record, and as :meth:`Aggregator.add` does.
    """
    aggregator = Aggregator(bytes_max=sys.maxsize, records_max=sys.maxsize)
    for record in records:
        aggregator.add(*record)
    if not len(aggregator):
        raise AggregateError("an aggregate holds at least one user record")
    return aggregator.frame()
