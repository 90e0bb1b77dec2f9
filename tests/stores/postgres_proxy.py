"""A proxy between asyncpg and a PostgreSQL server: it breaks the server's answers off, spoils them, or says a FATAL
error to a connection that is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PORT = 5432
CHUNK_BYTES = 1 << 16


def error_message(severity: str, code: str, text: str) -> bytes:
    """The bytes of an ErrorResponse (PostgreSQL's protocol, version 3.0)."""
    fields = {"S": severity, "V": severity, "C": code, "M": text}
    body = b"".join(name.encode() + value.encode() + b"\0" for name, value in fields.items()) + b"\0"
    return b"E" + struct.pack("!i", len(body) + 4) + body


FATAL = error_message("FATAL", "57P01", "terminating connection due to administrator command")


class PostgresProxy:
    """``port`` is where it listens. ``pass_bytes_max`` is how many more bytes of answers it lets pass, over all
    connections; then it puts ``instead`` in the place of the rest, and closes unless ``stays``.
    """

    def __init__(self, connect: dict[str, Any]) -> None:
        self.connect = {**connect, "host": "127.0.0.1", "port": 0}
        self.pass_bytes_max: int | None = None
        self.instead = b""
        self.stays = False
        self.broken = 0
        self._socket = str(Path(connect["host"]) / f".s.PGSQL.{PORT}")
        self._clients: set[asyncio.StreamWriter] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        with contextlib.suppress(OSError):
            server_reader, server_writer = await asyncio.open_unix_connection(self._socket)
            self._clients.add(writer)
            try:
                await asyncio.gather(
                    self._carry(reader, server_writer, lambda data: (data, True)),
                    self._carry(server_reader, writer, self._passed),
                )
            finally:
                self._clients.discard(writer)
                server_writer.close()
        writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: Callable[[bytes], tuple[bytes, bool]]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                shown, goes_on = passed(data)
                writer.write(shown)
                await writer.drain()
                if not goes_on:
                    break
        if not self.stays:
            writer.close()

    def _passed(self, data: bytes) -> tuple[bytes, bool]:
        if self.pass_bytes_max is None:
            return data, True
        shown, self.pass_bytes_max = data[: self.pass_bytes_max], max(0, self.pass_bytes_max - len(data))
        if len(shown) == len(data):
            return shown, True
        self.broken += 1
        self.pass_bytes_max = None  # The next connection is whole.
        return shown + self.instead, False

    def tell_idle_connections(self, message: bytes) -> None:
        """Send a message to every connection, without an end of it."""
        for writer in self._clients:
            writer.write(message)


@contextlib.asynccontextmanager
async def proxy_before(connect: dict[str, Any]) -> AsyncIterator[PostgresProxy]:
    """A proxy that runs as long as the context; ``connect`` names the server's folder of sockets."""
    proxy = PostgresProxy(connect)
    server = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
    proxy.connect["port"] = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for writer in list(proxy._clients):
            writer.close()
