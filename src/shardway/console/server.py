"""Serve the console with uvicorn on one address, until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from shardway.console.asgi import console_app
from shardway.console.places import HEAD_S, Places, WatchedProtocol
from shardway.console.security.gate import Gate
from shardway.console.security.visitors import Role
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.console.settings import ConsoleSettings


BACKLOG = 128
GRACE_S = 3
HEADERS_BYTES_MAX = 64 * 1024


class ConsoleServer(uvicorn.Server):
    """The server of one console. It ends the streams of events before it waits for requests that are under way."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> None:
        """Bind the address, and read the certificate. Raises OSError."""
        self.socket = _bind(settings.host, settings.port)
        settings = msgspec.structs.replace(settings, port=self.socket.getsockname()[1])
        self.settings = settings
        self.gate: Gate = console_app(settings, connection)
        super().__init__(
            uvicorn.Config(
                self.gate,
                log_config=None,
                access_log=False,  # it would hold queries
                log_level=logging.WARNING,
                server_header=False,
                proxy_headers=False,  # the gate decides which proxies count
                ws="none",
                lifespan="on",
                http=WatchedProtocol.among(Places(self.gate.is_proxy)),
                h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
                timeout_graceful_shutdown=GRACE_S,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )
        try:
            self.config.load()  # a certificate that cannot be read raises before the address is announced
        except BaseException:
            self.socket.close()
            raise

    @property
    def url(self) -> str:
        """The URL at which browsers find the console."""
        scheme = "https" if self.settings.secure else "http"
        if self.settings.host_names:
            name, behind = self.settings.host_names[0], self.settings.proxies or self.settings.base_path
            has_port = name.rpartition(":")[2].isdigit() and not name.endswith("]")
            port = "" if has_port or behind else f":{self.settings.port}"  # a proxy has a port of its own
            return f"{scheme}://{name}{port}{self.settings.base_path}"
        host = "[::1]" if ":" in self.settings.host else "127.0.0.1"
        return f"{scheme}://{host}:{self.settings.port}{self.settings.base_path}"

    def launch_url(self) -> str:
        """Return a link that signs a browser in, once. The token stands behind #, which no server and no proxy sees."""
        return f"{self.url}/launch#{self.gate.sessions.launch_token(Role.WRITER)}"

    async def run_until_told(self) -> None:
        """Serve until a signal, or `end`."""
        await self.serve(sockets=[self.socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, as uvicorn does, and with a deadline for TLS's handshake, which uvicorn does not know."""
        await super().startup(sockets=[])
        loop, secure = asyncio.get_running_loop(), self.config.ssl is not None

        def connection() -> asyncio.Protocol:
            made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        for one in sockets or ():
            server = await loop.create_server(
                connection,
                sock=one,
                ssl=self.config.ssl,
                backlog=BACKLOG,
                ssl_handshake_timeout=HEAD_S if secure else None,
            )
            self.servers.append(server)

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002 - uvicorn's form
        """Take a signal: end the streams of events, too, which would go on for as long as their browsers do.

        uvicorn's own method would raise the signal anew when all is served, and the signal would end the process.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        # Python runs this between any two steps of the loop's own code, where a wake-up could be lost.
        asyncio.get_running_loop().call_soon_threadsafe(self.end)

    def end(self) -> None:
        """Begin to end. It is called on the console's loop."""
        self.gate.console.end()
        self.should_exit = True


def serve(
    settings: ConsoleSettings, connection: ConnectionOptions | None, announce: Callable[[ConsoleServer], None]
) -> None:
    """Serve until SIGINT or SIGTERM. Raises OSError where the address is taken."""

    async def run() -> None:
        serving = ConsoleServer(settings, connection)
        announce(serving)
        await serving.run_until_told()

    asyncio.run(run())


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)
    except BaseException:
        found.close()
        raise
    return found
