"""The end of a consumer: it comes once, whatever asks for it, and what it waits for is reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shardway.events import StopWaits
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.reporter import Reporter
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.turns import Turns
    from shardway.runtime.consumer.worker_run import WorkerRun


STOP_REPORT_S = 1.0
"""The interval of the events that say what a consumer that is being stopped waits for."""
STOP_REPORT_SHARDS_MAX = 10
"""The most shards that such an event names, with the number of their records in flight."""


class Closing:
    """The end of one consumer. It comes once: further calls wait for the same end."""

    def __init__(
        self,
        spec: ConsumerSpec,
        placement: Placement,
        reporter: Reporter,
        turns: Turns,
        run: WorkerRun,
        end: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """``end`` hands over the shards, and ends all parts of the consumer."""
        self._spec = spec
        self._placement = placement
        self._reporter = reporter
        self._turns = turns
        self._run = run
        self._end_parts = end
        self._task: asyncio.Task[None] | None = None

    @property
    def is_begun(self) -> bool:
        """True once the consumer has begun to close."""
        return self._task is not None

    @property
    def is_done(self) -> bool:
        """True once nothing more is delivered."""
        return self.is_begun and not self._run.is_begun

    def begin(self) -> asyncio.Task[None]:
        """Begin to close, once: a signal asks for it, and then the end of the block that it ends."""
        if self._task is None:
            follows = "the error is raised by close(), and leases that are left are free when they expire"
            self._task = spawn(self._close(), self._reporter.on_failure("closing the consumer", follows))
        return self._task

    def abandon(self) -> None:
        """End the consumer, as the user's loop is closed, and this was not: no handler runs any more here, so other
        workers take over.
        """
        failed = self._reporter.on_failure("the end of the consumer", "leases are free when they expire")
        ending = spawn(self._end(), failed)
        ending.add_done_callback(lambda _: asyncio.get_running_loop().stop())

    async def _close(self) -> None:
        host = self._placement.host
        try:
            await host.run(self._end)
        finally:
            await host.close()
            self._turns.stirred.set()

    async def _end(self) -> None:
        failed = self._reporter.on_failure("telling what a stop waits for", "the stop goes on")
        waits = spawn(self._report_waits(), failed)
        try:
            await self._end_parts()
        finally:
            waits.cancel()

    async def _report_waits(self) -> None:
        begun_s = self._placement.now_s
        most_s = self._spec.options.handoff.drain_deadline_s + self._spec.options.times.close_grace_s
        while True:
            await asyncio.sleep(STOP_REPORT_S)
            since_s = self._placement.now_s - begun_s
            held = sorted(
                ((reader.ledger.out, f"{reader.stream}/{reader.shard_id}") for reader in list(self._turns.held)),
                key=lambda one: (-one[0], one[1]),
            )
            self._reporter.emit(
                StopWaits(
                    self._spec.application,
                    len(held),
                    sum(records for records, _ in held),
                    since_s,
                    max(0.0, most_s - since_s),
                    tuple(f"{shard}: {records}" for records, shard in held[:STOP_REPORT_SHARDS_MAX]),
                )
            )
