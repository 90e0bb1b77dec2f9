"""Roles assumed at a server that speaks STS's protocol."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from shardway.aws.assumed_role import parse_credentials
from shardway.aws.assumed_role import sts_error as error_of
from shardway.aws.calls.retry import NEVER
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.wire import Wire
from shardway.errors import AccessDeniedError, CredentialsError, ThrottledError, TransportError
from tests.aws.aws_servers import Received, Reply, ScriptedServer, fault, ok
from tests.aws.sts_answers import ASSUMED, sts_answer, sts_error

if TYPE_CHECKING:
    from collections.abc import Callable

ROLE = "arn:aws:iam::123456789012:role/reader"
NOW_S = 1_800_000_000.0


def is_sts(received: Received) -> bool:
    return received.headers["content-type"].startswith("application/x-www-form-urlencoded")


def settings(server: ScriptedServer, **more: Any) -> ConnectionOptions:
    return ConnectionOptions(
        region="eu-west-1",
        endpoint_url=server.url,
        sts_endpoint_url=server.url,
        credentials=Credentials("BASE", "base-secret"),
        role_arn=ROLE,
        **more,
    )


def by_service(sts: Callable[[Received], Reply]) -> Callable[[Received], Reply]:
    return lambda received: sts(received) if is_sts(received) else ok()


async def test_calls_are_signed_as_the_role(server: ScriptedServer) -> None:
    server.otherwise = by_service(lambda received: sts_answer())
    async with Wire(
        settings(server, role_session_name="etl-7", role_external_id="shared", role_duration_s=900)
    ) as wire:
        await asyncio.gather(*[wire.call("kinesis", "ListStreams", b"{}") for _ in range(10)])
    assumed = [received for received in server.requests if is_sts(received)]
    assert len(assumed) == 1
    assert {name: values[0] for name, values in parse_qs(assumed[0].body.decode()).items()} == {
        "Action": "AssumeRole",
        "Version": "2011-06-15",
        "RoleArn": ROLE,
        "RoleSessionName": "etl-7",
        "ExternalId": "shared",
        "DurationSeconds": "900",
    }
    assert "Credential=BASE/" in assumed[0].headers["authorization"]
    assert "/eu-west-1/sts/aws4_request" in assumed[0].headers["authorization"]
    for received in server.requests:
        if not is_sts(received):
            assert f"Credential={ASSUMED.access_key_id}/" in received.headers["authorization"]
            assert received.headers["x-amz-security-token"] == ASSUMED.session_token


async def test_the_role_is_assumed_again_before_its_credentials_end(server: ScriptedServer) -> None:
    now_s = NOW_S
    keys = iter(["FIRST", "SECOND"])

    def answer(received: Received) -> Reply:
        expiry = dt.datetime.fromtimestamp(now_s + 3600, dt.UTC)
        return sts_answer(key=next(keys), expiry=expiry)

    server.otherwise = by_service(answer)
    async with Wire(settings(server), now=lambda: now_s) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
        now_s += 3600 - 30
        await wire.call("kinesis", "ListStreams", b"{}")
    used = [r.headers["authorization"].split("=")[1].split("/")[0] for r in server.requests if not is_sts(r)]
    assert used == ["FIRST", "SECOND"]


async def test_a_role_whose_credentials_were_revoked_is_assumed_again(server: ScriptedServer) -> None:
    keys = iter(["REVOKED", "SECOND"])

    def answer(received: Received) -> Reply:
        if is_sts(received):
            return sts_answer(key=next(keys))
        refused = "Credential=REVOKED/" in received.headers["authorization"]
        return fault("ExpiredTokenException") if refused else ok({"done": 1})

    server.otherwise = answer
    async with Wire(settings(server)) as wire:
        assert await wire.call("kinesis", "ListStreams", b"{}", retry=NEVER) == b'{"done": 1}'


async def test_a_role_that_may_not_be_assumed(server: ScriptedServer) -> None:
    server.otherwise = by_service(lambda received: sts_error("AccessDenied", "BASE is not authorized"))
    async with Wire(settings(server)) as wire:
        with pytest.raises(
            CredentialsError, match=rf"the role {ROLE} cannot be assumed: .*AccessDenied: BASE is not authorized"
        ):
            await wire.call("kinesis", "ListStreams", b"{}")
    assert len(server.requests) == 1


async def test_sts_is_asked_again_when_it_throttles(server: ScriptedServer) -> None:
    server.replies += [sts_error("Throttling", "slowly", 400), sts_answer(), ok()]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with Wire(settings(server), sleep=sleep) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
    assert len(waits) == 1


async def test_no_sts_there(server: ScriptedServer) -> None:
    async with ScriptedServer() as gone:
        url = gone.url

    async def sleep(seconds: float) -> None:
        return

    given = ConnectionOptions(
        region="eu-west-1",
        endpoint_url=server.url,
        sts_endpoint_url=url,
        credentials=Credentials("BASE", "s"),
        role_arn=ROLE,
    )
    async with Wire(given, sleep=sleep) as wire:
        with pytest.raises(CredentialsError, match=f"the role {ROLE} cannot be assumed: AssumeRole at {url}"):
            await wire.call("kinesis", "ListStreams", b"{}")


def test_the_answer_is_read() -> None:
    body = sts_answer().body
    assert parse_credentials(body) == ASSUMED
    assert parse_credentials(b"\xef\xbb\xbf" + body) == ASSUMED
    assert parse_credentials(b'<?xml version="1.0" encoding="UTF-8"?>' + body) == ASSUMED


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<a>",
        b"<a/>",
        sts_answer().body.replace(b"<SessionToken>", b"<Other>").replace(b"</SessionToken>", b"</Other>"),
        sts_answer().body.replace(b"2099-01-01T00:00:00Z", b"never"),
        b'<!DOCTYPE x [<!ENTITY a "b">]>' + sts_answer().body,
        *(
            ('<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]>' + sts_answer().body.decode()).encode(encoding)
            for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7")
        ),
        sts_answer().body.decode().encode("utf-16"),
    ],
    ids=lambda body: f"{len(body)} bytes, {body[:4].hex()}",
)
def test_an_answer_that_is_none(body: bytes) -> None:
    with pytest.raises(TransportError, match="not STS's XML"):
        parse_credentials(body)


def test_errors_of_sts() -> None:
    error = error_of("AssumeRole", 403, {}, sts_error("AccessDenied", "no way").body)
    assert isinstance(error, AccessDeniedError)
    assert (error.code, error.service_message, error.request_id) == ("AccessDenied", "no way", "request-sts")
    assert isinstance(error_of("AssumeRole", 400, {}, sts_error("Throttling").body), ThrottledError)
    assert error_of("AssumeRole", 503, {}, b"<html>").code == "HTTP 503"
