"""Our signatures beside those of botocore's signer."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from typing import TYPE_CHECKING, Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.calls.signature import KEYS_MAX, Signer, amz_date
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.wire import Wire
from tests.aws.http_kit import VERSIONS, server_of

if TYPE_CHECKING:
    from tests.aws.aws_servers import Received

words = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789"), min_size=1, max_size=20)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
segments = st.text(st.sampled_from("abcXYZ019-_~!$&'()*+,;=:@ é/"), min_size=1, max_size=12)
paths = st.lists(segments.filter(lambda s: s.strip("/")), max_size=4).map(
    lambda parts: "/" + "/".join(urllib.parse.quote(part.strip("/").replace("//", "-")) for part in parts)
)
queries = st.dictionaries(words, words, max_size=4).map(urllib.parse.urlencode)
moments = st.datetimes(dt.datetime(2015, 1, 1), dt.datetime(2035, 12, 31)).map(lambda d: d.replace(tzinfo=dt.UTC))
credentials = st.builds(Credentials, access_key_id=words, secret_access_key=values, session_token=st.none() | values)


def botocore_authorization(
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes,
    given_credentials: Credentials,
    service: str,
    region: str,
    date: str,
) -> str:
    """What botocore puts into Authorization for the same request and time."""
    signer = botocore.auth.SigV4Auth(
        botocore.credentials.Credentials(
            given_credentials.access_key_id, given_credentials.secret_access_key, given_credentials.session_token
        ),
        service,
        region,
    )
    request = botocore.awsrequest.AWSRequest(method=method, url=url, data=body, headers=headers)
    request.context["timestamp"] = date
    signer._modify_request_before_signing(request)
    to_sign = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(to_sign, request))
    return str(request.headers["Authorization"])


@given(
    method=st.sampled_from(["POST", "GET", "PUT"]),
    path=paths,
    query=queries,
    extra=st.dictionaries(words.map(lambda w: f"x-amz-{w.lower()}"), values, max_size=4),
    body=st.binary(max_size=300),
    given_credentials=credentials,
    service=st.sampled_from(["kinesis", "dynamodb", "sts"]),
    region=st.sampled_from(["us-east-1", "eu-central-2", "cn-north-1"]),
    moment=moments,
)
def test_the_signature_is_botocores(
    method: str,
    path: str,
    query: str,
    extra: dict[str, str],
    body: bytes,
    given_credentials: Credentials,
    service: str,
    region: str,
    moment: dt.datetime,
) -> None:
    extra.pop("x-amz-date", None)
    headers = {"host": "kinesis.example.com:4567", "content-type": "application/x-amz-json-1.1", **extra}
    added = Signer(service, region).sign(
        headers, body, given_credentials, moment.timestamp(), path=path, query=query, method=method
    )
    url = f"https://kinesis.example.com:4567{path}{'?' + query if query else ''}"
    date = moment.strftime("%Y%m%dT%H%M%SZ")
    expected = botocore_authorization(method, url, headers, body, given_credentials, service, region, date)
    assert added["Authorization"] == expected
    assert added["X-Amz-Date"] == date
    assert added.get("X-Amz-Security-Token") == given_credentials.session_token


def test_one_signer_follows_days_and_secrets() -> None:
    """The kept keys never leak from one day, or one secret, into the next."""
    signer = Signer("kinesis", "us-east-1")
    headers = {"host": "h"}
    for day in range(KEYS_MAX + 3):
        for secret in ("one", "two"):
            used = Credentials("id", secret)
            epoch_s = 1.7e9 + day * 86_400.0
            again = signer.sign(headers, b"", used, epoch_s)
            assert again == Signer("kinesis", "us-east-1").sign(headers, b"", used, epoch_s)


def test_the_date_is_of_the_second() -> None:
    assert amz_date(0) == "19700101T000000Z"
    assert amz_date(1_700_000_000.9) == "20231114T221320Z"


def as_botocore_signs(received: Received, url: str, used: Credentials) -> str:
    signed_names = received.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    headers = {
        name: received.headers[name] for name in signed_names if name not in ("x-amz-date", "x-amz-security-token")
    }
    return botocore_authorization(
        "POST", url, headers, received.body, used, "kinesis", "us-east-1", received.headers["x-amz-date"]
    )


@pytest.mark.parametrize("token", [None, "a-token"])
@pytest.mark.parametrize("path", ["", "/behind/a%20proxy"])
@pytest.mark.parametrize("version", list(VERSIONS))
async def test_what_arrives_at_a_server_is_signed_right(version: str, token: str | None, path: str) -> None:
    used = Credentials("AKID", "secret", token)
    async with server_of(version) as server:
        settings: dict[str, Any] = {"region": "us-east-1", "endpoint_url": server.url + path, "credentials": used}
        async with Wire(ConnectionOptions(**settings, **VERSIONS[version])) as wire:
            await wire.call("kinesis", "ListStreams", b'{"Limit":1}')
        (received,) = server.requests
    assert received.headers["host"] == f"127.0.0.1:{server.port}"
    assert received.headers["x-amz-target"] == "Kinesis_20131202.ListStreams"
    assert received.headers["content-type"] == "application/x-amz-json-1.1"
    assert received.line == f"POST {path or '/'} HTTP/{version}"
    assert received.headers["authorization"] == as_botocore_signs(received, server.url + path, used)
