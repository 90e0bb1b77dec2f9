"""Take the signals that end a run: the first SIGTERM or Ctrl-C asks for a stop after the batch, the second for one at
once.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """Says whether a run is to end. Any thread may ask it."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that asked for the end, if one did."""
        self._times_asked = 0

    @property
    def asked(self) -> bool:
        """True where the batch is to be finished, and no other one started."""
        return self._times_asked > 0

    @property
    def at_once(self) -> bool:
        """True where the batch is to be left: the next start does it again."""
        return self._times_asked > 1

    def ask(self) -> None:
        """Ask for the end of the run; asked for twice, it comes at once."""
        # One statement that calls nothing: a signal may come while another one's handler runs. Python's own events have
        # a lock, for which the second handler would wait for ever, as the first one goes on only after it.
        self._times_asked += 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals while the block runs. Outside of the main thread Python allows no handlers: nothing is done
        there.

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
