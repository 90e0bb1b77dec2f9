"""The watch over the program's event loop: a program that blocks it is reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.events import LoopBlocked
from shardway.runtime.threads.host import PING_S, watch_own
from shardway.runtime.threads.own_thread import OwnThread
from shardway.tasks import spawn

if TYPE_CHECKING:
    from shardway.runtime.consumer.closing import Closing
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.reporter import Reporter
    from shardway.runtime.consumer.spec import ConsumerSpec


class LoopWatch:
    """The watch of one consumer."""

    def __init__(self, spec: ConsumerSpec, placement: Placement, reporter: Reporter, closing: Closing) -> None:
        self._application = spec.application
        self._after_s = spec.options.leases.failover_s / 4
        self._placement = placement
        self._reporter = reporter
        self._closing = closing
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch the program's loop. When it is closed, and the consumer was not, the consumer is abandoned."""
        if self._closing.is_begun:
            return
        host = self._placement.host
        if isinstance(host, OwnThread):
            watching = host.watch(self._after_s, self._report_block, self._closing.abandon)
        else:
            watching = watch_own(self._after_s, self._report_standstill)
        loop = asyncio.get_running_loop()
        failed = self._reporter.on_failure(
            "watching the program's event loop",
            "it is begun again",
            lambda _: loop.call_later(PING_S, self.begin),
        )
        self._task = spawn(watching, failed)

    def end(self) -> None:
        """Watch no more. The watch itself may call this."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _report_block(self, seconds: float, over: bool) -> None:
        follows = "leases, checkpoints and pages go on in a thread of their own"
        self._reporter.emit(LoopBlocked(self._application, seconds, not over, follows))

    def _report_standstill(self, seconds: float) -> None:
        follows = "no lease was renewed and nothing was read meanwhile"
        self._reporter.emit(LoopBlocked(self._application, seconds, False, follows))
