"""The errands of other threads: what they ask of a session, whose loop runs in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.errors import FlushTimeoutError
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.tasks import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from shardway.core.producer.chunk import Chunk
    from shardway.runtime.producer.handles import SyncPutHandle
    from shardway.runtime.producer.session import ProducerSession

R = TypeVar("R")


class Errands:
    """Does what other threads ask of a session, whose loop runs in a thread of its own. The handles of the records
    ask it.
    """

    def __init__(self, session: ProducerSession[SyncPutHandle]) -> None:
        self._session = session
        self._thread: LoopThread | None = None
        self._begin_lock = threading.Lock()
        self._closed = False
        self._is_ended = False
        session.serve_threads(self)

    @property
    def has_begun(self) -> bool:
        """True once the loop's thread is there."""
        return self._thread is not None

    @property
    def thread(self) -> LoopThread:
        """The loop's thread, which the first use begins: a thread would not come with a process that is forked off."""
        if self._thread is None:
            # A signal handler that raised here would leave a loop without its thread, or a thread that nothing knows.
            return uninterrupted(self._begin)
        return self._thread

    def _begin(self) -> LoopThread:
        with self._begin_lock:
            if self._thread is None:
                self._thread = LoopThread("shardway-producer")
            return self._thread

    def call_soon(self, call: Callable[[], object]) -> None:
        """Have the loop call something soon. Any thread may ask."""
        self.thread.loop.call_soon_threadsafe(call)

    def start_over(self) -> None:
        """Take another lock in a process that was forked off: a thread that is not here may hold it."""
        self._begin_lock = threading.Lock()

    def run(self, work: Callable[[], Coroutine[Any, Any, R]], ended: Callable[[], R]) -> R:
        """Run the work on the loop; once that has ended, return what ``ended`` returns."""
        self._session.check_process()
        thread = self.thread
        try:
            if not self._is_ended:
                return thread.run(work())
        except RuntimeError:
            if not self._closed or thread.is_current():
                raise
            thread.join()
        return ended()

    def look(self, work: Callable[[], R], ended: Callable[[], R]) -> R:
        """Run work that takes no time, and that ``on_event`` may ask for, which runs on the loop's thread."""

        async def ask() -> R:
            return work()

        self._session.check_process()
        if self._thread is None or self._thread.is_current():
            return work()
        return self.run(ask, ended)

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """See `PutHandle.withdraw`."""

        async def ask() -> bool:
            return self._session.withdraw(chunk, index)

        return self.run(ask, lambda: False)

    def withdraw_all(self, chunks: Sequence[Chunk]) -> int:
        """See `Puts.withdraw`."""
        return self.run(lambda: self._session.withdraw_in_steps(chunks), lambda: 0)

    def check_process(self) -> None:
        """Raise ProducerClosedError in a process that was forked off since the producer was made."""
        self._session.check_process()

    def close(self, deadline_s: float | None) -> None:
        """Close the session, and end the thread."""
        if self._closed or self._session.is_forked:
            return
        thread = self.thread  # A signal handler may raise here: then the producer is not closed yet.
        self._closed = True
        try:
            thread.run(self._session.close(deadline_s))
        except FlushTimeoutError:
            raise
        except BaseException:
            # Perhaps the close never began: a signal handler raised. What was put has its outcome all the same.
            thread.run(self._session.give_up())
            raise
        finally:
            thread.close()
            self._is_ended = True
