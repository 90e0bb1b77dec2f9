"""The HTTP/1.1 client against servers that frame answers in all ways, cut off, trickle, and through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from shardway.aws.transport import StaleConnectionError, proxy_for
from shardway.errors import OptionError, TransportError
from tests.aws.aws_servers import Received, Reply, ScriptedServer, ok
from tests.aws.http_kit import LARGE, post, transport

if TYPE_CHECKING:
    from pathlib import Path


async def test_connections_are_as_many_as_allowed(server: ScriptedServer) -> None:
    async with transport(connections_max=3) as client:
        answers = await asyncio.gather(*[post(client, server.url) for _ in range(20)])
    assert [answer.status for answer in answers] == [200] * 20
    assert server.connections == 3


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n5\r\npedia\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nwikipedia", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nwikipedia", False),
    ],
)
async def test_bodies_by_their_framing(server: ScriptedServer, raw: bytes, kept: bool) -> None:
    async with transport() as client:
        for _ in range(2):
            server.replies.append(Reply(raw=raw))
            assert (await post(client, server.url)).body == b"wikipedia"
    assert server.connections == (1 if kept else 2)


async def test_a_body_may_end_with_the_connection(server: ScriptedServer) -> None:
    server.replies.append(Reply(raw=b"HTTP/1.1 200 OK\r\n\r\nwiki" + b"p" * LARGE, then="close"))
    async with transport() as client:
        assert (await post(client, server.url)).body == b"wiki" + b"p" * LARGE


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 2_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
    ],
)
@pytest.mark.parametrize("then", ["close", "reset"])
async def test_an_answer_that_breaks_off_is_an_error(server: ScriptedServer, raw: bytes, then: str) -> None:
    server.replies.append(Reply(raw=raw, then=then))
    async with transport() as client:
        with pytest.raises(TransportError, match=r"GetRecords at http://127\.0\.0\.1") as caught:
            await post(client, server.url)
        assert caught.value.retryable
        assert not isinstance(caught.value, StaleConnectionError)
        assert (await post(client, server.url)).status == 200


async def test_an_answer_without_a_question_closes_the_connection(server: ScriptedServer) -> None:
    server.replies.append(
        Reply(
            raw=b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000 + b"HTTP/1.1 408 Too Late\r\n\r\n"
        )
    )
    async with transport() as client:
        assert len((await post(client, server.url)).body) == 70_000
        assert (await post(client, server.url)).body == b"{}"
    assert server.connections == 2


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
    ],
)
async def test_a_longer_answer_than_allowed_is_not_read(server: ScriptedServer, raw: bytes) -> None:
    server.replies.append(Reply(raw=raw, then="silent"))
    async with transport(answer_bytes_max=1000) as client:
        with pytest.raises(TransportError, match=r"longer than 1000 bytes \(answer_bytes_max\)"):
            await post(client, server.url)


async def test_an_endless_head_is_not_read(server: ScriptedServer) -> None:
    server.replies.append(Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, then="silent"))
    async with transport() as client:
        with pytest.raises(TransportError, match="head of the answer"):
            await post(client, server.url)


async def test_a_trickle_ends_in_a_timeout() -> None:
    """Each byte is a sign of life, and yet the whole takes too long."""
    ended = asyncio.Event()

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    trickling = await asyncio.start_server(trickle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{trickling.sockets[0].getsockname()[1]}"
    async with transport(read_timeout_s=0.7, request_timeout_s=1.0) as client:
        with pytest.raises(TransportError, match=r"no whole answer within 1\.0 s"):
            await post(client, url)
    await ended.wait()
    trickling.close()
    await trickling.wait_closed()


async def test_no_http_there(server: ScriptedServer) -> None:
    server.replies.append(Reply(raw=b"220 mail.example.com ESMTP\r\n\r\n"))
    async with transport() as client:
        with pytest.raises(TransportError, match="status line"):
            await post(client, server.url)


# --- streams ---


async def test_a_stream_comes_in_parts(server: ScriptedServer) -> None:
    server.replies.append(
        Reply(
            raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n4\r\nwiki\r\n5\r\npedia\r\n0\r\n\r\n"
        )
    )
    async with transport() as client:
        parts = [
            part async for part in client.stream(f"{server.url}/", {"host": "h"}, b"", operation="SubscribeToShard")
        ]
        assert parts[0].headers["x-a"] == "b"
        assert b"".join(part.body for part in parts) == b"wikipedia"
        await post(client, server.url)
    assert server.connections == 1


async def test_a_stream_that_breaks_off_is_an_error(server: ScriptedServer) -> None:
    server.replies.append(
        Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n", then="reset")
    )
    async with transport() as client:
        with pytest.raises(TransportError):
            async for _ in client.stream(f"{server.url}/", {"host": "h"}, b"", operation="SubscribeToShard"):
                pass


# --- TLS ---


async def test_a_handshake_that_is_not_answered(server: ScriptedServer) -> None:
    """Plain HTTP there: it waits for the end of a head that never comes."""
    async with transport(connect_timeout_s=0.1) as client:
        with pytest.raises(TransportError, match=r"no connection within 0\.1 s"):
            await post(client, server.url.replace("http:", "https:"))


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_bundle_that_cannot_be_loaded(tmp_path: Path, content: str | None) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content)
    async with transport(ca_bundle=str(bundle)) as client:
        with pytest.raises(OptionError, match=r"bundle\.pem.*cannot be loaded"):
            await post(client, "https://127.0.0.1:1")


# --- proxies ---


async def test_plain_http_is_asked_of_the_proxy(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:pw@127.0.0.1:{server.port}")
    seen: list[Received] = []
    server.otherwise = lambda received: seen.append(received) or ok()  # type: ignore[func-returns-value]
    async with transport() as client:
        await post(client, "http://kinesis.example.com/")
    assert seen[0].line == "POST http://kinesis.example.com/ HTTP/1.1"
    assert seen[0].headers["proxy-authorization"] == "Basic bWU6cHc="


async def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    async with transport() as client:
        with pytest.raises(OptionError, match="http://host:port, not socks5://127"):
            await post(client, "https://kinesis.example.com")


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://kinesis.eu-west-1.amazonaws.com/", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://kinesis.eu-west-1.amazonaws.com/", "http://p:1"),
        ({"https_proxy": "p:1"}, "https://kinesis.eu-west-1.amazonaws.com/", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://127.0.0.1:4567/", None),
        ({"ALL_PROXY": "http://p:1"}, "http://127.0.0.1:4567/", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".amazonaws.com"}, "https://kinesis.eu-west-1.amazonaws.com/", None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "localhost,127.0.0.1"}, "http://127.0.0.1:4567/", None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://10.0.0.1/", None),
    ],
)
def test_which_proxy(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str, proxy: str | None) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy
