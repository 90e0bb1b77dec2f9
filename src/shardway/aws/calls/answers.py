"""Read the answers of AWS's JSON services: an answer that refuses the call becomes an error of `shardway.errors`, and
there is one kind of error for whatever reading an odd answer raises.

The same call may be answered well the next time, as after an answer that was cut off; for a write the outcome is
unknown.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shardway.aws import cbor
from shardway.errors import (
    AccessDeniedError,
    ConditionFailedError,
    ExpiredIteratorError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    ServiceError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")


UNREADABLE = (ValueError, OverflowError, RecursionError, LookupError, TypeError, AttributeError)
"""The errors that reading an odd answer may raise: msgspec's errors and those of text are ValueErrors; nesting without
end is a RecursionError, a number of hundreds of digits an OverflowError.
"""
REASON_CHARACTERS_MAX = 300


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
"""The most characters of a service's code and message that an error shows: both may echo what was sent."""


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
