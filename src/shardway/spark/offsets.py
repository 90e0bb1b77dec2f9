"""An offset is what Spark's offset log holds of a stream: how far each shard is read, and where the batch's ranges
began.

The *end* offset of a batch is enough to plan it again: it carries both ends of every range. (Spark does not log the
start of batch 0, and asks for an initial offset again after a crash.) Spark compares offsets as text, so there is one
canonical form: sorted keys, no floats, everything short (10,000 shards, all of them with rows, stay under 1 MB).
As a dict::

    {"v": 1, "arn": ..., "created": epoch s, "cut": epoch ms, "tasks": 2,
     "shards": {"12": "@AZqmjQh7.AqUEw3v…<AZqmjQQX.AqUEw3…", "13": "$AZqmi4GA"}}

A shard has its position, and behind a ``<`` the time and the first record of its range if it has rows in the batch.
Times (milliseconds) and sequence numbers are packed; ``shardway.spark.positions.unpack`` reads them. Shard ids of the
usual form (``shardId-000000000012``) are written as numbers, others as they are. ``"losses": 1`` is there too where
losses were passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardway.errors import ShardwayError
from shardway.spark.positions import Kind, ShardPosition, pack, unpack

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
