"""Signatures verified as AWS does, against botocore's signer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local.embedded import LocalKinesis
from shardway.local.http_messages import Request
from shardway.local.signatures import Verifier

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
KEY, SECRET = next(iter(KEYS.items()))


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalKinesis]:
    with LocalKinesis(credentials=KEYS, region="eu-west-1") as local:
        yield local


def client(local: LocalKinesis, key: str = KEY, secret: str = SECRET, region: str = "eu-west-1", **more: Any) -> Any:
    return boto3.client(
        "kinesis",
        endpoint_url=local.endpoint_url,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
        **more,
    )


def test_botocores_signature_holds(strict: LocalKinesis) -> None:
    for given_client in (client(strict), client(strict, aws_session_token="a/token+=")):
        assert given_client.list_streams()["StreamNames"] == []
        given_client.close()


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        ({"key": "AKIDOTHER"}, "UnrecognizedClientException", "security token included in the request is invalid"),
        ({"secret": "guessed"}, "InvalidSignatureException", "does not match the signature you provided"),
        ({"region": "us-east-1"}, "InvalidSignatureException", "valid region, not 'us-east-1'"),
    ],
)
def test_a_caller_that_is_not_known_is_refused(
    strict: LocalKinesis, wrong: dict[str, str], code: str, text: str
) -> None:
    stranger = client(strict, **wrong)
    with pytest.raises(ClientError, match=text) as caught:
        stranger.list_streams()
    stranger.close()
    assert caught.value.response["Error"]["Code"] == code


@pytest.mark.parametrize(("ahead_s", "text"), [(900, "Signature expired: "), (-900, "Signature not yet current: ")])
def test_a_clock_that_is_off_by_more_than_five_minutes_is_refused(ahead_s: int, text: str) -> None:
    import time

    with LocalKinesis(credentials=KEYS, clock_start_s=time.time() + ahead_s) as local:
        late = client(local, region="us-east-1")
        with pytest.raises(ClientError, match=text):
            late.list_streams()
        late.close()


@settings(deadline=None)
@given(
    body=st.binary(max_size=100),
    query=st.dictionaries(
        st.text("abcXYZ-_.~09", min_size=1, max_size=5), st.text("ab c/&=+é", max_size=5), max_size=3
    ),
    header=st.text("abc  ,;:", max_size=20),
)
def test_any_request_that_botocore_signs_is_accepted_and_any_change_refused(
    body: bytes, query: dict[str, str], header: str
) -> None:
    from urllib.parse import quote

    pairs = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items())
    signed = AWSRequest("POST", f"http://host:4567/?{pairs}", {"x-amz-target": "T", "x-note": header}, body)
    SigV4Auth(Credentials(KEY, SECRET), "kinesis", "us-east-1").add_auth(signed)
    headers = {name.lower().encode(): value.encode() for name, value in signed.headers.items()}
    headers[b"host"] = b"host:4567"
    now_s = _seconds(signed.headers["X-Amz-Date"])
    verifier = Verifier(KEYS, "us-east-1", lambda: now_s)

    def fault(body: bytes, headers: dict[bytes, bytes], path: str = f"/?{pairs}") -> Any:
        return verifier.fault(Request(b"POST", path.encode(), headers, body, True, ""))

    assert fault(body, headers) is None
    assert fault(body + b"x", headers)[0] == "InvalidSignatureException"
    assert fault(body, headers | {b"x-amz-target": b"U"})[0] == "InvalidSignatureException"
    assert fault(body, headers, f"/?{pairs}&more=1")[0] == "InvalidSignatureException"


def _seconds(stamp: str) -> float:
    import calendar
    import time

    return calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))


HEADER = "AWS4-HMAC-SHA256 Credential={}, SignedHeaders=host, Signature=0"
MIDNIGHT = "20260101T000000Z"


@pytest.mark.parametrize(
    ("credential", "stamp", "text"),
    [
        ("a", MIDNIGHT, "not a SigV4 header"),
        (f"{KEY}/20260101/us-east-1/kinesis/aws4_request", "yesterday", "ISO-8601"),
        (f"{KEY}/20260102/us-east-1/kinesis/aws4_request", MIDNIGHT, "does not match"),
        (f"{KEY}/20260101/us-east-1/s3/aws4_request", MIDNIGHT, "correct service"),
    ],
)
def test_what_does_not_fit_together_is_refused(credential: str, stamp: str, text: str) -> None:
    headers = {b"authorization": HEADER.format(credential).encode(), b"x-amz-date": stamp.encode()}
    verifier = Verifier(KEYS, "us-east-1", lambda: _seconds(MIDNIGHT))
    fault = verifier.fault(Request(b"POST", b"/", headers, b"{}", True, ""))
    assert fault is not None
    assert text in fault[1]
