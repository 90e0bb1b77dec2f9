"""Sequence numbers of AWS's shape, and shard ids.

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
"""

from __future__ import annotations

from typing import NamedTuple

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
