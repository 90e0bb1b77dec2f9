"""Cancels a coroutine at its k-th suspension, so that a test can try every one."""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator


class Stepped:
    """Runs a coroutine, and cancels it when it waits for the ``at``-th time (from 0).

    ``late`` false: while it waits. True: when what it waits for has come, but before it could go on.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, *, late: bool) -> None:
        self._work = work
        self._at = at
        self._late = late
        self.reached = False
        """True once it was cancelled."""

    async def run(self) -> Any:
        """Its result. Raises CancelledError when that is what came of it."""
        return await self._steps()

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, Any]:
        step = 0
        fault: BaseException | None = None
        while True:
            try:
                waited = self._work.send(None) if fault is None else self._work.throw(fault)
            except StopIteration as end:
                return end.value
            now, step = step == self._at, step + 1
            self.reached = self.reached or now
            task = asyncio.current_task()
            assert task is not None
            if now and not self._late:
                task.cancel()  # as soon as it waits
            try:
                yield waited
            except BaseException as raised:
                fault = raised
            else:
                fault = asyncio.CancelledError() if now and self._late else None


async def cancelled_at_every_await(
    make: Callable[[], Awaitable[tuple[Coroutine[Any, Any, Any], Callable[[], Awaitable[None]]]]],
    *,
    late: bool,
    steps_max: int = 60,
) -> int:
    """Run what ``make`` gives again and again, cancelled one suspension later each time, until it ends by itself.

    ``make`` gives the coroutine, and what is to be called afterwards. Returns how many suspensions there were.
    """
    for at in range(steps_max):
        before = asyncio.all_tasks()
        work, check = await make()
        stepped = Stepped(work, at, late=late)
        task = asyncio.create_task(stepped.run())
        done, _ = await asyncio.wait((task,), timeout=20)
        assert done, f"hangs when it is cancelled at suspension {at}"
        if stepped.reached:
            assert task.cancelled(), f"swallows the cancellation at suspension {at}"
        else:
            task.result()
        await check()
        assert asyncio.all_tasks() == before, "a task is left behind"
        if not stepped.reached:
            return at
    raise AssertionError(f"more than {steps_max} suspensions")
