"""A loop thread runs coroutines for synchronous callers: Spark's driver and tasks, and the synchronous faces."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shardway.reply import Reply
from shardway.tasks import awaited, thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType


T = TypeVar("T")
log = logging.getLogger("shardway.runtime")

CALLER: ContextVar[threading.Thread | None] = ContextVar("CALLER", default=None)
"""The thread that asked for what runs on such a loop. None: it is work of the loop's own program."""

CLOSE_TIMEOUT_S = 10.0
"""How many seconds `LoopThread.close` waits for cancelled work to end."""


class ThreadCall(Generic[T]):
    """Work for the loop that a thread asked for, and what comes of it."""

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        on_reply: Callable[[], object] | None = None,
    ) -> None:
        self._work = work
        self._loop = loop
        self._on_reply = on_reply
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        self.reply = Reply[T]()

    def begin(self) -> None:
        """Begin the work. It is called on the loop."""
        if self._is_cancelled:
            self._work.close()
            self._reply_with(asyncio.CancelledError())
            return
        self._task = awaited(self._work, loop=self._loop)
        self._task.add_done_callback(self._note_end)

    def cancel(self) -> None:
        """Cancel the work: the thread waits no longer."""
        self._is_cancelled = True
        if not self.reply.done():
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _note_end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._reply_with(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._reply_with(error)
        else:
            self.reply.set_result(task.result())
            if self._on_reply is not None:
                self._on_reply()

    def _reply_with(self, error: BaseException) -> None:
        self.reply.set_exception(error)
        if self._on_reply is not None:
            self._on_reply()


class LoopThread:
    """Runs coroutines for synchronous callers, from any thread. The thread is a daemon: it never keeps a process alive.
    An exit that is raised in there ends the task that raised it, and not the loop, which others use, too.

    A loop thread is not usable across ``fork``: make one after it. In the process that was forked off, `run` raises
    RuntimeError.
    """

    def __init__(
        self, name: str = "shardway-loop", new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    ) -> None:
        self._process = os.getpid()
        self._loop = new_loop()
        self._change_lock = threading.Lock()
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = thread(self._serve, name, self._log_end)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs in the thread."""
        return self._loop

    @property
    def is_closed(self) -> bool:
        """True once nothing is run any more."""
        return self._closed

    def is_current(self) -> bool:
        """True on the loop's own thread."""
        return threading.get_ident() == self._thread.ident

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run ``work`` on the loop and return its result or raise its error.

        After ``timeout_s`` it is cancelled and TimeoutError raised. An interrupt of the caller (Ctrl-C)
        cancels it too.
        """
        if self.is_current():
            work.close()
            raise RuntimeError("run() was called on the loop's own thread: it would wait for itself")
        asked = self.ask(work)
        try:
            return asked.reply.result(timeout_s)
        except asyncio.CancelledError:
            raise RuntimeError("the loop thread was closed while this ran") from self._failure
        except BaseException:
            asked.cancel()
            raise

    def ask(self, work: Coroutine[Any, Any, T], on_reply: Callable[[], object] | None = None) -> ThreadCall[T]:
        """Run ``work`` on the loop, and do not wait: ``on_reply`` is called there once there is one. (The futures of
        Python's `run_coroutine_threadsafe` do not bear a signal handler that raises: see `Reply`.)
        """
        if os.getpid() != self._process:
            work.close()
            raise RuntimeError("the loop thread stayed in the process that this one was forked off: make one here")
        with self._change_lock:
            # The lock is held here: what is handed over before the loop is stopped is run, or cancelled, by it.
            if self._closed:
                work.close()
                raise RuntimeError("the loop thread is closed") from self._failure
            asks = CALLER.set(threading.current_thread())  # The loop's task begins with a copy of this context.
            try:
                asked = ThreadCall(work, self._loop, on_reply)
                self._loop.call_soon_threadsafe(asked.begin)
            finally:
                CALLER.reset(asks)
        return asked

    def close(self) -> None:
        """Cancel what still runs, end the thread, close the loop. It may be called again."""
        if os.getpid() != self._process:
            return  # The thread is not here.
        with self._change_lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()

    def join(self) -> None:
        """Wait until the thread has ended, after a `close`, which may be another thread's."""
        self._thread.join(CLOSE_TIMEOUT_S)

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while self._turn():
                pass
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._change_lock:
                self._closed = True
            try:
                self._end_tasks()
            finally:
                self._loop.close()

    def _turn(self) -> bool:
        """Run until the loop is stopped, or an exit comes out of it, as from `sys.exit` in a function of the user's.
        Return True where there is more to run, as after such an exit.
        """
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            message = f"{type(error).__name__} was raised on the thread {threading.current_thread().name}; it goes on"
            self._loop.call_exception_handler({"message": message, "exception": error})
            return not self._closed
        return False

    def _log_end(self, error: BaseException) -> None:
        log.critical(
            "the event loop of %s has ended: %s", threading.current_thread().name, type(error).__name__, exc_info=error
        )

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            ended = asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
            self._loop.run_until_complete(ended)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
