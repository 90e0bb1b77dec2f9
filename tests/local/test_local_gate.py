"""What the front end turns away, in the order and the words that suites of emulators recorded from AWS."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import cbor2
import pytest

from shardway.local.answers import Answers, http_date
from shardway.local.cbor import decode
from shardway.local.gate import Gate, looks_signed
from shardway.local.http_messages import Request
from tests.local.rawhttp import SIGNED

JSON = "application/x-amz-json-1.1"
CBOR = "application/x-amz-cbor-1.1"
LIST = "Kinesis_20131202.ListStreams"
ALL_QUERY = "AWS query-string parameters must include 'X-Amz-{}'. "


class Refusal(NamedTuple):
    status: int
    media: str | None
    body: object
    headers: dict[str, str]


def ask(
    body: bytes = b"{}", *, method: str = "POST", path: str = "/", signed: bool = True, **headers: str
) -> Refusal | None:
    """None when the request passes."""
    given = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    if signed:
        given |= {name.lower(): value for name, value in SIGNED.items()}
    raw = {name.encode(): value.encode() for name, value in given.items()}
    gate = Gate(Answers(lambda: 1_700_000_000.0), frozenset(("ListStreams",)), decode)
    answer = gate.refuse(Request(method.encode(), path.encode(), raw, body, True, "127.0.0.1"))
    if answer is None:
        return None
    first, *lines = answer.head.decode().rstrip().split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert int(fields["content-length"]) == len(answer.body)
    media = fields.get("content-type")
    if media == CBOR:
        shown: object = cbor2.loads(answer.body)
    elif media is not None:
        shown = json.loads(answer.body)
    else:
        shown = answer.body.decode()
    return Refusal(int(first.split()[1]), media, shown, fields)


def refused(body: bytes = b"{}", **asked: Any) -> Refusal:
    refusal = ask(body, **asked)
    assert refusal is not None
    return refusal


def xml(code: str, message: str | None = None) -> str:
    return f"<{code}/>\n" if message is None else f"<{code}>\n  <Message>{message}</Message>\n</{code}>\n"


NO_OPERATION = xml("AccessDeniedException", "Unable to determine service/operation name to be authorized")


def test_a_signed_call_passes() -> None:
    assert ask(content_type=JSON, x_amz_target=LIST) is None
    assert ask(cbor2.dumps({}), content_type=CBOR, x_amz_target=LIST) is None
    assert ask(content_type=f"  {JSON} ;charset=utf-8", x_amz_target=LIST) is None


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_only_post_is_a_call(method: str) -> None:
    assert refused(b"", method=method)[:3] == (403, None, NO_OPERATION)


@pytest.mark.parametrize(
    ("headers", "media", "code"),
    [
        ({}, CBOR, "UnknownOperationException"),
        ({"content_type": JSON}, JSON, "UnknownOperationException"),
        ({"content_type": JSON, "x_amz_target": LIST}, JSON, "SerializationException"),
        ({"content_type": "application/json", "x_amz_target": LIST}, CBOR, "SerializationException"),
        ({"x_amz_target": "Kinesis_20131202.ListStream"}, CBOR, "UnknownOperationException"),
        ({"x_amz_target": "Kinesis_20131202."}, CBOR, "UnknownOperationException"),
        ({"x_amz_target": LIST}, CBOR, "SerializationException"),
    ],
)
def test_a_call_without_a_body(headers: dict[str, str], media: str, code: str) -> None:
    assert refused(b"", **headers)[:3] == (400, media, {"__type": code})


def test_a_body_of_an_unknown_type() -> None:
    assert refused(content_type="text/plain")[:3] == (403, None, NO_OPERATION)
    assert refused(content_type="text/plain", x_amz_target=LIST)[:3] == (
        404,
        None,
        xml("UnknownOperationException"),
    )


@pytest.mark.parametrize("body", [b"hello", b"true", b"null", b'{"a":', b"\xff"])
def test_a_body_that_is_no_object_is_told_before_a_missing_signature(body: bytes) -> None:
    assert refused(body, content_type=JSON, x_amz_target=LIST, signed=False)[:3] == (
        400,
        JSON,
        {"__type": "SerializationException"},
    )
    assert refused(body, content_type=CBOR, x_amz_target=LIST, signed=False)[:3] == (
        400,
        CBOR,
        {"__type": "SerializationException"},
    )


def test_the_oldest_form_of_json() -> None:
    def old(code: str) -> dict[str, object]:
        return {"Output": {"__type": f"com.amazon.coral.service#{code}"}, "Version": "1.0"}

    media = "application/json"
    assert refused(content_type=media, x_amz_target=LIST)[:3] == (404, media, old("UnknownOperationException"))
    assert refused(b"x", content_type=media)[:3] == (400, media, old("SerializationException"))


def test_an_operation_that_does_not_exist() -> None:
    assert refused(content_type=JSON, x_amz_target="Kinesis_20131202.Whatever")[:3] == (
        400,
        JSON,
        {"__type": "UnknownOperationException"},
    )


@pytest.mark.parametrize(
    ("path", "headers", "code", "message"),
    [
        ("/", {}, "MissingAuthenticationTokenException", "Missing Authentication Token"),
        (
            "/?X-Amz-Credential=a&X-Amz-Signature=b&X-Amz-SignedHeaders=c&X-Amz-Date=d",
            {},
            "MissingAuthenticationTokenException",
            "Missing Authentication Token",
        ),
        (
            "/",
            {"authorization": "X"},
            "IncompleteSignatureException",
            "Authorization header requires 'Credential' parameter. "
            "Authorization header requires 'Signature' parameter. "
            "Authorization header requires 'SignedHeaders' parameter. "
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header. "
            "Authorization=X",
        ),
        (
            "/",
            {"authorization": "AWS4- Signature=b, Credential=a", "date": "a"},
            "IncompleteSignatureException",
            "Authorization header requires 'SignedHeaders' parameter. Authorization=AWS4- Signature=b, Credential=a",
        ),
        (
            "/?X-Amz-Algorithm",
            {"authorization": "X"},
            "InvalidSignatureException",
            "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP header.",
        ),
        (
            "/?X-Amz-Algorithm",
            {},
            "IncompleteSignatureException",
            "".join(
                ALL_QUERY.format(part) for part in ("Algorithm", "Credential", "Signature", "SignedHeaders", "Date")
            )
            + "Re-examine the query-string parameters.",
        ),
        (
            "/?X-Amz-Algorithm=a&X-Amz-Credential=b&X-Amz-Signature=c&X-Amz-Date=d",
            {},
            "IncompleteSignatureException",
            ALL_QUERY.format("SignedHeaders") + "Re-examine the query-string parameters.",
        ),
    ],
)
def test_signatures_that_are_missing_or_not_whole(path: str, headers: dict[str, Any], code: str, message: str) -> None:
    refusal = refused(path=path, signed=False, content_type=JSON, x_amz_target=LIST, **headers)
    assert refusal[:3] == (400, JSON, {"__type": code, "message": message})
    assert refusal[3]["x-amzn-errortype"] == code


def test_a_signature_in_the_query_will_do() -> None:
    path = "/?X-Amz-Algorithm=a&X-Amz-Credential=b&X-Amz-Signature=c&X-Amz-SignedHeaders=d&X-Amz-Date=e"
    assert ask(path=path, signed=False, content_type=JSON, x_amz_target=LIST) is None


def test_a_browser_is_told_what_it_may_do() -> None:
    refusal = refused(
        b"",
        method="OPTIONS",
        origin="http://page",
        access_control_request_headers="a, b",
        access_control_request_method="POST",
    )
    status, media, body, headers = refusal
    assert (status, media, body) == (200, None, "")
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-allow-headers"] == "a, b"
    assert headers["access-control-allow-methods"] == "POST"
    assert headers["access-control-max-age"] == "172800"
    assert "x-amz-id-2" not in headers
    assert "x-amzn-RequestId" in refused(b"", origin="http://page")[3]["access-control-expose-headers"]


def test_the_quick_look_sees_a_whole_signature() -> None:
    headers = {name.lower().encode(): value.encode() for name, value in SIGNED.items()}
    assert looks_signed(headers)
    for name in headers:
        assert not looks_signed({key: value for key, value in headers.items() if key != name})


def test_request_ids_differ_and_the_date_is_the_services() -> None:
    now = [1_700_000_000.9]
    answers = Answers(lambda: now[0])
    first, second = answers.ok(b"{}").head, answers.ok(b"{}").head
    assert first != second
    assert b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n" in first
    now[0] += 3600
    assert b"Date: Tue, 14 Nov 2023 23:13:20 GMT\r\n" in answers.ok(b"{}").head


def test_dates_are_english_whatever_the_day() -> None:
    assert http_date(0) == b"Thu, 01 Jan 1970 00:00:00 GMT"
    assert http_date(951_782_400) == b"Tue, 29 Feb 2000 00:00:00 GMT"
