"""The service's clock shows the machine's time, which a test can move on, or a time that only a test moves."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


SET_BACK_S = 1.0
"""Seconds. When the machine's clock is set back by more than this, the service's clock goes on from where it was."""


class VirtualClock:
    """Epoch seconds for the service: arrival times, iterator expiry, retention, the ``Date`` header.

    ``start_s`` is where the clock begins (None: the machine's time). It runs as the machine's clock does, adjustments
    included, so that a client on this machine finds the times it expects; but it never goes back. With
    ``running=False`` only :meth:`advance` moves it. Any thread may use it.
    """

    def __init__(
        self, start_s: float | None = None, *, running: bool = True, machine: Callable[[], float] = time.time
    ) -> None:
        self._machine = machine if running else lambda: 0.0
        begin = machine() if start_s is None else start_s
        self._ahead_s = begin - self._machine()
        self._last_s = begin
        self._lock = threading.Lock()
        self._listeners: list[Callable[[float], None]] = []

    def now(self) -> float:
        """The service's time in seconds since the epoch."""
        now = self._machine() + self._ahead_s
        if now >= self._last_s:
            self._last_s = now
        elif now < self._last_s - SET_BACK_S:
            with self._lock:
                self._ahead_s += max(0.0, self._last_s - (self._machine() + self._ahead_s))
        return self._last_s

    __call__ = now

    def advance(self, seconds: float) -> float:
        """Move the clock forward, and return the new time. What is due by then happens now."""
        if seconds < 0:
            raise ValueError("the service's clock does not go back")
        with self._lock:
            self._ahead_s += seconds
        for listener in list(self._listeners):
            listener(seconds)
        return self.now()

    def on_advance(self, listener: Callable[[float], None]) -> None:
        """Have ``listener`` called (in the advancing thread) after each move, with its seconds."""
        self._listeners.append(listener)
