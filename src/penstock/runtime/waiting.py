"""Time on an event loop: a clock that does not stand still, waiting for a while at most, timers, pauses for others; and
what one thread waits for and another one tells.

Linux's CLOCK_MONOTONIC, by which event loops go, stands still while a machine is suspended; others' clocks do not. An
owner that wakes must know at once that its fence has fallen, so `SteadyClock` adds the time that was slept through:
leases are judged by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")

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


async def wait_set(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait until the event is set, at most so long; None: as long as it takes.

    (Python 3.11's ``wait_for`` may lose a cancellation that comes with the event.)
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


LOOKS_AT_ONCE_MAX = 32
"""Calls to a lease table that one task makes side by side."""


async def side_by_side(work: Callable[[T], Awaitable[object]], given: Iterable[T], at_once_max: int) -> None:
    """Do the work with each of the given, for so many at the same time. An error of one holds up no other: when all are
    through, the first error is raised that repeating does not mend, else the first one.
    """
    if not (todo := list(given)):
        return
    left, errors = iter(todo), list[Exception]()

    async def hand() -> None:
        for one in left:
            try:
                await work(one)
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                errors.append(TransportError("no answer came: what was waited for was cancelled"))
                errors[-1].__cause__ = error
            except Exception as error:
                errors.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once_max, len(todo))):
            group.create_task(hand())
    if errors:
        raise next((error for error in errors if not getattr(error, "retryable", False)), errors[0])


def is_cancelled() -> bool:
    """True when the current task is asked to end. Else a CancelledError comes from what the task waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


BUSY_S = 0.005
"""Work of so long without a pause has kept others from the loop for long enough."""
TURNS = 10
"""A step of others (a page, a renewal) takes several turns of the loop; they get so many after longer work."""


class Breath:
    """Lets an event loop run between pieces of work that may never wait for anything themselves."""

    def __init__(self) -> None:
        self._last_s = float("-inf")
        self._is_rested = False
        self.turns = TURNS
        """How many turns the loop gets after longer work. Where no other task shares the loop, one is enough."""

    async def take(self) -> None:
        """Let all that is ready run; several times, when the work before took longer."""
        loop = asyncio.get_running_loop()
        # Where time is virtual, work takes none.
        is_long = loop.time() - self._last_s >= BUSY_S and not hasattr(loop, "virtual")
        if is_long or not self._is_rested:
            for _ in range(self.turns if is_long else 1):
                await asyncio.sleep(0)
        self._is_rested = False
        self._last_s = loop.time()

    def rested(self) -> None:
        """The task has just waited for something."""
        self._is_rested = True
        self._last_s = asyncio.get_running_loop().time()

    @property
    def is_due(self) -> bool:
        """True when the work since the last one took longer."""
        return asyncio.get_running_loop().time() - self._last_s >= BUSY_S


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

    def rings_by(self, time_s: float) -> bool:
        """True when setting it to this time would change nothing."""
        return math.isinf(time_s) or (self._timer is not None and self._timer.when() <= time_s)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._call()


# --- between threads ------------------------------------------------------------------------------
# Python's own futures, events and conditions take their lock in functions of Python's: a signal handler that raises
# just then leaves it taken, and the thread that tells the outcome would wait for that lock for ever, with the loop on
# it.


class Reply(Generic[T]):
    """A result, or an error, that comes from another thread. One thread waits for it, and the first that is told
    counts.
    """

    __slots__ = ("_came", "_error", "_is_done", "_result")

    def __init__(self) -> None:
        self._came = threading.Lock()  # taken until it is told; nothing is done while it is held
        self._came.acquire()
        self._is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """True once it is told."""
        return self._is_done

    def set_result(self, result: T) -> None:
        """Tell the result."""
        if not self._is_done:
            self._result = result
            self._tell()

    def set_exception(self, error: BaseException) -> None:
        """Tell that there is none, and why."""
        if not self._is_done:
            self._error = error
            self._tell()

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for it. Raises what was told, or TimeoutError."""
        if not self._is_done and not self._came.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            raise TimeoutError("there is no answer yet")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _tell(self) -> None:
        self._is_done = True
        with contextlib.suppress(RuntimeError):  # two threads may tell it at the same time
            self._came.release()
