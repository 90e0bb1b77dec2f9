"""``/metrics`` for Prometheus, and ``/health/live`` and ``/health/ready`` for probes: an HTTP server of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.errors import OptionError
from penstock.events import ConsumerMetrics
from penstock.telemetry import prometheus
from penstock.telemetry.exporting import TICK_S, Exporter
from penstock.telemetry.health import Health, Verdict

if TYPE_CHECKING:
    from penstock.telemetry.names import Told

HEAD_BYTES_MAX = 16_384
"""A request's head is at most so long."""
CLIENT_S = 10.0
"""A client has so long to send its request, and to take the answer."""
BACKLOG = 64


class Answer(NamedTuple):
    """What a client gets."""

    status: str
    content_type: str
    body: bytes


class PrometheusExporter(Exporter):
    """Serves the numbers of all consumers and producers whose ``on_event`` it is.

    ::

        with PrometheusExporter(port=9464) as exporter:
            async with Consumer("orders", application="billing", on_event=exporter) as consumer:
                ...

    It listens from the beginning on, in a thread of its own. ``/metrics`` is Prometheus's text format;
    ``/health/live`` answers 200 while the consumers' loops turn, ``/health/ready`` while leases are renewed too and
    reads succeed, and 503 else, with the reasons in JSON.
    """

    metrics_interval_s = 2.0

    def __init__(
        self,
        port: int = 9464,
        *,
        host: str = "127.0.0.1",
        shards_max: int = 0,
        unready_after_s: float = 60.0,
        clients_max: int = 16,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        """``port`` 0 takes a free one, which the attribute `port` tells. ``host`` is the address to listen on: by
        default only this machine is answered. ``shards_max``: the levels of so many shards one by one, too; the rest
        is one. With the files of a ``certificate`` and its ``key`` (PEM) it speaks TLS. Raises OptionError for a port
        that is taken, and files that cannot be read.
        """
        super().__init__("prometheus", shards_max=shards_max)
        if not 0 <= port <= 65_535 or clients_max < 1 or shards_max < 0 or not unready_after_s > 0:
            raise OptionError(
                "port is 0 to 65535, clients_max at least 1, shards_max at least 0, unready_after_s more than 0; not "
                f"{port}, {clients_max}, {shards_max}, {unready_after_s}"
            )
        self._clients_max = clients_max
        self._clients: set[asyncio.Task[None]] = set()
        self._health = Health(unready_after_s)
        self._tls = _tls(certificate, key)
        self._socket = _listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        """The port that it listens on."""
        self._start()

    # --- the thread ---------------------------------------------------------------------------------

    async def _work(self) -> None:
        """See `Exporter`."""
        server = await asyncio.start_server(
            self._client, sock=self._socket, ssl=self._tls, limit=HEAD_BYTES_MAX, backlog=BACKLOG
        )
        try:
            while not self._is_closed:
                self._drain()
                await asyncio.sleep(TICK_S)
        finally:
            server.close()
            for task in self._clients:
                task.cancel()

    def _took(self, event: Told) -> None:
        """See `Exporter`."""
        self._health.heard(event if isinstance(event, ConsumerMetrics) else None, time.monotonic())
        super()._took(event)

    def _answer(self, path: str) -> Answer:
        """What a GET of this path gets. Called on the thread."""
        self._drain()
        now_s = time.monotonic()
        match path.partition("?")[0]:
            case "/metrics":
                page = prometheus.encode([point for point, _ in self._points()])
                return Answer("200 OK", prometheus.CONTENT_TYPE, page)
            case "/health/live":
                return _health(self._health.live(now_s))
            case "/health/ready":
                return _health(self._health.ready(now_s))
        return Answer("404 Not Found", "text/plain", b"/metrics, /health/live, /health/ready\n")

    # --- clients ------------------------------------------------------------------------------------

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        is_busy = len(self._clients) >= self._clients_max
        self._clients.add(task)
        try:
            async with asyncio.timeout(CLIENT_S):
                if is_busy:
                    answer, head_only = Answer("503 Service Unavailable", "text/plain", b"too many clients\n"), False
                else:
                    answer, head_only = await self._asked(reader)
                writer.write(_head(answer) + (b"" if head_only else answer.body))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # the client is gone, or too slow; it may come again
        finally:
            self._clients.discard(task)
            with contextlib.suppress(OSError):
                writer.transport.abort()

    async def _asked(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return Answer("431 Request Header Fields Too Large", "text/plain", b""), False
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return Answer("400 Bad Request", "text/plain", b""), False
        if method not in ("GET", "HEAD"):
            return Answer("405 Method Not Allowed", "text/plain", b""), False
        return self._answer(path), method == "HEAD"


def _health(verdict: Verdict) -> Answer:
    body = msgspec.json.encode({"ok": verdict.good, "problems": verdict.problems}) + b"\n"
    return Answer("200 OK" if verdict.good else "503 Service Unavailable", "application/json", body)


def _head(answer: Answer) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if answer.status.startswith("405") else ""
    return (
        f"HTTP/1.1 {answer.status}\r\nContent-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        f"{allow}Connection: close\r\n\r\n"
    ).encode()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OptionError(
            f"port: {host}, port {port} cannot be listened on: {error.strerror or error}; give another one, or port 0 "
            "for one that is free"
        ) from error


def _tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key is not None:
            raise OptionError("key: give the certificate, too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(f"certificate: {certificate} cannot be loaded: {error.strerror or error}") from error
    return context
