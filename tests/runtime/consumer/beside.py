"""What goes on in a thread beside the workers, until it is ended."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self


class Beside(ABC):
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

    def begin(self) -> None:  # noqa: B027
        """Before the first turn, where there is something to do."""

    @abstractmethod
    def turn(self) -> None:
        """What is done each time."""

    def _run(self) -> None:
        self.begin()
        while not self._ending.wait(self._turn_s):
            self.turn()
