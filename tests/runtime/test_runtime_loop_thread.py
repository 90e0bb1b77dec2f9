"""A loop in a thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import contextvars
import os
import selectors
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from shardway.runtime.threads.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    with LoopThread() as running:
        yield running


async def where() -> tuple[int, asyncio.AbstractEventLoop]:
    return threading.get_ident(), asyncio.get_running_loop()


def test_work_runs_on_its_loop_and_thread(thread: LoopThread) -> None:
    ident, loop = thread.run(where())
    assert ident != threading.get_ident()
    assert loop is thread.loop


def test_many_threads_may_use_it(thread: LoopThread) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: thread.run(double(number)), range(100))) == [2 * n for n in range(100)]


def test_errors_come_back(thread: LoopThread) -> None:
    async def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        thread.run(fail())


def test_work_that_takes_too_long_is_cancelled(thread: LoopThread) -> None:
    began, ended = threading.Event(), threading.Event()

    async def stay() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    for timeout_s in (0.01, 0.1, 1.0, 10.0):  # what did not begin in time never does
        with pytest.raises(TimeoutError):
            thread.run(stay(), timeout_s=timeout_s)
        if began.is_set():
            break
    assert ended.wait(10)


def test_closing_cancels_what_runs() -> None:
    thread = LoopThread()
    began, cleaned = threading.Event(), threading.Event()

    async def stay() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thread.run, stay())
        assert began.wait(10)
        thread.close()
        with pytest.raises(RuntimeError, match="closed while this ran"):
            waiting.result(10)
    assert cleaned.is_set()
    assert thread.loop.is_closed()
    thread.close()


def test_a_closed_one_refuses(thread: LoopThread) -> None:
    thread.close()
    with pytest.raises(RuntimeError, match="is closed"):
        thread.run(where())


def test_waiting_for_oneself_is_refused(thread: LoopThread) -> None:
    async def inner() -> None:
        with pytest.raises(RuntimeError, match="own thread"):
            thread.run(where())

    thread.run(inner())


def test_the_thread_keeps_no_process_alive(thread: LoopThread) -> None:
    assert thread._thread.is_alive()
    assert thread._thread.daemon


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_makes_its_own(thread: LoopThread) -> None:
    """Spark's workers are forked: what they inherit has no thread, what they make works."""
    thread.run(where())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing here may reach pytest
        try:
            with LoopThread("child") as own:
                ident, _ = own.run(where(), timeout_s=10)
            os.write(writer, b"ok" if ident != threading.get_ident() else b"no")
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert answer.read() == b"ok"
    assert os.waitpid(child, 0)[1] == 0


def test_context_is_the_callers() -> None:
    """Context variables do not leak between callers."""
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="none")

    async def read() -> str:
        value = seen.get()
        seen.set("changed")
        return value

    with LoopThread() as thread:
        assert thread.run(read()) == "none"
        assert thread.run(read()) == "none"


@pytest.mark.parametrize("by_task", [True, False])
def test_an_exit_in_there_ends_what_raised_it_and_not_the_loop(
    thread: LoopThread, by_task: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As from a function of the user's: others use the loop, too, and would wait for ever."""

    async def leave() -> None:
        if by_task:
            sys.exit(3)
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(0)

    if by_task:
        with pytest.raises(SystemExit):
            thread.run(leave())
    else:
        thread.run(leave())
    assert thread.run(where())[1] is thread.loop
    assert "SystemExit was raised on the thread" in caplog.text


def test_a_loop_that_breaks_is_told_and_named_where_it_is_used(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(selectors.DefaultSelector):
        is_good = False

        def select(self, timeout: float | None = None) -> Any:
            if not self.is_good:
                self.is_good = True
                raise OSError("the selector is gone")
            return super().select(timeout)

    broken = LoopThread("broken", lambda: asyncio.SelectorEventLoop(Broken()))
    broken._thread.join()
    with pytest.raises(RuntimeError, match="closed") as raised:
        broken.run(where())
    assert isinstance(raised.value.__cause__, OSError)
    assert "the event loop of broken has ended: OSError" in caplog.text
    broken.close()
