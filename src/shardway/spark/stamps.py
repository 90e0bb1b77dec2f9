"""A stamp is in an envelope around a record's data, and says which row of its writer the record is.

A batch that runs again writes its rows again, and a stream cannot take them back; a reader that knows the rows apart
removes the duplicates. The envelope, byte by byte (all numbers unsigned, the high byte first)::

    at      bytes  what
    0       4      magic: F5 50 53 54. F5 begins no UTF-8 text, and no KPL aggregate begins so
    4       1      version: 1
    5       4      CRC-32 (as in zlib and in Spark's crc32) of everything behind it
    9       1      kind: 1 a position, 2 a position and an index, 3 a key
    10      2      n, the length of the stamp
    12      n      the stamp
    12 + n  rest   the data

A position is the stream's name, the shard and the sequence number, each as one byte of length and that many bytes, then
4 bytes of sub-sequence number; in kind 2, 8 bytes of index follow. The shard is ASCII digits, ``7`` for
``shardId-000000000007``, or its whole id where that has another form. The sequence number is in packed decimal: two
digits a byte, a zero in front where their number is odd. A key is UTF-8 text.

Kind, length and stamp together are the *label*: two records are duplicates of one another if their labels are equal.
Later versions keep the first nine bytes, so that a reader can tell what it does not know from data that looks alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from shardway.core.sequence import shard_id_number, shard_id_of
from shardway.errors import ShardwayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAGIC = b"\xf5PST"
VERSION = 1
BEGIN = MAGIC + bytes((VERSION,))
POSITION, POSITION_AND_INDEX, KEY = 1, 2, 3
"""The kinds of stamps."""
CRC_AT, LABEL_AT, STAMP_AT = 5, 9, 12
KEY_BYTES_MAX = 65_535
_SUB_SEQUENCE_BYTES, _INDEX_BYTES = 4, 8
_NAME_BYTES_MAX = 255


class Stamp(NamedTuple):
    """The content of a stamp: a position, and perhaps an index, or else a key."""

    stream: str | None = None
    shard_id: str | None = None
    sequence_number: str | None = None
    """The sequence number in decimal, as the source's column has it."""
    sub_sequence_number: int | None = None
    row_index: int | None = None
    key: str | None = None


class OpenedEnvelope(NamedTuple):
    """An opened envelope: its stamp, the label, and the data that was inside."""

    stamp: Stamp
    label: bytes
    data: bytes


def position_labels(
    streams: Iterable[str],
    shard_ids: Iterable[str],
    sequence_numbers: Iterable[str],
    sub_sequence_numbers: Iterable[int],
    indexes: Iterable[int] | None = None,
) -> list[bytes]:
    """Return the labels of positions, which are given as columns. Raises ValueError or OverflowError for what is no
    position.
    """
    shards: dict[tuple[str, str], bytes] = {}
    rest = 1 + _SUB_SEQUENCE_BYTES + (0 if indexes is None else _INDEX_BYTES)
    kind = bytes((POSITION if indexes is None else POSITION_AND_INDEX,))
    labels = []
    for stream, shard_id, digits, sub in zip(streams, shard_ids, sequence_numbers, sub_sequence_numbers, strict=True):
        shard = shards.get((stream, shard_id))
        if shard is None:
            shard = shards[stream, shard_id] = _with_length(stream) + _with_length(_short(shard_id))
        if not digits.isdecimal():
            raise ValueError("a sequence number is decimal digits")
        number = bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
        labels.append(
            b"".join(
                (
                    kind,
                    (len(shard) + len(number) + rest).to_bytes(2, "big"),
                    shard,
                    bytes((len(number),)),
                    number,
                    sub.to_bytes(_SUB_SEQUENCE_BYTES, "big"),
                )
            )
        )
    if indexes is None:
        return labels
    return [label + index.to_bytes(_INDEX_BYTES, "big") for label, index in zip(labels, indexes, strict=True)]


def key_labels(keys: Iterable[str | int]) -> list[bytes]:
    """Return the labels of keys. Raises OverflowError for a key of more than KEY_BYTES_MAX bytes."""
    kind = bytes((KEY,))
    texts = [str(key).encode() for key in keys]
    return [kind + len(text).to_bytes(2, "big") + text for text in texts]


def seal(labels: Sequence[bytes], datas: Sequence[bytes]) -> list[bytes]:
    """Put each data into an envelope with its label."""
    return [
        b"".join((BEGIN, crc32(data, crc32(label)).to_bytes(4, "big"), label, data))
        for label, data in zip(labels, datas, strict=True)
    ]


def open_sealed(data: bytes) -> OpenedEnvelope | None:
    """Return what is in an envelope; None for data that is in none.

    Raises ShardwayError for an envelope of a version or kind that is not known here.
    """
    if not data.startswith(MAGIC) or len(data) < STAMP_AT:
        return None
    if crc32(data[LABEL_AT:]) != int.from_bytes(data[CRC_AT:LABEL_AT], "big"):
        return None
    kind, end = data[LABEL_AT], STAMP_AT + int.from_bytes(data[LABEL_AT + 1 : STAMP_AT], "big")
    if data[len(MAGIC)] != VERSION or kind not in (POSITION, POSITION_AND_INDEX, KEY) or end > len(data):
        raise ShardwayError(
            f"an envelope of version {data[len(MAGIC)]}, kind {kind} is not known here: read it with a newer shardway"
        )
    stamp = data[STAMP_AT:end]
    said = Stamp(key=stamp.decode()) if kind == KEY else _position(stamp, kind)
    return OpenedEnvelope(said, data[LABEL_AT:end], data[end:])


def _position(stamp: bytes, kind: int) -> Stamp:
    at, parts = 0, []
    for _ in range(3):
        at += 1
        parts.append(stamp[at : at + stamp[at - 1]])
        at += stamp[at - 1]
    shard = parts[1].decode()
    index_at = at + _SUB_SEQUENCE_BYTES
    return Stamp(
        stream=parts[0].decode(),
        shard_id=shard_id_of(int(shard)) if shard.isdigit() else shard,
        sequence_number=parts[2].hex().lstrip("0") or "0",
        sub_sequence_number=int.from_bytes(stamp[at:index_at], "big"),
        row_index=int.from_bytes(stamp[index_at:], "big") if kind == POSITION_AND_INDEX else None,
    )


def _short(shard_id: str) -> str:
    number = shard_id_number(shard_id)
    if number is not None:
        return str(number)
    if shard_id.isdigit():
        raise ValueError("a shard id is not a bare number")
    return shard_id


def _with_length(text: str) -> bytes:
    encoded = text.encode("ascii")
    if not 0 < len(encoded) <= _NAME_BYTES_MAX:
        raise ValueError("a name in a position has 1 to 255 characters")
    return bytes((len(encoded),)) + encoded
