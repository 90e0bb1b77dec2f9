"""The rule for tasks and threads: what ends one is heard."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest

from shardway.tasks import NotAskedToEndError, SharedWork, awaited, drop, failure_of, give_up, logged, spawn, thread


async def fails(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def hangs() -> None:
    await asyncio.Event().wait()


async def of_cancelled() -> None:
    """What it waits for is cancelled, and not it."""
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    await waited_for


async def test_what_ends_a_task_is_heard() -> None:
    heard: list[BaseException] = []
    error = RuntimeError("a bug")
    await asyncio.wait((spawn(fails(error), heard.append),))
    assert heard == [error]


async def test_a_task_that_ends_cancelled_unasked_has_failed() -> None:
    heard: list[BaseException] = []
    task = spawn(of_cancelled(), heard.append)
    await asyncio.wait((task,))
    assert task.cancelled()
    assert [type(one) for one in heard] == [NotAskedToEndError]


async def test_a_task_that_is_asked_to_end_or_comes_to_its_end_has_not() -> None:
    heard: list[BaseException] = []
    task = spawn(hangs(), heard.append)
    await asyncio.sleep(0)
    await give_up(task, spawn(asyncio.sleep(0), heard.append))
    assert task.cancelled()
    assert failure_of(task) is None
    assert heard == []


async def test_a_task_is_kept_until_it_is_over() -> None:
    """A loop refers to its tasks weakly, and this one to nothing that the loop refers to."""
    heard: list[BaseException] = []
    spawn(hangs(), heard.append)
    await asyncio.sleep(0)
    gc.collect()
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    await give_up(task)
    assert heard == []


async def test_an_error_of_what_was_dropped_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    """Before it was dropped, and behind that: asyncio has nothing to complain of (`conftest` sees to that)."""

    async def fails_at_the_end() -> None:
        try:
            await hangs()
        finally:
            raise RuntimeError("while it was ended")

    with caplog.at_level(logging.DEBUG, "shardway.tasks"):
        done, other = awaited(fails(RuntimeError("before"))), awaited(fails_at_the_end())
        await asyncio.wait((done,))
        drop(done)
        await give_up(other)
    assert len(caplog.records) == 2


async def test_work_for_several_is_done_once_and_its_error_goes_to_each_of_them() -> None:
    heard: list[BaseException] = []
    calls: list[int] = []

    async def work() -> int:
        calls.append(1)
        await asyncio.sleep(0.01)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        return len(calls)

    shared = SharedWork(work, heard.append)
    found = await asyncio.gather(shared(), shared(), return_exceptions=True)
    assert [str(one) for one in found] == ["a bug"] * 2
    assert heard == []
    assert await shared() == 2


async def test_the_error_is_heard_when_all_have_left() -> None:
    heard: list[BaseException] = []
    goes_on = asyncio.Event()

    async def work() -> None:
        await goes_on.wait()
        raise RuntimeError("a bug")

    shared = SharedWork(work, heard.append)
    waiting = [awaited(shared()) for _ in range(2)]
    await asyncio.sleep(0)
    begun = shared.begin()
    await give_up(*waiting)
    assert shared.begin() is begun
    goes_on.set()
    await asyncio.wait((shared.begin(),))
    assert [str(one) for one in heard] == ["a bug"]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(3)])
def test_what_ends_a_thread_is_heard(error: BaseException) -> None:
    heard: list[BaseException] = []

    def work() -> None:
        raise error

    thread(work, "test", heard.append).join()
    assert heard == [error]


def test_a_handler_that_logs_says_what_and_does_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    done: list[Any] = []
    logged("the clock has stopped", lambda: done.append(threading.get_ident()))(RuntimeError("a bug"))
    assert done == [threading.get_ident()]
    assert caplog.messages == ["the clock has stopped: RuntimeError"]
