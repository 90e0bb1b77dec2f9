"""Serves a console until it is told to stop: with uvicorn, on one address."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from penstock.console.asgi import console_app
from penstock.console.security import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.console.security import Gate
    from penstock.console.settings import ConsoleSettings
    from penstock.wiring import ConnectionOptions

BACKLOG = 128
CONNECTIONS_MAX = 512
GRACE_S = 3
HEADERS_BYTES_MAX = 64 * 1024


class Serving(uvicorn.Server):
    """One console being served. It ends its streams of events before it waits for what is under way."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> None:
        """Binds the address, and reads the certificate. Raises OSError."""
        self.socket = _bound(settings.host, settings.port)
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
                limit_concurrency=CONNECTIONS_MAX,
                h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
                timeout_graceful_shutdown=GRACE_S,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )
        try:
            self.config.load()  # a certificate that cannot be read is told before the console is
        except BaseException:
            self.socket.close()
            raise

    @property
    def url(self) -> str:
        """Where browsers find it."""
        scheme = "https" if self.settings.secure else "http"
        if self.settings.host_names:
            name, behind = self.settings.host_names[0], self.settings.proxies or self.settings.base_path
            has_port = name.rpartition(":")[2].isdigit() and not name.endswith("]")
            port = "" if has_port or behind else f":{self.settings.port}"  # a proxy has a port of its own
            return f"{scheme}://{name}{port}{self.settings.base_path}"
        host = "[::1]" if ":" in self.settings.host else "127.0.0.1"
        return f"{scheme}://{host}:{self.settings.port}{self.settings.base_path}"

    def launch_url(self) -> str:
        """A link that signs a browser in, once. Its token is behind #, which no server and no proxy gets to see."""
        return f"{self.url}/launch#{self.gate.sessions.launch_token(Role.WRITER)}"

    async def run_until_told(self) -> None:
        """Serve until a signal, or `end`."""
        await self.serve(sockets=[self.socket])

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002 - uvicorn's form
        """A signal: end the streams of events too, which would go on for as long as their browsers do.

        uvicorn's own would raise the signal anew when all is served, and the process would end by it, not by itself.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        # Python runs this between any two steps of the loop's own code, where a wake-up could be lost.
        asyncio.get_running_loop().call_soon_threadsafe(self.end)

    def end(self) -> None:
        """Come to the end soon. Called on the console's loop."""
        self.gate.console.end()
        self.should_exit = True


def serve(settings: ConsoleSettings, connection: ConnectionOptions | None, announce: Callable[[Serving], None]) -> None:
    """Serve until SIGINT or SIGTERM. Raises OSError where the address is taken."""

    async def run() -> None:
        serving = Serving(settings, connection)
        announce(serving)
        await serving.run_until_told()

    asyncio.run(run())


def _bound(host: str, port: int) -> socket.socket:
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
