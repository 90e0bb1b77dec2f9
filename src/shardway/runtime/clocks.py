"""Time on an event loop: clocks that are steady, an alarm, and pauses for other tasks.

Event loops go by Linux's CLOCK_MONOTONIC, which stands still while the machine is suspended; the clocks of other
machines go on. An owner that wakes up must know at once that its fence has fallen. So leases are judged by
`SteadyClock`, which adds the time of the suspension.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable


@runtime_checkable
class OwnTimeLoop(Protocol):
    """A loop with a time of its own, which passes while its tasks wait and never while they work."""

    def slept_s(self) -> float:
        """Return how many seconds the machine that this loop stands for was suspended."""


NAP_S = 0.005
"""The least time that counts as sleep: differences below it are the time between the reading of two clocks."""

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def _slept_s() -> float:
    """Return how many seconds this machine was suspended since it was started; 0 where no clock shows that."""
    return 0.0 if _BOOT is None else time.clock_gettime(_BOOT) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SteadyClock:
    """Seconds that never stand still and never go back. The loop's timers do stand still in a suspension, so a task
    that waits by them may wake late by this clock.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, slept_s: Callable[[], float] | None = None) -> None:
        """A loop with a time of its own is asked for the time that was slept through, instead of the machine."""
        self._loop_s = loop.time
        if slept_s is None:
            slept_s = loop.slept_s if isinstance(loop, OwnTimeLoop) else _slept_s
        self._slept_s: Callable[[], float] = slept_s
        self._at_first_s = self._slept_s()
        self._since_s = 0.0

    def __call__(self) -> float:
        """Return the time now, in seconds."""
        since_s = self._slept_s() - self._at_first_s
        if since_s > self._since_s + NAP_S:
            self._since_s = since_s
        return self._loop_s() + self._since_s


BUSY_S = 0.005
"""After this many seconds of work without a pause, a task lets others run."""
TURNS = 10
"""The turns that the loop gets after longer work: a step of others (a page, a renewal) takes several."""


class YieldBudget:
    """Lets an event loop run between pieces of work that may never wait for anything themselves."""

    def __init__(self, turns: int = TURNS) -> None:
        self._last_s = float("-inf")
        self._is_rested = False
        self.turns = turns
        """The turns that the loop gets after longer work. Where no other task shares the loop, one is enough."""

    async def take(self) -> None:
        """Let all that is ready run; several times, when the work before took longer."""
        loop = asyncio.get_running_loop()
        # On a loop with a time of its own, time passes while tasks wait and never while they work.
        is_long = loop.time() - self._last_s >= BUSY_S and not isinstance(loop, OwnTimeLoop)
        if is_long or not self._is_rested:
            for _ in range(self.turns if is_long else 1):
                await asyncio.sleep(0)
        self._is_rested = False
        self._last_s = loop.time()

    def rested(self) -> None:
        """Note that the task has just waited for something."""
        self._is_rested = True
        self._last_s = asyncio.get_running_loop().time()

    @property
    def is_due(self) -> bool:
        """True when the work since the last pause took longer than `BUSY_S`."""
        return asyncio.get_running_loop().time() - self._last_s >= BUSY_S


class Alarm:
    """Calls a function once, at the earliest of the times that were set since the last call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """True while the alarm is to ring."""
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

    def rings_by(self, time_s: float) -> bool:
        """True when setting the alarm to this time would change nothing."""
        return math.isinf(time_s) or (self._timer is not None and self._timer.when() <= time_s)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._call()
