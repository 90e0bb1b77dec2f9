"""The worker's side of a processor's process: it starts the process, sends and receives lines, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.errors import ShardwayError
from shardway.tasks import awaited, drop, failure_of, logged, spawn

if TYPE_CHECKING:
    from collections.abc import Sequence


class ProcessorGoneError(ShardwayError):
    """The process of a processor has ended, or does not answer as it must."""

    retryable = True

    def __init__(self, message: str, *, killed: bool = False) -> None:
        self.killed = killed
        """True where a signal ended the process: that says nothing of the program."""
        super().__init__(message)


class ProcessorRaisedError(ShardwayError):
    """A processor raised; it has shown its traceback itself."""


LAST_WORDS_S = 1.0
"""Seconds to wait for what an ended process has said before, which is in the socket."""
TERMINATED_S = 2.0
"""Seconds between SIGTERM and SIGKILL."""


class ProcessorProcess:
    """A process with a processor, which takes one message at a time."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.exited: asyncio.Task[int] = spawn(
            process.wait(), logged("waiting for the end of a processor's process has failed: it counts as ended")
        )
        """The task that is done, with the exit status, when the process has ended."""

    @classmethod
    async def start(cls, target: str, *, shim: bool = False) -> ProcessorProcess:
        """Start a process for one shard. It leads a process group of its own: a Ctrl-C is the worker's affair."""
        ours, theirs = socket.socketpair()
        try:
            number = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *_command(number, target, shim=shim),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(number,),
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, *await asyncio.open_connection(sock=ours))

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message. Bytes in it are written in base64. Raises ProcessorGoneError where the process is gone."""
        self._writer.write(msgspec.json.encode(message) + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError:
            raise await self._error_gone() from None

    async def receive(self) -> dict[str, Any]:
        """Return the next message. Raises ProcessorGoneError when there will be none, or when a line is none."""
        while True:
            line = await self._line()
            if not line:
                raise await self._error_gone()
            if text := line.strip():
                try:
                    message = json.loads(text)  # Python's json is exact also for numbers of 186 bits
                except ValueError:
                    message = None
                if isinstance(message, dict):
                    return message
                raise ProcessorGoneError("the processor's process wrote a line that is no message")

    async def _line(self) -> bytes:
        reading = awaited(self._reader.readline())
        try:
            await asyncio.wait((reading, self.exited), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # a process that it started may keep the socket open
                await asyncio.wait((reading,), timeout=LAST_WORDS_S)
            return reading.result() if reading.done() else b""
        except (ConnectionError, ValueError):  # ValueError: a line without an end
            return b""
        finally:
            drop(reading)

    async def _error_gone(self) -> ProcessorGoneError:
        """Return the error that says why nothing comes any more."""
        await asyncio.wait((self.exited,), timeout=LAST_WORDS_S)
        if not self.exited.done():
            return ProcessorGoneError("the processor's process has closed its socket")
        if failure_of(self.exited) is not None:
            return ProcessorGoneError("the processor's process could not be watched")
        status = self.exited.result()
        how = f"with status {status}" if status >= 0 else f"by signal {-status}"
        return ProcessorGoneError(f"the processor's process has ended {how}", killed=status < 0)

    async def close(self, grace_s: float) -> None:
        """Close the socket, so that the processor's loop ends, and make sure that the process ends."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        try:
            await asyncio.wait((self.exited,), timeout=grace_s)
            if not self.exited.done():
                self._signal("terminate")
                await asyncio.wait((self.exited,), timeout=TERMINATED_S)
        finally:
            if not self.exited.done():
                self._signal("kill")
                await asyncio.wait((self.exited,))

    def _signal(self, how: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            getattr(self._process, how)()


def _command(number: int, target: str, *, shim: bool) -> Sequence[str]:
    return [sys.executable, "-m", "shardway.kclpy.child", str(number), target, *(["--shim"] if shim else [])]
