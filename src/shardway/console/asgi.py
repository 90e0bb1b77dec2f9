"""The console as an ASGI application: its parts, its routes, and the gate before them; and uvicorn, which serves it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from shardway.console import (
    application_pages,
    job_pages,
    letter_pages,
    local_pages,
    overview,
    put_pages,
    record_pages,
    session_pages,
    stream_pages,
)
from shardway.console.audit import AuditError, AuditLog
from shardway.console.decoding_threads import DecodingThreads
from shardway.console.local_pages import LocalControl
from shardway.console.page import BEAT_S, HEADERS, PADDING, PageError, console_of, rendered
from shardway.console.payloads import Payloads
from shardway.console.places import HEAD_S, Places, WatchedProtocol
from shardway.console.sampling import CALLS_PER_S, Sampler, Topics, fault_text
from shardway.console.security import Gate, Role
from shardway.console.tailing import Tails
from shardway.errors import AccessDeniedError, NotFoundError, OptionError, ShardwayError
from shardway.inspect import Inspector
from shardway.tasks import wait_set
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from shardway.console.sampling import Topic
    from shardway.console.settings import ConsoleSettings

log = logging.getLogger("shardway.console")

ASSETS = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Console:
    """The parts that pages use. A console belongs to one event loop."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> None:
        self.settings = settings
        self.connection = connection or ConnectionOptions()
        self.inspector = Inspector(self.connection, calls_per_s=CALLS_PER_S)
        self.sampler = Sampler(self.inspector)
        self.topics = Topics(settings.store)
        self.payloads = Payloads(settings)
        self.decoding = DecodingThreads()
        self.tails = Tails(self.inspector, self.payloads, self.decoding)
        self.audit = AuditLog(settings.audit)
        self.streams = dict(settings.streams)
        """The streams of applications whose leases do not name them, as the console was started. A visitor's choice
        stands in the address alone: it is no other visitor's.
        """
        self.plans = application_pages.Plans()
        self.account: str | None = None
        """The account whose streams were seen; None: none was seen yet."""
        self.live_pages = 0
        self.ending = asyncio.Event()
        """The event that is set when the server is to end: it ends the streams of events."""
        self.local = (
            None
            if settings.local_url is None
            else LocalControl(settings.local_url, self.connection, self.connection.ca_bundle)
        )

    def end(self) -> None:
        """End the streams of events, which would go on for as long as their browsers do."""
        self.ending.set()
        self.sampler.wake()
        self.tails.wake()

    async def close(self) -> None:
        """Stop looking at topics, and close the connections."""
        self.end()
        await self.tails.close()
        await self.sampler.close()
        await self.inspector.close()
        self.decoding.close()


def console_app(settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> Gate:
    """Return the console, which any ASGI server can serve on one event loop."""
    console = Console(settings, connection)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await console.close()

    pages = (
        overview, stream_pages, record_pages, put_pages, application_pages, job_pages, letter_pages, local_pages,
        session_pages,
    )  # fmt: skip
    routes = [Route("/assets/{name}", _asset), Route("/live", live, methods=["GET"])]
    for module in pages:
        routes += [Route(path, endpoint, methods=methods) for path, methods, endpoint in module.ROUTES]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            ShardwayError: _failed,
            PageError: _failed,
            404: _no_page,
            405: _no_page,
            Exception: _broken,
        },
    )
    app.state.console = console
    gate = Gate(app, settings, console)
    app.state.gate = gate
    return gate


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        return Response("there is no such file\n", 404, media_type="text/plain")
    body = files("shardway.console").joinpath("assets", name).read_bytes()
    return Response(body, media_type=ASSETS[name], headers={"cache-control": "no-cache"})


async def _failed(request: Request, fault: Exception) -> Response:
    """Return a page that says what happened, for an error that was foreseen."""
    if isinstance(fault, PageError):
        status, text = fault.status, str(fault)
    elif isinstance(fault, AuditError):
        status, text = 503, f"{fault}. Nothing was shown and nothing was written."
    elif isinstance(fault, OptionError):
        status, text = 400, str(fault)
    elif isinstance(fault, NotFoundError):
        status, text = 404, str(fault)
    elif isinstance(fault, AccessDeniedError):
        status, text = 502, fault_text(fault)
    else:
        status, text = 502, str(fault)
    return await _told(request, status, text)


async def _no_page(request: Request, fault: Exception) -> Response:
    return await _told(request, getattr(fault, "status_code", 404), "There is no such page.")


async def _broken(request: Request, fault: Exception) -> Response:
    log.error("a page failed: %s", type(fault).__name__, exc_info=fault)
    return await _told(request, 500, "The page failed by a mistake in the console. Its log has more.")


async def _told(request: Request, status: int, text: str) -> Response:
    context: dict[str, Any] = {"title": "Not done" if request.method == "POST" else "Not shown", "text": text}
    response = rendered(request, "fault.html", context, status=status)
    assert console_of(request) is not None
    return response


# --- events ---------------------------------------------------------------------------------------
# The stream of events of an open page says when the browser is to fetch the page again. While it is open, the sampler
# looks at the page's topics; once it is closed, no longer.

PAGES_MAX = 64
OF_PAGES: dict[str, Callable[[Console, Request], list[Topic[object]]]] = {
    "overview": overview.topics,
    "stream": stream_pages.topics,
    "application": application_pages.topics,
    "snapshot": application_pages.snapshot_topics,
    "jobs": job_pages.topics,
    "job": job_pages.topics_of_job,
}


async def live(request: Request) -> Response:
    """Answer with the events of an open page, until the browser leaves."""
    console = console_of(request)
    topics = OF_PAGES.get(request.query_params.get("page", ""))
    if topics is None:
        raise PageError(404, "There is no such page.")
    topics(console, request)  # raises for what no page shows, while the answer can still say so
    if console.live_pages >= PAGES_MAX:
        raise PageError(503, "Too many pages are open: close some.")
    return StreamingResponse(_events(console, request, topics), media_type="text/event-stream", headers=HEADERS)


async def _events(
    console: Console, request: Request, topics: Callable[[Console, Request], list[Topic[object]]]
) -> AsyncIterator[str]:
    yield f"{PADDING}retry: 3000\n\nevent: beat\ndata: {{}}\n\n"
    sampler, holding = console.sampler, contextlib.ExitStack()
    console.live_pages += 1
    try:
        seen: tuple[int, ...] | None = None
        while not console.ending.is_set():
            shown = topics(console, request)
            fresh = contextlib.ExitStack()
            fresh.enter_context(sampler.held(shown))  # before the old hold ends, so that nothing stops between
            holding.close()
            holding = fresh
            change, now = sampler.change, sampler.versions(shown)
            yield "event: changed\ndata: {}\n\n" if seen is not None and now != seen else "event: beat\ndata: {}\n\n"
            seen = now
            await wait_set(change, BEAT_S)
            if console.ending.is_set():
                break
            await asyncio.sleep(1.0)  # a page is fetched once a second at most
    finally:
        console.live_pages -= 1
        holding.close()


# --- serving --------------------------------------------------------------------------------------
# uvicorn serves the console on one address, until a signal ends it.

BACKLOG = 128
GRACE_S = 3
HEADERS_BYTES_MAX = 64 * 1024


class ConsoleServer(uvicorn.Server):
    """The server of one console. It ends the streams of events before it waits for requests that are under way."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> None:
        """Bind the address, and read the certificate. Raises OSError."""
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
