"""Calls from a thread to a loop, and from a loop to a thread, that wait for what is called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator
    from concurrent.futures import Executor

    from shardway.runtime.threads.loop_thread import LoopThread

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - an item


def on_loop(thread: LoopThread, work: Callable[[], R]) -> R:
    """Do the work on the loop's thread. Raises RuntimeError once that thread has ended."""
    if thread.is_current():
        return work()

    async def ask() -> R:
        return work()

    return thread.run(ask())


def unless_closed(thread: LoopThread, work: Callable[[], R]) -> R | None:
    """Do the work, and return its result; None once the loop has ended, also while this waited for it."""
    try:
        return work()
    except RuntimeError:
        if not thread.is_closed:
            raise
        return None


def each(thread: LoopThread, iterate: Callable[[], AsyncIterator[I]]) -> Generator[I, None, None]:
    """Iterate over what an iteration on the loop gives, one by one. Leaving this iteration leaves that one; it ends
    with the loop.
    """
    found = unless_closed(thread, lambda: on_loop(thread, iterate))
    if found is None:
        return
    try:
        while (item := unless_closed(thread, lambda: thread.run(_next_item(found)))) is not None:
            yield item
    finally:
        unless_closed(thread, lambda: thread.run(_close(found)))


class ThreadExitError(BaseException):
    """An error that a function of the user's raised in its thread and a loop cannot carry: an exit or an interrupt
    would end the loop itself, and with it the leases.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


async def in_thread(pool: Executor, function: Callable[[Any], object], argument: Any) -> None:
    """Call a function in a thread of the pool. Raises what it raises, but ThreadExitError for what is no Exception."""
    error = await asyncio.get_running_loop().run_in_executor(pool, _error_of, function, argument)
    if isinstance(error, Exception):
        raise error
    if error is not None:
        raise ThreadExitError(error)


def _error_of(function: Callable[[Any], object], argument: Any) -> BaseException | None:
    """Return what the function raises: a StopIteration that is raised into a loop's future (Python 3.11) is never heard
    of again.
    """
    try:
        function(argument)
    except BaseException as error:
        return error
    return None


async def _next_item(found: AsyncIterator[I]) -> I | None:
    return await anext(found, None)


async def _close(found: Any) -> None:
    await found.aclose()
