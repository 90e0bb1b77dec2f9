"""Make signed calls to AWS's JSON services over one pooled HTTP client.

::

    async with Wire(ConnectionOptions(region="eu-west-1")) as wire:
        answer = await wire.call("kinesis", "ListStreams", b"{}")

A wire belongs to one event loop. Making one is cheap and does no look-ups: region, endpoint and credentials
are found with the first call, off the loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from shardway.aws.assumed_role import AssumedRole, StsCalls
from shardway.aws.calls.answers import service_error
from shardway.aws.calls.retry import NEVER, RetryPolicy
from shardway.aws.calls.signature import Signer
from shardway.aws.calls.signed_calls import Request, Route, SignedCalls
from shardway.aws.credentials import CredentialCache
from shardway.aws.endpoints import DATA_OPERATIONS, Endpoint, resolve_endpoint, resolve_region
from shardway.aws.options import ConnectionOptions
from shardway.aws.program_credentials import asked_of_the_program
from shardway.aws.sdk import Sdk, fixed_credentials
from shardway.aws.transport import HttpTransport
from shardway.core.service_clock import ServiceClock, SteadyEpoch
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from types import TracebackType

    from shardway.aws.options import Credentials

ROUTES_MAX = 4096
"""The most endpoints that are remembered: one per service, and two per stream that is named by its ARN."""


class JsonService(NamedTuple):
    """Says how a JSON service is addressed: the prefix of X-Amz-Target and the content type."""

    target_prefix: str
    content_type: str


JSON_SERVICES = {
    "kinesis": JsonService("Kinesis_20131202", "application/x-amz-json-1.1"),
    "dynamodb": JsonService("DynamoDB_20120810", "application/x-amz-json-1.0"),
    "cloudwatch": JsonService("GraniteServiceVersion20100801", "application/x-amz-json-1.0"),
    "glue": JsonService("AWSGlue", "application/x-amz-json-1.1"),
}
"""The JSON services, by botocore's name of each."""


_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that nothing sets and that goes on while the machine is suspended: Linux's CLOCK_MONOTONIC does not."""


class Wire:
    """A client for AWS's JSON services, with `options` for all of them.

    ``clock`` knows the service's time from the ``Date`` of each answer; its local clock is ``now`` (epoch seconds).
    That is this machine's clock as it was when the wire was made, and goes on at a steady pace. A change of the
    machine's clock does not reach it, because no answer shows a change during a call: a time hours ahead of the service
    would be asked for, and stored as read.
    """

    def __init__(
        self,
        options: ConnectionOptions | None = None,
        *,
        rng: random.Random | None = None,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.options = options or ConnectionOptions()
        self.clock = ServiceClock()
        self._rng = rng or random.Random()
        self._now = now or SteadyEpoch(lambda: time.clock_gettime(_STEADY), time.time)
        self._sleep = sleep
        self._retry = retry or RetryPolicy()
        self._sdk = Sdk(self.options.profile, ca_bundle=self.options.ca_bundle)
        self._program = asked_of_the_program(self.options)
        self._bundle: str | None = self.options.ca_bundle
        self._bundle_known = self._bundle is not None
        self._region: str | None = self.options.region  # its form was checked by the options
        self._routes: dict[tuple[str, str | None, bool], Route] = {}
        self._parts: _Parts | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def now(self) -> float:
        """Return the epoch seconds of this machine, as `clock` counts them: its bounds are asked for by this time."""
        return self._now()

    @property
    def service_now_s(self) -> float:
        """The service's time in epoch seconds, as its answers have shown it (`ServiceClock.near_s`)."""
        return self.clock.near_s(self._now())

    @property
    def region(self) -> str:
        """The region that calls go to. Configuration files may be read if it was not given and no call was made yet.

        Raises `OptionError` when there is none.
        """
        if self._region is None:
            self._region = resolve_region(self.options, self._sdk)
        return self._region

    async def call(
        self,
        service: str,
        operation: str,
        body: bytes,
        *,
        retry: RetryPolicy | None = None,
        stream_arn: str | None = None,
        content_type: str | None = None,
    ) -> bytes:
        """Make one call and return the body of its answer.

        ``service`` is botocore's name of it (`JSON_SERVICES`), ``body`` the JSON of the parameters, or what
        ``content_type`` says.
        ``stream_arn`` is the ARN in the parameters, if one is: Kinesis has endpoints by account for these.
        Raises `ServiceError` (by class), `TransportError`, `CredentialsError`, `OptionError`.
        """
        route = self._routes.get((service, stream_arn, operation in DATA_OPERATIONS))
        if route is None or self._parts is None:
            route = await self._find_route(service, stream_arn, operation)
        parts = self._parts_here()
        headers = _headers(service, operation, route)
        if content_type is not None:
            headers["content-type"] = content_type
        request = Request(operation, route, headers, body)
        answer = await parts.calls.call(request, parts.credentials, retry or self._retry)
        return answer.body

    async def stream(
        self, service: str, operation: str, body: bytes, *, stream_arn: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Make one call and yield its answer in parts of any size as they arrive. Nothing is repeated.

        Raises what `call` raises. Close the iterator (``aclose``) to drop the connection early.
        """
        route = await self._find_route(service, stream_arn, operation)
        parts = self._parts_here()
        request = Request(operation, route, _headers(service, operation, route), body)
        chunks = parts.calls.stream(request, parts.credentials)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, sign_for: str | None) -> None:
        """Post a body to a URL, once, signed for a service of AWS or not at all. Header names are in lower case.

        Raises what `call` raises, also for any status but 2xx.
        """
        parts = urlsplit(url)
        if sign_for is None:
            answer = await self._parts_here().transport.post(
                url, {"host": parts.netloc, **headers}, body, operation="POST"
            )
            if not 200 <= answer.status < 300:
                raise service_error("POST", answer.status, answer.headers, answer.body)
            return
        if self._region is None:
            self._region = await asyncio.to_thread(resolve_region, self.options, self._sdk)
        endpoint = Endpoint(url, parts.netloc, parts.path or "/", self._region, sign_for)
        request = Request(
            "POST", Route(endpoint, Signer(sign_for, self._region)), {"host": parts.netloc, **headers}, body
        )
        opened = self._parts_here()
        await opened.calls.call(request, opened.credentials, NEVER)

    async def endpoint_url(self, service: str) -> str:
        """Return the URL that calls without an ARN go to."""
        route = await self._find_route(service, None, "")
        return route.endpoint.url

    async def close(self) -> None:
        """Close the connections. No call may follow."""
        self._closed = True
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _find_route(self, service: str, stream_arn: str | None, operation: str) -> Route:
        data = operation in DATA_OPERATIONS
        known = self._routes.get((service, stream_arn, data))
        if known is not None:
            return known
        if self._region is None:
            self._region = await asyncio.to_thread(resolve_region, self.options, self._sdk)
        region = self._region
        endpoint = await asyncio.to_thread(
            lambda: resolve_endpoint(
                self.options, self._sdk, service, region, operation=operation, stream_arn=stream_arn
            )
        )
        if not self._bundle_known and endpoint.url.startswith("https:"):
            self._bundle = await asyncio.to_thread(self._sdk.ca_bundle)
            self._bundle_known = True
        route = Route(endpoint, Signer(endpoint.signing_name, endpoint.signing_region))
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[service, stream_arn, data] = route
        return route

    def _parts_here(self) -> _Parts:
        loop = asyncio.get_running_loop()
        if self._parts is None:
            if self._closed:
                raise RuntimeError("the wire is closed")
            self._parts, self._loop = self._open(), loop
        elif self._loop is not loop:
            raise RuntimeError(
                "a client of AWS belongs to the event loop of its first call: make one for each loop (and process)"
            )
        return self._parts

    def _open(self) -> _Parts:
        options = self.options
        transport = HttpTransport(
            options,
            ca_bundle=lambda: self._bundle,
            user_agent=_user_agent(options.user_agent_tag),
        )
        calls = self._make_calls(transport)
        renews = fixed_credentials(options) is None
        base = CredentialCache(self._load_credentials, renews=renews, now=self._now)
        if options.role_arn is None:
            return _Parts(transport, calls, (base,))
        sts_calls = StsCalls(transport, ServiceClock(), rng=self._rng, now=self._now, sleep=self._sleep)
        role = AssumedRole(options, sts_calls, base, lambda: self._find_route("sts", None, ""))
        return _Parts(transport, calls, (CredentialCache(role.load, renews=renews, now=self._now), base))

    def _make_calls(self, transport: HttpTransport) -> SignedCalls:
        """Make what sends and repeats the calls. A wire that counts or paces its attempts makes one of its own."""
        return SignedCalls(transport, self.clock, rng=self._rng, now=self._now, sleep=self._sleep)

    async def _load_credentials(self, refresh: bool) -> Credentials:
        if self._program is not None:
            return await self._program.load(refresh)
        given = fixed_credentials(self.options)
        if given is not None:
            return given
        region = self._region
        loaded: Credentials = await asyncio.to_thread(lambda: self._sdk.credentials(refresh=refresh, region=region))
        return loaded


class _Parts(NamedTuple):
    """The parts that a wire opens with its first call."""

    transport: HttpTransport
    calls: SignedCalls
    caches: tuple[CredentialCache, ...]
    """The caches of credentials: the first one signs the calls; the others feed it."""

    @property
    def credentials(self) -> CredentialCache:
        return self.caches[0]

    async def close(self) -> None:
        for cache in self.caches:
            await cache.close()
        await self.transport.close()


def _headers(service: str, operation: str, route: Route) -> dict[str, str]:
    try:
        prefix, content_type = JSON_SERVICES[service]
    except KeyError:
        raise OptionError(f"{service!r} is not one of the JSON services: {', '.join(JSON_SERVICES)}") from None
    return {
        "content-type": content_type,
        "host": route.endpoint.host,
        "x-amz-target": f"{prefix}.{operation}",
    }


def _user_agent(tag: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        agent = f"shardway/{version('shardway')}"
    except PackageNotFoundError:  # run from a source tree that is not installed
        agent = "shardway"
    return f"{agent} tag/{tag}" if tag else agent
