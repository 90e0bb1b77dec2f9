"""Time that does not jump: an event loop's, and the time for which the machine slept besides. Leases are judged by it.

Linux's CLOCK_MONOTONIC, by which event loops go, stands still while a machine is suspended; others' clocks do not. An
owner that wakes must know at once that its fence has fallen, so the time that was slept through is added.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

NAP_S = 0.005
"""Differences below are the time between the reading of two clocks."""


_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def _slept_s() -> float:
    """For how long this machine was suspended since it was started; 0 where no clock tells."""
    return 0.0 if _BOOT is None else time.clock_gettime(_BOOT) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SteadyClock:
    """Seconds that do not stand still and do not go back. What waits by the loop's timers may wake late by it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slept_s: Callable[[], float] | None = None) -> None:
        """A loop that has a ``slept_s`` of its own is asked, instead of the machine."""
        self._loop_s = loop.time
        if slept_s is None:
            slept_s = getattr(loop, "slept_s", _slept_s)
        self._slept_s: Callable[[], float] = slept_s
        self._at_first_s = self._slept_s()
        self._since_s = 0.0

    def __call__(self) -> float:
        """The time now."""
        since_s = self._slept_s() - self._at_first_s
        if since_s > self._since_s + NAP_S:
            self._since_s = since_s
        return self._loop_s() + self._since_s


class SteadyEpoch:
    """Epoch seconds: this machine's at the first moment, and from there at a steady pace.

    Setting the machine's clock forward or back changes nothing. What that clock was wrong by at first stays.
    """

    def __init__(self, steady: Callable[[], float], wall: Callable[[], float] | None = None) -> None:
        self._steady = steady
        self._ahead_s = (wall or time.time)() - steady()

    def __call__(self) -> float:
        """The time now."""
        return self._steady() + self._ahead_s
