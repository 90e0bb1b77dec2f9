"""The one rule for tasks and threads that run beside the code that started them: none dies unheard.

A task either belongs to the code that makes it (`awaited`): that code awaits it, or asks for its result, on each of its
ways, and ends it by `drop` or `give_up` where it leaves early. Or it goes on by itself (`spawn`), and has a handler
that hears what ended it, emits it, and sees to what follows: the work is begun again, the shard is let go, or the
consumer ends. The same holds for threads (`thread`). Nothing else in the packages makes a task or a thread.

It is an error, too, that a task ends cancelled though it was not asked to: what it waited for was cancelled, and it let
that out. asyncio takes such an end for no failure, and what the task was for would stop in silence.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures.thread  # noqa: F401
import contextlib
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack

from shardway.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

Ts = TypeVarTuple("Ts")
# `concurrent.futures.thread` is imported above, before there is any thread of ours, because its import has each later
# fork take a lock of its own and let go of it. asyncio imports it late, with the first work for a thread of its pool.
# If the main thread forks meanwhile, as PySpark does for Java, the fork lets go of a lock that another thread holds,
# and that thread ends with "RuntimeError: release unlocked lock".
Heard: TypeAlias = "Callable[[BaseException], object]"
"""A function that hears what ended a task or a thread."""


log = logging.getLogger("shardway.tasks")

_running_tasks: set[asyncio.Future[Any]] = set()  # A loop keeps no task alive that nothing else refers to.


class NotAskedToEndError(RuntimeError):
    """A task ended cancelled, though it was not asked to end: something that it waited for was cancelled."""


def awaited(work: Coroutine[Any, Any, T], *, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Task[T]:
    """Begin a task whose error goes to the code that makes it."""
    return _task(work, loop)


def spawn(
    work: Coroutine[Any, Any, T], heard: Heard, *, loop: asyncio.AbstractEventLoop | None = None
) -> asyncio.Task[T]:
    """Begin a task of its own; ``heard`` is called with what ended it, if that was neither its end nor its
    cancelling.
    """
    task = _task(work, loop)
    _running_tasks.add(task)
    task.add_done_callback(partial(_end, heard))
    return task


def forget(loop: asyncio.AbstractEventLoop) -> None:
    """Let go of the tasks of a loop that stopped for good before they ended."""
    _running_tasks.difference_update([task for task in _running_tasks if task.get_loop() is loop])


def _task(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None) -> asyncio.Task[T]:
    try:
        return (loop or asyncio.get_running_loop()).create_task(work)
    except RuntimeError:  # No loop runs any more: the caller hears that.
        work.close()
        raise


def failure_of(task: asyncio.Future[Any]) -> BaseException | None:
    """Return what ended a task that is over; None: it came to its end, or was asked to end."""
    if not task.cancelled():
        return task.exception()
    if not isinstance(task, asyncio.Task) or task.cancelling():
        return None
    return NotAskedToEndError("the task ended cancelled, though it was not asked to: what it waited for was cancelled")


def drop(task: asyncio.Future[Any]) -> None:
    """End a task whose outcome is of no use any more. An error that it ends with all the same, or did before, is a line
    of the log for debugging.
    """
    if task.cancel():
        task.add_done_callback(_note)
    else:
        _note(task)


async def give_up(*tasks: asyncio.Future[Any]) -> None:
    """Drop several tasks (see `drop`), and wait until they have ended."""
    for task in tasks:
        drop(task)
    if tasks:
        await asyncio.wait(tasks)


def logged(what: str, then: Callable[[], object] | None = None) -> Heard:
    """Return a handler that writes a line, ``what`` and the error, and then calls ``then``."""

    def hear(error: BaseException) -> None:
        log.error("%s: %s", what, type(error).__name__, exc_info=error)
        if then is not None:
            then()

    return hear


class SharedWork(Generic[T]):
    """Work that is done once for all callers that wait for it. Its error goes to each of them; where all have left by
    then, to ``heard``. A caller that leaves ends nothing.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], heard: Heard) -> None:
        self._work = work
        self._hear = heard
        self._task: asyncio.Task[T] | None = None
        self._waiter_count = 0

    def begin(self) -> asyncio.Task[T]:
        """Begin the work, unless it is under way; return its task."""
        if self._task is None or self._task.done():
            self._task = spawn(self._work(), self._handle_failure)
        return self._task

    async def __call__(self) -> T:
        """Begin the work, unless it is under way, and wait for it."""
        task = self.begin()
        self._waiter_count += 1
        try:
            await asyncio.wait((task,))
        finally:
            self._waiter_count -= 1
        return task.result()

    async def close(self) -> None:
        """End the work that is under way."""
        if self._task is not None:
            await give_up(self._task)

    def _handle_failure(self, error: BaseException) -> None:
        if not self._waiter_count:
            self._hear(error)


async def on_loop(there: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the loop of another thread, and wait for what it returns or raises. Where this call is
    cancelled, the coroutine is, too. Raises RuntimeError where that loop is closed.

    Nothing is locked between the two. Python's `run_coroutine_threadsafe` has a future with a lock: a signal handler
    that raises on one loop just then leaves it taken, and the other loop would wait for it for ever.
    """
    errand = _Errand(there, work)
    there.call_soon_threadsafe(errand.begin)
    try:
        return await errand.told
    except asyncio.CancelledError:
        errand.leave()
        raise


class _Errand(Generic[T]):
    def __init__(self, there: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work_loop = there
        self._caller_loop = asyncio.get_running_loop()
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._has_left = False
        self.told: asyncio.Future[T] = self._caller_loop.create_future()

    def begin(self) -> None:
        """Begin the work. It is called on the other loop."""
        if self._has_left:
            return
        try:
            self._task = awaited(self._work(), loop=self._work_loop)
            self._task.add_done_callback(self._end)
        except BaseException as error:  # It could not begin, or a signal handler raised.
            self._tell(self.told.set_exception, error)
            raise

    def leave(self) -> None:
        """Leave the work, on the loop of the caller: nothing waits for it any more."""
        self._has_left = True
        with contextlib.suppress(RuntimeError):  # That loop is closed.
            self._work_loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        if self._task is not None:
            drop(self._task)

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._tell(self.told.cancel)
        elif (error := task.exception()) is not None:
            self._tell(self.told.set_exception, error)
        else:
            self._tell(self.told.set_result, task.result())

    def _tell(self, tell: Callable[[Unpack[Ts]], object], *what: *Ts) -> None:
        with contextlib.suppress(RuntimeError):  # That loop is closed, and nothing waits on it.
            self._caller_loop.call_soon_threadsafe(self._unless_told, tell, *what)

    def _unless_told(self, tell: Callable[[Unpack[Ts]], object], *what: *Ts) -> None:
        if not self.told.done():
            tell(*what)


def thread(work: Callable[[], object], name: str, heard: Heard, *, daemon: bool = True) -> threading.Thread:
    """Start a thread at once, and return it; ``heard`` is called, on it, with what ended it."""

    def run() -> None:
        try:
            work()
        except BaseException as error:  # It may be an exit, which Python would pass over in silence.
            heard(error)

    started = threading.Thread(target=run, name=name, daemon=daemon)
    started.start()
    return started


def uninterrupted(work: Callable[[], T]) -> T:
    """Run ``work`` on a thread of its own, and return its result or raise its error.

    Python runs signal handlers on the main thread alone. Where a handler raises there meanwhile, the caller gets that
    error, and the work is done all the same. (`threading.Thread.start` does not bear a handler that raises: the new
    thread may then wait for ever for a lock that stays taken.)
    """
    reply = Reply[T]()

    def run() -> None:
        try:
            reply.set_result(work())
        except BaseException as error:
            reply.set_exception(error)

    _thread.start_new_thread(run, ())
    return reply.result()


def _end(heard: Heard, task: asyncio.Future[Any]) -> None:
    _running_tasks.discard(task)
    if (error := failure_of(task)) is not None:
        heard(error)


def _note(task: asyncio.Future[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, StopAsyncIteration):
        log.debug("an error of work that was given up: %s", type(error).__name__)
