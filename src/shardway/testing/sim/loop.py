# ruff: noqa: D102 - the methods of an event loop are documented where asyncio declares them
"""An asyncio event loop in virtual time.

The same program takes the same steps at the same times in each run. Several loops may share one time, each with a
clock of its own: so a fleet of processes runs in one thread, and one of them can stand still or die.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import inspect
import math
import sys
import threading
import weakref
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVarTuple, Unpack

from shardway.tasks import forget
from shardway.testing.sim.loop_options import LoopOptions
from shardway.testing.sim.outside import NoOutside, RealInputOutputError
from shardway.testing.sim.virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
    from contextvars import Context

    from shardway.testing.sim.virtual_time import Moment

Ts = TypeVarTuple("Ts")


class DeadlockError(RuntimeError):
    """Everything waits, and nothing is due any more: what is awaited will never come."""


class VirtualLoop(LoopOptions, NoOutside):
    """An event loop without I/O, for ``asyncio.Runner(loop_factory=VirtualLoop)`` or as one of several on one ``time``.

    Its clock shows ``offset_s`` + ``rate`` · the virtual seconds. A program that awaits what can never come ends with
    DeadlockError; one that asks for a socket, a thread or a process with RealInputOutputError.
    """

    def __init__(self, time: VirtualTime | None = None, *, rate: float = 1.0, offset_s: float = 0.0) -> None:
        if rate <= 0:
            raise ValueError("a clock goes forward: rate is more than 0")
        super().__init__()
        self.virtual = VirtualTime() if time is None else time
        self.rate = rate
        self.offset_s = offset_s
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_asked = 0
        self._turn_at: Moment | None = None
        self._frozen = False
        self._suspended_s: float | None = None
        self._slept_s = 0.0
        self._is_turning = False
        self._stopping = False
        self._is_under_way = False
        self._closed = False
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()

    # --- time -----------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the seconds on this loop's clock."""
        return self.offset_s + self.rate * self.virtual.now_s

    def slept_s(self) -> float:
        """Return how many seconds the clock stood still, as it does in a suspended machine."""
        return self._slept_s

    def freeze(self, *, suspended: bool = False) -> None:
        """Run nothing of this loop while time goes on, as if its process had been stopped; with ``suspended``, as if
        its machine had been, so that its clock stands still too.
        """
        self._frozen = True
        self._suspended_s = self.virtual.now_s if suspended else None

    def thaw(self) -> None:
        """Go on: first with what came meanwhile, then with what is due."""
        if self._frozen and self._suspended_s is not None:
            slept_s = self.rate * (self.virtual.now_s - self._suspended_s)
            self._slept_s += slept_s
            self.offset_s -= slept_s
        self._frozen = False
        self._arm()

    @property
    def frozen(self) -> bool:
        """True between `freeze` and `thaw`."""
        return self._frozen

    def _virtual_s(self, when: float) -> float:
        """Return the virtual time at which this loop's clock shows ``when`` or more."""
        found = (when - self.offset_s) / self.rate
        while self.offset_s + self.rate * found < when:
            found = math.nextafter(found, math.inf)
        return found

    # --- calls ----------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_turning:
            self._arm()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.current_thread() is not threading.main_thread() and not self._is_turning:
            raise RealInputOutputError("a virtual loop takes no calls from other threads: their times are real")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_asked += 1
        heapq.heappush(self._timers, (when, self._timers_asked, handle))
        if not self._is_turning:
            self._arm()
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the timer is dropped when its time comes."""

    # --- turns ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have a turn when there is something to do."""
        if self._frozen or self._closed:
            return
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if self._ready:
            when_s = self.virtual.now_s
        elif timers:
            when_s = self._virtual_s(timers[0][0])
        else:
            return
        if self._turn_at is not None:
            if self._turn_at.when_s <= when_s:
                return
            self._turn_at.cancel()
        self._turn_at = self.virtual.at(when_s, self._turn)

    def _turn(self) -> None:
        """Do what is ready and due, until there is nothing left of it at this time."""
        self._turn_at = None
        if self._frozen or self._closed:
            return
        if events._get_running_loop() is not None:
            raise RuntimeError("a virtual loop cannot run inside of a running loop")
        ready, timers = self._ready, self._timers
        hooks = sys.get_asyncgen_hooks()
        self._is_turning = True
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        done = 0
        try:
            while not self._is_frozen():
                now = self.time()
                while timers and timers[0][0] <= now:
                    handle = heapq.heappop(timers)[2]
                    if not handle.cancelled():
                        ready.append(handle)
                if not ready or (self._stopping and done):
                    break
                for _ in range(len(ready)):
                    if (one := ready.popleft()).cancelled():
                        continue
                    one._run()
                    done += 1
                    if self._is_frozen():
                        break
                if done > self.virtual.steps_max:
                    raise RuntimeError(f"at {now:.6f} s the program turns in a circle: no time passes")
        finally:
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            self._is_turning = False
            self._arm()

    def _is_frozen(self) -> bool:
        """Return whether the loop is frozen now: what runs in a turn may change that."""
        return self._frozen

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.discard(generator)
        if not self._closed:
            self.create_task(generator.aclose())

    # --- life -----------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop`. Other loops on the same time run along."""
        self._check_closed()
        if self._is_under_way or events._get_running_loop() is not None:
            raise RuntimeError("an event loop is running already")
        self._is_under_way, self._stopping = True, False
        try:
            while not self._stopping:
                if not self.virtual.step():
                    raise DeadlockError(f"at {self.time():.6f} s everything waits for what will never come")
        finally:
            self._is_under_way = self._stopping = False

    def run_until_complete(self, future: Generator[Any, None, Any] | Awaitable[Any]) -> Any:
        self._check_closed()
        awaited = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]

        def stop(_: object) -> None:
            self.stop()

        awaited.add_done_callback(stop)
        try:
            self.run_forever()
        except BaseException:
            if awaited.done() and not awaited.cancelled():
                awaited.exception()  # what is raised says it
            raise
        finally:
            awaited.remove_done_callback(stop)
        return awaited.result()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._is_under_way or self._is_turning

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the loop: what is still to be done is dropped."""
        if self._is_turning:
            raise RuntimeError("a running loop cannot be closed")
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        if self._turn_at is not None:
            self._turn_at.cancel()

    def _check_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the loop is closed")

    async def shutdown_asyncgens(self) -> None:
        generators, self._generators = list(self._generators), weakref.WeakSet()
        for one in generators:
            await one.aclose()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""

    # --- tasks ----------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **more: Any,
    ) -> asyncio.Task[Any]:
        self._check_closed()
        if self._task_factory is not None:
            task: asyncio.Task[Any] = self._task_factory(self, coro, name=name, context=context, **more)
            return task
        return asyncio.Task(coro, loop=self, name=name, context=context, **more)


def drop(loop: VirtualLoop, tasks: list[asyncio.Task[Any]]) -> None:
    """Forget a loop that stopped for good, and its unfinished tasks, without a word."""
    dropped: set[asyncio.Task[Any]] = set()
    while tasks:
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        dropped.update(tasks)
        tasks = [task for task in asyncio.all_tasks(loop) if task not in dropped]  # what was closed may have made more
    forget(loop)
    loop.close()


def _close(coroutine: Any) -> None:
    """Close a coroutine, and also what was handed to it, if it never began."""
    handed = []
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        handed = [one for one in inspect.getcoroutinelocals(coroutine).values() if inspect.iscoroutine(one)]
    with contextlib.suppress(BaseException):
        coroutine.close()
    for one in handed:
        _close(one)
