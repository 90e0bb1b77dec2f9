"""A position says where a query stands in one shard: what is read, and what comes next. It has a short text in Spark's
offset log.

Five kinds are enough:

==============  ====  ==============================================================================
kind            mark  meaning
==============  ====  ==============================================================================
``NEXT``        ``@``  the record with this sequence number was seen and is the next to read
``AFTER``       ``>``  everything up to and including this record is read
``SINCE``       ``t``  everything that arrived before this time is read, or is not wanted
``BEGINNING``   ``0``  nothing of the shard is read (a child whose parents were read to their ends)
``ENDED``       ``$``  the shard is closed and read to its end
==============  ====  ==============================================================================

Every position carries a time, the *witness*: all that arrived before it is known to be read (``NEXT``: the arrival of
the record itself). A position whose witness is younger than the retention
has lost nothing. Silence moves the witness without moving the position (see :meth:`ShardPosition.idle_until`).
"""

from __future__ import annotations

import base64
import enum
from typing import NamedTuple

SILENCE_MARGIN_MS = 5 * 60 * 1000
"""Milliseconds by which the ``SINCE`` time of an idle shard stays behind the last sight of it. Arrival times are
approximate: a record that gets a timestamp slightly before the moment at which the shard was seen empty must still be
found."""


class Kind(enum.Enum):
    """The kinds of positions; the value is the kind's mark in the offset log."""

    NEXT = "@"
    AFTER = ">"
    SINCE = "t"
    BEGINNING = "0"
    ENDED = "$"


def pack(number: int) -> str:
    """Return a number as url-safe base64 of its bytes: the 56 digits of a sequence number become 32 characters."""
    return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")).rstrip(b"=").decode()


def unpack(text: str) -> int:
    """Return the number that :func:`pack` made a text of."""
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


class ShardPosition(NamedTuple):
    """A position says how far one shard is read. ``witness_ms`` is epoch milliseconds of the service's clock."""

    kind: Kind
    witness_ms: int
    sequence_number: int | None = None
    """The next record for ``NEXT``, the last one read for ``AFTER``, and the last one read, if any was, for ``SINCE``.
    """

    def encode(self) -> str:
        """Return the position as text: mark, packed witness, and the packed sequence number if there is one."""
        tail = "" if self.sequence_number is None else f".{pack(self.sequence_number)}"
        return f"{self.kind.value}{pack(self.witness_ms)}{tail}"

    @classmethod
    def decode(cls, text: str) -> ShardPosition:
        """Read what :meth:`encode` wrote. Raises ValueError when it is something else."""
        witness, _, packed = text[1:].partition(".")
        kind = Kind(text[:1])
        number = unpack(packed) if packed else None
        if number is None and kind in (Kind.NEXT, Kind.AFTER):
            raise ValueError(f"a position of kind {kind.name} without a sequence number")
        return cls(kind, unpack(witness), number)

    @property
    def read_up_to(self) -> int | None:
        """The last sequence number that is surely read, if one is known: no record up to it is delivered again."""
        if self.sequence_number is None or self.kind is Kind.ENDED:
            return None
        return self.sequence_number - 1 if self.kind is Kind.NEXT else self.sequence_number

    def idle_until(self, seen_ms: int) -> ShardPosition:
        """Return the position after the shard's tip was seen empty at ``seen_ms``: silence is not loss.

        The position stays as it is while its own witness is as good.
        """
        since_ms = seen_ms - SILENCE_MARGIN_MS
        if self.kind in (Kind.NEXT, Kind.ENDED) or since_ms <= self.witness_ms:
            return self
        return ShardPosition(Kind.SINCE, since_ms, self.read_up_to)

    def at_shard_end(self, seen_ms: int | None = None) -> ShardPosition:
        """Return the position at the shard's end; the witness becomes a lower bound of the time at which the shard was
        closed.
        """
        return ShardPosition(Kind.ENDED, max(self.witness_ms, seen_ms or 0))
