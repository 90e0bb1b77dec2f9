"""Send requests whose bodies are in memory, and get whole answers of bounded size, or streams, or one kind of error.

The pool of connections is made with the first request, on the loop of its caller.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from shardway.aws.http.dialing import Dialer, Origin, Proxy, TunnelRefusedError
from shardway.aws.http.exchange import (
    Answer,
    BadAnswerError,
    BrokenError,
    Limits,
    NotProcessedError,
    Request,
    TooLongError,
    fit_to_send,
)
from shardway.aws.http.http1.pool import Pool
from shardway.errors import OptionError, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from shardway.aws.http.http1.connection import Connection
    from shardway.aws.http.http2.connection import MultiplexedConnection
    from shardway.aws.http.http2.pool import SharedPool
    from shardway.aws.options import ConnectionOptions

__all__ = ["Answer", "HttpTransport", "StaleConnectionError"]

TARGETS_MAX = 4096
"""The most URLs whose origin and proxy are remembered."""
UNPROCESSED_REPEATS_MAX = 3
"""How many times a request is sent again at once that the service says it did nothing about."""

KEEPALIVE_S = 20.0
"""The client closes an idle connection after this time, before the service or a balancer does it (Kinesis: minutes)."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""The client refuses a longer answer. GetRecords returns up to 10 MiB of data, which is some 14 MiB as JSON."""
HTTP2_WINDOW_BYTES = 1024 * 1024
"""The most bytes of an answer that arrives in parts which may wait for the caller. Beyond that the service holds the
answer back.
"""
HTTP2_STREAMS_MAX = 100
"""The most requests that go over one HTTP/2 connection at a time, if the service does not allow fewer. Further requests
open another connection.
"""
HTTP2_PING_INTERVAL_S = 10.0
"""The client asks for a sign of life when an HTTP/2 connection with open requests was silent for this long."""
HTTP2_PING_TIMEOUT_S = 10.0
"""The client gives up a connection that gives no sign of life within this time: all its requests fail."""


class Bounds(NamedTuple):
    """The bounds of connections that no option sets."""

    keepalive_s: float = KEEPALIVE_S
    answer_bytes_max: int = ANSWER_BYTES_MAX
    http2_window_bytes: int = HTTP2_WINDOW_BYTES
    http2_streams_max: int = HTTP2_STREAMS_MAX
    http2_ping_interval_s: float = HTTP2_PING_INTERVAL_S
    http2_ping_timeout_s: float = HTTP2_PING_TIMEOUT_S


BOUNDS = Bounds()

FAULTS = (OSError, BrokenError, NotProcessedError, TooLongError, BadAnswerError, TunnelRefusedError)


class StaleConnectionError(TransportError):
    """A connection from the pool was closed by the other side before the first byte of an answer.

    The usual cause is a server that closed an idle connection just as the request was written to it.
    """


class _Target(NamedTuple):
    """The origin of requests for one URL, the path that their first line names, and the headers that all have."""

    origin: Origin
    path: str
    headers: Mapping[str, str]


class HttpTransport:
    """Owns the connections of one event loop. Close it before the loop ends."""

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        ca_bundle: Callable[[], str | None],
        user_agent: str,
        bounds: Bounds | None = None,
    ) -> None:
        """``ca_bundle`` is asked when the first connection with TLS is opened."""
        self._bounds = bounds = bounds or BOUNDS
        self._options = options
        self._ca_bundle = ca_bundle
        self._user_agent = user_agent
        self._targets: dict[str, _Target] = {}
        self._limits = Limits(bounds.answer_bytes_max, options.read_timeout_s, options.request_timeout_s)
        self._dialer = Dialer(connect_timeout_s=options.connect_timeout_s, tls=self._tls)
        self._pool = Pool(self._dialer, in_use_max=options.connections_max, keepalive_s=bounds.keepalive_s)
        self._http2_pool = None if options.http2 == "off" else _shared_pool(options, bounds, self._dialer, self._pool)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, operation: str) -> Answer:
        """Send one POST and read its answer whole, whatever its status. Redirects are not followed.

        ``headers`` must hold ``host``. Raises `TransportError` (`StaleConnectionError`, when that is the reason)
        if no whole answer comes.
        """
        target = self._targets.get(url) or self._find_target(url)
        request = fit_to_send(Request(target.path, {**target.headers, **headers}, body))
        repeats = UNPROCESSED_REPEATS_MAX
        while True:
            connection = None
            try:
                connection = await self._take(target.origin, streamed=False)
                return await connection.request(request, self._limits)
            except FAULTS as error:
                if isinstance(error, NotProcessedError) and repeats:
                    repeats -= 1
                    continue
                fault = self._fault(error, operation, url, connection)
                fault.sent = connection is not None and not isinstance(error, NotProcessedError)
                raise fault from error
            finally:
                if connection is not None:
                    self._give_back(target.origin, connection, streamed=False)

    async def stream(
        self, url: str, headers: Mapping[str, str], body: bytes, *, operation: str
    ) -> AsyncGenerator[Answer, None]:
        """Send one POST; yield an answer without a body when its head is there, then one for each part of
        its body.

        The time of the whole is not bounded, its silences are (``read_timeout_s``). Close the generator to
        drop the connection.
        """
        target = self._targets.get(url) or self._find_target(url)
        request = fit_to_send(Request(target.path, {**target.headers, **headers}, body))
        limits = self._limits._replace(whole_s=None)
        repeats = UNPROCESSED_REPEATS_MAX
        while True:
            connection = None
            try:
                connection = await self._take(target.origin, streamed=True)
                async with contextlib.aclosing(connection.stream(request, limits)) as parts:
                    async for part in parts:
                        yield part
                return
            except FAULTS as error:
                if isinstance(error, NotProcessedError) and repeats:  # no part can have come
                    repeats -= 1
                    continue
                raise self._fault(error, operation, url, connection) from error
            finally:
                if connection is not None:
                    self._give_back(target.origin, connection, streamed=True)

    async def close(self) -> None:
        """Close all connections."""
        self._pool.close()
        if self._http2_pool is not None:
            self._http2_pool.close()
        await self._dialer.close()

    async def _take(self, origin: Origin, *, streamed: bool) -> Connection | MultiplexedConnection:
        if self._http2_pool is not None and (streamed or self._options.http2 == "all") and self._may_share(origin):
            shared = await self._http2_pool.take(origin)
            if shared is not None:
                return shared
        return await self._pool.take(origin, streamed=streamed)

    def _may_share(self, origin: Origin) -> bool:
        return origin.tls or (self._options.http2_cleartext and origin.proxy is None)

    def _give_back(self, origin: Origin, connection: Connection | MultiplexedConnection, *, streamed: bool) -> None:
        if connection.is_shared:
            assert self._http2_pool is not None
            self._http2_pool.give_back(connection)
        else:
            self._pool.give_back(origin, connection, streamed=streamed)

    def _fault(
        self, error: Exception, operation: str, url: str, connection: Connection | MultiplexedConnection | None
    ) -> TransportError:
        where = f"{operation} at {url}"
        if isinstance(error, ssl.SSLCertVerificationError):
            fault = TransportError(
                f"{where}: the server's TLS certificate is not trusted ({error.verify_message}). "
                "Name the CA with ca_bundle or AWS_CA_BUNDLE"
            )
            fault.retryable = False
            return fault
        if isinstance(error, TooLongError):
            bytes_max = self._bounds.answer_bytes_max
            return TransportError(f"{where}: the answer is longer than {bytes_max} bytes (answer_bytes_max)")
        if isinstance(error, BrokenError):
            if error.heard:
                return TransportError(f"{where}: {error} before the answer's end")
            reused = connection is not None and connection.exchanges > 1
            return (StaleConnectionError if reused else TransportError)(f"{where}: {error} before an answer came")
        if connection is None and isinstance(error, socket.gaierror):
            return TransportError(
                f"{where}: cannot connect ({error}): check the region, or endpoint_url, and that names can be resolved"
            )
        if connection is None and isinstance(error, OSError) and not isinstance(error, TimeoutError):
            return TransportError(f"{where}: cannot connect ({error})")
        return TransportError(f"{where}: {error}")

    def _find_target(self, url: str) -> _Target:
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        proxy_url = proxy_for(url)
        proxy = Proxy.from_url(proxy_url) if proxy_url is not None else None
        origin = Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls, proxy)
        path = url if proxy is not None and not tls else parts.path or "/"
        headers = {"user-agent": self._user_agent}
        if proxy is not None and not tls and proxy.authorization is not None:
            headers["proxy-authorization"] = proxy.authorization
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        self._targets[url] = target = _Target(origin, path, headers)
        return target

    def _tls(self) -> ssl.SSLContext:
        context = tls_context(self._ca_bundle())
        if not self._options.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _shared_pool(options: ConnectionOptions, bounds: Bounds, dialer: Dialer, pool: Pool) -> SharedPool:
    try:
        from shardway.aws.http.http2.pool import SharedPool
        from shardway.aws.http.http2.stream import Multiplexing
    except ModuleNotFoundError as fault:
        raise OptionError(
            f"HTTP/2 (http2={options.http2!r}) needs the package h2: pip install 'shardway[http2]'"
        ) from fault
    multiplexing = Multiplexing(
        window_bytes=bounds.http2_window_bytes,
        streams_max=bounds.http2_streams_max,
        ping_interval_s=bounds.http2_ping_interval_s,
        ping_timeout_s=bounds.http2_ping_timeout_s,
    )
    return SharedPool(
        dialer,
        multiplexing,
        connections_max=options.connections_max,
        keepalive_s=bounds.keepalive_s,
        on_http1=pool.keep,
    )


def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    """Return a client context that verifies: against ``ca_bundle`` (file or folder), else against the system's CAs."""
    try:
        if ca_bundle is None:
            return ssl.create_default_context()
        if os.path.isdir(ca_bundle):
            return ssl.create_default_context(capath=ca_bundle)
        return ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        raise OptionError(
            f"the CA bundle {ca_bundle!r} (ca_bundle or AWS_CA_BUNDLE) cannot be loaded: {error}"
        ) from error


def proxy_for(url: str) -> str | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name for a URL, if any."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # this spares the import
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    parts = urlsplit(url)
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or not parts.hostname or proxy_bypass_environment(parts.netloc, proxies):
        return None
    return str(proxy) if "://" in proxy else f"http://{proxy}"
