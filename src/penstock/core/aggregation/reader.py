"""Opening KPL aggregates: bounded, with no object per user record unless asked for, and without losing one.

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

from hashlib import md5
from itertools import count, repeat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.aggregation.format import (
    DATA,
    DELIMITED,
    DIGEST_BYTES,
    EXPLICIT_HASH_KEY_INDEX,
    EXPLICIT_HASH_KEY_TABLE,
    FIELD_1,
    FRAME_BYTES,
    MAGIC,
    PARTITION_KEY_INDEX,
    PARTITION_KEY_TABLE,
    RECORDS,
    TAG_KEY,
    TAG_VALUE,
    TAGS,
    MalformedError,
    read_delimited,
    read_tag,
    read_varint,
    skip_value,
)
from penstock.core.hashkeys import HASH_KEY_MAX, hash_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model import Tags

_HASH_KEY_TEXT_BYTES_MAX = 64  # 39 digits, and leading zeros, which the KCL reads too
_FRAME_START = len(MAGIC)


class AggregateLimits(NamedTuple):
    """What an aggregate may hold at most to be opened. One that holds more is handed on as a plain record."""

    records_max: int = 200_000
    """User records. The default is more than fit into 1 MiB, as the smallest takes six bytes."""
    table_entries_max: int = 400_000
    """Partition keys and explicit hash keys in the tables, together: one of each for every user record."""
    bytes_max: int = 10 * 1024 * 1024
    """The whole aggregate. Kinesis takes records of up to 10 MiB."""
    key_bytes_max: int = 1024
    """One partition key: Kinesis takes 256 characters, of up to four bytes each. All user records may name the same
    key: without this limit a record of 10 MiB could become a terabyte of rows."""


DEFAULT_LIMITS = AggregateLimits()


class UserRecord(NamedTuple):
    """One record out of an aggregate."""

    partition_key: str
    explicit_hash_key: int | None
    """None where its producer gave none."""
    data: bytes
    sub_sequence_number: int
    """0-based index in the aggregate."""


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
        self._explicit = explicit  # sub-sequence number -> explicit hash key, of those that have one
        self._tags = tags  # sub-sequence number -> its tags, of those that have some
        self.datas = datas
        """The payloads, by sub-sequence number."""

    def __len__(self) -> int:
        return len(self.datas)

    def __iter__(self) -> Iterator[UserRecord]:
        return map(UserRecord, self.partition_keys(), self.explicit_hash_keys(), self.datas, count())

    def partition_keys(self) -> Iterator[str]:
        """The partition keys, by sub-sequence number."""
        return map(self._key_table.__getitem__, self._key_indexes)

    def explicit_hash_keys(self) -> Iterator[int | None]:
        """The explicit hash keys, by sub-sequence number; None where the producer gave none."""
        if not self._explicit:
            return repeat(None, len(self.datas))
        return map(self._explicit.get, range(len(self.datas)))

    def explicit_hash_key_texts(self) -> Iterator[str | None]:
        """As ``explicit_hash_keys``, but decimal text: columns of Arrow and Spark hold no 128-bit integers."""
        if not self._explicit:
            return repeat(None, len(self.datas))
        return (None if key is None else str(key) for key in self.explicit_hash_keys())

    def tags(self) -> Iterator[Tags]:
        """The tags, by sub-sequence number. The KPL writes none."""
        if not self._tags:
            return repeat((), len(self.datas))
        tags = self._tags
        return (tags.get(number, ()) for number in range(len(self.datas)))

    def outside(self, first_hash_key: int, last_hash_key: int) -> list[int]:
        """Sub-sequence numbers of the user records whose hash key is outside a shard's range, bounds inclusive.

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
    """True when magic and length are right, so that opening is worth trying. Cheap: for every record of a stream."""
    return data[:_FRAME_START] == MAGIC and len(data) > FRAME_BYTES


def open_aggregate(data: bytes, limits: AggregateLimits = DEFAULT_LIMITS) -> Aggregate | None:
    """The aggregate that ``data`` is; None if it is a plain record, to be handed on as it is. Never raises."""
    if data[:_FRAME_START] != MAGIC or len(data) <= FRAME_BYTES:
        return None
    try:
        return _open(data, limits)
    except MalformedError:
        return None


def why_plain(data: bytes, limits: AggregateLimits = DEFAULT_LIMITS) -> str | None:
    """Why :func:`open_aggregate` takes ``data`` for a plain record; None if it does not.

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


def append_user_records(
    data: bytes,
    partition_keys: list[str],
    datas: list[bytes],
    explicit_hash_keys: list[str | None],
    limits: AggregateLimits = DEFAULT_LIMITS,
) -> int:
    """Append the user records of an aggregate to three columns; how many were appended.

    0 when ``data`` is a plain record; then nothing was appended. Explicit hash keys come as decimal text.
    """
    aggregate = open_aggregate(data, limits)
    if aggregate is None:
        return 0
    partition_keys.extend(aggregate.partition_keys())
    datas.extend(aggregate.datas)
    explicit_hash_keys.extend(aggregate.explicit_hash_key_texts())
    return len(aggregate)


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
    at, end = 0, len(message)
    for _ in range(limits.records_max + limits.table_entries_max + 1):
        if at == end:
            break
        tag = message[at]
        if tag & 0x87 != DELIMITED:  # none of ours, which are delimited and have tags of one byte
            tag, start = read_tag(message, at)
            at = skip_value(message, start, tag)
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
            # 08 index 1A size data, index and size in one or two bytes
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
            else:
                _read_record(message[start:at], key_indexes, hash_indexes, datas, tags)
        elif tag == PARTITION_KEY_TABLE:
            key_table.append(message[start:at])
        elif tag == EXPLICIT_HASH_KEY_TABLE:
            hash_table.append(message[start:at])
        elif tag < FIELD_1:
            raise MalformedError("a field has no valid number")
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


def _read_record(
    record: bytes,
    key_indexes: list[int],
    hash_indexes: dict[int, int],
    datas: list[bytes],
    tags: dict[int, Tags],
) -> None:
    """Append a user record of any form: fields in any order, unknown ones, repeated ones (the last counts)."""
    key_index = hash_index = data = None
    own_tags: list[tuple[str, str]] = []
    at = 0
    while at < len(record):
        tag, at = read_tag(record, at)
        if tag == PARTITION_KEY_INDEX:
            key_index, at = read_varint(record, at)
        elif tag == EXPLICIT_HASH_KEY_INDEX:
            hash_index, at = read_varint(record, at)
        elif tag == DATA:
            data, at = read_delimited(record, at)
        elif tag == TAGS:
            user_tag, at = read_delimited(record, at)
            own_tags.append(_read_user_tag(user_tag))
        else:
            at = skip_value(record, at, tag)
    if key_index is None or data is None:
        raise MalformedError("a user record lacks its key index or its data")
    if hash_index is not None:
        hash_indexes[len(datas)] = hash_index
    if own_tags:
        tags[len(datas)] = tuple(own_tags)
    key_indexes.append(key_index)
    datas.append(data)


def _read_user_tag(user_tag: bytes) -> tuple[str, str]:
    """The key and the value of a tag. A broken one breaks the message: its key is required. Text that is not UTF-8 is
    replaced, as protobuf's readers do not look at it.
    """
    key: bytes | None = None
    value = b""
    at = 0
    while at < len(user_tag):
        tag, at = read_tag(user_tag, at)
        if tag == TAG_KEY:
            key, at = read_delimited(user_tag, at)
        elif tag == TAG_VALUE:
            value, at = read_delimited(user_tag, at)
        else:
            at = skip_value(user_tag, at, tag)
    if key is None:
        raise MalformedError("a tag of a user record lacks its key")
    return key.decode(errors="replace"), value.decode(errors="replace")


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
