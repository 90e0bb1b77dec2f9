"""AWS's error codes and our classes."""

from __future__ import annotations

import json

import botocore.session
import pytest

from shardway.aws.calls.answers import (
    CLOCK_SKEW,
    MESSAGE_CHARS_MAX,
    STALE_CREDENTIALS,
    error_class,
    plain_code,
    service_error,
)
from shardway.errors import (
    AccessDeniedError,
    ConditionFailedError,
    ExpiredIteratorError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    ServiceError,
    ThrottledError,
    UnavailableError,
)

TABLE = [
    ("ProvisionedThroughputExceededException", 400, ThrottledError),
    ("LimitExceededException", 400, ThrottledError),
    ("KMSThrottlingException", 400, ThrottledError),
    ("ThrottlingException", 400, ThrottledError),
    ("ThrottledBySomethingNew", 400, ThrottledError),
    ("RequestLimitExceeded", 400, ThrottledError),
    ("Unknown", 429, ThrottledError),
    ("InternalFailureException", 500, UnavailableError),
    ("InternalFailure", 500, UnavailableError),
    ("ServiceUnavailable", 503, UnavailableError),
    ("Unknown", 502, UnavailableError),
    ("RequestTimeoutException", 400, UnavailableError),
    ("Unknown", 408, UnavailableError),
    ("ExpiredIteratorException", 400, ExpiredIteratorError),
    ("ResourceNotFoundException", 400, NotFoundError),
    ("Unknown", 404, NotFoundError),
    ("AccessDeniedException", 400, AccessDeniedError),
    ("KMSAccessDeniedException", 400, AccessDeniedError),
    ("ExpiredTokenException", 400, AccessDeniedError),
    ("UnrecognizedClientException", 400, AccessDeniedError),
    ("InvalidSignatureException", 400, AccessDeniedError),
    ("MissingAuthenticationTokenException", 400, AccessDeniedError),
    ("Unknown", 403, AccessDeniedError),
    ("InvalidArgumentException", 400, InvalidArgumentError),
    ("ValidationException", 400, InvalidArgumentError),
    ("SerializationException", 400, InvalidArgumentError),
    ("ExpiredNextTokenException", 400, InvalidArgumentError),
    ("Unknown", 413, InvalidArgumentError),
    ("ConditionalCheckFailedException", 400, ConditionFailedError),
    ("ResourceInUseException", 400, InUseError),
    ("DryRunOperationException", 400, ServiceError),
    ("Unknown", 400, ServiceError),
]


@pytest.mark.parametrize(("code", "status", "kind"), TABLE)
def test_the_class_of_an_error(code: str, status: int, kind: type[ServiceError]) -> None:
    assert error_class(code, status) is kind


def test_every_error_of_kinesis_has_its_class() -> None:
    """Only those that are no failure, or that need the caller's judgement, stay plain service errors."""
    model = botocore.session.get_session().get_service_model("kinesis")
    codes = {shape.name for shape in model.error_shapes}
    assert len(codes) > 10
    plain = {code for code in codes if error_class(code, 400) is ServiceError}
    assert plain == {"DryRunOperationException"} & codes, "an older botocore does not know this one"


def test_what_may_be_mended_at_once_is_denied_otherwise() -> None:
    assert {error_class(code, 400) for code in STALE_CREDENTIALS | CLOCK_SKEW} == {AccessDeniedError}


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("ResourceNotFoundException", "ResourceNotFoundException"),
        ("com.amazonaws.kinesis.v20131202#ResourceNotFoundException", "ResourceNotFoundException"),
        ("ValidationException:http://internal.amazon.com/coral/com.amazon.coral.validate/", "ValidationException"),
        ("a#B:c#d", "B"),
        ("", ""),
    ],
)
def test_the_plain_code(written: str, code: str) -> None:
    assert plain_code(written) == code


@pytest.mark.parametrize(
    ("headers", "body", "code", "message"),
    [
        ({}, {"__type": "x#ResourceNotFoundException", "message": "gone"}, "ResourceNotFoundException", "gone"),
        ({}, {"__type": "AccessDeniedException", "Message": "no"}, "AccessDeniedException", "no"),
        ({"x-amzn-errortype": "Other:http://x"}, {"__type": "Some", "message": "m"}, "Other", "m"),
        ({}, {"code": "Coded"}, "Coded", "no message"),
        ({}, {"__type": "E", "message": None, "Message": None}, "E", "no message"),
    ],
)
def test_where_code_and_message_are_found(
    headers: dict[str, str], body: dict[str, str], code: str, message: str
) -> None:
    error = service_error("GetRecords", 400, {"x-amzn-requestid": "r-1", **headers}, json.dumps(body).encode())
    assert (error.code, error.service_message, error.operation, error.request_id) == (
        code,
        message,
        "GetRecords",
        "r-1",
    )
    assert str(error) == f"GetRecords: {code}: {message} (request r-1)"


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[1]", b'{"__type": 5}', b"\xff"])
def test_an_answer_without_a_code(body: bytes) -> None:
    error = service_error("PutRecords", 502, {"content-type": "text/html"}, body)
    assert isinstance(error, UnavailableError)
    assert str(error) == "PutRecords: HTTP 502: an answer without an AWS error code (text/html)"


def test_a_message_is_cut() -> None:
    body = json.dumps({"__type": "ValidationException", "message": "x" * 1_000_000}).encode()
    assert len(service_error("PutRecords", 400, {}, body).service_message) == MESSAGE_CHARS_MAX
