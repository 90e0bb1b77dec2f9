"""A loop whose time jumps: programs run as on any other, at once, and the same each time."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any

import pytest

from shardway.tasks import spawn
from shardway.testing import DeadlockError, RealInputOutputError, VirtualLoop, VirtualTime
from shardway.testing.sim.loop import drop

if TYPE_CHECKING:
    from collections.abc import Coroutine


def run(main: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def ticks(found: list[tuple[float, str]], name: str, every_s: float, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(every_s)
        found.append((asyncio.get_running_loop().time(), name))


def test_a_day_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    began_s = time.perf_counter()
    assert run(main()) == 86_400
    assert time.perf_counter() - began_s < 60


def test_tasks_interleave_by_their_times_and_then_by_their_order() -> None:
    found: list[tuple[float, str]] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ticks(found, "a", 2.0, 3))
            group.create_task(ticks(found, "b", 3.0, 2))

    run(main())
    assert found == [(2.0, "a"), (3.0, "b"), (4.0, "a"), (6.0, "b"), (6.0, "a")]


def test_timeouts_and_cancellations_work_as_ever() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        task = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.get_running_loop().time()

    assert run(main()) == 6.0


def test_an_async_generator_that_is_left_is_closed() -> None:
    closed: list[float] = []

    async def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(1)
            closed.append(asyncio.get_running_loop().time())

    async def main() -> None:
        async for _ in endless():
            break
        await asyncio.sleep(2)

    run(main())
    assert closed == [1.0]


def test_what_never_comes_is_told() -> None:
    async def main() -> None:
        await asyncio.sleep(3)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match=r"at 3\.0+ s everything waits"):
        run(main())


@pytest.mark.parametrize(
    "reach",
    [
        lambda: asyncio.open_connection("127.0.0.1", 1),
        lambda: asyncio.to_thread(time.time),
        lambda: asyncio.create_subprocess_exec("true"),
    ],
)
def test_the_real_world_is_refused(reach: Any) -> None:
    async def main() -> None:
        await reach()

    with pytest.raises(RealInputOutputError):
        run(main())


def test_a_program_that_turns_in_a_circle_is_told() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    def loop() -> VirtualLoop:
        return VirtualLoop(VirtualTime(steps_max=1_000))

    with pytest.raises(RuntimeError, match="turns in a circle"), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


# --- several loops on one time --------------------------------------------------------------------


def test_clocks_differ_and_time_is_one() -> None:
    shared = VirtualTime()
    slow, fast = VirtualLoop(shared, rate=0.5, offset_s=100.0), VirtualLoop(shared, rate=2.0)
    seen: list[tuple[str, float, float]] = []

    async def work(name: str) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            await asyncio.sleep(4)
            seen.append((name, shared.now_s, loop.time()))

    tasks = [slow.create_task(work("slow")), fast.create_task(work("fast"))]
    shared.run(until_s=20)
    assert all(task.done() for task in tasks)
    assert seen == [("fast", 2.0, 4.0), ("fast", 4.0, 8.0), ("slow", 8.0, 104.0), ("slow", 16.0, 108.0)]
    slow.close()
    fast.close()


@pytest.mark.parametrize(("suspended", "clock_s", "slept_s"), [(False, 10.0, 0.0), (True, 1.0, 9.0)])
def test_a_loop_stands_still_while_time_goes_on(suspended: bool, clock_s: float, slept_s: float) -> None:
    shared = VirtualTime()
    loop = VirtualLoop(shared)
    found: list[tuple[float, str]] = []
    task = loop.create_task(ticks(found, "a", 1.0, 2))
    shared.run(until_s=1)
    loop.freeze(suspended=suspended)
    shared.run(until_s=10)
    assert found == [(1.0, "a")]
    loop.thaw()
    assert (loop.time(), loop.slept_s()) == (clock_s, slept_s)
    shared.run(until_s=11)
    assert task.done()
    assert found[1][0] == (2.0 if suspended else 10.0)
    loop.close()


def test_what_a_dropped_task_begins_as_it_ends_is_dropped_without_a_word() -> None:
    shared = VirtualTime()
    loop = VirtualLoop(shared)
    heard: list[BaseException] = []
    made: list[Coroutine[Any, Any, None]] = []

    async def never() -> None:
        heard.append(AssertionError("it has begun"))

    async def work(on: asyncio.AbstractEventLoop | None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            made.append(never())
            spawn(made[-1], heard.append, loop=on)  # without a loop: where none runs any more

    tasks = [spawn(work(None), heard.append, loop=loop), spawn(work(loop), heard.append, loop=loop)]
    shared.run(until_s=1)
    drop(loop, tasks)
    assert [inspect.getcoroutinestate(one) for one in made] == [inspect.CORO_CLOSED] * 2
    assert not heard


def test_what_is_due_together_happens_in_the_order_in_which_it_was_asked_for() -> None:
    shared, found = VirtualTime(), []
    shared.at(5, lambda: found.append("first"))
    gone = shared.at(5, lambda: found.append("never"))
    shared.at(5, lambda: found.append("second"))
    shared.at(2, lambda: shared.after(1, lambda: found.append("early")))
    gone.cancel()
    shared.run(until_s=5)
    assert found == ["early", "first", "second"]
