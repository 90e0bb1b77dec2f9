"""Virtual time: nothing waits, the time jumps to whatever is due next."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_AT_ONE_TIME_MAX = 1_000_000
"""The number of steps without any time between them above which a program is taken to turn in a circle."""


class Moment:
    """Something that is due at a time; ``cancel`` it, and it does not happen."""

    __slots__ = ("call", "when_s")

    def __init__(self, when_s: float, call: Callable[[], object]) -> None:
        self.when_s = when_s
        self.call: Callable[[], object] | None = call
        """What is called then; None when it was cancelled."""

    def cancel(self) -> None:
        """Let it not happen any more."""
        self.call = None


class VirtualTime:
    """Seconds that pass as soon as nothing is left to be done before them. What is due at one time is done in the
    order in which it was asked for.
    """

    def __init__(self, now_s: float = 0.0, *, steps_max: int = STEPS_AT_ONE_TIME_MAX) -> None:
        """``steps_max``: a program that takes more of them without any time between raises RuntimeError."""
        self.now_s = now_s
        self.steps_max = steps_max
        self._due: list[tuple[float, int, Moment]] = []
        self._asked_count = 0
        self._steps = 0

    def at(self, when_s: float, call: Callable[[], object]) -> Moment:
        """Have ``call`` made at this time, or now if that is past."""
        moment = Moment(max(when_s, self.now_s), call)
        self._asked_count += 1
        heapq.heappush(self._due, (moment.when_s, self._asked_count, moment))
        return moment

    def after(self, delay_s: float, call: Callable[[], object]) -> Moment:
        """Have ``call`` made ``delay_s`` from now."""
        return self.at(self.now_s + delay_s, call)

    def step(self, until_s: float = math.inf) -> bool:
        """Do what is due next, at its time. Return False where nothing is due until ``until_s``."""
        while self._due:
            when_s, _, moment = self._due[0]
            if when_s > until_s:
                return False
            heapq.heappop(self._due)
            call = moment.call
            if call is None:
                continue
            if when_s > self.now_s:
                self.now_s = when_s
                self._steps = 0
            self._steps += 1
            if self._steps > self.steps_max:
                raise RuntimeError(f"at {self.now_s:.6f} s the program turns in a circle: no time passes")
            call()
            return True
        return False

    def run(self, until_s: float) -> None:
        """Do all that is due until ``until_s``, which is the time afterwards."""
        while self.step(until_s):
            pass
        self.now_s = max(self.now_s, until_s)
