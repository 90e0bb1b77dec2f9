"""The bound on what a producer holds, in bytes, and the callers who wait for room."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    from collections.abc import Callable

    AnyFuture = asyncio.Future[None] | concurrent.futures.Future[None]

F = TypeVar("F", bound="AnyFuture")


class Room:
    """Room for so many bytes. Who asks first gets it first, so that a large record is not overtaken for ever."""

    __slots__ = ("bytes_max", "free", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.free = bytes_max
        self.waiting: deque[tuple[int, AnyFuture]] = deque()

    def take(self, count: int) -> bool:
        """Take so many bytes, if they are free and nobody waits. True if taken."""
        if self.waiting or count > self.free:
            return False
        self.free -= count
        return True

    def ask(self, count: int, make_future: Callable[[], F]) -> F | None:
        """Take so many bytes if they are free, else stand in line: then the future is done when they were taken."""
        if self.take(count):
            return None
        future = make_future()
        self.waiting.append((count, future))
        return future

    def forget(self, count: int, future: AnyFuture) -> None:
        """The caller waits no longer for what it asked for: what it was given meanwhile is free again."""
        if future.done() and not future.cancelled() and future.exception() is None:
            self.give_back(count)
        elif (count, future) in self.waiting:
            self.waiting.remove((count, future))
            self._grant()

    def give_back(self, count: int) -> None:
        """So many bytes are free again."""
        self.free += count
        if self.waiting:
            self._grant()

    def fail_waiting(self, make_error: Callable[[], Exception]) -> None:
        """Nobody gets room any more."""
        while self.waiting:
            _, future = self.waiting.popleft()
            if not future.done():
                future.set_exception(make_error())

    def _grant(self) -> None:
        while self.waiting and self.waiting[0][0] <= self.free:
            count, future = self.waiting.popleft()
            if not future.done():
                self.free -= count
                future.set_result(None)
