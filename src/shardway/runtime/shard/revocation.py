"""The revocation of a shard: before it goes, the program hears of it through the listeners, and the worker waits for
the end of the drain.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.core.shard.events import RevokingDone, RevokingFailed
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.shard.commands import Drained
    from shardway.runtime.shard.listeners import Listeners


class Revocation:
    """Follows the drains of one shard: at most one goes on at a time."""

    def __init__(
        self,
        listeners: Listeners,
        tell: Callable[[RevokingDone | RevokingFailed], None],
        report_failure: Callable[[str, str, BaseException], None],
    ) -> None:
        """``tell`` takes events of the shard's machine."""
        self._listeners = listeners
        self._tell = tell
        self._report_failure = report_failure
        self._drain_result: asyncio.Future[bool] | None = None

    def begin(self) -> asyncio.Future[bool]:
        """Return a future for the end of the drain that begins: False where the deadline came first."""
        self.call_off()
        self._drain_result = asyncio.get_running_loop().create_future()
        return self._drain_result

    def call_off(self) -> None:
        """Wait for the drain no more: the shard stays."""
        if self._drain_result is not None:
            self._drain_result.cancel()

    def drained(self, given: Drained) -> None:
        """Note that the drain is over."""
        if self._drain_result is not None and not self._drain_result.done():
            self._drain_result.set_result(given.in_time)

    def tell_listeners(self) -> None:
        """Have the listeners tell the program that the shard goes. What they do is cut off when the drain is over."""
        telling = spawn(self._until_told(), self._report)
        if self._drain_result is not None:
            self._drain_result.add_done_callback(lambda _: telling.cancel())

    async def _until_told(self) -> None:
        await self._listeners.leaving()
        self._tell(RevokingDone())

    def _report(self, error: BaseException) -> None:
        """Report the error, and go on: what is settled by now goes with the lease, as at the deadline."""
        self._report_failure("the end of its delivery", "it is handed over with what is settled by now", error)
        self._tell(RevokingFailed())
