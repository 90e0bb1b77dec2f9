"""A result that comes from another thread.

Python's own futures, events and conditions take their lock in functions of Python's: a signal handler that raises just
then leaves it taken, and the thread that tells the outcome would wait for that lock for ever, with the loop on it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Reply(Generic[T]):
    """A result, or an error, that comes from another thread. One thread waits for it, and the first that is set
    counts.
    """

    __slots__ = ("_arrival", "_error", "_is_done", "_result")

    def __init__(self) -> None:
        self._arrival = threading.Lock()  # It is taken until the reply is set; nothing is done while it is held.
        self._arrival.acquire()
        self._is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """True once the reply is set."""
        return self._is_done

    def set_result(self, result: T) -> None:
        """Set the result."""
        if not self._is_done:
            self._result = result
            self._tell()

    def set_exception(self, error: BaseException) -> None:
        """Set an error: there is no result."""
        if not self._is_done:
            self._error = error
            self._tell()

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the reply. Returns the result, or raises the error, or TimeoutError after ``timeout_s`` seconds."""
        if not self._is_done and not self._arrival.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            raise TimeoutError("there is no answer yet")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _tell(self) -> None:
        self._is_done = True
        with contextlib.suppress(RuntimeError):  # Two threads may set it at the same time.
            self._arrival.release()
