"""SIGTERM and Ctrl-C: the first asks for a stop after the batch, the second for one at once."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """Whether a run is to end. May be asked from any thread."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that asked, if one did."""
        self._asked = threading.Event()
        self._at_once = threading.Event()

    @property
    def asked(self) -> bool:
        """Finish the batch, start no other."""
        return self._asked.is_set()

    @property
    def at_once(self) -> bool:
        """Leave the batch: the next start does it again."""
        return self._at_once.is_set()

    def ask(self) -> None:
        """Ask; asked twice, it ends at once."""
        if self._asked.is_set():
            self._at_once.set()
        self._asked.set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals meanwhile. Outside of the main thread Python allows no handlers: nothing is done there.

        Begin it after Spark's context is there, which takes Ctrl-C for itself.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number)
        self.ask()
