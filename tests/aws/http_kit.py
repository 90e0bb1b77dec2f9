"""What the tests of the HTTP client share: a client for a test's servers, a call, and both protocols side by side."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from shardway.aws.options import ConnectionOptions
from shardway.aws.transport import Bounds, HttpTransport
from tests.aws.aws_servers import ScriptedServer
from tests.aws.h2_servers import H2Server

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

LARGE = 3_000_000
HTTP2: dict[str, Any] = {"http2": "all", "http2_cleartext": True}
"""Settings for a server that speaks HTTP/2 without TLS."""
VERSIONS: dict[str, dict[str, Any]] = {"1.1": {}, "2": HTTP2}
"""By the version of HTTP: the settings that choose it."""


def server_of(version: str, tls: ssl.SSLContext | None = None) -> ScriptedServer | H2Server:
    return ScriptedServer(tls=tls) if version == "1.1" else H2Server(tls=tls)


@contextlib.asynccontextmanager
async def transport(*, ca_bundle: str | None = None, **settings: Any) -> AsyncIterator[HttpTransport]:
    bounds = Bounds(**{name: settings.pop(name) for name in Bounds._fields if name in settings})
    opened = HttpTransport(
        ConnectionOptions(**settings), ca_bundle=lambda: ca_bundle, user_agent="shardway-tests", bounds=bounds
    )
    try:
        yield opened
    finally:
        await opened.close()


async def post(client: HttpTransport, url: str, body: bytes = b"{}") -> Any:
    host = url.partition("://")[2].partition("/")[0]
    return await client.post(f"{url}/" if url.count("/") == 2 else url, {"host": host}, body, operation="GetRecords")


class TunnelProxy:
    """An HTTP proxy that grants CONNECT to loopback, or refuses it with ``status``."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.heads: list[str] = []

    async def __aenter__(self) -> TunnelProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        writer.write(f"HTTP/1.1 {self.status} Whatever\r\n\r\n".encode())
        if self.status == 200:
            host, _, port = head.split()[1].rpartition(":")
            onward_reader, onward_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(pipe(reader, onward_writer), pipe(onward_reader, writer), return_exceptions=True)
        writer.close()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
