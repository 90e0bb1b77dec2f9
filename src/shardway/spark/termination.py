"""SIGTERM ends the process of a query's source: Spark sends it without waiting for what comes of it."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Termination:
    """Decides how SIGTERM ends the process of a query's source: Spark sends it without waiting for what comes of it.

    Spark's runner calls ``stop`` only when something is raised, and also when the connection ends, which is at the same
    time: then the signal comes while the last writes to the leases are under way, and must not break them off.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._has_come = False

    def expect(self, stop: Callable[[], None]) -> None:
        """Have the signal raise SystemExit from here on; ``stop`` is called before the process ends in any case."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)
            atexit.register(stop)  # the signal may come in the instant before the runner does it

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let the block run to its end; a signal that came meanwhile counts then."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._has_come and not self._holders:
                self._has_come = False
                sys.exit(0)

    def _handle(self, *_: object) -> None:
        if not self._holders:
            sys.exit(0)
        self._has_come = True


TERMINATION = Termination()
"""The termination of this process."""
