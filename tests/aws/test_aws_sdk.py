"""The SDK's credential chain and region, from real files, variables and local metadata services."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.calls.retry import NEVER
from shardway.aws.endpoints import resolve_region
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.sdk import Sdk, environment_credentials
from shardway.aws.wire import Wire
from shardway.errors import CredentialsError, OptionError, ShardwayError
from tests.aws.aws_servers import Reply, ScriptedServer
from tests.aws.sts_answers import ASSUMED, sts_answer

if TYPE_CHECKING:
    from pathlib import Path

FILES = """
[default]
aws_access_key_id = DEFAULT
aws_secret_access_key = secret-d

[etl]
aws_access_key_id = ETL
aws_secret_access_key = secret-e
aws_session_token = token-e

[half]
aws_access_key_id = HALF
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "credentials").write_text(FILES)
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n[profile etl]\nregion = eu-north-1\n")
    return tmp_path


def test_keys_from_the_shared_file(files: Path) -> None:
    assert Sdk().credentials() == Credentials("DEFAULT", "secret-d")
    assert Sdk("etl").credentials() == Credentials("ETL", "secret-e", "token-e")


def test_the_profile_of_the_environment(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "etl")
    assert Sdk().credentials().access_key_id == "ETL"


ENVIRONMENTS = [
    {},
    {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "secret"},
    {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"},
    {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SECURITY_TOKEN": "old-token"},
    {
        "AWS_ACCESS_KEY_ID": "ENV",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_SECURITY_TOKEN": "old-token",
    },
    {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
    {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_PROFILE": "etl"},
    {
        "AWS_ACCESS_KEY_ID": "ENV",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_CREDENTIAL_EXPIRATION": "2099-01-01T00:00:00Z",
    },
]


@pytest.mark.parametrize("profile", [None, "etl"])
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda e: "+".join(e) or "none")
def test_the_shortcut_finds_what_the_chain_finds(
    files: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], profile: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    shortcut = environment_credentials(profile)
    assert shortcut is None or shortcut == Sdk(profile).credentials()
    if profile is None and environment.get("AWS_ACCESS_KEY_ID") and "AWS_CREDENTIAL_EXPIRATION" not in environment:
        assert shortcut is not None


def test_half_a_pair_in_the_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    assert environment_credentials(None) is None
    with pytest.raises(CredentialsError, match=r"cannot be loaded.*Partial credentials"):
        Sdk().credentials()


def test_half_a_pair_in_a_profile_is_an_error(files: Path) -> None:
    with pytest.raises(CredentialsError, match=r"of profile 'half' cannot be loaded.*aws_secret_access_key"):
        Sdk("half").credentials()


def test_a_profile_that_does_not_exist(files: Path) -> None:
    with pytest.raises(
        CredentialsError, match=rf"\(nowhere\) could not be found .*{files}/config, {files}/credentials"
    ):
        Sdk("nowhere").credentials()


def test_a_file_that_cannot_be_read(files: Path) -> None:
    (files / "config").write_text("this is no configuration")
    with pytest.raises(CredentialsError, match="the AWS configuration cannot be used"):
        Sdk().credentials()


def test_nothing_found_says_where_it_looked() -> None:
    with pytest.raises(CredentialsError) as caught:
        Sdk().credentials()
    message = str(caught.value)
    for place in ("AWS_ACCESS_KEY_ID", "~/.aws/credentials", "sign-on", "web identity", "AWS_EC2_METADATA_DISABLED"):
        assert place in message
    assert "name a profile" in message


def test_files_are_read_anew_when_asked(files: Path) -> None:
    sdk = Sdk("etl")
    assert sdk.credentials().access_key_id == "ETL"
    (files / "credentials").write_text(FILES.replace("ETL", "ROTATED"))
    assert sdk.credentials().access_key_id == "ETL"
    assert sdk.credentials(refresh=True).access_key_id == "ROTATED"


def test_a_credential_process_with_an_expiry(tmp_path: Path) -> None:
    expiry = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)
    answer = {"Version": 1, "AccessKeyId": "PROC", "SecretAccessKey": "s", "SessionToken": "t",
              "Expiration": expiry.isoformat()}  # fmt: skip
    script = tmp_path / "keys.py"
    script.write_text(f"print({json.dumps(json.dumps(answer))})")
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = {sys.executable} {script}\n")
    assert Sdk("p").credentials() == Credentials("PROC", "s", "t", expiry.timestamp())


def test_a_credential_process_that_fails(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile p]\ncredential_process = false\n")
    with pytest.raises(CredentialsError, match="of profile 'p' cannot be loaded"):
        Sdk("p").credentials()


def test_single_sign_on_that_was_not_done(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[profile s]\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = r\n"
        "[sso-session work]\nsso_region = eu-west-1\nsso_start_url = https://example.com/start\n"
    )
    with pytest.raises(CredentialsError, match=r"of profile 's' cannot be loaded.*(sso|SSO)"):
        Sdk("s").credentials()


async def test_the_containers_credentials(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for in a thread: the loop goes on, or this very server could not answer."""
    expiry = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(hours=6)
    answer = {"AccessKeyId": "TASK", "SecretAccessKey": "s", "Token": "t", "Expiration": expiry.isoformat()}
    server.otherwise = lambda received: Reply(
        json.dumps(answer if received.line.startswith("GET /creds") else {}).encode()
    )
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/creds")
    async with Wire(ConnectionOptions(region="us-east-1", endpoint_url=server.url)) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
        loaded = await wire._parts_here().credentials.current()
    assert loaded == Credentials("TASK", "s", "t", expiry.timestamp())
    assert "Credential=TASK/" in server.requests[-1].headers["authorization"]


async def test_a_web_identity(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As Kubernetes sets it up: a token in a file, a role, and STS."""
    (tmp_path / "token").write_text("a-web-token")
    server.otherwise = lambda received: (
        sts_answer("AssumeRoleWithWebIdentity") if b"Action=AssumeRoleWithWebIdentity" in received.body else Reply()
    )
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pods")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    async with Wire(ConnectionOptions(endpoint_url=server.url)) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
    assert b"a-web-token" in server.requests[0].body
    assert f"Credential={ASSUMED.access_key_id}/" in server.requests[-1].headers["authorization"]
    assert server.requests[-1].headers["x-amz-security-token"] == ASSUMED.session_token


# --- region ---


@pytest.mark.parametrize(
    ("settings", "environment", "region"),
    [
        ({"region": "ap-south-1"}, {"AWS_DEFAULT_REGION": "us-east-2"}, "ap-south-1"),
        ({}, {"AWS_DEFAULT_REGION": "us-east-2", "AWS_REGION": "us-west-1"}, "us-west-1"),
        ({}, {"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
        ({"profile": "etl"}, {"AWS_REGION": "us-west-1"}, "us-west-1"),
        ({}, {"AWS_REGION": "us-west-1", "AWS_CONFIG_FILE": "/nonexistent/config"}, "us-west-1"),
        ({}, {}, "eu-west-3"),
        ({}, {"AWS_PROFILE": "etl"}, "eu-north-1"),
        ({"profile": "etl"}, {}, "eu-north-1"),
    ],
)
def test_the_region(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    environment: dict[str, str],
    region: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    wanted = ConnectionOptions(**settings)
    assert resolve_region(wanted, Sdk(wanted.profile)) == region
    assert Wire(wanted).region == region


def test_no_region_says_what_to_do() -> None:
    with pytest.raises(OptionError, match="no AWS region: give the region option, set AWS_REGION"):
        _ = Wire(ConnectionOptions()).region


@pytest.mark.parametrize("region", ["eu-west-1.amazonaws.com/x", "us east 1", "eu--west"])
def test_a_region_that_is_none(region: str) -> None:
    with pytest.raises(OptionError, match="is no AWS region"):
        resolve_region(ConnectionOptions(region=region), Sdk())


# --- what the SDK lets through ---


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("print('no json')", "JSONDecodeError"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "UnicodeDecodeError"),
        ("print('[]')", "AttributeError"),
        ("print('{\"Version\": 1}')", "AccessKeyId"),
        ('print(\'{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "never"}\')', "never"),
    ],
)
def test_a_credential_process_that_says_something_else(tmp_path: Path, script: str, says: str) -> None:
    (tmp_path / "keys.py").write_text(script)
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = {sys.executable} {tmp_path}/keys.py\n")
    with pytest.raises(CredentialsError, match=rf"of profile 'p' cannot be loaded: .*{says}"):
        Sdk("p").credentials()


def test_a_credential_process_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = {tmp_path}/missing\n")
    with pytest.raises(CredentialsError, match=r"cannot be loaded: FileNotFoundError: .*/missing"):
        Sdk("p").credentials()


@pytest.mark.parametrize("kept", [b"{", b"\xff", b"[]", b"5"])
def test_a_sign_on_cache_that_is_damaged(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / "config").write_text(
        "[profile s]\nsso_start_url = https://example.com/start\nsso_region = eu-west-1\n"
        "sso_account_id = 123456789012\nsso_role_name = r\n"
    )
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    name = hashlib.sha1(b"https://example.com/start", usedforsecurity=False).hexdigest()
    (cache / f"{name}.json").write_bytes(kept)
    with pytest.raises(CredentialsError, match="of profile 's' cannot be loaded"):
        Sdk("s").credentials()


async def test_a_service_that_refuses(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """STS's refusal of a web identity is botocore's ClientError, which is none of its BotoCoreErrors."""
    (tmp_path / "token").write_text("a-web-token")
    refusal = (
        b"<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>too old</Message></Error></ErrorResponse>"
    )
    server.otherwise = lambda received: Reply(refusal, 400)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pods")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(CredentialsError, match=r"InvalidIdentityToken.*too old"):
        await asyncio.to_thread(Sdk().credentials)
    (tmp_path / "token").unlink()
    with pytest.raises(CredentialsError, match="FileNotFoundError"):
        await asyncio.to_thread(Sdk().credentials)


def test_a_configuration_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes("[default]\nregion = größer\n".encode("latin-1"))
    with pytest.raises(CredentialsError, match="the AWS configuration cannot be used"):
        Sdk().credentials()


def test_a_profile_of_the_environment_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    """Whatever is asked first: region, endpoint, bundle."""
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    for ask in (Sdk().region, lambda: Sdk().configured_endpoint("kinesis"), Sdk().use_fips, Sdk().use_dualstack):
        with pytest.raises(ShardwayError, match="nowhere"):
            ask()


# --- where roles of profiles are assumed ---

ROLES = """
[profile base]
aws_access_key_id = BASE
aws_secret_access_key = secret-b

[profile role]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base

[profile legacy]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base
sts_regional_endpoints = legacy
"""


def asked(sdk: Sdk, region: str | None) -> tuple[str, str]:
    """Where the SDK would ask for a role, and for which region that is signed; nothing is sent."""
    sent: list[tuple[str, str]] = []

    def keep(request: Any, **_: Any) -> None:
        sent.append((request.url, request.headers["Authorization"].decode().split("/")[2]))
        raise InterruptedError

    sdk.session().register("before-send.sts.AssumeRole", keep)
    with pytest.raises(CredentialsError):
        sdk.credentials(region=region)
    return sent[0]


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
        ("eu-west-1", "sts.eu-west-1.amazonaws.com"),
        ("ap-east-1", "sts.ap-east-1.amazonaws.com"),
    ],
)
def test_a_role_of_a_profile_is_assumed_in_the_region(tmp_path: Path, region: str, host: str) -> None:
    """Also when the region is given in code, or as AWS_REGION, of which the SDK knows nothing."""
    (tmp_path / "config").write_text(ROLES)
    assert asked(Sdk("role"), region) == (f"https://{host}/", region)


def test_a_program_that_wants_the_global_endpoint_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(ROLES)
    assert asked(Sdk("legacy"), "eu-west-1") == ("https://sts.amazonaws.com/", "us-east-1")
    monkeypatch.setenv("AWS_STS_REGIONAL_ENDPOINTS", "legacy")
    assert asked(Sdk("role"), "eu-west-1") == ("https://sts.amazonaws.com/", "us-east-1")


@pytest.mark.parametrize("where", ["settings", "AWS_REGION"])
async def test_a_wire_tells_the_sdk_its_region(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (tmp_path / "config").write_text(ROLES)
    server.otherwise = lambda received: sts_answer() if b"Action=AssumeRole" in received.body else Reply()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
    if where == "AWS_REGION":
        monkeypatch.setenv("AWS_REGION", "cn-north-1")
    settings = ConnectionOptions(
        profile="role", endpoint_url=server.url, region="cn-north-1" if where == "settings" else None
    )
    async with Wire(settings) as wire:
        await wire.call("kinesis", "ListStreams", b"{}")
    assert "Credential=BASE/" in server.requests[0].headers["authorization"]
    assert "/cn-north-1/sts/aws4_request" in server.requests[0].headers["authorization"]
    assert "/cn-north-1/kinesis/aws4_request" in server.requests[-1].headers["authorization"]


def test_two_variables_that_differ_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "sa-east-1")
    assert [Sdk().region(), Sdk().region()] == ["us-west-1", "us-west-1"]
    (line,) = caplog.messages
    assert line.startswith("AWS_REGION is us-west-1 and AWS_DEFAULT_REGION is sa-east-1: AWS_REGION is used")


# --- the profile's CA bundle ---


@pytest.mark.parametrize("named", [False, True])
async def test_the_profile_s_ca_bundle_counts_also_where_nothing_else_is_looked_up(
    certificate_files: tuple[Path, Path], tmp_path: Path, named: bool
) -> None:
    """Region, endpoint and credentials are given: so the SDK was not in use, and its files were not read."""
    certificate, key = certificate_files
    (tmp_path / "config").write_text(f"[{'profile p' if named else 'default'}]\nca_bundle = {certificate}\n")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with ScriptedServer(tls=context) as server:
        settings = ConnectionOptions(
            region="us-east-1", endpoint_url=server.url, credentials=Credentials("AKID", "secret"),
            profile="p" if named else None,
        )  # fmt: skip
        async with Wire(settings) as wire:
            assert await wire.call("kinesis", "ListStreams", b"{}", retry=NEVER) == b"{}"


def test_a_bundle_given_in_code_holds_for_the_sdk_s_own_calls(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nca_bundle = /nowhere/configured.pem\n")
    sdk = Sdk(ca_bundle="/nowhere/given.pem")
    assert sdk.session().get_config_variable("ca_bundle") == "/nowhere/given.pem"
