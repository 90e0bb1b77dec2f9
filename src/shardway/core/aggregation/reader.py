"""The reader of aggregates: it opens them within limits, with no object per user record, and without losing one.

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
from typing import TYPE_CHECKING

from shardway.core.aggregation.aggregate import DEFAULT_LIMITS, Aggregate, AggregateLimits
from shardway.core.aggregation.wire_format import (
    DATA,
    DIGEST_BYTES,
    EXPLICIT_HASH_KEY_INDEX,
    EXPLICIT_HASH_KEY_TABLE,
    FRAME_BYTES,
    MAGIC,
    PARTITION_KEY_INDEX,
    PARTITION_KEY_TABLE,
    RECORDS,
    TAG_KEY,
    TAG_VALUE,
    TAGS,
)
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.protobuf import DELIMITED, FIELD_1, MalformedError, read_delimited, read_tag, read_varint, skip_value

if TYPE_CHECKING:
    from shardway.model import Tags

_TAG_KEY = bytes((TAG_KEY,))
_TAG_VALUE = bytes((TAG_VALUE,))
_HASH_KEY_TEXT_BYTES_MAX = 64  # A key has 39 digits, and leading zeros, which the KCL reads too.
_FRAME_START = len(MAGIC)
_HASHED_BYTES_MIN = 6  # three fields


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
