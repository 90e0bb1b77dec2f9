"""The tasks of a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from penstock.tasks import Heard


class Chores:
    """What one of them raises ends the worker, whatever else waits for it."""

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
        """End all of them."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
