"""A host on a loop in a thread of its own, which lets go of the host's lock only while it waits."""

from __future__ import annotations

import asyncio
import selectors
import time
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.runtime.threads.host import PING_S, UserLoopHost
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.tasks import on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


T = TypeVar("T")

LONG_ROUND_S = 0.002
GIVE_WAY_S = 0.0001
"""The least time that the loop leaves the lock to others after a round that took longer than `LONG_ROUND_S`."""


class _UnlockingSelector(selectors.DefaultSelector):
    """A loop's selector, which lets go of a lock only while it waits."""

    def __init__(self, lock: Any) -> None:
        super().__init__()
        self._guard = lock
        self._is_held = False
        self._since_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """See `selectors.BaseSelector.select`: this does the same without the lock."""
        if self._is_held:
            self._is_held = False
            self._guard.release()
            if timeout is not None and timeout <= 0 and time.monotonic() - self._since_s > LONG_ROUND_S:
                time.sleep(GIVE_WAY_S)  # Otherwise this thread would have it again before others wake.
        try:
            return super().select(timeout)
        finally:
            self._guard.acquire()
            self._is_held = True
            self._since_s = time.monotonic()

    def close(self) -> None:
        """Close the selector, and let go of the lock: the loop is over."""
        super().close()
        if self._is_held:
            self._is_held = False
            self._guard.release()


class OwnThread(UserLoopHost):
    """The host on a loop in a thread of its own. It is made on the program's loop, where `outside` runs its work."""

    def __init__(self, name: str = "shardway-consumer") -> None:
        user = asyncio.get_running_loop()
        super().__init__(user)
        self._user: asyncio.AbstractEventLoop = user
        self._thread = LoopThread(name, lambda: asyncio.SelectorEventLoop(_UnlockingSelector(self.lock)))

    def soon(self, work: Callable[[], object]) -> bool:
        """See `Host`."""
        if self._thread.is_current():
            work()
            return True
        try:
            self._thread.loop.call_soon_threadsafe(work)
        except RuntimeError:
            if not self._thread.loop.is_closed():
                raise
            return False
        return True

    def ask(self, work: Callable[[], T]) -> T:
        """See `Host`."""
        if self._thread.is_current():
            return work()

        async def call() -> T:
            return work()

        try:
            return self._thread.run(call())
        except RuntimeError:
            if not self._thread.is_closed:
                raise
        return work()  # That loop is no more, and its thread neither.

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See `Host`."""
        if self._thread.is_current():
            return await work()
        return await on_loop(self._thread.loop, work)

    async def outside(self, work: Callable[[], object]) -> object:
        """See `Host`. Raises RuntimeError when that loop is closed."""

        async def call() -> object:
            found = work()
            return await found if isawaitable(found) else found

        return await on_loop(self._user, call)

    async def watch(
        self, longer_than_s: float, report: Callable[[float, bool], None], gone: Callable[[], None]
    ) -> None:
        """Watch the user's loop from the host's loop. ``report`` is called with the seconds that this loop did
        nothing, when there are more than ``longer_than_s``: while it lasts (False), and when it is over (True).
        ``gone`` is called when that loop is closed.
        """
        loop = asyncio.get_running_loop()
        while not self._user.is_closed():
            answered: list[float] = []
            sent_s, is_reported = loop.time(), False
            self.on_user_loop(lambda answered=answered: answered.append(loop.time()))  # type: ignore[misc]
            while not answered and not self._user.is_closed():
                await asyncio.sleep(min(PING_S, longer_than_s) / 4)
                if not answered and not is_reported and loop.time() - sent_s >= longer_than_s:
                    is_reported = self.is_blocked = True
                    report(loop.time() - sent_s, False)
            self.is_blocked = False
            if answered and (is_reported or answered[0] - sent_s >= longer_than_s):
                report(answered[0] - sent_s, True)
            await asyncio.sleep(PING_S)
        gone()

    async def close(self) -> None:
        """See `Host`."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.close)
