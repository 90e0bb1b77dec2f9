"""Make one signed call: sign it with fresh credentials and the service's time, send it, and repeat what may be
repeated. Say, too, what an answer means that refuses the call, or cannot be read: there is one kind of error for
whatever reading it raises.

The same call may be answered well the next time, as after an answer that was cut off; for a write the outcome is
unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import hashlib
import hmac
import random
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from shardway.aws import cbor
from shardway.aws.transport import Answer, HttpTransport, StaleConnectionError
from shardway.errors import (
    AccessDeniedError,
    ConditionFailedError,
    ExpiredIteratorError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ServiceError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping

    from shardway.aws.credentials import CredentialCache
    from shardway.aws.options import Credentials
    from shardway.aws.sdk import Endpoint
    from shardway.core.service_clock import ServiceClock


# --- what is repeated -----------------------------------------------------------------------------
# A policy says what is repeated, how often and after how long.
#
# Waits have full jitter (they are uniformly random, below a bound that doubles): many clients that were refused
# together do not come back together.

EXPONENT_MAX = 30
"""The largest exponent: it keeps ``2 ** attempt`` small when a policy allows very many attempts."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """Says how one call is repeated.

    ``ThrottledError``, ``UnavailableError`` and ``TransportError`` are repeated up to ``attempts_max``
    attempts in all, after a random wait in [0, min(``cap_s``, ``base_s`` · 2ⁿ)]. No attempt begins
    ``deadline_s`` seconds after the first one began. ``attempts_max=1`` repeats nothing by itself.
    """

    attempts_max: int = 5
    base_s: float = 0.1
    cap_s: float = 5.0
    deadline_s: float | None = None
    repeat_stale: bool = True
    """True where the call is repeated at once, uncounted, when a pooled connection turns out to be closed before a byte
    of the answer came: nearly always nothing was done. It is False for a write that must know.
    """

    def __post_init__(self) -> None:
        faults = []
        if self.attempts_max < 1:
            faults.append("attempts_max must be at least 1")
        if not 0 <= self.base_s <= self.cap_s:
            faults.append("base_s must lie between 0 and cap_s")
        if self.deadline_s is not None and self.deadline_s <= 0:
            faults.append("deadline_s must be more than 0")
        if faults:
            raise OptionError(faults)

    def wait_s(self, attempt: int, rng: random.Random) -> float:
        """Return the wait after attempt number ``attempt`` (1-based) failed, in seconds."""
        bound_s = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, EXPONENT_MAX))
        return rng.uniform(0.0, bound_s)

    def gives_up(self, attempt: int, elapsed_s: float, wait_s: float) -> bool:
        """True when no further attempt may follow attempt number ``attempt``."""
        if attempt >= self.attempts_max:
            return True
        return self.deadline_s is not None and elapsed_s + wait_s >= self.deadline_s


NEVER = RetryPolicy(attempts_max=1)
"""The policy for callers that decide themselves what a failure means."""

ONCE = RetryPolicy(attempts_max=1, repeat_stale=False)
"""The policy by which each request is sent once: for writers that tell their callers whether something may have been
done twice.
"""


# --- signatures -----------------------------------------------------------------------------------
# Requests whose body is in memory are signed by AWS Signature Version 4.
#
# Rules: AWS General Reference, "Create a signed AWS API request". The day's signing key is kept, so that a
# signature costs one SHA-256 and one HMAC beside the hash of the body.

ALGORITHM = "AWS4-HMAC-SHA256"
KEYS_MAX = 64
"""The most signing keys that are kept: one per secret, day, region and service in use."""


def amz_date(epoch_s: float) -> str:
    """Return a time as AWS writes it: ``20260131T235959Z``."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch_s))


def canonical_path(path: str) -> str:
    """Return the path as it is signed: encoded once more than it is sent (for every service but S3)."""
    if path in ("/", ""):
        return "/"  # all calls that are made often have this path: a thousand idle shards make a thousand a second
    return urllib.parse.quote(path, safe="/-_.~")


def canonical_query(query: str) -> str:
    """Return the query string with its (already encoded) parameters sorted by name, then by value."""
    if not query:
        return ""
    pairs = [pair.partition("=") for pair in query.split("&")]
    return "&".join(f"{name}={value}" for name, _, value in sorted(pairs))


class Signer:
    """Signs for one service and region. It is not bound to a loop or thread beyond its small cache of keys."""

    def __init__(self, service: str, region: str) -> None:
        self._service = service
        self._region = region
        self._keys: dict[tuple[str, str], bytes] = {}
        self._last_date = ("", -1)

    def sign(  # noqa: PLR0913 - a request in its parts
        self,
        headers: Mapping[str, str],
        body: bytes,
        credentials: Credentials,
        epoch_s: float,
        *,
        path: str = "/",
        query: str = "",
        method: str = "POST",
        body_hash: str | None = None,
    ) -> dict[str, str]:
        """Return the headers to add: ``X-Amz-Date``, ``Authorization`` and, with a session token, its header.

        ``headers`` must hold ``host`` and all other headers to sign, with lower-case names and trimmed
        values. ``epoch_s`` is the service's time, not this machine's: it refuses signatures more than 5
        minutes off. ``body_hash`` is `hash_of` the body, where it is known.
        """
        date = self._date(int(epoch_s))
        signed = {**headers, "x-amz-date": date}
        if credentials.session_token is not None:
            signed["x-amz-security-token"] = credentials.session_token
        names = sorted(signed)
        signed_names = ";".join(names)
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        canonical = (
            f"{method}\n{canonical_path(path)}\n{canonical_query(query)}\n{lines}\n{signed_names}\n"
            f"{body_hash or hash_of(body)}"
        )
        scope = f"{date[:8]}/{self._region}/{self._service}/aws4_request"
        to_sign = f"{ALGORITHM}\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = self._key(credentials.secret_access_key, date[:8])
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        added = {
            "X-Amz-Date": date,
            "Authorization": (
                f"{ALGORITHM} Credential={credentials.access_key_id}/{scope}, "
                f"SignedHeaders={signed_names}, Signature={signature}"
            ),
        }
        if credentials.session_token is not None:
            added["X-Amz-Security-Token"] = credentials.session_token
        return added

    def _date(self, second: int) -> str:
        date, known_second = self._last_date
        if second != known_second:
            date = amz_date(second)
            self._last_date = (date, second)
        return date

    def _key(self, secret: str, day: str) -> bytes:
        key = self._keys.get((secret, day))
        if key is None:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            if len(self._keys) >= KEYS_MAX:
                self._keys.clear()
            self._keys[secret, day] = key
        return key


def hash_of(body: bytes) -> str:
    """Return the SHA-256 of a body as a signature wants it: hexadecimal, in lower case."""
    return hashlib.sha256(body).hexdigest()


# --- calls ----------------------------------------------------------------------------------------

SKEW_MIN_S = 30.0
"""Seconds by which the service's time has to differ from the signed one so that a signature error is blamed on the
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
            self._signed(request, used, sent_s + self.clock.offset_s),
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
        headers = self._signed(request, credentials, signed_for_s, body_hash)
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

    def _signed(
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


# --- answers that cannot be read ------------------------------------------------------------------

UNREADABLE = (ValueError, OverflowError, RecursionError, LookupError, TypeError, AttributeError)
"""The errors that reading an odd answer may raise: msgspec's errors and those of text are ValueErrors; nesting without
end is a RecursionError, a number of hundreds of digits an OverflowError.
"""
REASON_CHARACTERS_MAX = 300

T = TypeVar("T")


@contextlib.contextmanager
def reading(what: str, body: bytes | None = None) -> Iterator[None]:
    """Turn whatever is raised while an answer is read into a `TransportError` that names the call and the oddity.

    ``what`` is the call, with its stream or table: ``ListShards of orders``.
    """
    try:
        yield
    except ShardwayError:
        raise
    except UNREADABLE as error:
        reason = one_line(f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX])
        size = "" if body is None else f" ({len(body)} bytes)"
        raise TransportError(f"{what}: the answer{size} is not what this call returns ({reason})") from error


def decoded(what: str, body: bytes, kind: type[T]) -> T:
    """Read JSON as the type that is wanted. Members that are null count as absent (some emulators write them)."""
    with reading(what, body):
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError:
            return msgspec.json.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(body))), type=kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(member) for member in value]
    return value


# --- error answers --------------------------------------------------------------------------------
# This part makes errors of `shardway.errors` from the error answers of AWS's JSON services.

STALE_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId"}
)
"""Codes after which newly loaded credentials may succeed (expired, or replaced by a rotation)."""

CLOCK_SKEW = frozenset(
    {
        "RequestTimeTooSkewed",
        "RequestExpired",
        "RequestInTheFuture",
        "InvalidSignatureException",
        "InvalidSignature",
        "SignatureDoesNotMatch",
        "AuthFailure",
    }
)
"""Codes that a wrong clock causes, among other causes (the list of the AWS SDKs)."""

_BY_CODE: dict[str, type[ServiceError]] = {
    "ProvisionedThroughputExceededException": ThrottledError,
    "LimitExceededException": ThrottledError,
    "KMSThrottlingException": ThrottledError,
    "Throttling": ThrottledError,
    "ThrottlingException": ThrottledError,
    "ThrottledException": ThrottledError,
    "RequestThrottled": ThrottledError,
    "RequestThrottledException": ThrottledError,
    "RequestLimitExceeded": ThrottledError,
    "TooManyRequestsException": ThrottledError,
    "BandwidthLimitExceeded": ThrottledError,
    "SlowDown": ThrottledError,
    "TransactionInProgressException": ThrottledError,
    "InternalFailure": UnavailableError,
    "InternalFailureException": UnavailableError,
    "InternalServerError": UnavailableError,
    "InternalError": UnavailableError,
    "ServiceUnavailable": UnavailableError,
    "ServiceUnavailableException": UnavailableError,
    "RequestTimeout": UnavailableError,
    "RequestTimeoutException": UnavailableError,
    "ExpiredIteratorException": ExpiredIteratorError,
    "ResourceNotFoundException": NotFoundError,
    "ResourceInUseException": InUseError,
    "AccessDenied": AccessDeniedError,
    "AccessDeniedException": AccessDeniedError,
    "KMSAccessDeniedException": AccessDeniedError,
    "KMSDisabledException": AccessDeniedError,
    "KMSInvalidStateException": AccessDeniedError,
    "KMSNotFoundException": AccessDeniedError,
    "KMSOptInRequired": AccessDeniedError,
    "OptInRequired": AccessDeniedError,
    "NotAuthorized": AccessDeniedError,
    "IncompleteSignature": AccessDeniedError,
    "IncompleteSignatureException": AccessDeniedError,
    "MissingAuthenticationToken": AccessDeniedError,
    "MissingAuthenticationTokenException": AccessDeniedError,
    "InvalidArgumentException": InvalidArgumentError,
    "ValidationException": InvalidArgumentError,
    "ValidationError": InvalidArgumentError,
    "ExpiredNextTokenException": InvalidArgumentError,
    "SerializationException": InvalidArgumentError,
    "UnknownOperationException": InvalidArgumentError,
    "MalformedInputException": InvalidArgumentError,
    "ConditionalCheckFailedException": ConditionFailedError,
    "TransactionCanceledException": ConditionFailedError,
}
_BY_CODE |= dict.fromkeys(STALE_CREDENTIALS | CLOCK_SKEW, AccessDeniedError)

_STATUS_CODES = {401: AccessDeniedError, 403: AccessDeniedError, 404: NotFoundError, 408: UnavailableError,
                 413: InvalidArgumentError, 429: ThrottledError}  # fmt: skip

CODE_CHARS_MAX = 200
MESSAGE_CHARS_MAX = 1_000
"""The lengths to which a service's code and message are cut: they may echo what was sent."""


class _ErrorBody(msgspec.Struct):
    type: str | None = msgspec.field(default=None, name="__type")
    code: str | None = None
    message: str | None = None
    message_capital: str | None = msgspec.field(default=None, name="Message")


def error_class(code: str, status: int) -> type[ServiceError]:
    """Return the class of an error by AWS's code, or by the HTTP status when the code is not known."""
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    if "Throttl" in code:
        return ThrottledError
    if status >= 500:
        return UnavailableError
    return _STATUS_CODES.get(status, ServiceError)


def plain_code(code: str) -> str:
    """Return the code alone: ``com.amazonaws.kinesis.v20131202#ResourceNotFoundException:http://…`` →
    ``ResourceNotFoundException``.
    """
    return code.partition(":")[0].rpartition("#")[2]


def service_error(operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
    """Build the error for an answer whose status is not 200.

    The names in ``headers`` are lower-case. An answer that is not AWS's JSON or CBOR (a proxy's page)
    gets the code ``HTTP <status>``.
    """
    fields = _error_body(headers, body)
    code = one_line(plain_code(headers.get("x-amzn-errortype") or fields.type or fields.code or ""))[:CODE_CHARS_MAX]
    message = fields.message or fields.message_capital
    if not code:
        code = f"HTTP {status}"
        message = message or f"an answer without an AWS error code ({headers.get('content-type', 'no content type')})"
    return error_class(code, status)(
        code,
        one_line((message or "no message")[:MESSAGE_CHARS_MAX]),
        operation=operation,
        status=status,
        request_id=headers.get("x-amzn-requestid"),
    )


def _error_body(headers: Mapping[str, str], body: bytes) -> _ErrorBody:
    try:
        if headers.get("content-type", "").startswith(cbor.CONTENT_TYPE):
            return msgspec.convert(cbor.decode(body), type=_ErrorBody)
        return msgspec.json.decode(body, type=_ErrorBody)
    except UNREADABLE:
        return _ErrorBody()
