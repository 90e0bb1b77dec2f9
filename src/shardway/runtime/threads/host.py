"""The host is where a consumer's own work runs: leases, checkpoints, pages.

`SameLoop` runs the work on the event loop of the program that uses it. `OwnThread` (in `own_thread`) runs it on a loop
in a thread of its own, so that it goes on while the user's code blocks the loop that it was called on.

The work in a thread of its own is guarded by one lock, which that loop holds whenever it does anything: it lets go of
the lock only while it waits for sockets and timers. So the thread that holds the lock sees all in a state between two
steps, as on one loop. A thread outside changes only plain state under the lock (records are delivered and settled);
what follows from that is left to the loop: `soon`. Nothing of asyncio is touched from another thread.

On one loop the same holds for the threads that settle records: they change plain state under the lock, which that loop
takes wherever it changes the same.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shardway.runtime.threads.host_lock import new_lock
from shardway.runtime.threads.signal import Signal
from shardway.tasks import on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


T = TypeVar("T")

PING_S = 0.5
EVENTS_MAX = 10_000
"""The most calls that wait for a user's loop that is blocked."""


class Host(Protocol):
    """The place where a consumer's work runs. A thread holds ``lock`` while it looks at that work from outside, or
    changes it.
    """

    lock: Any
    is_blocked: bool
    """True while the user's code is known to block its loop."""

    def soon(self, work: Callable[[], object]) -> bool:
        """Do the work on the host's loop: at once, if the caller is there. False: the host is closed, and nothing is
        done there any more.
        """

    def ask(self, work: Callable[[], T]) -> T:
        """Do the work in the host, and return or raise what it does."""

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the host, and return or raise what it does."""

    async def outside(self, work: Callable[[], object]) -> object:
        """Call a function of the user's on the user's loop, and return its result, awaited where that can be."""

    def outside_soon(self, work: Callable[[], object]) -> bool:
        """Call a function of the user's on the user's loop, and do not wait. False: too many calls wait there
        already.
        """

    def on_user_loop(self, work: Callable[[], object]) -> None:
        """Call a function on the user's loop, however many wait; do not wait. Nothing happens when that loop is
        closed.
        """

    def signal(self) -> Signal:
        """Return a signal for tasks of the user's loop."""

    async def close(self) -> None:
        """Close the host: nothing more runs there."""


async def watch_own(longer_than_s: float, report: Callable[[float], None]) -> None:
    """Call ``report`` with the seconds that the running loop did nothing, once it goes on, when there were more
    than ``longer_than_s``.
    """
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + PING_S
        await asyncio.sleep(PING_S)
        if (late_s := loop.time() - due_s) >= longer_than_s:
            report(late_s)


class UserLoopHost:
    """The part of both hosts that knows the program's loop."""

    def __init__(self, user: asyncio.AbstractEventLoop | None) -> None:
        self.lock: Any = new_lock()
        self.is_blocked = False
        self._user = user
        self._user_thread = get_ident()
        self._waiting_count = 0

    def signal(self) -> Signal:
        """See `Host`."""
        return Signal(self.lock, self.on_user_loop)

    def outside_soon(self, work: Callable[[], object]) -> bool:
        """See `Host`."""
        if get_ident() == self._user_thread:
            work()
            return True
        if self._waiting_count >= EVENTS_MAX:
            return False
        with self.lock:
            self._waiting_count += 1

        def call() -> None:
            with self.lock:
                self._waiting_count -= 1
            work()

        self.on_user_loop(call)
        return True

    def on_user_loop(self, work: Callable[[], object]) -> None:
        """See `Host`. When that loop is closed, no task waits there."""
        self._hand_over(work)

    def _hand_over(self, work: Callable[[], object]) -> bool:
        if self._user is None:  # Nothing has begun yet.
            work()
            return True
        try:
            self._user.call_soon_threadsafe(work)
        except RuntimeError:
            if not self._user.is_closed():
                raise
            return False
        return True


class SameLoop(UserLoopHost):
    """The host on the loop of the thread that makes it. Without a loop nothing has begun yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(loop)

    def soon(self, work: Callable[[], object]) -> bool:
        """See `Host`."""
        if get_ident() == self._user_thread:
            work()
            return True
        return self._hand_over(work)

    def on_user_loop(self, work: Callable[[], object]) -> None:
        """See `Host`."""
        self.soon(work)

    def ask(self, work: Callable[[], T]) -> T:
        """See `Host`. Raises RuntimeError on another thread, which may be one that the loop waits for."""
        if get_ident() != self._user_thread:
            raise RuntimeError(
                "this was called on another thread than the consumer's event loop: hand it over with "
                "loop.call_soon_threadsafe, or use a SyncConsumer, whose calls any thread may make"
            )
        return work()

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See `Host`."""
        if self._user is None or asyncio.get_running_loop() is self._user:
            return await work()
        return await on_loop(self._user, work)

    async def outside(self, work: Callable[[], object]) -> object:
        """See `Host`."""
        found = work()
        return await found if isawaitable(found) else found

    async def close(self) -> None:
        """See `Host`."""
