"""Make Ctrl-C and SIGTERM something to wait for: the first asks for an end, the second for an end at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, TypeVar

from shardway.tasks import awaited, drop, give_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
    from typing import Any

T = TypeVar("T")


class StoppedError(Exception):
    """Work was left because the end was asked for."""


class Stopping:
    """Whether, and why, the command is to end before its work is done. It is used on one event loop."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that asked for the end, if one did."""
        self.signalled = asyncio.Event()
        """The event that the first signal sets: the command waits a while for what is under way."""
        self.at_once = asyncio.Event()
        """The event that the second signal sets: the command waits for nothing any more."""
        self._request = asyncio.Event()

    @property
    def asked(self) -> bool:
        """True once the end was asked for."""
        return self._request.is_set()

    def ask(self) -> None:
        """Ask for the end from within the command."""
        self._request.set()

    def on_signal(self, number: signal.Signals) -> None:
        """Take a signal."""
        if self.signal is not None:
            self.at_once.set()
        self.signal = self.signal or number
        self.signalled.set()
        self._request.set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM until the ``with`` block ends. Outside of the main thread Python allows no handlers,
        so nothing is done there.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.on_signal, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def unless_asked(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``. Raises StoppedError, with the work cancelled, when the end is asked for
        first.
        """
        task, asked = awaited(work), awaited(self._request.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise StoppedError
        finally:
            drop(asked)
            if not task.done():
                await give_up(task)

    async def until_asked(self, items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Yield what ``items`` yields, until the end is asked for."""

        async def next_item() -> T:
            return await anext(items)

        while not self.asked:
            try:
                yield await self.unless_asked(next_item())
            except (StopAsyncIteration, StoppedError):
                return
