"""The one gate of the console: it decides on each request before any page sees it.

The gate asks in this order: is the Host one of ours, does the request come from one of our own pages, which visitor is
it, may that visitor write. A write is a request with a method other than GET and HEAD, so no route can forget to ask.
The gate also adds what every answer carries (the content security policy and its like).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from shardway.console.security.answers import Answering
from shardway.console.security.requests import GateRequest
from shardway.console.security.sessions import USER_CHARACTERS_MAX, Sessions, equal
from shardway.console.security.visitors import Refused, Role, Visitor
from shardway.core.pacing import TokenBucket
from shardway.errors import ShardwayError
from shardway.shown import one_line

if TYPE_CHECKING:
    from shardway.console.console import Console
    from shardway.console.security.protocol import Application, Receive, Scope, Send
    from shardway.console.settings import ConsoleSettings


log = logging.getLogger("shardway.console")
FAILURES_PER_S, FAILURES_BURST = 0.5, 10.0
"""The attempts to sign in that may fail: at a steady rate, and in a burst."""
CSRF_HEADER = b"x-shardway-csrf"
SIGN_IN, LAUNCH, SIGN_OUT, LINK = "/sign-in", "/launch", "/sign-out", "/launch-link"
_PUBLIC = (SIGN_IN, LAUNCH)
_OF_SESSIONS = (SIGN_IN, LAUNCH, SIGN_OUT, LINK)
"""The paths at which a POST changes nothing but a session."""


class Gate:
    """Stands before the console's application."""

    def __init__(self, application: Application, settings: ConsoleSettings, console: Console) -> None:
        self.console = console
        self._application = application
        self._settings = settings
        self.sessions = Sessions()
        self.cookie = f"shardway-console-{settings.port}"
        self._secret = secrets.token_bytes(32)
        self._hosts = _hosts(settings)
        self._proxies = [ipaddress.ip_network(one) for one in settings.proxies]
        self._failures = TokenBucket(
            records_per_s=FAILURES_PER_S, records_burst=FAILURES_BURST, bytes_per_s=float("inf"), now_s=time.monotonic()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the application with its visitor."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a WebSocket that is not accepted is closed
        asked = GateRequest(scope)
        answer = Answering(send, scope, strict_transport=self._is_strict(asked))
        try:
            await self._admit(asked, receive)
            scope["path"], scope["raw_path"] = asked.path, asked.path.encode()
            await self._application(scope, asked.replayed(receive), answer.send)
        except Refused as refused:
            await answer.refuse(refused, asked)
        except asyncio.CancelledError:
            if not self.console.ending.is_set():
                raise
            log.info("the console ends: a browser that does not take its answer is cut off")
        finally:
            name = getattr(scope.get("state", {}).get("visitor"), "name", "-")
            # The log gets the path alone: a query holds keys and filters.
            log.info("%s %s %s %s", one_line(asked.method), one_line(asked.path), answer.status, one_line(name))

    async def _admit(self, asked: GateRequest, receive: Receive) -> None:
        """Raises Refused."""
        self._of_our_host(asked)
        asked.path = self._below_base(asked.path)
        if asked.method not in ("GET", "HEAD", "POST"):
            raise Refused(405, "the console answers GET, HEAD and POST")
        self._of_our_pages(asked)
        if asked.method == "POST":
            await asked.read_form(receive)
        state = asked.scope.setdefault("state", {})
        state["form"], state["gate"] = asked.form, self
        try:
            visitor = state["visitor"] = self.visitor(asked)
        except Refused as refused:
            if refused.status == 401:
                await self._note_wrong_token(asked)
            raise
        if asked.path.startswith("/assets/") and asked.method != "POST":
            return
        if visitor is None:
            if asked.path in _PUBLIC:
                return
            if asked.method == "GET" and b"text/html" in asked.header(b"accept"):
                query = asked.scope.get("query_string", b"").decode("latin-1")
                following = quote(asked.path + (f"?{query}" if query else ""), safe="")
                raise Refused(303, "sign in", location=f"{self._settings.base_path}{SIGN_IN}?next={following}")
            raise Refused(401, "sign in first, or give the token: Authorization: Bearer TOKEN")
        if asked.method == "POST":
            self._may_post(asked, visitor)

    async def _note_wrong_token(self, asked: GateRequest) -> None:
        try:
            await self.console.audit.session("token", "refused", "-", "-", asked.peer)
        except ShardwayError as fault:  # The request is refused either way.
            log.error("%s", fault)

    def _may_post(self, asked: GateRequest, visitor: Visitor) -> None:
        """Decide whether a visitor may write; no other place does. Raises Refused."""
        given = asked.header(CSRF_HEADER).decode("latin-1") or asked.form.get("csrf", "")
        if asked.path not in _PUBLIC and not visitor.by_program and not equal(given, visitor.csrf):
            raise Refused(403, "the form is not one of this console's pages, or is older than your session: reload it")
        if asked.path in _OF_SESSIONS:
            return
        if not self._settings.allow_writes:
            raise Refused(403, "this console is read-only: it was started without --allow-writes")
        if not visitor.may_write:
            raise Refused(403, f"{visitor.name} is a viewer, and may not write")

    # --- from where -------------------------------------------------------------------------------

    def _of_our_host(self, asked: GateRequest) -> None:
        """Refuse a request whose Host is not ours: a page of another site whose name leads here (DNS rebinding) sends
        that name. Raises Refused.
        """
        hosts = asked.headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self._hosts:
            raise Refused(403, "the console does not know itself by the name of this host: see --host-name")

    def _of_our_pages(self, asked: GateRequest) -> None:
        origins = asked.headers.get(b"origin", [])
        ours = f"{self._scheme(asked)}://{asked.header(b'host').decode('latin-1').lower()}"
        if any(one.decode("latin-1").lower() != ours for one in origins) or len(origins) > 1:
            raise Refused(403, "the request comes from a page of another origin")
        if asked.method == "POST" and not origins and not asked.header(b"authorization"):
            raise Refused(403, "a request that changes something must tell its origin, or bring the token")
        # A browser says which site made the request. To follow a link or to type the address is no request of a page.
        site, mode = asked.header(b"sec-fetch-site"), asked.header(b"sec-fetch-mode")
        if site not in (b"", b"same-origin", b"none") and (mode != b"navigate" or asked.method != "GET"):
            raise Refused(403, "the request was made by a page of another site")

    def _is_strict(self, asked: GateRequest) -> bool:
        """Return whether browsers are told to use HTTPS alone. They do it then for all that this host serves, for a
        year; so it has to be asked for.
        """
        name = asked.header(b"host").decode("latin-1").lower()
        is_local = name.rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]") or name == "localhost"
        return self._settings.hsts and not is_local and self._scheme(asked) == "https"

    def _below_base(self, path: str) -> str:
        base = self._settings.base_path
        if base and path != base and not path.startswith(base + "/"):
            raise Refused(404, f"the console is below {base}")
        return path[len(base) :] or "/"

    def _scheme(self, asked: GateRequest) -> str:
        if self.is_proxy(asked.peer):
            told = asked.header(b"x-forwarded-proto")
            return "http" if told == b"http" else "https" if told == b"https" else self._own_scheme
        return self._own_scheme

    @property
    def _own_scheme(self) -> str:
        return "https" if self._settings.secure else "http"

    def is_proxy(self, peer: str) -> bool:
        """Return whether this address is one of a named proxy."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in one for one in self._proxies if one.version == address.version)

    # --- which visitor ----------------------------------------------------------------------------

    def visitor(self, asked: GateRequest) -> Visitor | None:
        """Return which visitor asks; None: the request has signed in nowhere. Raises Refused for a wrong token, and for
        a proxy's header that is none.
        """
        # A proxy that signs users in passes its own Authorization on, so its user header counts first.
        if (by_proxy := self._by_proxy(asked)) is not None:
            return by_proxy
        if asked.header(b"authorization"):
            return self._by_token(asked)
        session = self.sessions.of(asked.cookie(self.cookie))
        if session is None:
            return None
        return self._visitor(session.name, session.role, asked, session.csrf)

    def _by_token(self, asked: GateRequest) -> Visitor:
        word, _, given = asked.header(b"authorization").decode("latin-1").partition(" ")
        role = self.role_of(given.strip() if word.lower() in ("bearer", "token") else "")
        if role is None:
            raise Refused(401, "the token is wrong")
        return self._visitor(f"token:{role}", role, asked, "", by_program=True)

    def _by_proxy(self, asked: GateRequest) -> Visitor | None:
        header = self._settings.user_header
        if header is None or not self.is_proxy(asked.peer):
            return None
        named = asked.headers.get(header.lower().encode(), [])
        if not named:
            return None
        name = named[0].decode("utf-8", "replace").strip()
        if len(named) > 1 or not name.isprintable() or not 0 < len(name) <= USER_CHARACTERS_MAX:
            raise Refused(400, f"the proxy's header {header} names no single user")
        role = Role.WRITER if name in self._settings.writers else Role.VIEWER
        csrf = hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()
        return self._visitor(name, role, asked, csrf, by_proxy=True)

    def _visitor(self, name: str, role: Role, asked: GateRequest, csrf: str, **how: bool) -> Visitor:
        may_write = self._settings.allow_writes and role is Role.WRITER
        return Visitor(name=name, role=role, peer=asked.peer, csrf=csrf, may_write=may_write, **how)

    def role_of(self, token: str) -> Role | None:
        """Return the role of a token; None for a wrong one. Raises Refused when too many were wrong."""
        # Both tokens are compared, each in a time that reveals nothing of the token.
        is_writer = equal(token, self._settings.token)
        is_viewer = self._settings.viewer_token is not None and equal(token, self._settings.viewer_token)
        if is_writer or is_viewer:
            return Role.WRITER if is_writer else Role.VIEWER
        if not self._failures.take(time.monotonic(), records=1):
            raise Refused(429, "too many wrong tokens: wait some seconds")
        return None

    def signed_in(self, role: Role, name: str, scope: Scope, made_by: bytes | None = None) -> tuple[str, str]:
        """Return a header that gives the browser behind this request a session."""
        cookie = self.sessions.open(role, name, made_by)
        return "set-cookie", self._cookie_text(cookie, scope)

    def signed_out(self, cookie: str, scope: Scope) -> tuple[str, str]:
        """End the session, and return a header that makes the browser forget it."""
        self.sessions.close(cookie)
        return "set-cookie", self._cookie_text("", scope) + "; Max-Age=0"

    def _cookie_text(self, value: str, scope: Scope) -> str:
        secure = "; Secure" if self._scheme(GateRequest(scope)) == "https" else ""  # a proxy may serve HTTPS before it
        path = self._settings.base_path or "/"
        return f"{self.cookie}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}"


def _hosts(settings: ConsoleSettings) -> frozenset[str]:
    """Return the values that a Host header may have, in small letters."""
    named = {f"{one}:{settings.port}" for one in ("localhost", "127.0.0.1", "[::1]")} if settings.on_loopback else set()
    for one in settings.host_names:
        name = one.lower()
        has_port = name.rpartition(":")[2].isdigit() and not name.endswith("]")
        named |= {name} if has_port else {name, f"{name}:{settings.port}"}
    return frozenset(named)
