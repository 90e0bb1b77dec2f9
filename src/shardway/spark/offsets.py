"""An offset is what Spark's offset log holds of a stream: how far each shard is read, and where the batch's ranges
began.

The *end* offset of a batch is enough to plan it again: it carries both ends of every range. (Spark does not log the
start of batch 0, and asks for an initial offset again after a crash.) Spark compares offsets as text, so there is one
canonical form: sorted keys, no floats, everything short (10,000 shards, all of them with rows, stay under 1 MB).
As a dict::

    {"v": 1, "arn": ..., "created": epoch s, "cut": epoch ms, "tasks": 2,
     "shards": {"12": "@AZqmjQh7.AqUEw3v…<AZqmjQQX.AqUEw3…", "13": "$AZqmi4GA"}}

A shard has its position, and behind a ``<`` the time and the first record of its range if it has rows in the batch.
Times (milliseconds) and sequence numbers are packed; ``shardway.spark.offsets.unpack`` reads them. Shard ids of the
usual form (``shardId-000000000012``) are written as numbers, others as they are. ``"losses": 1`` is there too where
losses were passed over.
"""

from __future__ import annotations

import base64
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardway.errors import ShardwayError

# --- positions ------------------------------------------------------------------------------------
# A position says where a query stands in one shard; it has a short text in Spark's offset log.
#
# A position says what is read and what comes next; five kinds are enough:
#
# ==============  ====  ==============================================================================
# kind            mark  meaning
# ==============  ====  ==============================================================================
# ``NEXT``        ``@``  the record with this sequence number was seen and is the next to read
# ``AFTER``       ``>``  everything up to and including this record is read
# ``SINCE``       ``t``  everything that arrived before this time is read, or is not wanted
# ``BEGINNING``   ``0``  nothing of the shard is read (a child whose parents were read to their ends)
# ``ENDED``       ``$``  the shard is closed and read to its end
# ==============  ====  ==============================================================================
#
# Every position carries a time, the *witness*: the latest time of which is known that nothing that arrived before it
# is unread (``NEXT``: the arrival of the record itself). A position whose witness is younger than the retention has
# lost nothing. Silence moves the witness without moving the position (see :meth:`ShardPosition.seen_idle`).

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

    def seen_idle(self, seen_ms: int) -> ShardPosition:
        """Return the position after the shard's tip was seen empty at ``seen_ms``: silence is not loss.

        The position stays as it is while its own witness is as good.
        """
        since_ms = seen_ms - SILENCE_MARGIN_MS
        if self.kind in (Kind.NEXT, Kind.ENDED) or since_ms <= self.witness_ms:
            return self
        return ShardPosition(Kind.SINCE, since_ms, self.read_up_to)

    def finished(self, seen_ms: int | None = None) -> ShardPosition:
        """Return the position at the shard's end; the witness becomes a lower bound of the time at which the shard was
        closed.
        """
        return ShardPosition(Kind.ENDED, max(self.witness_ms, seen_ms or 0))


# --- offsets --------------------------------------------------------------------------------------

FORMAT_VERSION = 1
_USUAL_ID = re.compile(r"shardId-(\d{12})\Z")


class OffsetFormatError(ShardwayError, ValueError):
    """An offset in the Spark checkpoint directory cannot be read: it is damaged, or a newer Shardway wrote it."""


class RangeStart(NamedTuple):
    """The first record of a range: its sequence number, and its arrival in epoch milliseconds."""

    sequence_number: int
    arrival_ms: int


def short_id(shard_id: str) -> str:
    """Return ``12`` for ``shardId-000000000012``, and any other id as it is."""
    match = _USUAL_ID.match(shard_id)
    return str(int(match[1])) if match else shard_id


def long_id(text: str) -> str:
    """Return the shard id that :func:`short_id` made a text of."""
    return f"shardId-{int(text):012d}" if text.isdigit() else text


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """An offset says how far a query has read a stream, and has the ranges of the batch that ended there."""

    stream_arn: str
    created_s: int
    """The stream's creation time: a stream that was deleted and made again has another."""
    cut_ms: int
    """The time at which the newest batch was cut, by the service's clock; 0 before the first."""
    shards: Mapping[str, ShardPosition] = field(default_factory=dict)
    """The position of each shard, by shard id. Ended shards stay as long as ListShards names them."""
    starts: Mapping[str, RangeStart] = field(default_factory=dict)
    """The first record of each range, by shard id, for the shards that have rows in the batch."""
    tasks: int = 1
    """The most partitions that the batch is divided into: a replay makes the same ones."""
    losses: int = 0
    """Losses, certain or possible, that were passed over since the checkpoint directory was made."""

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical form, ready for ``json.dumps``."""
        return {
            "arn": self.stream_arn,
            "created": self.created_s,
            "cut": self.cut_ms,
            **({"losses": self.losses} if self.losses else {}),
            "shards": dict(sorted((short_id(one), self._encode(one)) for one in self.shards)),
            "tasks": self.tasks,
            "v": FORMAT_VERSION,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Read the canonical form. Raises OffsetFormatError when it is damaged or of a newer format."""
        version = value.get("v")
        if version != FORMAT_VERSION:
            raise OffsetFormatError(
                f"the Spark checkpoint directory holds an offset of format {version!r}; this Shardway reads format "
                f"{FORMAT_VERSION}: use the version that wrote it, or a new checkpoint directory"
            )
        try:
            shards, starts = _decode_shards(value["shards"])
            return cls(
                stream_arn=str(value["arn"]),
                created_s=int(value["created"]),
                cut_ms=int(value["cut"]),
                shards=shards,
                starts=starts,
                tasks=int(value["tasks"]),
                losses=int(value.get("losses", 0)),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise OffsetFormatError(f"a damaged offset in the Spark checkpoint directory: {error!r}") from error

    def _encode(self, shard_id: str) -> str:
        start = self.starts.get(shard_id)
        tail = "" if start is None else f"<{pack(start.arrival_ms)}.{pack(start.sequence_number)}"
        return self.shards[shard_id].encode() + tail

    def unread(self) -> list[str]:
        """Return the ids of the shards that are not read to their ends."""
        return [shard_id for shard_id, position in self.shards.items() if position.kind is not Kind.ENDED]


def is_initial(value: Mapping[str, Any] | None) -> bool:
    """True for the offset before the first batch, which says nothing: the first batch's end carries its starts."""
    return not value or "shards" not in value


INITIAL: dict[str, Any] = {"v": FORMAT_VERSION}
"""The offset before the first batch."""


def _decode_shards(texts: Mapping[str, str]) -> tuple[dict[str, ShardPosition], dict[str, RangeStart]]:
    shards, starts = {}, {}
    for short, text in texts.items():
        shard_id = long_id(short)
        position, _, start = text.partition("<")
        shards[shard_id] = ShardPosition.decode(position)
        if start:
            arrival, _, number = start.partition(".")
            starts[shard_id] = RangeStart(unpack(number), unpack(arrival))
    return shards, starts
