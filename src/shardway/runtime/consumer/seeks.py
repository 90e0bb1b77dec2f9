"""Seeks: a shard is read from another place on, for as long as this consumer has it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.options.check import check
from shardway.model import Position, StartingPosition
from shardway.runtime.consumer.arguments import start_of

if TYPE_CHECKING:
    from shardway.runtime.consumer.held_shards import HeldShards
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.shards import Located
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.stream_set import StreamSet
    from shardway.runtime.shard.shard_reader import ShardReader


class Seeks:
    """The seeks of one consumer."""

    def __init__(self, spec: ConsumerSpec, placement: Placement, streams: StreamSet, shards: HeldShards) -> None:
        self._start = spec.options.starting_position
        self._placement = placement
        self._streams = streams
        self._shards = shards

    def seek(self, shard: str | Located, to: Position | StartingPosition) -> None:
        """See `Consumer.seek`."""
        reader = self._shards.find_one(shard)
        to = start_of(to)
        check({"to": to}, {"to": Position | StartingPosition})
        if isinstance(to, StartingPosition):
            after, start = Checkpoint.parse(to.kind), to
        else:
            after, start = Checkpoint.at(to), self._start
        self._placement.host.ask(partial(self._move, reader, after, start))

    def _move(self, reader: ShardReader, after: Checkpoint, start: StartingPosition) -> None:
        # The time in the lease says since when its own place counts, and nothing of the place that is sought. LATEST is
        # the moment of this call: the first call of the feed may come to the service much later.
        stream = self._streams[reader.stream]
        since_ms = stream.start_ms(after) if after == Checkpoint.LATEST else None
        sought = replace(reader.row, checkpoint=after, read_until_ms=since_ms)
        reader.seek(stream.promote(stream.feed(sought, start)), after)
