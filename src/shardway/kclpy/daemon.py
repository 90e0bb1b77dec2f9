"""The daemon is a worker that has its shards read by processors written for ``amazon_kclpy``."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from shardway.core.options.base import Options
from shardway.kclpy.processor import ProcessorGoneError, ProcessorProcess
from shardway.kclpy.session import SessionOptions, ShardSession
from shardway.runtime.consumer.shards import reader_of
from shardway.tasks import awaited, drop, failure_of, give_up, spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.runtime.consumer.consumer import Consumer
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.tasks import Heard


class DaemonOptions(Options, frozen=True, kw_only=True):
    """How processors are started and ended."""

    target: str
    """The processor: ``module:name``, ``file.py:name``, or a script that makes a `KCLProcess` and runs it."""
    shim: bool = False
    """True: the shim is used also where ``amazon_kclpy`` is installed."""
    session: SessionOptions = SessionOptions()
    restart_s: Annotated[float, Meta(gt=0)] = 1.0
    """The pause before a shard whose processor has died gets another one; it doubles until one takes records."""
    restart_max_s: Annotated[float, Meta(gt=0)] = 60.0
    stop_s: Annotated[float, Meta(ge=0)] = 10.0
    """How long processors that are still busy have at the end, though their shards have been handed over."""


class Daemon:
    """Gives each shard that a consumer comes to hold a process with a processor.

    There is a process for each shard, as under the KCL: processors have globals, block, print, and exit as they like.
    """

    def __init__(self, options: DaemonOptions, say: Callable[[str], None]) -> None:
        """``say`` takes a line that tells the operator what goes on."""
        self._options = options
        self._say = say
        self._spare: asyncio.Task[ProcessorProcess] | None = None
        self._failures: dict[str, int] = {}
        self._works = False

    async def run(self, consumer: Consumer[Any], stop: asyncio.Event) -> None:
        """Run until ``stop`` is set: start the consumer, and close it in the end, so that its shards are handed over.

        Raises what ended the consumer, and ProcessorGoneError when a processor ends by itself before one has ever
        answered: then the program is at fault.
        """
        sessions: set[asyncio.Task[None]] = set()
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: BaseException) -> None:
            if not failed.done():
                failed.set_exception(error)

        asked = awaited(stop.wait())
        shards = awaited(self._shards(consumer, sessions, fail))
        try:
            await asyncio.wait((shards, failed, asked), return_when=asyncio.FIRST_COMPLETED)
            await consumer.close()
            if sessions:
                await asyncio.wait(sessions, timeout=self._options.stop_s)
            await shards
            if failed.done():
                failed.result()
        finally:
            drop(failed)
            await give_up(asked, shards, *sessions)
            await self._drop_spare()

    async def _shards(
        self,
        consumer: Consumer[Any],
        sessions: set[asyncio.Task[None]],
        heard: Heard,
    ) -> None:
        async for shard in consumer.shards():
            session = spawn(self._serve(reader_of(shard)), heard)
            sessions.add(session)
            session.add_done_callback(sessions.discard)

    async def _serve(self, reader: ShardReader) -> None:
        """Serve a shard while this worker holds it."""
        failures = self._failures.get(reader.shard_id, 0)
        if failures:
            pause_s = min(self._options.restart_max_s, self._options.restart_s * 2.0 ** (failures - 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await reader.handle.over()
        if reader.is_over:
            return
        process = await self._process()
        session = ShardSession(reader, process, self._options.session, self._say, self._note_answer)
        grace_s = 0.0
        try:
            await session.run()
            grace_s = self._options.stop_s
        except ProcessorGoneError as error:
            if not (self._works or error.killed):
                raise ProcessorGoneError(f"{error}, before it answered anything: what it wrote says why") from error
            if _is_over(reader):
                self._say(f"{reader.shard_id}, which is not ours any more: {error}")
                return
            self._failures[reader.shard_id] = failures = 1 if session.progressed else failures + 1
            self._say(f"{reader.shard_id}: {error}; the shard is given back, and read again from its checkpoint")
            reader.let_go()
        else:
            self._failures.pop(reader.shard_id, None)
        finally:
            await process.close(grace_s)

    # --- processes: one is always ready, so that a shard that comes does not wait for its start ---

    def _note_answer(self) -> None:
        """Take note that the program works: it is worth having one more process."""
        self._works = True
        if self._spare is None:
            self._spare = spawn(self._start(), self._no_spare)

    async def _process(self) -> ProcessorProcess:
        spare, self._spare = self._spare, None
        if spare is None or (spare.done() and failure_of(spare) is not None):
            return await self._start()
        return await spare

    async def _start(self) -> ProcessorProcess:
        return await ProcessorProcess.start(self._options.target, shim=self._options.shim)

    async def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await asyncio.wait((spare,))
            if failure_of(spare) is None:
                await spare.result().close(0.0)

    def _no_spare(self, error: BaseException) -> None:
        """Say that no spare process was started. The shard that needs one starts it, and meets the error itself if that
        lasts.
        """
        self._spare = None
        self._say(f"a process that was to be ready for the next shard could not be started: {type(error).__name__}")


def _is_over(reader: ShardReader) -> bool:
    return reader.is_over
