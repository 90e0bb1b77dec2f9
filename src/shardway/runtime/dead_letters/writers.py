"""Writers of dead letters: to a stream, to a file, and to a function of the program's.

Each consumer opens the writer of what was chosen for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shardway.errors import FlushTimeoutError, InvalidRecordError, RecordRefusedError
from shardway.model import OutRecord
from shardway.policies import DeadLetterChoice, DeadLettersTo, DeadLettersToFile, DeadLettersToStream
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from shardway.core.ledger.letter import Letter
    from shardway.runtime.producer.producer import Producer
    from shardway.wiring import ConnectionOptions


class LetterSink(Protocol):
    """Takes dead letters, several at the same time. It is used on one event loop."""

    async def start(self) -> None:
        """Find out whether it works at all. Raises an error that says that it does not."""

    async def write(self, letter: Letter) -> None:
        """Write a letter, and return once it is kept for good. Any error means that it is not kept, and is written
        again later.
        """

    async def close(self) -> None:
        """Close the sink: no more letters come."""


def open_letters(choice: DeadLetterChoice | None, connection: ConnectionOptions | None) -> LetterSink | None:
    """Return the sink that a consumer writes to. ``connection``: how it reaches its own stream. Raises OptionError."""
    match choice:
        case DeadLettersToStream():
            return StreamLetters(choice, connection)
        case DeadLettersToFile():
            return FileLetters(Path(choice.path), with_data=choice.with_data)
        case DeadLettersTo():
            return CallableLetters(choice.write)
    return None


class StreamLetters:
    """Writes letters to a stream, through a producer."""

    def __init__(self, choice: DeadLettersToStream, connection: ConnectionOptions | None) -> None:
        from shardway.runtime.producer.producer import Producer

        own = choice.connection or (connection if isinstance(choice.stream, str) else None)
        self._producer: Producer[Any] = Producer(choice.stream, connection=own)
        self._with_data = choice.with_data

    async def start(self) -> None:
        """List the stream's shards."""
        await self._producer.start()

    async def write(self, letter: Letter) -> None:
        """Put the letter, and wait until it is written."""
        if not self._with_data:
            letter = letter.without_data()
        try:
            await self._put(letter)
        except (InvalidRecordError, RecordRefusedError):
            if letter.data is None:
                raise
            # Base64 makes the data a third larger than the record was, which the stream may not take.
            await self._put(letter.without_data(left_out=True))

    async def close(self) -> None:
        """Close the producer at once: the caller has given up what is under way."""
        with contextlib.suppress(FlushTimeoutError):
            await self._producer.close(0)

    async def _put(self, letter: Letter) -> None:
        await self._producer.put(OutRecord(letter.to_json(), letter.partition_key or letter.shard_id))


class FileLetters:
    """Appends letters to a file. Those that come while it is synced go together with the next sync."""

    def __init__(self, path: Path, *, with_data: bool = True) -> None:
        self.path = path
        self._with_data = with_data
        self._descriptor: int | None = None
        self._waiting_letters: list[tuple[bytes, asyncio.Future[None]]] = []
        self._write_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the file. Raises OSError."""
        if self._descriptor is None:
            self._descriptor = await asyncio.to_thread(self._open)

    async def write(self, letter: Letter) -> None:
        """Append the letter, and sync. Raises OSError."""
        kept = letter if self._with_data else letter.without_data()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting_letters.append((kept.to_json() + b"\n", done))
        if self._write_task is None:
            self._write_task = spawn(self._write_all(), self._fail_waiting)
        await done

    async def close(self) -> None:
        """Finish what is being written."""
        if self._write_task is not None:
            await asyncio.wait((self._write_task,))
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            await asyncio.to_thread(os.close, descriptor)

    async def _write_all(self) -> None:
        while self._waiting_letters:
            batch, self._waiting_letters = self._waiting_letters, []
            fault: BaseException | None = None
            try:
                await self.start()
                await asyncio.to_thread(self._append, b"".join(line for line, _ in batch))
            except asyncio.CancelledError:
                fault = OSError("the writing of dead letters was cancelled")
                _answer(batch, fault)
                self._fail_waiting(fault)
                raise
            except Exception as error:  # Whatever it is, the letters that wait are to know.
                fault = error
            _answer(batch, fault)
        self._write_task = None

    def _fail_waiting(self, error: BaseException) -> None:
        self._write_task = None
        waiting, self._waiting_letters = self._waiting_letters, []
        _answer(waiting, error)

    def _open(self) -> int:
        is_new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if is_new:
                _sync_folder(self.path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _append(self, lines: bytes) -> None:
        descriptor = self._descriptor
        assert descriptor is not None
        size = os.fstat(descriptor).st_size
        # The process that wrote last may have died, or met the end of the disk, in the middle of a line.
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        text = b"\n" + lines if torn else lines
        written = os.write(descriptor, text)
        if written < len(text):
            raise OSError(f"only {written} of {len(text)} bytes of dead letters could be written to {self.path}")
        os.fsync(descriptor)


def _answer(written: Iterable[tuple[bytes, asyncio.Future[None]]], fault: BaseException | None) -> None:
    for _, done in written:
        if not done.done():
            done.set_exception(fault) if fault is not None else done.set_result(None)


class CallableLetters:
    """Calls a function with each letter."""

    def __init__(self, function: Callable[[Letter], Awaitable[object] | object]) -> None:
        self._function = function

    async def start(self) -> None:
        """Do nothing: there is nothing to find out."""

    async def write(self, letter: Letter) -> None:
        """Call the function, and await what it returns if that can be."""
        result = self._function(letter)
        if hasattr(result, "__await__"):
            await result

    async def close(self) -> None:
        """Do nothing: the function is the user's."""


def _sync_folder(folder: Path) -> None:
    """Sync a folder: a new file is there after a crash only if its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
