"""The pages for signing in and out, for one-time links to another browser, and of the audit log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from shardway.console.page import PageError, console_of, form_of, redirect, rendered, visitor_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from shardway.console.security.gate import Gate


def _gate(request: Request) -> Gate:
    found: Gate = request.app.state.gate
    return found


async def sign_in_page(request: Request) -> Response:
    """Show the form for the token."""
    following = _next_path(request.query_params.get("next", ""))
    return rendered(request, "sign_in.html", {"title": "Sign in", "following": following, "wrong": False})


async def sign_in(request: Request) -> Response:
    """Sign a browser in by the token, or by a one-time token."""
    form, gate = form_of(request), _gate(request)
    given, following = form.get("token", "").strip(), _next_path(form.get("next", ""))
    audit, peer = console_of(request).audit, request.client.host if request.client is not None else ""
    launch = gate.sessions.launched(given)
    role = gate.role_of(given) if launch is None else launch.role
    if role is None:
        await audit.session("signed_in", "refused", "-", "-", peer)
        context = {"title": "Sign in", "following": following, "wrong": True}
        return rendered(request, "sign_in.html", context, status=401)
    name, made_by = (f"browser:{role}", None) if launch is None else (launch.name, launch.made_by)
    await audit.session("signed_in", "done", name, role.value, peer)
    base = console_of(request).settings.base_path
    response = RedirectResponse(base + following, 303)
    response.headers.append(*gate.signed_in(role, name, request.scope, made_by))
    return response


async def launch_page(request: Request) -> Response:
    """Show the page that a one-time link leads to. The token is in the link's fragment, which no server and no proxy
    ever sees.
    """
    return rendered(request, "launch.html", {"title": "Sign in"})


async def sign_out(request: Request) -> Response:
    """End the session, and those of the browsers that it made links for."""
    gate, visitor = _gate(request), visitor_of(request)
    response = redirect(request, "/sign-in")
    response.headers.append(*gate.signed_out(request.cookies.get(gate.cookie, ""), request.scope))
    await console_of(request).audit.session("signed_out", "done", visitor.name, visitor.role.value, visitor.peer)
    return response


async def launch_link(request: Request) -> Response:
    """Show a one-time link for another browser, with this visitor's role and name. Its session ends with this one."""
    visitor, gate = visitor_of(request), _gate(request)
    if visitor.by_proxy:
        raise PageError(403, "Your proxy signs you in: open the console's address in the other browser.")
    await console_of(request).audit.session("link_made", "done", visitor.name, visitor.role.value, visitor.peer)
    cookie = "" if visitor.by_program else request.cookies.get(gate.cookie, "")
    token = gate.sessions.launch_token(visitor.role, visitor.name, cookie)
    origin = request.headers.get("origin") or f"{request.url.scheme}://{request.headers['host']}"
    address = f"{origin}{console_of(request).settings.base_path}/launch#{token}"
    return rendered(request, "launch_link.html", {"title": "Link for another browser", "address": address})


async def audit_page(request: Request) -> Response:
    """Show the newest lines of the audit log."""
    entries = await asyncio.to_thread(console_of(request).audit.newest)
    return rendered(request, "audit.html", {"title": "Audit log", "entries": entries})


def _next_path(path: str) -> str:
    """Return where the browser goes after signing in: a path of the console, and never another site."""
    if not path:
        return "/"
    if not path.startswith("/") or path.startswith("//") or "\\" in path or not path.isprintable():
        raise PageError(400, "That is no page of this console.")
    return path


ROUTES = [
    ("/sign-in", ["GET"], sign_in_page),
    ("/sign-in", ["POST"], sign_in),
    ("/launch", ["GET"], launch_page),
    ("/launch", ["POST"], sign_in),
    ("/sign-out", ["POST"], sign_out),
    ("/launch-link", ["POST"], launch_link),
    ("/audit", ["GET"], audit_page),
]
