"""Tasks that run beside the reading of a stream: a failure becomes an event, and a worker ends all tasks that
it began.
"""

from __future__ import annotations

import asyncio
import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from shardway.core.ledger.ledger_events import named
from shardway.events import TaskFailed
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from shardway.tasks import Heard


def emits_failure(
    on_event: Callable[[Any], None],
    where: tuple[str, str | None],
    work: str,
    what_follows: str,
    then: Callable[[BaseException], object] | None = None,
) -> Heard:
    """Return a handler for a task (`shardway.tasks.spawn`) that emits `TaskFailed`, and then calls ``then``. ``where``:
    the stream and the shard.
    """

    def hear(error: BaseException) -> None:
        try:
            on_event(TaskFailed(*where, work, named(error), _deepest_line(error), what_follows))
        finally:
            if then is not None:
                then(error)

    return hear


def _deepest_line(error: BaseException) -> str:
    """Return the deepest line of an error's traceback. The message is left out: it may be a record's."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return f"{PurePath(frames[-1][0].f_code.co_filename).name}:{frames[-1][1]}" if frames else "not raised"


class Chores:
    """The tasks of a worker. An error that one of them raises ends the worker, whatever else waits for it."""

    def __init__(self, failed: Heard) -> None:
        """``failed`` hears what ended a task, and what a part of the worker says has failed."""
        self.failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task."""
        task: asyncio.Task[Any] = spawn(work, self.failed)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self) -> None:
        """End all tasks."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
