"""Waiting for an event, for a while at most; one timer that is set again and again."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def wait_set(event: asyncio.Event, timeout_s: float | None) -> None:
    """Until the event is set, or so long; None: as long as it takes.

    (Python 3.11's ``wait_for`` may lose a cancellation that comes with the event.)
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


def is_cancelled() -> bool:
    """True when the current task is asked to end. Else a CancelledError that it meets is of what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Alarm:
    """Calls a function at the earliest of the times that it was set to since it rang last."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """True while it is to ring."""
        return self._timer is not None

    def at(self, time_s: float) -> None:
        """Ring at this time of the loop's clock, if not before; never at infinity."""
        if math.isinf(time_s):
            return
        if self._timer is not None:
            if self._timer.when() <= time_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(time_s, self._ring)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._call()
