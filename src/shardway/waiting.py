"""Wait for an event, and for calls side by side; and let a long piece of work go on in parts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, TypeVar

from shardway.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

T = TypeVar("T")
G = TypeVar("G")

PART_S = 0.05
"""How many seconds a thread goes on with a long piece of work before others have their turn."""


async def wait_set(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait until the event is set, at most ``timeout_s`` seconds; None: as long as it takes.

    (Python 3.11's ``wait_for`` may lose a cancellation that comes with the event.)
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


LOOKS_AT_ONCE_MAX = 32
"""The most calls to a lease table that one task makes side by side."""


async def side_by_side(work: Callable[[T], Awaitable[object]], given: Iterable[T], at_once_max: int) -> None:
    """Do the work with each of the given, for at most ``at_once_max`` at the same time. An error of one holds up no
    other: when all are through, the first error is raised that repeating does not mend, else the first error.
    """
    if not (todo := list(given)):
        return
    left, errors = iter(todo), list[Exception]()

    async def hand() -> None:
        for one in left:
            try:
                await work(one)
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                errors.append(TransportError("no answer came: what was waited for was cancelled"))
                errors[-1].__cause__ = error
            except Exception as error:
                errors.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once_max, len(todo))):
            group.create_task(hand())
    if errors:
        raise next((error for error in errors if not getattr(error, "retryable", False)), errors[0])


def next_part(left: Iterator[G], look: Callable[[G], T], *, most: int | None = None) -> list[T]:
    """Return what ``look`` makes of the next items, as many as `PART_S` lets it look at and at most ``most``; an empty
    list: there are no more. A thread does a long piece of work so: other threads have their turn between two parts, and
    a caller that is cancelled waits for no more than one.
    """
    found: list[T] = []
    end_s = time.monotonic() + PART_S
    for one in left:
        found.append(look(one))
        if len(found) == most or time.monotonic() >= end_s:
            break
    return found


def is_cancelled() -> bool:
    """True when the current task is asked to end. Otherwise a CancelledError comes from what the task waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
