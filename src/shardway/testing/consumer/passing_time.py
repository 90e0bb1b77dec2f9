"""Let time pass on an event loop of asyncio, without waiting for it."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

RESTS_MAX = 10_000
"""The number of turns of the loop that are given to what is ready, before time passes in any case."""
VIRTUAL_STEP_S = 0.05
MOMENT_S = 0.002
VIRTUAL_MOMENT_S = 0.25


class PassingTime:
    """The time of a loop, which can be told to jump.

    It jumps from one timer to the next, so all that is due meanwhile happens at its time and in its order. What waits
    for the outside (a thread, a socket) is not waited for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop
        self._real_s = loop.time
        self._jumped_s = 0.0
        self._is_virtual = hasattr(loop, "virtual")
        self._jumps = not self._is_virtual and _is_of_asyncio(loop)
        if self._jumps:
            loop.time = self._now_s  # type: ignore[method-assign]

    async def pass_time(self, seconds: float) -> None:
        """Let ``seconds`` pass, with all that happens in them. Raises RuntimeError on loops of other kinds."""
        if self._is_virtual:
            await asyncio.sleep(seconds)
            return
        if not self._jumps:
            kind = type(self._loop).__name__
            raise RuntimeError(f"time can be let pass on an event loop of asyncio's own, not on a {kind}")
        end_s = self._loop.time() + seconds
        while (left_s := end_s - self._loop.time()) > 0:
            await self.step(left_s)
        await self._rest()

    async def step(self, seconds_max: float = float("inf")) -> None:
        """Let what is ready be done, then go on to what is due next, by at most ``seconds_max``. On other loops, wait a
        little.
        """
        if not self._jumps:
            await asyncio.sleep(min(VIRTUAL_STEP_S if self._is_virtual else MOMENT_S, seconds_max))
            return
        await self._rest()
        due_s = min((timer.when() for timer in self._loop._scheduled if not timer.cancelled()), default=float("inf"))
        jump_s = min(due_s - self._loop.time(), seconds_max)
        if 0 < jump_s < float("inf"):
            self._jumped_s += jump_s
        await asyncio.sleep(0)

    async def moment(self) -> None:
        """Wait a little, as a clock would have it, before looking again."""
        await asyncio.sleep(VIRTUAL_MOMENT_S if self._is_virtual else MOMENT_S)

    async def _rest(self) -> None:
        """Wait until no other task is ready."""
        for _ in range(RESTS_MAX):
            await asyncio.sleep(0)
            if not self._loop._ready:
                return

    def _now_s(self) -> float:
        return self._real_s() + self._jumped_s


def _is_of_asyncio(loop: asyncio.AbstractEventLoop) -> bool:
    """True for a loop whose clock can be changed, and whose timers can be looked at."""
    return isinstance(loop, asyncio.BaseEventLoop)


_TIMES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, PassingTime] = weakref.WeakKeyDictionary()


def passing_time() -> PassingTime:
    """Return the passing time of the running loop, which is made once for each loop."""
    loop = asyncio.get_running_loop()
    found = _TIMES.get(loop)
    if found is None:
        found = _TIMES[loop] = PassingTime(loop)
    return found
