"""Send numbers now and then to somewhere else, and try again what failed."""

from __future__ import annotations

import asyncio

from shardway.errors import OptionError, ShardwayError
from shardway.tasks import logged, spawn
from shardway.telemetry.exporting import TICK_S, Exporter

CLOSE_SHARE = 0.8
"""The part of the time of a close in which sending goes on; the rest is for ending the thread."""
RETRY_MAX_S = 300.0
"""The longest wait in seconds: a service that does not answer is asked again after one interval, then after twice as
long, and so on.
"""


class Pusher(Exporter):
    """Sends at an interval. After failures it waits longer; what is due meanwhile is kept, or sent with the next."""

    def __init__(self, name: str, *, every_s: float, shards_max: int = 0) -> None:
        super().__init__(name, shards_max=shards_max)
        if not every_s > 0:
            raise OptionError(f"every_s must be more than 0, not {every_s}")
        self.every_s = every_s
        """Seconds between two sendings."""
        self.metrics_interval_s = min(every_s, 5.0)

    async def _work(self) -> None:
        """See `Exporter`."""
        now_s = asyncio.get_running_loop().time
        due_s, failures, sending = now_s() + self.every_s, 0, None
        try:
            while not self._is_closed:
                await asyncio.sleep(TICK_S)
                self._drain()  # also while a service does not answer: the queue is short
                if sending is None:
                    if now_s() >= due_s:
                        sending = spawn(self._try(), logged(f"{self.name}: sending has failed; it is tried again"))
                elif sending.done():
                    failures = 0 if sending.result() else failures + 1
                    wait_s = min(self.every_s * 2 ** min(failures, 10), max(RETRY_MAX_S, self.every_s))
                    due_s, sending = now_s() + wait_s, None
            self._drain()
            async with asyncio.timeout(self._close_s * CLOSE_SHARE):
                if sending is not None:
                    await sending
                await self._try()
        except TimeoutError:
            self._lose(0, "the exporter is closed, and its service does not answer")
        finally:
            if sending is not None:
                sending.cancel()
            await self._leave()

    async def _try(self) -> bool:
        try:
            await self._push()
        except Exception as error:
            self._handle_failure(error)
            return False
        self._works()
        return True

    async def _push(self) -> None:
        """Send what is there. Raises any error of the sending."""

    def _handle_failure(self, error: Exception) -> None:
        """Note that the last sending has failed."""
        self._lose(0, told_of(error))

    async def _leave(self) -> None:
        """Let go of what the sending needed: nothing more is sent."""


def told_of(error: Exception) -> str:
    """Return what may be logged of an error: the message of one of Shardway's errors, or the class of any other."""
    return str(error) if isinstance(error, ShardwayError) else type(error).__name__
