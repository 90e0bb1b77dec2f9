"""The shards that a consumer holds: each is made ready as the worker begins to hold it, and the program steers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.runtime.feeds.deserializing import Deserializer
from shardway.runtime.shard.reader_context import ReaderContext
from shardway.telemetry.consumer_meter import ShardCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway.model import Position, Record
    from shardway.policies import OrderPolicy
    from shardway.runtime.consumer.lifecycle import Lifecycle
    from shardway.runtime.consumer.metering import Metering
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.shards import Located
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.turns import Turns
    from shardway.runtime.shard.shard_reader import ShardReader


class HeldShards:
    """The shards of one consumer."""

    def __init__(
        self,
        spec: ConsumerSpec,
        placement: Placement,
        turns: Turns,
        lifecycle: Lifecycle,
        metering: Metering,
        *,
        on_reader: Callable[[ShardReader], None] | None,
    ) -> None:
        """``on_reader`` is called with each reader before anything else knows it."""
        self._spec = spec
        self._placement = placement
        self._turns = turns
        self._lifecycle = lifecycle
        self._metering = metering
        self._on_reader = on_reader
        self._order: OrderPolicy | None = None  # It counts only with `has_order`: None is an order that options name.
        self.has_order = False
        """True once a run of handlers has asked for an order, which holds from then on."""
        self._is_paused = False

    def context(self, stream: str, shard_id: str) -> ReaderContext:
        """Return the context of a reader that the worker opens."""
        spec = self._spec
        deserializer: Deserializer[Record] | None = None
        if spec.deserializer is not None:
            deserializer = Deserializer(spec.deserializer, spec.options.unreadable, stream=stream, shard_id=shard_id)
        return ReaderContext(
            host=self._placement.host,
            turns=self._placement.budget.turns,
            deserializer=deserializer,
            counts=ShardCounts(self._metering.meter, stream, shard_id),
            tracer=spec.tracer,
        )

    def hold(self, reader: ShardReader) -> None:
        """Take up a shard that the worker begins to hold."""
        if self._on_reader is not None:
            self._on_reader(reader)
        self._reorder(reader)
        reader.driver.paused = self._is_paused
        self._metering.hold(reader)
        self._turns.hold(reader)
        self._lifecycle.follow(reader)

    def use_order(self, order: OrderPolicy | None) -> None:
        """Deliver in this order: the shards that are held, and those that come later."""
        self._order, self.has_order = order, True
        self._placement.host.ask(self._reorder_all)

    def _reorder_all(self) -> None:
        for reader in list(self._turns.held):
            self._reorder(reader)

    def _reorder(self, reader: ShardReader) -> None:
        if self.has_order:
            reader.use_order(self._order)

    def find(self, shards: Sequence[str | Located]) -> list[ShardReader]:
        """Return shards by id, or by anything that has a stream and a shard's id: a batch, a record, an
        `AssignedShard`; all where none is named. Raises KeyError.
        """
        if not shards:
            return list(self._turns.held)
        return [self.find_one(shard) for shard in shards]

    def find_one(self, shard: str | Located) -> ShardReader:
        """Return one shard. See `find`."""
        readers = [
            reader
            for reader in list(self._turns.held)
            if shard == reader.shard_id
            or (not isinstance(shard, str) and (shard.stream, shard.shard_id) == (reader.stream, reader.shard_id))
        ]
        if len(readers) == 1:
            return readers[0]
        named = shard if isinstance(shard, str) else f"{shard.stream}, {shard.shard_id}"
        if not readers:
            raise KeyError(f"{named}: this consumer does not hold the shard (any more)")
        raise KeyError(f"{named}: several streams have a shard of this id; name it by a batch or AssignedShard")

    def pause(self, *shards: str | Located) -> None:
        """See `Consumer.pause`."""
        self._is_paused = self._is_paused or not shards
        for reader in self.find(shards):
            reader.delivery.pause()

    def resume(self, *shards: str | Located) -> None:
        """See `Consumer.resume`."""
        self._is_paused = self._is_paused and bool(shards)
        for reader in self.find(shards):
            reader.delivery.pause(False)

    def position(self, shard: str | Located) -> Position | None:
        """See `Consumer.position`."""
        reader = self.find_one(shard)
        with self._placement.host.lock:
            return reader.settled.position if reader.settled.is_position else None
