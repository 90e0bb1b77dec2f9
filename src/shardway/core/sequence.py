"""A sequence number says something of its shard and its time, and so does a shard id.

AWS documents sequence numbers as opaque and growing. The KCL (``SequenceNumberValidator``) knows more about
today's: they have 186 bits (56 decimal digits), of which the highest two say version 2, and bits 4 to 35 are
the number of the shard.
"""

from __future__ import annotations

_BITS = 186
_VERSION_SHIFT = 184
_VERSION = 2
_SHARD_SHIFT = 4
_SHARD_MASK = 0xFFFF_FFFF
_SECOND_SHIFT = 36
_SECOND_MASK = 0xF_FFFF_FFFF
_SHARD_ID_PREFIX = "shardId-"
_SHARD_DIGITS_MAX = 20


def version_of(sequence_number: int) -> int | None:
    """Return 2 for a sequence number of today's shape; None for a shape that is not known."""
    if sequence_number.bit_length() != _BITS:
        return None
    version = sequence_number >> _VERSION_SHIFT
    return version if version == _VERSION else None


def shard_number_of(sequence_number: int) -> int | None:
    """Return the number of the shard that gave out this sequence number, 7 for ``shardId-000000000007``.

    None for a sequence number of an unknown shape.
    """
    if version_of(sequence_number) is None:
        return None
    return (sequence_number >> _SHARD_SHIFT) & _SHARD_MASK


def second_of(sequence_number: int) -> int | None:
    """Return when its record arrived, in whole epoch seconds of the service's clock; None for a number of an unknown
    shape.
    """
    if version_of(sequence_number) is None:
        return None
    return (sequence_number >> _SECOND_SHIFT) & _SECOND_MASK


def just_before(sequence_number: int) -> int:
    """Return a number that stands before this record of a shard and behind all of its earlier ones; no record carries
    it.

    Numbers of one shard differ by a counter in their highest bits, and below it by the second of arrival, in the 36
    bits above the shard's. This one has the same counter, a second earlier, and is otherwise as the service makes
    them. Of an unknown shape it is the next lower number.
    """
    if version_of(sequence_number) is None or not (sequence_number >> _SECOND_SHIFT) & _SECOND_MASK:
        return sequence_number - 1
    return sequence_number - (1 << _SECOND_SHIFT)


def shard_id_number(shard_id: str) -> int | None:
    """Return 7 for ``shardId-000000000007``; None for an id that is not written exactly so."""
    digits = shard_id.removeprefix(_SHARD_ID_PREFIX)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _SHARD_DIGITS_MAX):
        return None
    number = int(digits)
    return number if shard_id_of(number) == shard_id else None


def shard_id_of(number: int) -> str:
    """Return ``shardId-000000000007`` for 7."""
    if number < 0:
        raise ValueError("a shard's number is not negative")
    return f"{_SHARD_ID_PREFIX}{number:012d}"
