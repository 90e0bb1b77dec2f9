"""The facts that a consumer emits of its shards and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from shardway.events.base import Event

if TYPE_CHECKING:
    from shardway.events.consumer_snapshot import ConsumerSnapshot


class ShardBegun(Event, frozen=True, gc=False):
    """The consumer begins to read a shard."""

    stream: str
    shard_id: str
    token: int
    """The fencing token of its batches."""
    origin: str
    """The way in which the shard came: new, continued, handed over, or taken from a worker that fell silent."""


class ShardLeft(Event, frozen=True, gc=False):
    """The consumer reads a shard no more."""

    stream: str
    shard_id: str
    token: int
    reason: str


class KeysIgnored(Event, frozen=True, gc=False):
    """The stream spreads records over its shards whatever their partition keys are (record distribution AUTO)."""

    stream: str


class ConsumerMetrics(Event, frozen=True):
    """A consumer reports what it did since the event of this kind before, and how far it is."""

    stream: str
    """The stream's name or ARN; of several streams their names, with a comma between them."""
    application: str
    worker_id: str
    snapshot: ConsumerSnapshot


ConsumerEvent: TypeAlias = ShardBegun | ShardLeft | KeysIgnored | ConsumerMetrics
"""The facts that a consumer emits of its shards and streams."""
