"""Make signed calls: sign with fresh credentials and the service's time, send, and repeat what may be repeated."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from shardway.aws.calls.answers import CLOCK_SKEW, STALE_CREDENTIALS, service_error
from shardway.aws.calls.signature import hash_of
from shardway.aws.transport import StaleConnectionError
from shardway.errors import ServiceError, ShardwayError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from shardway.aws.calls.retry import RetryPolicy
    from shardway.aws.calls.signature import Signer
    from shardway.aws.credentials import CredentialCache
    from shardway.aws.endpoints import Endpoint
    from shardway.aws.options import Credentials
    from shardway.aws.transport import Answer, HttpTransport
    from shardway.core.service_clock import ServiceClock

SKEW_MIN_S = 30.0
"""How many seconds the service's time has to differ from the signed one so that a signature error is blamed on the
clock.
"""

ERROR_BYTES_MAX = 64 * 1024
"""The most bytes of the error that answers a request for a stream; what comes beyond is passed over."""

STALE_REPEATS_MAX = 3
"""The most immediate repeats of one call after connections out of the pool turned out to be closed."""

THREAD_HASH_BYTES = 256 * 1024
"""The size from which on a body takes longer to hash (0.2 ms) than a thread takes to be asked (0.1 ms)."""


class Route(NamedTuple):
    """Says where a call goes and what signs it."""

    endpoint: Endpoint
    signer: Signer


class Request(NamedTuple):
    """A call that is not signed yet. ``headers`` have lower-case names."""

    operation: str
    route: Route
    headers: Mapping[str, str]
    body: bytes


class SignedCalls:
    """Sends requests for one service clock and one event loop.

    ``now`` is this machine's epoch clock, ``sleep`` waits between attempts; tests pass their own.
    """

    def __init__(
        self,
        transport: HttpTransport,
        clock: ServiceClock,
        *,
        rng: random.Random | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.clock = clock
        self._transport = transport
        self._rng = rng or random.Random()
        self._now = now
        self._sleep = sleep
        self._date: tuple[str | None, int] = (None, 0)

    async def call(self, request: Request, credentials: CredentialCache, retry: RetryPolicy) -> Answer:
        """Return the answer with status 200; raise the error of the last attempt otherwise."""
        attempt, began_s = 1, self._now()
        while True:
            try:
                return await self._attempt(request, credentials, retry)
            except ShardwayError as error:
                wait_s = retry.wait_s(attempt, self._rng)
                if not error.retryable or retry.gives_up(attempt, self._now() - began_s, wait_s):
                    raise
            await self._sleep(wait_s)
            attempt += 1

    async def stream(self, request: Request, credentials: CredentialCache) -> AsyncGenerator[bytes, None]:
        """Send a request once and yield the parts of an answer with status 200; raise the error otherwise. Nothing is
        repeated.
        """
        used = await credentials.current()
        sent_s = self._now()
        parts = self._transport.stream(
            request.route.endpoint.url,
            self._sign(request, used, sent_s + self.clock.offset_s),
            request.body,
            operation=request.operation,
        )
        refused: Answer | None = None
        async with contextlib.aclosing(parts):
            async for part in parts:
                if part.status != 200:
                    if refused is None or len(refused.body) < ERROR_BYTES_MAX:
                        refused = part._replace(body=(refused.body if refused is not None else b"") + part.body)
                elif part.body:
                    yield part.body
                else:
                    self._observe(part.headers, sent_s)
        if refused is not None:
            self._observe(refused.headers, sent_s)
            raise self._error(request, refused)

    async def _attempt(self, request: Request, credentials: CredentialCache, retry: RetryPolicy) -> Answer:
        """Make one attempt, and mend at once what can be: stale connections, stale credentials, a wrong clock."""
        used = await credentials.current()
        body_hash = await self._hash(request.body)
        renewed = corrected = False
        stale = 0
        while True:
            signed_for_s = self._now() + self.clock.offset_s
            try:
                answer = await self._send(request, used, signed_for_s, body_hash)
            except StaleConnectionError:
                stale += 1
                if stale > STALE_REPEATS_MAX or not retry.repeat_stale:
                    raise
            except ServiceError as error:
                if error.code in STALE_CREDENTIALS:
                    refused = used
                    if not renewed:
                        renewed, used = True, await credentials.replace(refused)
                    if used == refused:
                        error.retryable = credentials.may_renew
                        raise
                elif error.code in CLOCK_SKEW and not corrected and self._was_skewed(signed_for_s):
                    corrected = True
                else:
                    raise
            else:
                credentials.have_worked = True
                return answer

    async def _hash(self, body: bytes) -> str | None:
        """Hash a large body in a thread, as that needs no GIL: what else the loop does goes on beside it. Return None
        for a small body.
        """
        if len(body) < THREAD_HASH_BYTES:
            return None
        return await asyncio.get_running_loop().run_in_executor(None, hash_of, body)

    async def _send(
        self, request: Request, credentials: Credentials, signed_for_s: float, body_hash: str | None
    ) -> Answer:
        headers = self._sign(request, credentials, signed_for_s, body_hash)
        sent_s = self._now()
        answer = await self._transport.post(
            request.route.endpoint.url, headers, request.body, operation=request.operation
        )
        self._observe(answer.headers, sent_s)
        if answer.status != 200:
            raise self._error(request, answer)
        return answer

    def error_of(self, operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
        """Return what an error answer says, as one of our errors."""
        return service_error(operation, status, headers, body)

    def _error(self, request: Request, answer: Answer) -> ServiceError:
        error = self.error_of(request.operation, answer.status, answer.headers, answer.body)
        error.where = request.route.endpoint.signing_region
        return error

    def _sign(
        self, request: Request, credentials: Credentials, signed_for_s: float, body_hash: str | None = None
    ) -> dict[str, str]:
        route = request.route
        added = route.signer.sign(
            request.headers, request.body, credentials, signed_for_s, path=route.endpoint.path, body_hash=body_hash
        )
        return {**request.headers, **added}

    def _was_skewed(self, signed_for_s: float) -> bool:
        # The clock has seen the Date of the answer that refused the signature.
        return abs(self._now() + self.clock.offset_s - signed_for_s) > SKEW_MIN_S

    def _observe(self, headers: Mapping[str, str], sent_s: float) -> None:
        text = headers.get("date")
        if text is None:
            return
        known, epoch_s = self._date
        if text != known:
            try:
                epoch_s = int(email.utils.parsedate_to_datetime(text).timestamp())
            except (ValueError, OverflowError, TypeError, LookupError):  # it is no date, which tells no time
                return
            self._date = (text, epoch_s)
        self.clock.observe(epoch_s, sent_s, self._now())
