"""A console as it is served, on a thread of its own, and a Chromium that looks at it."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway.console.server import ConsoleServer
from shardway.tasks import logged, thread

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from shardway.console.settings import ConsoleSettings
    from shardway.wiring import ConnectionOptions

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def chromium() -> str | None:
    """Where Chromium is; None: there is none."""
    found = subprocess.run([ROOT / "scripts" / "chromium"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


CHROMIUM = chromium()


class Served:
    """Serves a console until it is left."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions) -> None:
        self._given = (settings, connection)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.serving: ConsoleServer

    def __enter__(self) -> Served:
        self._thread = thread(self._run, "console-under-test", logged("the console under test failed"))
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self.serving.end)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        """Where it is."""
        return self.serving.url

    @property
    def console(self) -> Any:
        """Its parts."""
        return self.serving.gate.console

    def launch_url(self) -> str:
        """A link that signs in once."""
        return self.serving.launch_url()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.serving = ConsoleServer(*self._given)
        self._ready.set()
        await self.serving.run_until_told()


class Watched:
    """A tab, and all that a page must not do in it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.page = context.new_page()
        self.url = url
        self.wrong: list[str] = []
        self.allowed = "(nothing)"
        self.page.on("console", lambda one: self.wrong.append(one.text) if one.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda one: self.wrong.append(str(one)))
        self.page.on("request", lambda one: self._asked(one.url))

    def _asked(self, address: str) -> None:
        if not address.startswith(self.url + "/"):
            self.wrong.append(f"asks {address}")

    def go(self, path: str, status: int = 200) -> Page:
        """Open a page of the console."""
        answer = self.page.goto(self.url + path)
        assert answer is not None
        assert answer.status == status, path
        if status != 200:  # the browser notes an answer of this kind in its console
            self.wrong = [one for one in self.wrong if "Failed to load resource" not in one]
        return self.page


def tab(browser: Browser, served: Served, **options: Any) -> Watched:
    """A browser that signs in by a link."""
    context = browser.new_context(**options)
    found = Watched(context, served.url)
    found.page.goto(served.launch_url())
    found.page.wait_for_url(served.url + "/")
    return found


class Holding:
    """A proxy that gives an answer out when it has all of it."""

    def __init__(self) -> None:
        self.to = 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._pass(self)

            def do_POST(self) -> None:
                proxy._pass(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    def __enter__(self) -> Holding:
        self._thread = thread(self._server.serve_forever, "holding-proxy", logged("the proxy of a test failed"))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def _pass(self, asked: http.server.BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("content-length", "0")))
        connection = http.client.HTTPConnection("127.0.0.1", self.to, timeout=60)
        try:
            connection.request(asked.command, asked.path, body, dict(asked.headers))
            answer = connection.getresponse()
            held = answer.read()
            asked.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection", "date"):
                    asked.send_header(name, value)
            asked.send_header("content-length", str(len(held)))
            asked.end_headers()
            asked.wfile.write(held)
        except (OSError, http.client.HTTPException):
            asked.close_connection = True  # either side has left
        finally:
            connection.close()
