"""Where a consumer's own work runs: on the loop of the program, or apart from it."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardway.runtime.threads import host
from shardway.runtime.threads.host import SameLoop
from shardway.runtime.threads.own_thread import OwnThread
from shardway.runtime.threads.signal import Signal
from tests.interrupting import ROOT, TASKS, THREADS, InterruptedAt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_S = 30.0


@pytest.fixture
async def apart() -> AsyncIterator[OwnThread]:
    made = OwnThread("tests-home")
    yield made
    await made.close()


async def thread() -> int:
    return threading.get_ident()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- on one loop ----------------------------------------------------------------------------------


async def test_here_all_runs_at_once_and_on_the_loop_that_is_there() -> None:
    here, done = SameLoop(), list[str]()
    here.soon(lambda: done.append("soon"))
    assert here.outside_soon(lambda: done.append("outside soon"))
    here.on_user_loop(lambda: done.append("user"))
    assert done == ["soon", "outside soon", "user"]
    assert here.ask(threading.get_ident) == await here.run(thread) == threading.get_ident()
    assert await here.outside(lambda: 1) == 1
    assert await here.outside(thread) == threading.get_ident()
    await here.close()


# --- apart ----------------------------------------------------------------------------------------


async def test_work_apart_runs_in_one_thread_of_its_own(apart: OwnThread) -> None:
    other = await apart.run(thread)
    assert other != threading.get_ident()
    assert apart.ask(threading.get_ident) == other
    heard = asyncio.get_running_loop().create_future()
    user = asyncio.get_running_loop()
    apart.soon(lambda: user.call_soon_threadsafe(heard.set_result, threading.get_ident()))
    assert await heard == other


async def test_work_that_is_there_already_runs_at_once(apart: OwnThread) -> None:
    async def there() -> list[Any]:
        done = list[Any]()
        apart.soon(lambda: done.append("soon"))
        done.append(apart.ask(lambda: "asked"))
        done.append(await apart.run(thread) == threading.get_ident())
        return done

    assert await apart.run(there) == ["soon", "asked", True]


async def test_what_work_apart_raises_comes_to_the_caller(apart: OwnThread) -> None:
    def fails() -> None:
        raise LookupError("of the work")

    async def fails_too() -> None:
        fails()

    with pytest.raises(LookupError, match="of the work"):
        apart.ask(fails)
    with pytest.raises(LookupError, match="of the work"):
        await apart.run(fails_too)


async def test_a_function_of_the_users_runs_on_the_users_loop_and_its_answer_and_error_come_back(
    apart: OwnThread,
) -> None:
    async def fails() -> None:
        raise LookupError("of the user's")

    assert await apart.run(lambda: apart.outside(thread)) == threading.get_ident()
    assert await apart.run(lambda: apart.outside(threading.get_ident)) == threading.get_ident()
    with pytest.raises(LookupError, match="of the user's"):
        await apart.run(lambda: apart.outside(fails))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_what_waits_for_work_apart_is_interrupted_at_any_moment() -> None:
    """By a signal handler that raises on the main thread, in the middle of Python's own code for threads as well: the
    loop apart goes on.
    """
    at, reached = 0, "-"

    async def main(at: int) -> str:
        made = OwnThread("tests-home")
        asyncio.get_running_loop().set_exception_handler(lambda _, context: None)  # it tells of what the handler raised
        interruption = InterruptedAt(
            at,
            within=(f"{ROOT}/runtime/threads/", *TASKS, *THREADS),
        )

        async def work() -> None:
            await made.run(thread)
            await made.run(lambda: made.outside(thread))

        waiting = asyncio.create_task(work())
        with interruption.listening():
            while not waiting.done() and not interruption.reached:
                await asyncio.sleep(0)
        for _ in range(3):
            assert made._thread.run(thread(), PATIENCE_S) == made._thread._thread.ident, interruption.reached
        waiting.cancel()
        await asyncio.wait((waiting,))
        if not waiting.cancelled() and not interruption.reached:
            waiting.result()
        await made.close()
        return interruption.reached

    while reached:
        reached = asyncio.run(main(at))
        at += 1
    gc.collect()  # a coroutine that was made, and not begun before the signal came, warns: here, not later
    assert at > 20


async def test_events_that_wait_for_a_users_loop_that_is_blocked_are_bounded(
    apart: OwnThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "EVENTS_MAX", 3)
    heard = list[int]()
    # `ask` blocks this loop, so nothing of what waits for it can run meanwhile.
    taken = apart.ask(lambda: [apart.outside_soon(partial(heard.append, number)) for number in range(5)])
    assert (taken, heard) == ([True, True, True, False, False], [])
    await turns()
    assert heard == [0, 1, 2]
    assert apart.ask(lambda: apart.outside_soon(lambda: heard.append(5)))
    await turns()
    assert heard[-1] == 5
    assert apart.outside_soon(lambda: heard.append(threading.get_ident()))  # on the user's own thread: at once
    assert heard[-1] == threading.get_ident()


async def test_a_thread_that_holds_the_lock_sees_nothing_change(apart: OwnThread) -> None:
    steps, go = list[int](), threading.Event()

    async def steps_on() -> None:
        while not go.is_set():
            steps.append(1)
            await asyncio.sleep(0)

    running = asyncio.ensure_future(apart.run(steps_on))
    async with asyncio.timeout(PATIENCE_S):
        while not steps:
            await asyncio.sleep(0)
    for _ in range(50):
        with apart.lock:
            before = len(steps)
            sum(range(20_000))
            assert len(steps) == before
    go.set()
    await running


async def test_after_the_close_nothing_runs_there_and_a_caller_that_asks_has_it_done_here() -> None:
    closed = OwnThread("tests-home")
    await closed.close()
    closed.soon(lambda: pytest.fail("it is closed"))
    assert closed.ask(threading.get_ident) == threading.get_ident()


async def test_a_block_of_the_users_loop_is_told_while_it_lasts_and_when_it_is_over(apart: OwnThread) -> None:
    told, lasts, over = list[tuple[float, bool]](), threading.Event(), asyncio.Event()
    user = asyncio.get_running_loop()

    def tell(seconds: float, is_over: bool) -> None:
        told.append((seconds, is_over))
        if is_over:
            user.call_soon_threadsafe(over.set)
        else:
            assert apart.is_blocked
            lasts.set()

    tasks = list[asyncio.Task[None]]()
    apart.soon(lambda: tasks.append(asyncio.get_running_loop().create_task(apart.watch(0.05, tell, lambda: None))))
    assert lasts.wait(PATIENCE_S)  # this blocks the loop, until that is told
    async with asyncio.timeout(PATIENCE_S):
        await over.wait()
    assert not apart.is_blocked
    assert [is_over for _, is_over in told[:2]] == [False, True]
    assert 0.05 <= told[0][0] <= told[1][0]
    apart.ask(tasks[0].cancel)


def test_that_the_users_loop_is_closed_is_noticed_and_work_goes_on_apart_till_then() -> None:
    gone = threading.Event()

    async def leaves() -> OwnThread:
        left = OwnThread("tests-home")
        left.soon(lambda: tasks.append(asyncio.get_running_loop().create_task(left.watch(0.05, tell, gone.set))))
        return left

    def tell(seconds: float, is_over: bool) -> None:
        """A block may be told or not."""

    tasks = list[asyncio.Task[None]]()
    left = asyncio.run(leaves())
    assert gone.wait(PATIENCE_S)
    left.on_user_loop(lambda: pytest.fail("that loop is closed"))
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(left.outside(lambda: None))
    asyncio.run(left.close())


# --- signals --------------------------------------------------------------------------------------


async def test_a_signal_that_comes_between_the_look_and_the_wait_is_not_missed() -> None:
    signal = SameLoop().signal()
    seen = signal.count
    signal.set()
    await signal.wait(seen)


async def test_a_signal_wakes_all_that_wait_from_whichever_thread(apart: OwnThread) -> None:
    signal = apart.signal()
    waiting = [asyncio.create_task(signal.wait(signal.count)) for _ in range(3)]
    await turns()
    apart.ask(signal.set)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting)
    assert signal._waiters == []


async def test_one_that_waits_no_more_is_forgotten() -> None:
    wakes = list[Any]()
    signal = Signal(threading.RLock(), wakes.append)
    await signal.wait(signal.count, timeout_s=0)
    waiting = asyncio.create_task(signal.wait(signal.count))
    await turns()
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert signal._waiters == []
    signal.set()
    assert wakes == []
