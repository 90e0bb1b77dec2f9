"""The facts that the reading of a shard emits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from shardway.events.base import Event

if TYPE_CHECKING:
    from shardway.model import Position


class ReadRefused(Event, frozen=True, gc=False):
    """The shard's limits refused a read: others read it too. It is repeated. Once all reads of a minute were refused,
    its line is a WARNING, one in a minute.
    """

    stream: str
    shard_id: str
    calls_per_s: float
    """The rate at which this reader goes on: it assumes that the others leave this much."""
    retry_in_s: float
    refused_for_s: float = 0.0
    """Seconds since the first of the reads that were refused without one between them that was not."""


class ReadFailed(Event, frozen=True, gc=False):
    """A read failed, for a reason that may pass. It is repeated."""

    stream: str
    shard_id: str
    error_code: str
    """The code of AWS, or the error's class when no answer came."""
    retry_in_s: float
    reason: str
    """The error's message, as a whole."""


class CheckpointTrimmed(Event, frozen=True, gc=False):
    """A shard's checkpoint is older than the stream's retention. Reading goes on at the oldest record left."""

    stream: str
    shard_id: str
    position: Position
    """The checkpoint; or the last record that came, where the reader was cut off for longer than the retention."""
    resumes_at: Position | None
    """The position of the oldest record left; None while there is no record."""
    surely_nothing_lost: bool
    """True when the shard was only silent: it was read to its tip at a time that the retention still covers."""


class AggregatesOutsideRange(Event, frozen=True, gc=False):
    """Aggregates held user records of another shard's hash range: a producer had an old map of the shards."""

    stream: str
    shard_id: str
    aggregates: int
    dropped: int
    """The number of user records that were left out with them; 0 where they are delivered."""


class FanOutLeft(Event, frozen=True, gc=False):
    """A shard is polled for a while, as its subscription does not work."""

    stream: str
    shard_id: str
    reason: str
    return_in_s: float


class FanOutReturned(Event, frozen=True, gc=False):
    """A shard that was polled for a while is read by subscription again."""

    stream: str
    shard_id: str


FeedEvent: TypeAlias = (
    ReadRefused | ReadFailed | CheckpointTrimmed | AggregatesOutsideRange | FanOutLeft | FanOutReturned
)
"""The facts that the reading of a shard emits."""
