"""A signal wakes tasks of one loop, from any thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Signal:
    """Wakes tasks of one loop, from any thread. A task that waits reads `count` first, and then looks: what is set
    after that is not missed.
    """

    def __init__(self, lock: Any, wake: Callable[[Callable[[], None]], None]) -> None:
        """``wake`` calls a function on the loop of the tasks that wait."""
        self.count = 0
        self._lock: Any = lock
        self._call = wake
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all tasks that wait."""
        with self._lock:
            self.count += 1
            is_awaited = bool(self._waiters)
        if is_awaited:
            self._call(self._wake)

    async def wait(self, seen: int, timeout_s: float | None = None) -> None:
        """Wait until the signal was set since ``seen``, at most ``timeout_s`` seconds."""
        with self._lock:
            if self.count != seen:
                return
            waits = asyncio.get_running_loop().create_future()
            self._waiters.append(waits)
        try:
            await asyncio.wait((waits,), timeout=timeout_s)
        finally:
            with self._lock:
                if waits in self._waiters:
                    self._waiters.remove(waits)

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiters = self._waiters, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
