"""The console as an ASGI application: its parts, its routes, and the gate before them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from penstock.console import (
    application_pages,
    job_pages,
    letter_pages,
    live,
    local_pages,
    overview,
    record_pages,
    session_pages,
    stream_pages,
)
from penstock.console.audit import AuditError, AuditLog
from penstock.console.local_pages import LocalControl
from penstock.console.page import PageError, console_of, rendered
from penstock.console.payloads import Payloads
from penstock.console.sampling import CALLS_PER_S, Sampler, Topics, fault_text
from penstock.console.security import Gate
from penstock.console.tailing import Tails
from penstock.errors import AccessDeniedError, NotFoundError, OptionError, PenstockError
from penstock.inspect import Inspector
from penstock.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from penstock.console.settings import ConsoleSettings

log = logging.getLogger("penstock.console")

ASSETS = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Console:
    """The parts that pages use. Belongs to one event loop."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> None:
        self.settings = settings
        self.connection = connection or ConnectionOptions()
        self.inspector = Inspector(self.connection, calls_per_s=CALLS_PER_S)
        self.sampler = Sampler(self.inspector)
        self.topics = Topics(settings.store)
        self.payloads = Payloads(settings)
        self.tails = Tails(self.inspector, self.payloads)
        self.audit = AuditLog(settings.audit)
        self.streams = dict(settings.streams)
        """Streams of applications whose leases do not name them, as chosen so far."""
        self.plans = application_pages.Plans()
        self.live_pages = 0
        self.ending = asyncio.Event()
        """Set when the server is to end: streams of events end by it."""
        self.local = (
            None
            if settings.local_url is None
            else LocalControl(settings.local_url, self.connection, self.connection.ca_bundle)
        )

    def end(self) -> None:
        """Let the streams of events end, which would go on for as long as their browsers do."""
        self.ending.set()
        self.sampler.wake()
        self.tails.wake()

    async def close(self) -> None:
        """Look at nothing any more."""
        self.end()
        await self.tails.close()
        await self.sampler.close()
        await self.inspector.close()


def console_app(settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> Gate:
    """The console, to be served by any ASGI server on one event loop."""
    console = Console(settings, connection)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await console.close()

    pages = (
        overview, stream_pages, record_pages, application_pages, job_pages, letter_pages, local_pages,
        session_pages, live,
    )  # fmt: skip
    routes = [Route("/assets/{name}", _asset)]
    for module in pages:
        routes += [Route(path, endpoint, methods=methods) for path, methods, endpoint in module.ROUTES]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            PenstockError: _failed,
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
    body = files("penstock.console").joinpath("assets", name).read_bytes()
    return Response(body, media_type=ASSETS[name], headers={"cache-control": "no-cache"})


async def _failed(request: Request, fault: Exception) -> Response:
    """What was foreseen: a page that says what happened."""
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
