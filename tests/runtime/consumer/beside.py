"""What goes on in a thread beside the workers, until it is ended."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self


class Beside:
    """Takes a turn every so often while its block lasts."""

    def __init__(self, kinesis: Any, turn_s: float) -> None:
        self.kinesis = kinesis
        self._turn_s = turn_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def begin(self) -> None:
        """Before the first turn."""

    def turn(self) -> None:
        """What is done each time."""
        raise NotImplementedError

    def _run(self) -> None:
        self.begin()
        while not self._ending.wait(self._turn_s):
            self.turn()
