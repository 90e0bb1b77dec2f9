"""What is configured cannot write headers, choose another host, or show its password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.endpoints import resolve_endpoint, resolve_region
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.sdk import Sdk
from shardway.aws.wire import Wire
from shardway.errors import CredentialsError, OptionError
from tests.aws.http_kit import VERSIONS, server_of, transport

if TYPE_CHECKING:
    from pathlib import Path

SMUGGLED = "x\r\nX-Smuggled: yes"
ODD = [SMUGGLED, "x\n", "\nx", "a b", "caf\xe9", "x\x00", "x\x7f"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["access_key_id", "session_token"])
def test_credentials_that_no_header_takes_are_refused_and_not_shown(name: str, odd: str) -> None:
    given: dict[str, Any] = {"access_key_id": "AKID", "secret_access_key": "s", "session_token": "t", name: odd}
    with pytest.raises(CredentialsError, match="correct it where it comes from") as caught:
        Credentials(**given)
    assert "Smuggled" not in str(caught.value)
    assert odd not in str(caught.value)


def test_a_secret_that_was_read_with_its_line_break_is_told() -> None:
    with pytest.raises(CredentialsError, match="secret access key begins or ends with a line break"):
        Credentials("AKID", "secret\n")


async def test_credentials_of_the_environment_send_nothing_that_is_smuggled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", SMUGGLED)
    async with server_of("1.1") as server:
        async with Wire(ConnectionOptions(region="eu-west-1", endpoint_url=server.url)) as wire:
            with pytest.raises(CredentialsError, match=r"session token holds U\+000D at character 2 of 18"):
                await wire.call("kinesis", "ListStreams", b"{}")
        assert server.requests == []


async def test_credentials_of_a_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = AKID\naws_secret_access_key = s\naws_session_token = a\n  b\n"
    )
    with pytest.raises(CredentialsError, match="session token"):
        Sdk().credentials()


@pytest.mark.parametrize("tag", ["job\r\nX-Smuggled: yes", "job\n", "jobs caf\xe9", "\x1b[2J"])
def test_a_user_agent_is_one_line_of_ascii(tag: str) -> None:
    with pytest.raises(OptionError, match="user_agent_tag") as caught:
        ConnectionOptions(user_agent_tag=tag)
    assert "Smuggled" not in str(caught.value)
    assert ConnectionOptions(user_agent_tag="a job/1.0 (ours)").user_agent_tag == "a job/1.0 (ours)"


@pytest.mark.parametrize(
    "region",
    ["evil.com/", "evil.com#", "x@evil.com", "eu-west-1\r\nX: y", "eu-west-1\n", "", "-", "\u0665\u0665", "a" * 64],
)
def test_a_region_is_no_host(region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the settings, and of the environment: a request signed for the region goes to no other host."""
    with pytest.raises(OptionError, match="is no AWS region"):
        ConnectionOptions(region=region)
    if region:
        monkeypatch.setenv("AWS_REGION", region)
        monkeypatch.setenv("AWS_DEFAULT_REGION", region)
        with pytest.raises(OptionError, match="is no AWS region"):
            resolve_region(ConnectionOptions(), Sdk())
        with pytest.raises(OptionError, match="is no AWS region"):
            _ = Wire(ConnectionOptions()).region


URLS = ["http://user:hush@h:1", "http://:hush@h:1", "https://user:hush@h/x", "http://user:hu/sh@h", "ftp://u:hush@h",
        "http://user:hush@h:port", "http://user:hush@", "http://user:hush@h\r\n", "http://user:hush@[h"]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("name", ["endpoint_url", "sts_endpoint_url"])
def test_a_password_in_an_endpoint_is_not_repeated(name: str, url: str) -> None:
    given: dict[str, Any] = {name: url}
    with pytest.raises(OptionError, match=name) as caught:
        ConnectionOptions(**given)
    assert "hu" not in str(caught.value)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("url", URLS)
def test_nor_is_one_of_the_environment(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(OptionError) as caught:
        resolve_endpoint(ConnectionOptions(), Sdk(), "kinesis", "eu-west-1")
    assert "hu" not in str(caught.value)


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX-Smuggled:%20yes", "/caf\xe9"])
def test_an_endpoint_s_path_is_one_word(path: str) -> None:
    with pytest.raises(OptionError, match="endpoint_url is no URL"):
        ConnectionOptions(endpoint_url=f"http://127.0.0.1:1{path}")


@pytest.mark.parametrize("version", list(VERSIONS))
@pytest.mark.parametrize("odd", ["x\r\nX-Smuggled: yes", "x\ny", "x\x00y", "caf\xe9"])
async def test_the_last_look_at_headers_is_the_transport_s(version: str, odd: str) -> None:
    """Whatever comes past the checks of settings and credentials: nothing is sent."""
    async with server_of(version) as server, transport(**VERSIONS[version]) as client:
        headers = {"host": f"127.0.0.1:{server.port}", "x-amz-security-token": odd}
        with pytest.raises(OptionError, match="'x-amz-security-token' holds a character"):
            await client.post(f"{server.url}/", headers, b"{}", operation="ListStreams")
        with pytest.raises(OptionError, match="'x-amz-security-token' holds a character"):
            async for _ in client.stream(f"{server.url}/", headers, b"{}", operation="SubscribeToShard"):
                pass
        assert server.requests == []
