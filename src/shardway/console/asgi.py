"""Make the console an ASGI application: the gate before all, the routes of its pages, and the pages of errors."""

from __future__ import annotations

import contextlib
import logging
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from shardway.console.audit import AuditError
from shardway.console.console import Console
from shardway.console.live import live
from shardway.console.looks.sampler import fault_text
from shardway.console.page import PageError, console_of, rendered
from shardway.console.pages import (
    applications,
    jobs,
    letters,
    local,
    overview,
    puts,
    records,
    seeks,
    sessions,
    streams,
    tails,
)
from shardway.console.security.gate import Gate
from shardway.errors import AccessDeniedError, NotFoundError, OptionError, ShardwayError
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from shardway.console.settings import ConsoleSettings


log = logging.getLogger("shardway.console")
ASSETS = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}


def console_app(settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> Gate:
    """Return the console, which any ASGI server can serve on one event loop."""
    console = Console(settings, connection)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await console.close()

    pages = (
        overview, streams, records, tails, puts, applications, seeks, jobs, letters, local, sessions,
    )  # fmt: skip
    routes = [Route("/assets/{name}", _asset), Route("/live", live, methods=["GET"])]
    for module in pages:
        routes += [Route(path, endpoint, methods=methods) for path, methods, endpoint in module.ROUTES]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            ShardwayError: _answer_foreseen,
            PageError: _answer_foreseen,
            404: _no_page,
            405: _no_page,
            Exception: _answer_mistake,
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


async def _answer_foreseen(request: Request, fault: Exception) -> Response:
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
    return await _fault_page(request, status, text)


async def _no_page(request: Request, fault: Exception) -> Response:
    return await _fault_page(request, getattr(fault, "status_code", 404), "There is no such page.")


async def _answer_mistake(request: Request, fault: Exception) -> Response:
    log.error("a page failed: %s", type(fault).__name__, exc_info=fault)
    return await _fault_page(request, 500, "The page failed by a mistake in the console. Its log has more.")


async def _fault_page(request: Request, status: int, text: str) -> Response:
    context: dict[str, Any] = {"title": "Not done" if request.method == "POST" else "Not shown", "text": text}
    response = rendered(request, "fault.html", context, status=status)
    assert console_of(request) is not None
    return response
