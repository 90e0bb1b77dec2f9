"""Serve numbers as Prometheus scrapes them, and answers to probes, by an HTTP server of the exporter's own.

``/metrics`` is the text format 0.0.4, with the names of `shardway.telemetry.metric_table`. ``/health/live`` and
``/health/ready`` say whether the process is alive and ready, by the numbers that its consumers reported last.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.errors import OptionError
from shardway.events import ConsumerMetrics
from shardway.tasks import logged, spawn
from shardway.telemetry.exporting import TICK_S, Exporter
from shardway.telemetry.health import Health
from shardway.telemetry.prometheus_page import CONTENT_TYPE, encode

if TYPE_CHECKING:
    from shardway.telemetry.health import Verdict
    from shardway.telemetry.points import Told


HEAD_BYTES_MAX = 16_384
"""The longest head of a request."""
HEAD_S = 2.0
"""Seconds that a client has to send its request: a scrape and a probe send theirs at once."""
CLIENT_S = 10.0
"""Seconds that a client has to take the answer."""
WAITING_MAX = 128
"""The clients that have not sent their request yet, and those of the probes. One more cuts off the oldest client of the
address that has most of them, so that clients which say nothing keep no probe out.
"""
CLOSE_S = 1.0
BACKLOG = 1024
"""The connections that the kernel keeps while the thread is busy. Where it has no place it drops the client's first
packet, and the client tries again after a second, which is as long as a probe waits.
"""


class Answer(NamedTuple):
    """The answer that a client gets."""

    status: str
    content_type: str
    body: bytes


class PrometheusExporter(Exporter):
    """Serves the numbers of all consumers and producers whose ``on_event`` it is.

    ::

        with PrometheusExporter(port=9464) as exporter:
            async with Consumer("orders", application="billing", on_event=exporter) as consumer:
                ...

    The exporter listens from its construction on, in a thread of its own. ``/metrics`` is Prometheus's text format.
    ``/health/live`` answers 200 while the consumers' loops turn, and ``/health/ready`` while leases are renewed, too,
    and reads succeed; else they answer 503, with the reasons in JSON. Probes are answered however many clients are
    silent, or take ``/metrics`` slowly.
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
        """``port`` 0 takes a free port, which is then the attribute `port`. ``host`` is the address to listen on: by
        default only this machine is answered. ``shards_max``: the levels of at most this many shards are reported one
        by one, too, and those of the rest as one. With the files of a ``certificate`` and its ``key`` (PEM) the server
        speaks TLS. Raises OptionError for a port that is taken, and for files that cannot be read.
        """
        super().__init__("prometheus", shards_max=shards_max)
        if not 0 <= port <= 65_535 or clients_max < 1 or shards_max < 0 or not unready_after_s > 0:
            raise OptionError(
                "port is 0 to 65535, clients_max at least 1, shards_max at least 0, unready_after_s more than 0; not "
                f"{port}, {clients_max}, {shards_max}, {unready_after_s}"
            )
        self._clients_max = clients_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting_clients: dict[asyncio.StreamWriter, str] = {}
        """The address of each client, the oldest client first."""
        self._scrape_clients: set[asyncio.StreamWriter] = set()
        self._health = Health(unready_after_s)
        self._tls = _tls(certificate, key)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        """The port that the server listens on."""
        self._start()

    # --- the thread ---------------------------------------------------------------------------------

    async def _work(self) -> None:
        """See `Exporter`."""
        # A process that was forked has its parent's, whose connections are not its own.
        self._tasks, self._waiting_clients, self._scrape_clients = set(), {}, set()
        handshake_s = None if self._tls is None else HEAD_S
        server = await asyncio.start_server(
            self._client,
            sock=self._socket,
            ssl=self._tls,
            limit=HEAD_BYTES_MAX,
            backlog=BACKLOG,
            ssl_handshake_timeout=handshake_s,
        )
        try:
            while not self._is_closed:
                self._drain()
                await asyncio.sleep(TICK_S)
        finally:
            server.close()
            # A task that is cancelled is reported with a traceback by asyncio: it ends by the end of its connection.
            for writer in [*self._waiting_clients, *self._scrape_clients]:
                writer.transport.abort()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=CLOSE_S)

    def _take(self, event: Told) -> None:
        """See `Exporter`."""
        self._health.heard(event if isinstance(event, ConsumerMetrics) else None, time.monotonic())
        super()._take(event)

    def _answer(self, path: str) -> Answer:
        """Return the answer to a GET of this path. It is called on the exporter's thread."""
        self._drain()
        now_s = time.monotonic()
        match path.partition("?")[0]:
            case "/metrics":
                page = encode([point for point, _ in self._points()])
                return Answer("200 OK", CONTENT_TYPE, page)
            case "/health/live":
                return _health(self._health.live(now_s))
            case "/health/ready":
                return _health(self._health.ready(now_s))
        return Answer("404 Not Found", "text/plain", b"/metrics, /health/live, /health/ready\n")

    # --- clients ------------------------------------------------------------------------------------

    def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin to serve a client. The connection is noted at once: were this a coroutine, the end of the loop could
        come before its first step, and would leave a client that has just connected without an answer or an end.
        """
        peer = writer.get_extra_info("peername")
        self._waiting_clients[writer] = str(peer[0]) if peer else ""  # One that is gone already has no address.
        if len(self._waiting_clients) > WAITING_MAX:
            of_address = Counter(self._waiting_clients.values())
            gone = max(
                self._waiting_clients, key=lambda one: of_address[self._waiting_clients[one]]
            )  # The oldest of equals.
            del self._waiting_clients[gone]
            gone.transport.abort()
        task = spawn(self._serve(reader, writer), logged("a client of /metrics or /health was not answered"))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                asked = await _read_query(reader)
            async with asyncio.timeout(CLIENT_S):
                await self._give(asked, writer)
        except (TimeoutError, OSError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # the client is gone, or too slow; it may come again
        finally:
            self._waiting_clients.pop(writer, None)
            self._scrape_clients.discard(writer)
            with contextlib.suppress(OSError):
                writer.transport.abort()

    async def _give(self, asked: _Query | Answer, writer: asyncio.StreamWriter) -> None:
        """Answer a client. Probes need no place among the scrapes: a kubelet would restart a process that works."""
        head_only = False
        if isinstance(asked, Answer):
            answer = asked
        elif asked.is_scrape and len(self._scrape_clients) >= self._clients_max:
            answer = Answer("503 Service Unavailable", "text/plain", b"too many clients\n")
        else:
            if asked.is_scrape:
                self._waiting_clients.pop(writer, None)
                self._scrape_clients.add(writer)
            answer, head_only = self._answer(asked.path), asked.head_only
        writer.write(_head(answer) + (b"" if head_only else answer.body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()


class _Query(NamedTuple):
    """What a client has asked for."""

    path: str
    head_only: bool

    @property
    def is_scrape(self) -> bool:
        return self.path.partition("?")[0] == "/metrics"


async def _read_query(reader: asyncio.StreamReader) -> _Query | Answer:
    """Return what a client asks for, or the answer to a request that is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return Answer("431 Request Header Fields Too Large", "text/plain", b"")
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    path, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        return Answer("400 Bad Request", "text/plain", b"")
    if method not in ("GET", "HEAD"):
        return Answer("405 Method Not Allowed", "text/plain", b"")
    return _Query(path, method == "HEAD")


def _health(verdict: Verdict) -> Answer:
    body = msgspec.json.encode({"ok": verdict.good, "problems": verdict.problems}) + b"\n"
    return Answer("200 OK" if verdict.good else "503 Service Unavailable", "application/json", body)


def _head(answer: Answer) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if answer.status.startswith("405") else ""
    return (
        f"HTTP/1.1 {answer.status}\r\nContent-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        f"{allow}Connection: close\r\n\r\n"
    ).encode()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OptionError(
            f"port: cannot listen on {host}, port {port}: {error.strerror or error}; give another one, or port 0 for "
            "one that is free"
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
