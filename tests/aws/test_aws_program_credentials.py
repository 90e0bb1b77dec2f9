"""The program's own credentials: a value, a function, plain or async, or a session of boto3 or botocore."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import botocore.credentials
import botocore.session
import pytest

from shardway import ConnectionOptions, Consumer, Credentials, OptionError, OutRecord, Producer, SyncProducer
from shardway.aws.endpoints import resolve_endpoint, resolve_region
from shardway.aws.program_credentials import ProgramCredentials
from shardway.aws.sdk import Sdk
from shardway.aws.wire import Wire
from shardway.errors import CredentialsError
from shardway.leases import MemoryLeaseTable
from shardway.testing import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYS = {"AKIAGOOD": "good-secret", "AKIANEXT": "next-secret"}
HOUR_S = 3600.0


@pytest.fixture(scope="module")
def local() -> Iterator[LocalKinesis]:
    """A service that takes two keys, and verifies what is signed with them."""
    with LocalKinesis(streams={"orders": 1}, credentials=KEYS) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_credentials_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def connection(local: LocalKinesis, credentials: Any, **given: Any) -> ConnectionOptions:
    return ConnectionOptions(
        region=local.region, endpoint_url=local.endpoint_url, credentials=credentials, **given
    )  # fmt: skip


async def listed(local: LocalKinesis, credentials: Any, **given: Any) -> bytes:
    async with Wire(connection(local, credentials, **given)) as wire:
        return await wire.call("kinesis", "ListStreams", b"{}")


def plain() -> Credentials:
    return Credentials("AKIAGOOD", "good-secret")


async def later() -> Credentials:
    await asyncio.sleep(0.01)
    return plain()


def boto3_session() -> Any:
    return boto3.Session(aws_access_key_id="AKIAGOOD", aws_secret_access_key="good-secret", region_name="eu-north-1")


def botocore_session() -> Any:
    session = botocore.session.Session()
    session.set_credentials("AKIAGOOD", "good-secret")
    session.set_config_variable("region", "eu-north-1")
    return session


@dataclass
class Vault:
    """What holds a secret, and shows it."""

    secret: str

    def keys(self) -> Credentials:
        return Credentials("AKIAGOOD", self.secret)

    def __call__(self) -> Credentials:
        return self.keys()


@pytest.mark.parametrize(
    "credentials",
    [
        plain(),
        plain,
        later,
        Vault("good-secret"),
        Vault("good-secret").keys,
        functools.partial(Credentials, "AKIAGOOD", "good-secret"),
        boto3_session(),
        botocore_session(),
    ],
    ids=["value", "function", "async", "object", "method", "partial", "boto3", "botocore"],
)
async def test_each_way_signs_calls_and_shows_no_secret(local: LocalKinesis, credentials: Any) -> None:
    assert b"orders" in await listed(local, credentials)
    assert "good-secret" not in repr(connection(local, credentials))


@pytest.mark.parametrize("credentials", [plain, later, boto3_session()], ids=["function", "async", "session"])
async def test_producers_and_consumers_take_them(local: LocalKinesis, credentials: Any) -> None:
    there = connection(local, credentials)
    async with Producer("orders", connection=there) as producer:
        await producer.put(OutRecord(b"one", "a"))
    with SyncProducer("orders", connection=there) as other:
        await asyncio.to_thread(other.put, OutRecord(b"two", "a"))
    async with Consumer(
        "orders", application="billing", connection=there, leases=MemoryLeaseTable(), starting_position="TRIM_HORIZON"
    ) as consumer:
        assert await consumer.getmany(1)


async def test_a_function_is_asked_again_before_its_credentials_expire_and_when_they_are_refused(
    local: LocalKinesis,
) -> None:
    given = [
        Credentials("AKIAGOOD", "good-secret", None, time.time() + 0.4),
        Credentials("AKIAGONE", "old-secret", None, time.time() + HOUR_S),
        Credentials("AKIANEXT", "next-secret", None, time.time() + HOUR_S),
    ]
    asked = 0

    def function() -> Credentials:
        nonlocal asked
        asked += 1
        return given[min(asked, len(given)) - 1]

    async with Wire(connection(local, function)) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
        assert asked == 1
        await asyncio.sleep(0.5)
        await wire.call("kinesis", "ListStreams", b"{}")  # Expired: asked again; refused: and again.
        assert asked == 3
        await wire.call("kinesis", "ListStreams", b"{}")
        assert asked == 3


async def test_a_session_renews_its_credentials_itself(local: LocalKinesis) -> None:
    keys = iter([("AKIAGOOD", "good-secret", 0.4), ("AKIANEXT", "next-secret", HOUR_S)])

    def renewed() -> dict[str, Any]:
        key, secret, life_s = next(keys)
        end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=life_s)
        return {"access_key": key, "secret_key": secret, "token": "a-token", "expiry_time": end.isoformat()}

    session = botocore.session.Session()
    session._credentials = botocore.credentials.RefreshableCredentials.create_from_metadata(
        renewed(), renewed, "test", advisory_timeout=0, mandatory_timeout=0
    )
    async with Wire(connection(local, session)) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
        await asyncio.sleep(0.5)
        await wire.call("kinesis", "ListStreams", b"{}")
    assert next(keys, None) is None


def leaks() -> Credentials:
    raise LookupError("the vault refused hush-secret")


async def leaks_later() -> Credentials:
    return leaks()


def exits() -> Credentials:
    raise SystemExit("hush-secret")


@pytest.mark.parametrize(
    ("credentials", "told"),
    [
        (leaks, r"^the function that gives the AWS credentials \(leaks\) raised LookupError, at .*test_aws_program_"),
        (leaks_later, r"\(leaks_later\) raised LookupError, at "),
        (exits, r"\(exits\) raised SystemExit, at "),
        (lambda: None, r"returned None: let it return Credentials\(access_key_id, secret_access_key, session_token"),
        (lambda: {"AccessKeyId": "hush-secret"}, r"returned a dict: let it return Credentials"),
        (lambda: Credentials("AKIA", ""), r"failed: the secret_access_key of AWS credentials is a text, not"),
        (lambda: Credentials("AKIA\n", "hush-secret"), r"failed: the AWS access key ID begins or ends with"),
        (lambda: Credentials("AKIA", "hush-secret", None, 1.0), r"have expired already: renew them at their source"),
        (boto3.Session(), r"^the session that was given as credentials has none: give its keys or a profile"),
    ],
)  # fmt: skip
async def test_what_gives_no_credentials_ends_in_one_line_without_a_secret(
    local: LocalKinesis, credentials: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "shardway")
    with pytest.raises(CredentialsError, match=told) as refused:
        await listed(local, credentials)
    assert "\n" not in str(refused.value)
    assert "hush-secret" not in str(refused.value) + caplog.text
    assert not refused.value.retryable


async def test_a_failure_after_calls_that_worked_may_be_repeated(local: LocalKinesis) -> None:
    given = iter([Credentials("AKIAGOOD", "good-secret", None, time.time() + 0.3)])
    async with Wire(connection(local, lambda: next(given))) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
        await asyncio.sleep(0.4)
        with pytest.raises(CredentialsError, match="raised StopIteration") as refused:
            await wire.call("kinesis", "ListStreams", b"{}")
    assert refused.value.retryable


@pytest.mark.parametrize("hangs_on_the_loop", [False, True])
async def test_a_function_that_hangs_is_given_up_and_has_one_thread(hangs_on_the_loop: bool) -> None:
    go, begun = threading.Event(), 0

    def in_thread() -> Credentials:
        nonlocal begun
        begun += 1
        go.wait()
        return plain()

    async def on_loop() -> Credentials:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()
        return plain()

    source: Callable[[], Any] = on_loop if hangs_on_the_loop else in_thread
    program = ProgramCredentials(source, 0.05)
    for _ in range(3):
        with pytest.raises(CredentialsError, match=r"returned nothing for 0\.05 s: see what it waits for"):
            await program.load(False)
    go.set()
    if not hangs_on_the_loop:
        assert begun == 1
        assert await ProgramCredentials.load(program, False) == plain()


async def test_many_callers_ask_the_program_once(local: LocalKinesis) -> None:
    asked = []

    def function() -> Credentials:
        asked.append(threading.current_thread().name)
        time.sleep(0.05)
        return plain()

    async with Wire(connection(local, function)) as wire:
        await asyncio.gather(*(wire.call("kinesis", "ListStreams", b"{}") for _ in range(20)))
    assert asked == ["shardway-credentials"]


@pytest.mark.parametrize("session", [boto3_session(), botocore_session()], ids=["boto3", "botocore"])
def test_the_region_of_a_session_counts_before_the_environments(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert resolve_region(ConnectionOptions(credentials=session), Sdk()) == "eu-north-1"
    assert resolve_region(ConnectionOptions(credentials=session, region="us-east-1"), Sdk()) == "us-east-1"
    assert resolve_region(ConnectionOptions(credentials=plain), Sdk()) == "us-west-2"


@pytest.mark.parametrize("wrong", [boto3.Session, Credentials, 7, "AKIA", {"AccessKeyId": "x"}, ("a", "b")])
def test_what_cannot_give_credentials_is_refused_when_it_is_given(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"credentials is (Credentials, a function that returns them|a session)"):
        ConnectionOptions(credentials=wrong)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"aws_access_key_id": "a", "secret_access_key": "b"}, "is 'access_key_id' meant"),
        ({"AccessKeyId": "a", "SecretAccessKey": "b"}, "write access_key_id=...; "),
        ({"access_key_id": "a", "secret_access_key": "b", "token": "c"}, "write session_token=..."),
        ({"access_key_id": "a", "secret_access_key": "b", "Expiration": 1}, "write expires_at_s=..."),
    ],
)
def test_boto3s_names_of_keys_are_told(given: Any, told: str) -> None:
    with pytest.raises(TypeError, match=f"^Credentials has no argument .*{told}"):
        Credentials(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((None, "hush"), "access_key_id of AWS credentials is a text, not None"),
        (("AKIA", None), "secret_access_key of AWS credentials is a text, not None"),
        (("AKIA", b"hush"), "secret_access_key of AWS credentials is a text, not a bytes"),
        (("AKIA", "hush", 7), "session_token of AWS credentials is a text, not 7"),
        (("AKIA", "hush", None, dt.datetime.now(dt.UTC)), r"not a datetime: of a datetime, give its timestamp\(\)"),
    ],
)
def test_credentials_of_wrong_types_are_told_without_a_secret(given: Any, told: str) -> None:
    with pytest.raises(CredentialsError, match=told) as refused:
        Credentials(*given)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("region", "told"),
    [
        ("eu-west1", "'eu-west1' is no AWS region: is 'eu-west-1' meant?"),
        ("useast1", "'useast1' is no AWS region: is 'us-east-1' meant?"),
        ("ireland", "'ireland' is no AWS region"),
    ],
)
def test_a_region_that_cannot_be_one_is_told(region: str, told: str) -> None:
    with pytest.raises(OptionError) as refused:
        resolve_endpoint(ConnectionOptions(region=region), Sdk(), "kinesis", region)
    assert told in str(refused.value)


def test_a_region_that_the_sdk_does_not_know_may_be_new(caplog: pytest.LogCaptureFixture) -> None:
    found = resolve_endpoint(ConnectionOptions(), Sdk(), "kinesis", "eu-wst-1")
    assert found.url == "https://kinesis.eu-wst-1.amazonaws.com/"
    assert "knows no region 'eu-wst-1': is 'eu-west-1' meant?" in caplog.text
    assert resolve_endpoint(ConnectionOptions(), Sdk(), "kinesis", "cn-north-1").url.endswith(".amazonaws.com.cn/")


async def test_a_host_that_has_no_name_says_what_to_check() -> None:
    from shardway.aws.calls.retry import NEVER
    from shardway.errors import TransportError

    there = ConnectionOptions(region="eu-west-1", endpoint_url="http://kinesis.invalid", credentials=plain())
    async with Wire(there, retry=NEVER) as wire:
        with pytest.raises(TransportError, match=r"cannot connect .*: check the region, or endpoint_url"):
            await wire.call("kinesis", "ListStreams", b"{}")
