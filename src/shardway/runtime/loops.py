"""Event loops that are not simply the caller's: a loop in a thread of its own, for synchronous callers (Spark's driver
and tasks, the synchronous faces), and the place where a consumer's own work runs. The module also has time on a loop:
clocks that are steady, an alarm, and pauses for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import selectors
import threading
import time
from _thread import RLock
from contextvars import ContextVar
from inspect import isawaitable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from shardway.tasks import Reply, awaited, on_loop, thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType


# --- a loop in a thread ---------------------------------------------------------------------------

T = TypeVar("T")
log = logging.getLogger("shardway.runtime")

CALLER: ContextVar[threading.Thread | None] = ContextVar("CALLER", default=None)
"""The thread that asked for what runs on such a loop. None: it is work of the loop's own program."""

CLOSE_TIMEOUT_S = 10.0
"""The seconds for which `LoopThread.close` waits for cancelled work to end."""


class ThreadCall(Generic[T]):
    """Work for the loop that a thread asked for, and what comes of it."""

    def __init__(
        self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, told: Callable[[], object] | None = None
    ) -> None:
        self._work = work
        self._loop = loop
        self._told = told
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        self.reply = Reply[T]()

    def begin(self) -> None:
        """Begin the work. It is called on the loop."""
        if self._is_cancelled:
            self._work.close()
            self._reply_with(asyncio.CancelledError())
            return
        self._task = awaited(self._work, loop=self._loop)
        self._task.add_done_callback(self._over)

    def cancel(self) -> None:
        """Cancel the work: the thread waits no longer."""
        self._is_cancelled = True
        if not self.reply.done():
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _over(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._reply_with(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._reply_with(error)
        else:
            self.reply.set_result(task.result())
            if self._told is not None:
                self._told()

    def _reply_with(self, error: BaseException) -> None:
        self.reply.set_exception(error)
        if self._told is not None:
            self._told()


class LoopThread:
    """Runs coroutines for synchronous callers, from any thread. The thread is a daemon: it never keeps a process alive.
    An exit that is raised in there ends the task that raised it, and not the loop, which others use, too.

    A loop thread is not usable across ``fork``: make one after it. In the process that was forked off, `run` raises
    RuntimeError.
    """

    def __init__(
        self, name: str = "shardway-loop", new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    ) -> None:
        self._process = os.getpid()
        self._loop = new_loop()
        self._changing = threading.Lock()
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = thread(self._serve, name, self._broke)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs in the thread."""
        return self._loop

    @property
    def is_closed(self) -> bool:
        """True once nothing is run any more."""
        return self._closed

    def is_current(self) -> bool:
        """True on the loop's own thread."""
        return threading.get_ident() == self._thread.ident

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run ``work`` on the loop and return its result or raise its error.

        After ``timeout_s`` it is cancelled and TimeoutError raised. An interrupt of the caller (Ctrl-C)
        cancels it too.
        """
        if self.is_current():
            work.close()
            raise RuntimeError("run() was called on the loop's own thread: it would wait for itself")
        asked = self.ask(work)
        try:
            return asked.reply.result(timeout_s)
        except asyncio.CancelledError:
            raise RuntimeError("the loop thread was closed while this ran") from self._failure
        except BaseException:
            asked.cancel()
            raise

    def ask(self, work: Coroutine[Any, Any, T], told: Callable[[], object] | None = None) -> ThreadCall[T]:
        """Run ``work`` on the loop, and do not wait: ``told`` is called there once there is a reply. (The futures of
        Python's `run_coroutine_threadsafe` do not bear a signal handler that raises: see `Reply`.)
        """
        if os.getpid() != self._process:
            work.close()
            raise RuntimeError("the loop thread stayed in the process that this one was forked off: make one here")
        with self._changing:
            # The lock is held here: what is handed over before the loop is stopped is run, or cancelled, by it.
            if self._closed:
                work.close()
                raise RuntimeError("the loop thread is closed") from self._failure
            asks = CALLER.set(threading.current_thread())  # The loop's task begins with a copy of this context.
            try:
                asked = ThreadCall(work, self._loop, told)
                self._loop.call_soon_threadsafe(asked.begin)
            finally:
                CALLER.reset(asks)
        return asked

    def close(self) -> None:
        """Cancel what still runs, end the thread, close the loop. It may be called again."""
        if os.getpid() != self._process:
            return  # The thread is not here.
        with self._changing:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()

    def join(self) -> None:
        """Wait until the thread has ended, after a `close`, which may be another thread's."""
        self._thread.join(CLOSE_TIMEOUT_S)

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while self._turn():
                pass
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._changing:
                self._closed = True
            try:
                self._end_tasks()
            finally:
                self._loop.close()

    def _turn(self) -> bool:
        """Run until the loop is stopped, or an exit comes out of it, as from `sys.exit` in a function of the user's.
        Return True where there is more to run, as after such an exit.
        """
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            message = f"{type(error).__name__} was raised on the thread {threading.current_thread().name}; it goes on"
            self._loop.call_exception_handler({"message": message, "exception": error})
            return not self._closed
        return False

    def _broke(self, error: BaseException) -> None:
        log.critical(
            "the event loop of %s has ended: %s", threading.current_thread().name, type(error).__name__, exc_info=error
        )

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            ended = asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
            self._loop.run_until_complete(ended)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())


# --- a consumer's home ----------------------------------------------------------------------------
# A home is where a consumer's own work runs: leases, checkpoints, pages.
#
# `SameLoop` runs the work on the event loop of the program that uses it. `OwnThread` runs it on a loop in a thread of
# its own, so that it goes on while the user's code blocks the loop that it was called on.
#
# What is apart is guarded by one lock, which that loop holds whenever it does anything: it lets go of it only while it
# waits for sockets and timers. So the thread that holds the lock sees all in a state between two steps, as on one loop.
# A thread outside changes only plain state under the lock (records are delivered and settled); what follows from that
# is left to the loop: `soon`. Nothing of asyncio is touched from another thread.
#
# On one loop the same holds for the threads that settle records: they change plain state under the lock, which that
# loop takes wherever it changes the same.

LONG_ROUND_S = 0.002
GIVE_WAY_S = 0.0001
"""The least time for which the loop lets others have the lock after a round that took longer than `LONG_ROUND_S`."""
PING_S = 0.5
EVENTS_MAX = 10_000
"""The most calls that wait for a user's loop that is blocked."""


class HostLock(RLock):  # type: ignore[misc]
    """The lock of a home. In a process that was forked off it is never to be had: the loop that held it at the fork,
    and would let go of it, is not there. So each call that takes it raises RuntimeError there.

    (It may be derived from, though its types say that it is final. Methods in Python would double what it costs.)
    """


class _InheritedLock(HostLock):  # type: ignore[misc]
    """The lock of a home in a process that was forked off."""

    def _refuse(self, *_: object) -> bool:
        raise RuntimeError(
            f"this consumer, and what it delivered, belong to the process that made it: process {os.getpid()} was "
            "forked off it, and nothing that is settled here counts. Settle there, with what this process returns; or "
            "make a consumer here"
        )

    __enter__ = acquire = _refuse  # type: ignore[assignment]


_locks: WeakSet[HostLock] = WeakSet()


def _after_fork() -> None:
    for lock in list(_locks):
        lock.__class__ = _InheritedLock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def new_lock() -> HostLock:
    """Return a lock that threads share, and forked processes do not."""
    lock = HostLock()
    _locks.add(lock)
    return lock


class Signal:
    """Wakes tasks of one loop, from any thread. A task that waits reads `count` first, and then looks: what is set
    after that is not missed.
    """

    def __init__(self, lock: Any, wake: Callable[[Callable[[], None]], None]) -> None:
        """``wake`` calls a function on the loop of the tasks that wait."""
        self.count = 0
        self._lock: Any = lock
        self._call = wake
        self._waiting: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all tasks that wait."""
        with self._lock:
            self.count += 1
            is_awaited = bool(self._waiting)
        if is_awaited:
            self._call(self._wake)

    async def wait(self, seen: int, timeout_s: float | None = None) -> None:
        """Wait until the signal was set since ``seen``, at most ``timeout_s`` seconds."""
        with self._lock:
            if self.count != seen:
                return
            waits = asyncio.get_running_loop().create_future()
            self._waiting.append(waits)
        try:
            await asyncio.wait((waits,), timeout=timeout_s)
        finally:
            with self._lock:
                if waits in self._waiting:
                    self._waiting.remove(waits)

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


class Host(Protocol):
    """The place where a consumer's work runs. A thread holds ``lock`` while it looks at that work from outside, or
    changes it.
    """

    lock: Any
    is_blocked: bool
    """True while the user's code is known to block its loop."""

    def soon(self, work: Callable[[], object]) -> bool:
        """Do the work in the home: at once, if the caller is there. False: the home is closed, and nothing is done
        there any more.
        """

    def ask(self, work: Callable[[], T]) -> T:
        """Do the work in the home, and return or raise what it does."""

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the home, and return or raise what it does."""

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
        """Close the home: nothing more runs there."""


async def watch_own(told_after_s: float, tell: Callable[[float], None]) -> None:
    """Call ``tell`` with the seconds for which the running loop did nothing, once it goes on, when that was longer than
    ``told_after_s``.
    """
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + PING_S
        await asyncio.sleep(PING_S)
        if (late_s := loop.time() - due_s) >= told_after_s:
            tell(late_s)


class _BesideUser:
    """The part of both homes that knows the program's loop."""

    def __init__(self, user: asyncio.AbstractEventLoop | None) -> None:
        self.lock: Any = new_lock()
        self.is_blocked = False
        self._user = user
        self._user_thread = get_ident()
        self._waiting = 0

    def signal(self) -> Signal:
        """See `Host`."""
        return Signal(self.lock, self.on_user_loop)

    def outside_soon(self, work: Callable[[], object]) -> bool:
        """See `Host`."""
        if get_ident() == self._user_thread:
            work()
            return True
        if self._waiting >= EVENTS_MAX:
            return False
        with self.lock:
            self._waiting += 1

        def call() -> None:
            with self.lock:
                self._waiting -= 1
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


class SameLoop(_BesideUser):
    """The home on the loop of the thread that makes it. Without a loop nothing has begun yet."""

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


class OwnThread(_BesideUser):
    """The home on a loop in a thread of its own. It is made on the user's loop, which `outside` means."""

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

    async def watch(self, told_after_s: float, tell: Callable[[float, bool], None], gone: Callable[[], None]) -> None:
        """Watch the user's loop from the home's loop: ``tell`` hears for how long it did nothing, when that is longer
        than ``told_after_s``: while it lasts (False), and when it is over (True). ``gone`` is called when that loop is
        closed.
        """
        loop = asyncio.get_running_loop()
        while not self._user.is_closed():
            answered: list[float] = []
            sent_s, told = loop.time(), False
            self.on_user_loop(lambda answered=answered: answered.append(loop.time()))  # type: ignore[misc]
            while not answered and not self._user.is_closed():
                await asyncio.sleep(min(PING_S, told_after_s) / 4)
                if not answered and not told and loop.time() - sent_s >= told_after_s:
                    told = self.is_blocked = True
                    tell(loop.time() - sent_s, False)
            self.is_blocked = False
            if answered and (told or answered[0] - sent_s >= told_after_s):
                tell(answered[0] - sent_s, True)
            await asyncio.sleep(PING_S)
        gone()

    async def close(self) -> None:
        """See `Host`."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.close)


# --- time on a loop -------------------------------------------------------------------------------
# Linux's CLOCK_MONOTONIC, by which event loops go, stands still while a machine is suspended; others' clocks do not. An
# owner that wakes must know at once that its fence has fallen, so `SteadyClock` adds the time that was slept through:
# leases are judged by it.

NAP_S = 0.005
"""The least time that counts as sleep: differences below it are the time between the reading of two clocks."""


_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def _slept_s() -> float:
    """Return the seconds for which this machine was suspended since it was started; 0 where no clock shows that."""
    return 0.0 if _BOOT is None else time.clock_gettime(_BOOT) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SteadyClock:
    """Seconds that do not stand still and do not go back. What waits by the loop's timers may wake late by it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slept_s: Callable[[], float] | None = None) -> None:
        """A loop that has a ``slept_s`` of its own is asked for the time slept through, instead of the machine."""
        self._loop_s = loop.time
        if slept_s is None:
            slept_s = getattr(loop, "slept_s", _slept_s)
        self._slept_s: Callable[[], float] = slept_s
        self._at_first_s = self._slept_s()
        self._since_s = 0.0

    def __call__(self) -> float:
        """Return the time now, in seconds."""
        since_s = self._slept_s() - self._at_first_s
        if since_s > self._since_s + NAP_S:
            self._since_s = since_s
        return self._loop_s() + self._since_s


BUSY_S = 0.005
"""The seconds of work without a pause after which others were kept from the loop for long enough."""
TURNS = 10
"""The turns that the loop gets after longer work: a step of others (a page, a renewal) takes several."""


class YieldBudget:
    """Lets an event loop run between pieces of work that may never wait for anything themselves."""

    def __init__(self) -> None:
        self._last_s = float("-inf")
        self._is_rested = False
        self.turns = TURNS
        """The turns that the loop gets after longer work. Where no other task shares the loop, one is enough."""

    async def take(self) -> None:
        """Let all that is ready run; several times, when the work before took longer."""
        loop = asyncio.get_running_loop()
        # Work takes no time where time is virtual.
        is_long = loop.time() - self._last_s >= BUSY_S and not hasattr(loop, "virtual")
        if is_long or not self._is_rested:
            for _ in range(self.turns if is_long else 1):
                await asyncio.sleep(0)
        self._is_rested = False
        self._last_s = loop.time()

    def rested(self) -> None:
        """Note that the task has just waited for something."""
        self._is_rested = True
        self._last_s = asyncio.get_running_loop().time()

    @property
    def is_due(self) -> bool:
        """True when the work since the last pause took longer than `BUSY_S`."""
        return asyncio.get_running_loop().time() - self._last_s >= BUSY_S


class Alarm:
    """Calls a function at the earliest of the times that it was set to since it rang last."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """True while the alarm is to ring."""
        return self._timer is not None

    def at(self, time_s: float) -> None:
        """Ring at this time of the loop's clock, if not before; never at infinity."""
        if math.isinf(time_s):
            return
        if self._timer is not None:
            if self._timer.when() <= time_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(time_s, self._ring)

    def rings_by(self, time_s: float) -> bool:
        """True when setting the alarm to this time would change nothing."""
        return math.isinf(time_s) or (self._timer is not None and self._timer.when() <= time_s)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._call()
