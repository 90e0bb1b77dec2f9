"""What holds for requests by HTTP/1.1 and by HTTP/2 alike: the same tests, run over each."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.transport import StaleConnectionError
from shardway.errors import TransportError
from tests.aws.aws_servers import Reply, ScriptedServer, ok
from tests.aws.http_kit import LARGE, VERSIONS, TunnelProxy, post, server_of, transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from shardway.aws.http.http1.connection import Connection
    from shardway.aws.http.http2.connection import MultiplexedConnection
    from tests.aws.h2_servers import H2Server

    AnyServer = ScriptedServer | H2Server


@pytest.fixture(params=list(VERSIONS))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def chosen(version: str) -> dict[str, Any]:
    """The settings that choose the version."""
    return VERSIONS[version]


@pytest.fixture
async def server(version: str) -> AsyncIterator[AnyServer]:
    async with server_of(version) as running:
        yield running


async def test_connections_are_kept(server: AnyServer, chosen: dict[str, Any]) -> None:
    async with transport(**chosen) as client:
        for number in range(5):
            server.replies.append(ok({"n": number}, Date="Sat, 21 Nov 2026 11:20:50 GMT"))
            answer = await post(client, server.url)
            assert (answer.status, answer.body) == (200, b'{"n": %d}' % number)
            assert answer.headers["date"] == "Sat, 21 Nov 2026 11:20:50 GMT"
    assert server.connections == 1
    assert server.requests[0].headers["user-agent"] == "shardway-tests"


async def test_a_large_body_goes_both_ways(server: AnyServer, chosen: dict[str, Any]) -> None:
    server.otherwise = lambda received: Reply(received.body[::-1])
    sent = bytes(range(256)) * (LARGE // 256)
    async with transport(**chosen) as client:
        answer = await post(client, server.url, sent)
        small = await post(client, server.url, b"abc")
    assert answer.body == sent[::-1]
    assert small.body == b"cba"
    assert server.connections == 1


@pytest.mark.parametrize("cut", [0, 3, 2_000_000])
@pytest.mark.parametrize("then", ["close", "reset"])
async def test_an_answer_that_breaks_off_is_an_error(
    server: AnyServer, chosen: dict[str, Any], cut: int, then: str
) -> None:
    server.replies.append(Reply(b"x" * LARGE, cut=cut, then=then))
    async with transport(**chosen) as client:
        with pytest.raises(TransportError, match=r"GetRecords at http://127\.0\.0\.1") as caught:
            await post(client, server.url)
        assert caught.value.retryable
        assert caught.value.sent
        assert (await post(client, server.url)).status == 200


@pytest.mark.parametrize("cut", [0, None])
async def test_a_longer_answer_than_allowed_is_not_read(
    server: AnyServer, chosen: dict[str, Any], cut: int | None
) -> None:
    server.replies.append(Reply(b"x" * 1001, cut=cut, then="silent"))
    async with transport(**chosen, answer_bytes_max=1000) as client:
        with pytest.raises(TransportError, match=r"longer than 1000 bytes \(answer_bytes_max\)"):
            await post(client, server.url)


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_new_connection_that_says_nothing_is_not_stale(
    server: AnyServer, chosen: dict[str, Any], then: str
) -> None:
    server.replies.append(Reply(cut=-1, then=then))
    async with transport(**chosen) as client:
        with pytest.raises(TransportError, match="before an answer came") as caught:
            await post(client, server.url)
        assert not isinstance(caught.value, StaleConnectionError)


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_kept_connection_that_says_nothing_is_stale(
    server: AnyServer, chosen: dict[str, Any], then: str
) -> None:
    server.replies += [ok(), Reply(cut=-1, then=then)]
    async with transport(**chosen) as client:
        await post(client, server.url)
        with pytest.raises(StaleConnectionError):
            await post(client, server.url)


async def test_a_connection_closed_while_idle_is_not_lent(server: AnyServer, chosen: dict[str, Any]) -> None:
    """The close is seen before the next request is written: the caller notices nothing."""
    server.replies += [Reply(body=b"{}", then="close")]
    async with transport(**chosen) as client:
        await post(client, server.url)
        connection = next(iter(client._dialer.open))
        await connection.lost
        await post(client, server.url)
    assert server.connections == 2


async def test_idle_connections_are_closed(server: AnyServer, chosen: dict[str, Any], version: str) -> None:
    async with transport(**chosen, keepalive_s=0.05) as client:
        await asyncio.gather(*[post(client, server.url) for _ in range(4)])
        opened = list(client._dialer.open)
        assert len(opened) == (4 if version == "1.1" else 1)
        await asyncio.wait([connection.lost for connection in opened])
        assert client._dialer.open == set()
        assert (await post(client, server.url)).status == 200


@pytest.mark.parametrize("cut", [-1, 0, 3])
async def test_silence_ends_in_a_timeout(server: AnyServer, chosen: dict[str, Any], cut: int) -> None:
    server.replies.append(Reply(b"0123456789", cut=cut, then="silent"))
    async with transport(**chosen, read_timeout_s=0.5) as client:  # long enough for the second call on a busy machine
        with pytest.raises(TransportError, match=r"silent for 0\.5 s"):
            await post(client, server.url)
        assert (await post(client, server.url)).status == 200


async def test_no_server_there(chosen: dict[str, Any]) -> None:
    async with ScriptedServer() as gone:
        url = gone.url
    async with transport(**chosen) as client:
        with pytest.raises(TransportError, match=f"GetRecords at {url}/: cannot connect") as caught:
            await post(client, url)
    assert caught.value.retryable


async def test_a_cancelled_call_leaves_no_connection_in_a_mess(
    server: AnyServer, chosen: dict[str, Any], version: str
) -> None:
    server.replies.append(Reply(b"0123456789", cut=3, then="silent"))
    async with transport(**chosen) as client:
        call = asyncio.create_task(post(client, server.url))
        while not server.requests:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await post(client, server.url)).body == b"{}"
    assert server.connections == (2 if version == "1.1" else 1)


async def test_redirects_are_not_followed(server: AnyServer, chosen: dict[str, Any]) -> None:
    """A signed request is for one host."""
    server.replies.append(Reply(b"", 301, {"Location": "http://127.0.0.1:1/"}))
    async with transport(**chosen) as client:
        assert (await post(client, server.url)).status == 301


async def test_a_stream_comes_in_parts(server: AnyServer, chosen: dict[str, Any]) -> None:
    server.replies.append(Reply(b"wikipedia", headers={"X-A": "b"}))
    async with transport(**chosen) as client:
        parts = [
            part async for part in client.stream(f"{server.url}/", {"host": "h"}, b"", operation="SubscribeToShard")
        ]
        assert (parts[0].status, parts[0].headers["x-a"], parts[0].body) == (200, "b", b"")
        assert b"".join(part.body for part in parts) == b"wikipedia"
        await post(client, server.url)
    assert server.connections == 1


@pytest.mark.parametrize("cut", [-1, 0, 4])
async def test_a_stream_that_breaks_off_is_an_error(server: AnyServer, chosen: dict[str, Any], cut: int) -> None:
    server.replies.append(Reply(b"wikipedia", cut=cut, then="reset"))
    async with transport(**chosen) as client:
        with pytest.raises(TransportError):
            async for _ in client.stream(f"{server.url}/", {"host": "h"}, b"", operation="SubscribeToShard"):
                pass


def waiting_bytes(connection: Connection | MultiplexedConnection) -> int:
    exchanges = connection._open.values() if connection.is_shared else [connection._exchange]
    return sum(exchange.waiting_bytes for exchange in exchanges if exchange is not None)


async def test_a_long_stream_is_not_kept_in_memory(server: AnyServer, chosen: dict[str, Any]) -> None:
    whole = bytes(range(256)) * 40_000
    server.replies.append(Reply(whole))
    async with transport(**chosen, answer_bytes_max=1000) as client:
        got, most_waiting = bytearray(), 0
        async with contextlib.aclosing(client.stream(f"{server.url}/", {"host": "h"}, b"", operation="S")) as parts:
            async for part in parts:
                got += part.body
                await asyncio.sleep(0)
                most_waiting = max(most_waiting, *[waiting_bytes(connection) for connection in client._dialer.open])
        assert got == whole
    assert most_waiting < 2 * 1024 * 1024


async def test_a_stream_may_be_left(server: AnyServer, chosen: dict[str, Any], version: str) -> None:
    server.replies.append(Reply(b"wikipedia", cut=4, then="silent"))
    async with transport(**chosen, connections_max=1) as client:
        async with contextlib.aclosing(client.stream(f"{server.url}/", {"host": "h"}, b"", operation="S")) as parts:
            async for part in parts:
                if part.body == b"wiki":
                    break
        assert (await post(client, server.url)).status == 200
    assert server.connections == (2 if version == "1.1" else 1)


async def test_streams_keep_no_connection_from_calls(server: AnyServer, chosen: dict[str, Any]) -> None:
    """More subscriptions than calls are allowed at a time, all open; the calls go on beside them."""
    server.otherwise = lambda received: (
        Reply(b"wikipedia", cut=4, then="silent") if received.body == b"subscribe" else ok()
    )
    async with transport(**chosen, connections_max=1) as client:
        streams = [client.stream(f"{server.url}/", {"host": "h"}, b"subscribe", operation="S") for _ in range(3)]
        async with asyncio.timeout(20):
            for parts in streams:
                assert (await anext(parts)).status == 200
            assert [(await post(client, server.url)).status for _ in range(3)] == [200] * 3
        for parts in streams:
            await parts.aclose()


async def test_tls_with_a_given_authority(
    authority: tuple[Path, ssl.SSLContext], chosen: dict[str, Any], version: str
) -> None:
    trusted, context = authority
    async with server_of(version, context) as server, transport(**chosen, ca_bundle=str(trusted)) as client:
        server.otherwise = lambda received: Reply(received.body * 2)
        body = b"x" * LARGE
        assert (await post(client, server.url, body)).body == body * 2
        assert (await post(client, server.url, b"y")).body == b"yy"
        assert server.connections == 1


async def test_tls_is_verified(authority: tuple[Path, ssl.SSLContext], chosen: dict[str, Any], version: str) -> None:
    async with server_of(version, authority[1]) as server, transport(**chosen) as client:
        with pytest.raises(TransportError, match=r"not trusted.*ca_bundle or AWS_CA_BUNDLE") as caught:
            await post(client, server.url)
        assert not caught.value.retryable
        assert server.requests == []


async def test_tls_verification_can_be_switched_off(
    authority: tuple[Path, ssl.SSLContext], chosen: dict[str, Any], version: str
) -> None:
    async with server_of(version, authority[1]) as server, transport(**chosen, verify=False) as client:
        assert (await post(client, server.url)).status == 200


async def test_tls_goes_through_a_tunnel(
    authority: tuple[Path, ssl.SSLContext], chosen: dict[str, Any], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, context = authority
    async with server_of(version, context) as server, TunnelProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@{proxy.url}")
        async with transport(**chosen, ca_bundle=str(trusted)) as client:
            for _ in range(2):
                assert (await post(client, server.url)).status == 200
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in head
    assert "proxy-authorization" not in server.requests[0].headers


async def test_a_proxy_that_refuses(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async with TunnelProxy(status=407) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with transport(**chosen) as client:
            with pytest.raises(TransportError, match=f"the proxy {proxy.url} answered 407 to CONNECT"):
                await post(client, "https://127.0.0.1:1")
