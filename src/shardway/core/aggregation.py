"""The KPL's aggregates hold many user records in one Kinesis record. Here are their bytes; aggregates are opened, and
built.

A record is an aggregate when it can be opened whole. Whatever cannot be, for whatever reason, is a plain
record, whose bytes are handed on untouched; :func:`why_plain` tells the reason. This is the rule of the KCL
(``AggregatorUtil``) too for a wrong magic, a wrong digest and a broken message. Where it differs, the KCL
loses user records:

- An index outside its table, a hash key that is no number, an aggregate without user records: the KCL delivers
   nothing, or what came before the fault, and writes a log line. Here it is one plain record.
- A user record outside the shard's hash range: the KCL drops the whole aggregate in silence. Here it is a
  question that callers ask (:meth:`Aggregate.outside`) and decide: deliver, drop like the KCL, or raise.

It is stricter than the KCL in what no producer writes: partition keys that are not UTF-8 (the KCL puts in
replacement characters), signs in hash keys, protobuf groups and padded field tags make a plain record. As in
the KCL, an aggregate inside an aggregate is not opened.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress
from hashlib import md5
from itertools import count, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.hashkeys import HASH_KEY_MAX, hash_key
from shardway.core.protobuf import (
    DELIMITED,
    FIELD_1,
    VARINT,
    MalformedError,
    read_delimited,
    read_tag,
    read_varint,
    skip_value,
    varint,
    varint_bytes,
)
from shardway.errors import AggregateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.model import Tags


# --- the bytes ------------------------------------------------------------------------------------
# A KPL aggregate consists of a magic, one protobuf message, and the MD5 of that message.
#
# ::
#
#     F3 89 9A C2 | AggregatedRecord | MD5 of the AggregatedRecord (16 bytes)
#
#     message AggregatedRecord {
#       repeated string partition_key_table     = 1;
#       repeated string explicit_hash_key_table = 2;
#       repeated Record records                 = 3;
#     }
#     message Record {
#       required uint64 partition_key_index     = 1;  // into the table, from 0
#       optional uint64 explicit_hash_key_index = 2;  // only where the user gave a hash key
#       required bytes  data                    = 3;
#       repeated Tag    tags                    = 4;  // never written by the KPL
#     }
#     message Tag {
#       required string key   = 1;
#       optional string value = 2;
#     }
#
# Source: aggregation-format.md of the Kinesis Producer Library ("KPL Aggregated Record Format").

# --- the frame ------------------------------------------------------------------------------------

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
FRAME_BYTES = len(MAGIC) + DIGEST_BYTES

# The tags of the fields above are: field number << 3 | wire type, one byte each.
PARTITION_KEY_TABLE = 1 << 3 | DELIMITED
EXPLICIT_HASH_KEY_TABLE = 2 << 3 | DELIMITED
RECORDS = 3 << 3 | DELIMITED
PARTITION_KEY_INDEX = 1 << 3 | VARINT
EXPLICIT_HASH_KEY_INDEX = 2 << 3 | VARINT
DATA = 3 << 3 | DELIMITED
TAGS = 4 << 3 | DELIMITED
TAG_KEY = 1 << 3 | DELIMITED
TAG_VALUE = 2 << 3 | DELIMITED

# --- fields ---------------------------------------------------------------------------------------
# The fields of an aggregate's message are encoded one at a time and by columns.
#
# By columns there is no step of the interpreter per user record: sizes, headers and data are lists that are
# looked up, interleaved and joined whole. Whatever is remembered for it is bounded, and holds what follows from
# sizes and positions only: no key and no data. It may be used from several threads, as what stands in it is only
# ever replaced by more of the same.

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
_TAG_KEY = bytes((TAG_KEY,))
_TAG_VALUE = bytes((TAG_VALUE,))
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


# --- opening aggregates ---------------------------------------------------------------------------
# KPL aggregates are opened within bounds, with no object per user record unless asked for, and without losing one.
#
# A record is an aggregate when it can be opened whole. Whatever cannot be, for whatever reason, is a plain
# record, whose bytes are handed on untouched; :func:`why_plain` tells the reason. This is the rule of the KCL
# (``AggregatorUtil``) too for a wrong magic, a wrong digest and a broken message. Where it differs, the KCL
# loses user records:
#
# - An index outside its table, a hash key that is no number, an aggregate without user records: the KCL delivers
#    nothing, or what came before the fault, and writes a log line. Here it is one plain record.
# - A user record outside the shard's hash range: the KCL drops the whole aggregate in silence. Here it is a
#   question that callers ask (:meth:`Aggregate.outside`) and decide: deliver, drop like the KCL, or raise.
#
# It is stricter than the KCL in what no producer writes: partition keys that are not UTF-8 (the KCL puts in
# replacement characters), signs in hash keys, protobuf groups and padded field tags make a plain record. As in
# the KCL, an aggregate inside an aggregate is not opened.

_HASH_KEY_TEXT_BYTES_MAX = 64  # A key has 39 digits, and leading zeros, which the KCL reads too.
_FRAME_START = len(MAGIC)
_HASHED_BYTES_MIN = 6  # three fields


class AggregateLimits(NamedTuple):
    """The limits of an aggregate that is opened. One that holds more is handed on as a plain record."""

    records_max: int = 200_000
    """The most user records. The default is more than fit into 1 MiB, as the smallest takes six bytes."""
    table_entries_max: int = 400_000
    """The most partition keys and explicit hash keys in the tables, together: one of each for every user record."""
    bytes_max: int = 10 * 1024 * 1024
    """The most bytes of the whole aggregate. Kinesis takes records of up to 10 MiB."""
    key_bytes_max: int = 1024
    """The most bytes of one partition key: Kinesis takes 256 characters, of up to four bytes each. All user records may
    name the same key: without this limit a record of 10 MiB could become a terabyte of rows.
    """
    odd_fields_max: int = 1024
    """The most fields of the whole aggregate that no producer writes: unknown ones, and those that a user record or a
    tag repeats. Each of them costs the reader as much time as a user record does, and takes two bytes: without this
    limit an aggregate of 10 MiB could take 6 s.
    """
    record_tags_max: int = 64
    """The most tags of one user record."""
    tag_bytes_min: int = 32
    """The aggregate has one tag for this many of its bytes at most, beside `odd_fields_max`. A tag costs the reader
    several times what a user record costs, and takes four bytes at least. The context of a trace takes 70.
    """


DEFAULT_LIMITS = AggregateLimits()


class UserRecord(NamedTuple):
    """One record out of an aggregate."""

    partition_key: str
    explicit_hash_key: int | None
    """The explicit hash key; None where the producer gave none."""
    data: bytes
    sub_sequence_number: int
    """The 0-based index in the aggregate."""


class Aggregate:
    """The user records of one aggregate, by column. Iterating it makes a :class:`UserRecord` of each."""

    __slots__ = ("_explicit", "_key_indexes", "_key_table", "_tags", "datas")

    def __init__(
        self,
        key_table: list[str],
        key_indexes: list[int],
        explicit: dict[int, int],
        datas: list[bytes],
        tags: dict[int, Tags] | None = None,
    ) -> None:
        self._key_table = key_table
        self._key_indexes = key_indexes
        self._explicit = explicit  # The explicit hash keys, by sub-sequence number.
        self._tags = tags  # The tags, by sub-sequence number.
        self.datas = datas
        """The payloads, by sub-sequence number."""

    def __len__(self) -> int:
        return len(self.datas)

    def __iter__(self) -> Iterator[UserRecord]:
        return map(UserRecord, self.partition_keys(), self.explicit_hash_keys(), self.datas, count())

    def partition_keys(self) -> Iterator[str]:
        """Iterate over the partition keys, by sub-sequence number."""
        return map(self._key_table.__getitem__, self._key_indexes)

    def explicit_hash_keys(self) -> Iterator[int | None]:
        """Iterate over the explicit hash keys, by sub-sequence number; None where the producer gave none."""
        if not self._explicit:
            return repeat(None, len(self.datas))
        return map(self._explicit.get, range(len(self.datas)))

    def explicit_hash_key_texts(self) -> Iterator[str | None]:
        """See `explicit_hash_keys`: this has decimal text, as columns of Arrow and Spark hold no 128-bit integers."""
        if not self._explicit:
            return repeat(None, len(self.datas))
        return (None if key is None else str(key) for key in self.explicit_hash_keys())

    def tags(self) -> Iterator[Tags]:
        """Iterate over the tags, by sub-sequence number. The KPL writes none."""
        if not self._tags:
            return repeat((), len(self.datas))
        tags = self._tags
        return (tags.get(number, ()) for number in range(len(self.datas)))

    def outside(self, first_hash_key: int, last_hash_key: int) -> list[int]:
        """Return sub-sequence numbers of the user records whose hash key is outside a shard's range, bounds inclusive.

        A user record's hash key is its explicit one, else the MD5 of its partition key. The KCL drops the
        whole aggregate if there is a single one: a producer with an old shard map wrote it to this shard,
        and, if it is the KPL, has sent it again to the right one.
        """
        if first_hash_key <= 0 and last_hash_key >= HASH_KEY_MAX:
            return []
        table = self._key_table
        outer = {
            index for index in set(self._key_indexes) if not first_hash_key <= hash_key(table[index]) <= last_hash_key
        }
        if not outer and not self._explicit:
            return []
        explicit = self._explicit.get
        return [
            number
            for number, index in enumerate(self._key_indexes)
            if (index in outer if (given := explicit(number)) is None else not first_hash_key <= given <= last_hash_key)
        ]


def is_aggregate(data: bytes) -> bool:
    """True when magic and length are right, so that opening is worth trying. It is cheap: for every record of a
    stream.
    """
    return data[:_FRAME_START] == MAGIC and len(data) > FRAME_BYTES


def open_aggregate(data: bytes, limits: AggregateLimits = DEFAULT_LIMITS) -> Aggregate | None:
    """Return the aggregate that ``data`` is; None if it is a plain record, to be handed on as it is. It never
    raises.
    """
    if data[:_FRAME_START] != MAGIC or len(data) <= FRAME_BYTES:
        return None
    try:
        return _open(data, limits)
    except MalformedError:
        return None


def why_plain(data: bytes, limits: AggregateLimits = DEFAULT_LIMITS) -> str | None:
    """Return why :func:`open_aggregate` takes ``data`` for a plain record; None if it does not.

    For events and diagnosis: the text holds neither payload nor keys.
    """
    if data[:_FRAME_START] != MAGIC:
        return "it does not begin with the magic bytes of an aggregate"
    if len(data) <= FRAME_BYTES:
        return f"it has {len(data)} bytes, and an aggregate has more than {FRAME_BYTES}"
    try:
        _open(data, limits)
    except MalformedError as error:
        return str(error)
    return None


def _open(data: bytes, limits: AggregateLimits) -> Aggregate:
    """Check the digest, parse, check the indexes. Raises MalformedError."""
    if len(data) > limits.bytes_max:
        raise MalformedError(f"it has {len(data)} bytes; the limit is {limits.bytes_max}")
    message = data[_FRAME_START:-DIGEST_BYTES]
    if md5(message, usedforsecurity=False).digest() != data[-DIGEST_BYTES:]:
        raise MalformedError("the MD5 digest at its end is not that of the message")
    try:
        return _parse(message, limits)
    except IndexError:
        raise MalformedError("the message, or its last user record, is cut short") from None


def _parse(message: bytes, limits: AggregateLimits) -> Aggregate:
    """Read the fields of the message: the usual user records inline, all else by functions."""
    key_table: list[bytes] = []
    hash_table: list[bytes] = []
    hash_indexes: dict[int, int] = {}
    key_indexes: list[int] = []
    datas: list[bytes] = []
    tags: dict[int, Tags] = {}
    odd = _OddFields(limits, len(message))
    at, end = 0, len(message)
    for _ in range(limits.records_max + limits.table_entries_max + 1):
        if at == end:
            break
        tag = message[at]
        if tag & 0x87 != DELIMITED:  # It is none of ours, which are delimited, with tags of one byte.
            at = odd.skip(message, at)
            continue
        size = message[at + 1]
        start = at + 2
        if size > 0x7F:
            high, start = message[start], start + 1
            size = size & 0x7F | high << 7
            if high > 0x7F:
                size, start = read_varint(message, at + 1)
        at = start + size
        if at > end:
            raise MalformedError("a field reaches beyond the end of its message")
        if tag == RECORDS:
            # The bytes are: 08 index 1A size data, index and size in one or two bytes.
            index, inner = message[start + 1], start + 2
            if index > 0x7F:
                index = index & 0x7F | message[inner] << 7
                inner += 1
            size = message[inner + 1]
            begin = inner + 2
            if size > 0x7F:
                size = size & 0x7F | message[begin] << 7
                begin += 1
            if (
                begin + size == at
                and index < 0x4000
                and size < 0x4000
                and message[inner] == DATA
                and message[start] == PARTITION_KEY_INDEX
            ):
                key_indexes.append(index)
                datas.append(message[begin:at])
            elif not _read_hashed(message[start:at], key_indexes, hash_indexes, datas):
                _read_record(message[start:at], key_indexes, hash_indexes, datas, tags, odd)
        elif tag == PARTITION_KEY_TABLE:
            key_table.append(message[start:at])
        elif tag == EXPLICIT_HASH_KEY_TABLE:
            hash_table.append(message[start:at])
        else:
            odd.count(is_field=tag >= FIELD_1)
    else:
        raise MalformedError("it holds more fields than the limits on records and table entries allow")
    _check_limits(len(datas), key_table, len(hash_table), limits)
    return _resolve(key_table, hash_table, key_indexes, hash_indexes, datas, tags)


def _check_limits(records: int, key_table: list[bytes], hash_entries: int, limits: AggregateLimits) -> None:
    table_entries = len(key_table) + hash_entries
    if records > limits.records_max or table_entries > limits.table_entries_max:
        raise MalformedError(
            f"it holds {records} user records and {table_entries} table entries; "
            f"the limits are {limits.records_max} and {limits.table_entries_max}"
        )
    if any(len(key) > limits.key_bytes_max for key in key_table):
        raise MalformedError(f"a partition key has more than {limits.key_bytes_max} bytes")


class _OddFields:
    """Counts what an aggregate holds beyond the usual form of user records. Raises MalformedError beyond the limits."""

    __slots__ = ("_fields_left", "_limits", "_tags_left")

    def __init__(self, limits: AggregateLimits, message_bytes: int) -> None:
        self._limits = limits
        self._fields_left = limits.odd_fields_max
        self._tags_left = limits.odd_fields_max + message_bytes // limits.tag_bytes_min

    def skip(self, message: bytes, at: int) -> int:
        """Count the field at ``at``, and return where it ends."""
        tag, start = read_tag(message, at)
        self.count()
        return skip_value(message, start, tag)

    def count(self, fields: int = 1, *, is_field: bool = True) -> None:
        if not is_field:
            raise MalformedError("a field has no valid number")
        self._fields_left -= fields
        if self._fields_left < 0:
            raise MalformedError(
                f"it holds more fields that no producer writes than the limit of {self._limits.odd_fields_max}"
            )

    def count_tag(self, tags_before: int) -> None:
        """Count one tag of a user record that has ``tags_before`` already."""
        self._tags_left -= 1
        if tags_before >= self._limits.record_tags_max or self._tags_left < 0:
            raise MalformedError(
                f"it holds more tags than the limits: {self._limits.record_tags_max} in a user record, and one in "
                f"{self._limits.tag_bytes_min} bytes"
            )


def _read_hashed(record: bytes, key_indexes: list[int], hash_indexes: dict[int, int], datas: list[bytes]) -> bool:
    """Append a user record of the usual form with an explicit hash key; False: it has another form, and nothing was
    appended. Raises IndexError where the record is cut short.
    """
    # The bytes are: 08 index 10 index 1A size data, each number in one or two bytes.
    if len(record) < _HASHED_BYTES_MIN or record[0] != PARTITION_KEY_INDEX:
        return False
    index, at = record[1], 2
    if index > 0x7F:
        index = index & 0x7F | record[2] << 7
        at = 3
    if record[at] != EXPLICIT_HASH_KEY_INDEX:
        return False
    hash_index, at = record[at + 1], at + 2
    if hash_index > 0x7F:
        hash_index = hash_index & 0x7F | record[at] << 7
        at += 1
    if record[at] != DATA:
        return False
    size, at = record[at + 1], at + 2
    if size > 0x7F:
        size = size & 0x7F | record[at] << 7
        at += 1
    # A number from 0x4000 on goes on in a third byte, which was not read.
    if at + size != len(record) or index >= 0x4000 or hash_index >= 0x4000 or size >= 0x4000:
        return False
    hash_indexes[len(datas)] = hash_index
    key_indexes.append(index)
    datas.append(record[at:])
    return True


def _read_record(
    record: bytes,
    key_indexes: list[int],
    hash_indexes: dict[int, int],
    datas: list[bytes],
    tags: dict[int, Tags],
    odd: _OddFields,
) -> None:
    """Append a user record of any form: fields in any order, unknown ones, repeated ones (the last counts)."""
    key_index = hash_index = data = None
    own_tags: list[tuple[str, str]] = []
    at = 0
    while at < len(record):
        tag, at = read_tag(record, at)
        if tag == PARTITION_KEY_INDEX:
            odd.count(key_index is not None)
            key_index, at = read_varint(record, at)
        elif tag == EXPLICIT_HASH_KEY_INDEX:
            odd.count(hash_index is not None)
            hash_index, at = read_varint(record, at)
        elif tag == DATA:
            odd.count(data is not None)
            data, at = read_delimited(record, at)
        elif tag == TAGS:
            odd.count_tag(len(own_tags))
            user_tag, at = read_delimited(record, at)
            own_tags.append(_read_user_tag(user_tag, odd))
        else:
            odd.count()
            at = skip_value(record, at, tag)
    if key_index is None or data is None:
        raise MalformedError("a user record lacks its key index or its data")
    if hash_index is not None:
        hash_indexes[len(datas)] = hash_index
    if own_tags:
        tags[len(datas)] = tuple(own_tags)
    key_indexes.append(key_index)
    datas.append(data)


def _read_user_tag(user_tag: bytes, odd: _OddFields) -> tuple[str, str]:
    """Return the key and the value of a tag. A broken one breaks the message: its key is required. Text that is not
    UTF-8 is replaced, as protobuf's readers do not look at it.
    """
    # The usual bytes are: 0A size key 12 size value, each size in one byte.
    if user_tag[:1] == _TAG_KEY and (middle := 2 + user_tag[1]) < 0x82 and user_tag[middle : middle + 1] == _TAG_VALUE:
        begin = middle + 2
        if (size := user_tag[middle + 1]) <= 0x7F and begin + size == len(user_tag):
            return user_tag[2:middle].decode(errors="replace"), user_tag[begin:].decode(errors="replace")
    key: bytes | None = None
    value: bytes | None = None
    at = 0
    while at < len(user_tag):
        tag, at = read_tag(user_tag, at)
        if tag == TAG_KEY:
            odd.count(key is not None)
            key, at = read_delimited(user_tag, at)
        elif tag == TAG_VALUE:
            odd.count(value is not None)
            value, at = read_delimited(user_tag, at)
        else:
            odd.count()
            at = skip_value(user_tag, at, tag)
    if key is None:
        raise MalformedError("a tag of a user record lacks its key")
    return key.decode(errors="replace"), (value or b"").decode(errors="replace")


def _resolve(
    key_table: list[bytes],
    hash_table: list[bytes],
    key_indexes: list[int],
    hash_indexes: dict[int, int],
    datas: list[bytes],
    tags: dict[int, Tags],
) -> Aggregate:
    """Check the indexes against the tables, and read those entries that are in use."""
    if not datas:
        raise MalformedError("it holds no user records")
    if max(key_indexes) >= len(key_table):
        raise MalformedError("a partition key's index is outside its table")
    if hash_indexes and max(hash_indexes.values()) >= len(hash_table):
        raise MalformedError("an explicit hash key's index is outside its table")
    try:
        keys = [key.decode() for key in key_table]
    except UnicodeDecodeError:
        raise MalformedError("a partition key is not UTF-8") from None
    hash_keys = {index: _hash_key_from(hash_table[index]) for index in set(hash_indexes.values())}
    explicit = {number: hash_keys[index] for number, index in hash_indexes.items()}
    return Aggregate(keys, key_indexes, explicit, datas, tags)


def _hash_key_from(text: bytes) -> int:
    if text.isdigit() and len(text) <= _HASH_KEY_TEXT_BYTES_MAX and (value := int(text)) <= HASH_KEY_MAX:
        return value
    raise MalformedError("an explicit hash key is not a decimal number from 0 to 2**128-1")


# --- building aggregates --------------------------------------------------------------------------
# KPL aggregates are built byte for byte as the KPL does; their exact size is known before each addition.

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
        "_first",
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
        self._first: tuple[str, int | None, bytes] = ("", None, b"")
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
            self._first = (partition_key, explicit_hash_key, data)
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
            self._first = (keys[0], None, datas[0])
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
        partition_key, explicit_hash_key, data = self._first
        where = hash_key(partition_key) if explicit_hash_key is None else explicit_hash_key
        is_carrier = self._has_tags and self.framed_bytes <= self.bytes_max
        if self.user_records == 1 and not is_carrier and open_aggregate(data) is None:
            container = Container(data, partition_key, where, 1)
        else:
            container = Container(self.framed(), CONTAINER_PARTITION_KEY, where, self.user_records)
        self._window = self.user_records * 9 // 8 + _SLICE_MIN
        self._clear()
        return container

    def framed(self) -> bytes:
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
    return aggregator.framed()
