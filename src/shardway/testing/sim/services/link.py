"""The network of a simulation: calls take time, get lost, come late, are done and not answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.errors import ThrottledError, TransportError, UnavailableError
from shardway.testing.sim.plan import Way

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from shardway.testing.sim.loop import VirtualLoop
    from shardway.testing.sim.plan import Noise
    from shardway.testing.sim.virtual_time import VirtualTime

T = TypeVar("T")

DELAY_S = (0.001, 0.012)
SLOW_CALLS = 0.005
SLOW_DELAY_S = (0.1, 0.8)
"""Seconds that a few calls take, which are much slower, also on the best of days."""
LATE_S = (3.0, 25.0)


class Link:
    """One process's connection to one service. Its faults are ``cut``, and ``noises`` that add up."""

    def __init__(self, name: str, loop: VirtualLoop, rng: random.Random) -> None:
        self.name = name
        self.loop = loop
        self.cut: Way | None = None
        self.noises: list[Noise] = []
        self.arrives_until_s = 0.0
        """The time at which the last of the calls that were sent arrives, also of a process that is gone."""
        self.closed = False
        """True where the process is gone and hears no answer any more; what it sent still arrives."""
        self._time: VirtualTime = loop.virtual
        self._rng = rng

    def reads_at_s(self) -> float:
        """Return the time of the state that a read which is not consistent shows: by chance now, or a moment ago."""
        now_s = self._time.now_s
        frozen = [noise.at_s for noise in self.noises if noise.frozen]
        if frozen:
            return min(*frozen, now_s)
        stale_s = max((noise.stale_s for noise in self.noises), default=0.0)
        return now_s - self._rng.choice([0.0, self._rng.uniform(0.0, stale_s)]) if stale_s else now_s

    async def call(self, do: Callable[[], T], timeout_s: float) -> T:
        """Have ``do`` done on the other side, and its result or error brought back.

        Raises TransportError when no answer comes, and what the service answers.
        """
        future: asyncio.Future[T] = self.loop.create_future()
        self._send(do, future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TransportError(f"no answer from the {self.name} within {timeout_s:g} s") from None

    def _send(self, do: Callable[[], T], future: asyncio.Future[T]) -> None:
        if self.cut is Way.REFUSED:
            refused = TransportError(f"no connection to the {self.name}")
            refused.sent = False
            self._deliver(future, None, refused)
        elif self.cut is Way.SILENT:
            return
        elif self.happens("request_lost"):
            self._lose(future)
        else:
            delay_s = self.delay_s() + (self._rng.uniform(*LATE_S) if self.happens("late") else 0.0)
            self.arrives_until_s = max(self.arrives_until_s, self._time.now_s + delay_s)
            self._time.after(delay_s, lambda: self._arrive(do, future))

    def _arrive(self, do: Callable[[], T], future: asyncio.Future[T]) -> None:
        if self.cut is Way.SILENT:
            return
        result: Any = None
        error: Exception | None = None
        if self.happens("throttled"):
            error = ThrottledError("ThrottlingException", "Rate exceeded")
        else:
            failed = self.happens("failed")
            if not failed or self._rng.random() < 0.5:
                result, error = _run_caught(do)
                if self.happens("twice"):
                    result, error = _run_caught(do)
            if failed:
                error = UnavailableError("InternalServerError", "The service failed", status=500)
        self._time.after(self.delay_s(), lambda: self._answer(future, result, error))

    def _answer(self, future: asyncio.Future[T], result: Any, error: Exception | None) -> None:
        if self.cut in (Way.SILENT, Way.ANSWERS):
            return
        if self.happens("answer_lost"):
            self._lose(future)
        else:
            self._deliver(future, result, error)

    def _lose(self, future: asyncio.Future[T]) -> None:
        """Lose a call or its answer: half of what is lost breaks the connection, which is noticed; the rest is waited
        for.
        """
        if self._rng.random() < 0.5:
            self._deliver(future, None, TransportError(f"the connection to the {self.name} was reset"))

    def _deliver(self, future: asyncio.Future[T], result: Any, error: Exception | None) -> None:
        if not self.closed and not self.loop.is_closed():
            self.loop.call_soon(_settle, future, result, error)

    def happens(self, what: str) -> bool:
        """Draw whether a fault of this name happens now."""
        for noise in self.noises:
            chance = getattr(noise, what)
            if chance and self._rng.random() < chance:
                return True
        return False

    def delay_s(self) -> float:
        """Draw the seconds that something is on its way."""
        rng = self._rng
        delay_s = rng.uniform(*(SLOW_DELAY_S if rng.random() < SLOW_CALLS else DELAY_S))
        for noise in self.noises:
            delay_s *= noise.slower
        return delay_s


def _run_caught(do: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return do(), None
    except Exception as error:
        return None, error


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
