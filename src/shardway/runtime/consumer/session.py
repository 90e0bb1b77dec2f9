"""The session of a consumer, from its start to its end. `Consumer` and `SyncConsumer` are its two faces."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from shardway.events import StopBegun
from shardway.runtime.consumer.closing import Closing
from shardway.runtime.consumer.figures import Figures
from shardway.runtime.consumer.held_shards import HeldShards
from shardway.runtime.consumer.iterations import Iterations
from shardway.runtime.consumer.lifecycle import Lifecycle
from shardway.runtime.consumer.loop_watch import LoopWatch
from shardway.runtime.consumer.pending_checkpoints import PendingCheckpoints
from shardway.runtime.consumer.placement import Placement
from shardway.runtime.consumer.reporter import Reporter
from shardway.runtime.consumer.seeks import Seeks
from shardway.runtime.consumer.stream_set import StreamSet
from shardway.runtime.consumer.turns import Turns
from shardway.runtime.consumer.worker_run import WorkerRun, new_worker_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.runtime.threads.host import Host


class ConsumerSession:
    """One consumer at work. It belongs to the event loop that `start` runs on.

    The `WorkerRun` shares the shards of the `StreamSet` with other workers. Each shard that comes is made ready by
    `HeldShards`, `Lifecycle` tells the program of it, and `Turns` offers it. The program takes records by `Iterations`.
    """

    def __init__(
        self,
        spec: ConsumerSpec,
        *,
        may_leave_loop: bool = True,
        on_reader: Callable[[ShardReader], None] | None = None,
    ) -> None:
        """``may_leave_loop`` False: the consumer's own work stays on the program's loop, whatever the options say.
        ``on_reader`` is called with the reader of each shard before anything else knows it.
        """
        self.spec = spec
        self._placement = placement = Placement(spec, may_leave=may_leave_loop)
        self._reporter = reporter = Reporter(spec, placement)
        self.streams = streams = StreamSet(spec, placement, reporter)
        self.turns = turns = Turns()
        self._lifecycle = lifecycle = Lifecycle(spec.hooks.callbacks, turns, placement, reporter.emit)
        metering = reporter.metering
        self.shards = shards = HeldShards(spec, placement, turns, lifecycle, metering, on_reader=on_reader)
        self.run = run = WorkerRun(spec, placement, reporter, streams, shards)
        self.figures = Figures(spec, placement, reporter, streams, turns, run)
        self.closing = closing = Closing(spec, placement, reporter, turns, run, self._end)
        self._watch = LoopWatch(spec, placement, reporter, closing)
        self.iterations = Iterations(spec, placement, streams, turns, shards, run, closing)
        self.seeks = Seeks(spec, placement, streams, shards)
        self.checkpoints = PendingCheckpoints(placement, shards)

    @property
    def host(self) -> Host:
        """The host in which the consumer's own work runs."""
        return self._placement.host

    async def start(self) -> None:
        """See `Consumer.start`."""
        if self.run.is_begun or self.closing.is_begun:
            raise RuntimeError("a consumer is started once: make another one")
        self.run.worker_id = self.run.worker_id or new_worker_id()
        self._placement.choose()
        self.turns.move_to(self.host)
        await self.host.run(self._begin)

    async def _begin(self) -> None:
        rng = random.Random() if self.spec.rng is None else self.spec.rng
        await self.streams.open(rng)
        self.run.begin(rng, self.turns.stirred.set)
        if self._placement.is_programs:
            self._watch.begin()
        self.figures.begin()

    async def _end(self) -> None:
        has_failed, options = self.run.has_failed, self.spec.options
        self._watch.end()
        try:
            await self.run.stop()
        finally:
            self.figures.end(failed=has_failed)
            await self._lifecycle.close(min(options.handoff.drain_deadline_s, options.times.close_grace_s))
            await self.streams.close()
            await self.run.close_table()
            self.turns.stirred.set()

    async def close(self) -> None:
        """See `Consumer.close`."""
        self.turns.forget_caller()
        await asyncio.shield(self.closing.begin())

    def close_by_signal(self, signal_name: str) -> None:
        """Emit that a signal has asked for the end, and begin to close."""
        self._reporter.emit(StopBegun(self.spec.application, signal_name))
        self.closing.begin()
