"""A server around one handler, without the service behind it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from shardway.local.http import HttpConnection
from shardway.local.http_messages import AfterAnswer, Answer, ChunkedOut

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from shardway.local.http2 import Http2Connection
    from shardway.local.http_messages import Handler

BODY_BYTES_MAX = 1_000_000


def plain(body: bytes, ending: AfterAnswer = AfterAnswer.KEEP) -> Answer:
    return Answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body, ending)


def streamed(stream: Callable[[ChunkedOut], Awaitable[None]]) -> Answer:
    return Answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", stream=stream)


@contextlib.contextmanager
def serving(
    handler: Handler,
    kind: type[HttpConnection] | type[Http2Connection] = HttpConnection,
    faults: list[dict[str, Any]] | None = None,
    **settings: Any,
) -> Iterator[tuple[int, set[Any]]]:
    """A server in a thread, with this handler; its port and its connections. What it fails on goes into ``faults``."""
    ready = threading.Event()
    connections: set[Any] = set()
    settings = {"body_bytes_max": BODY_BYTES_MAX} | settings
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: None if faults is None else faults.append(context))
    ports = []

    async def main() -> None:
        stop = asyncio.Event()
        loop.stop_event = stop  # type: ignore[attr-defined]
        server = await loop.create_server(lambda: kind(handler, connections, **settings), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await stop.wait()
        server.close()
        for connection in list(connections):
            connection.shut()
        await server.wait_closed()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert ready.wait(20)
    try:
        yield ports[0], connections
    finally:
        loop.call_soon_threadsafe(loop.stop_event.set)  # type: ignore[attr-defined]
        thread.join()
        loop.close()
