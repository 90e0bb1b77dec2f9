"""The HTTP client against servers that keep, cut off, reset, stall, and speak TLS or through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_servers import Received, Reply, ScriptedServer, ok

from penstock.aws.settings import WireSettings
from penstock.aws.transport import HttpTransport, StaleConnectionError, proxy_for
from penstock.errors import OptionError, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LARGE = 3_000_000


@contextlib.asynccontextmanager
async def transport(*, ca_bundle: str | None = None, **settings: Any) -> AsyncIterator[HttpTransport]:
    opened = HttpTransport(WireSettings(**settings), ca_bundle=ca_bundle, user_agent="penstock-tests")
    try:
        yield opened
    finally:
        await opened.close()


async def post(client: HttpTransport, url: str, body: bytes = b"{}") -> Any:
    host = url.partition("://")[2].partition("/")[0]
    return await client.post(f"{url}/" if url.count("/") == 2 else url, {"host": host}, body, operation="GetRecords")


async def test_connections_are_kept(server: ScriptedServer) -> None:
    async with transport() as client:
        for number in range(5):
            server.replies.append(ok({"n": number}, Date="Sat, 21 Nov 2026 11:20:50 GMT"))
            answer = await post(client, server.url)
            assert (answer.status, answer.body) == (200, b'{"n": %d}' % number)
            assert answer.headers["date"] == "Sat, 21 Nov 2026 11:20:50 GMT"
    assert server.connections == 1
    assert server.requests[0].headers["user-agent"] == "penstock-tests"


async def test_connections_are_as_many_as_allowed(server: ScriptedServer) -> None:
    async with transport(connections_max=3) as client:
        answers = await asyncio.gather(*[post(client, server.url) for _ in range(20)])
    assert [answer.status for answer in answers] == [200] * 20
    assert server.connections == 3


async def test_a_large_body_goes_both_ways(server: ScriptedServer) -> None:
    server.otherwise = lambda received: Reply(received.body[::-1])
    sent = bytes(range(256)) * (LARGE // 256)
    async with transport() as client:
        answer = await post(client, server.url, sent)
        small = await post(client, server.url, b"abc")
    assert answer.body == sent[::-1]
    assert small.body == b"cba"
    assert server.connections == 1


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


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_new_connection_that_says_nothing_is_not_stale(server: ScriptedServer, then: str) -> None:
    server.replies.append(Reply(raw=b"", then=then))
    async with transport() as client:
        with pytest.raises(TransportError, match="before an answer came") as caught:
            await post(client, server.url)
        assert not isinstance(caught.value, StaleConnectionError)


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_kept_connection_that_says_nothing_is_stale(server: ScriptedServer, then: str) -> None:
    server.replies += [ok(), Reply(raw=b"", then=then)]
    async with transport() as client:
        await post(client, server.url)
        with pytest.raises(StaleConnectionError):
            await post(client, server.url)


async def test_a_connection_closed_while_idle_is_not_lent(server: ScriptedServer) -> None:
    """The close is seen before the next request is written: nobody notices."""
    server.replies += [Reply(body=b"{}", then="close")]
    async with transport() as client:
        await post(client, server.url)
        connection = next(iter(client._pool._open))
        await connection.lost
        await post(client, server.url)
    assert server.connections == 2


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


async def test_idle_connections_are_closed(server: ScriptedServer) -> None:
    async with transport(keepalive_s=0.05) as client:
        await asyncio.gather(*[post(client, server.url) for _ in range(4)])
        opened = list(client._pool._open)
        assert len(opened) == 4
        await asyncio.wait([connection.lost for connection in opened])
        assert client._pool._idle == {}
        assert (await post(client, server.url)).status == 200


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


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"])
async def test_silence_ends_in_a_timeout(server: ScriptedServer, raw: bytes) -> None:
    server.replies.append(Reply(raw=raw, then="silent"))
    async with transport(read_timeout_s=0.5) as client:  # long enough for the second call on a busy machine
        with pytest.raises(TransportError, match=r"silent for 0\.5 s"):
            await post(client, server.url)
        assert (await post(client, server.url)).status == 200


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
    async with transport(read_timeout_s=0.7, attempt_timeout_s=1.0) as client:
        with pytest.raises(TransportError, match=r"no whole answer within 1\.0 s"):
            await post(client, url)
    await ended.wait()
    trickling.close()
    await trickling.wait_closed()


async def test_nobody_there() -> None:
    async with ScriptedServer() as gone:
        url = gone.url
    async with transport() as client:
        with pytest.raises(TransportError, match=f"GetRecords at {url}/: cannot connect") as caught:
            await post(client, url)
    assert caught.value.retryable


async def test_no_http_there(server: ScriptedServer) -> None:
    server.replies.append(Reply(raw=b"220 mail.example.com ESMTP\r\n\r\n"))
    async with transport() as client:
        with pytest.raises(TransportError, match="status line"):
            await post(client, server.url)


async def test_a_cancelled_call_leaves_no_connection_in_a_mess(server: ScriptedServer) -> None:
    server.replies.append(Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", then="silent"))
    async with transport() as client:
        call = asyncio.create_task(post(client, server.url))
        while not server.requests:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await post(client, server.url)).body == b"{}"
    assert server.connections == 2


async def test_redirects_are_not_followed(server: ScriptedServer) -> None:
    """A signed request is for one host."""
    server.replies.append(Reply(b"", 301, {"Location": "http://127.0.0.1:1/"}))
    async with transport() as client:
        assert (await post(client, server.url)).status == 301


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


async def test_a_long_stream_is_not_kept_in_memory(server: ScriptedServer) -> None:
    whole = bytes(range(256)) * 40_000
    server.replies.append(Reply(whole))
    async with transport(answer_bytes_max=1000) as client:
        got, most_waiting = bytearray(), 0
        async with contextlib.aclosing(client.stream(f"{server.url}/", {"host": "h"}, b"", operation="S")) as parts:
            async for part in parts:
                got += part.body
                await asyncio.sleep(0)
                connection = next(iter(client._pool._open))
                exchange = connection._exchange
                most_waiting = max(most_waiting, exchange.waiting_bytes if exchange is not None else 0)
        assert got == whole
    assert most_waiting < 2 * 1024 * 1024


async def test_a_stream_that_breaks_off_is_an_error(server: ScriptedServer) -> None:
    server.replies.append(
        Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n", then="reset")
    )
    async with transport() as client:
        with pytest.raises(TransportError):
            async for _ in client.stream(f"{server.url}/", {"host": "h"}, b"", operation="SubscribeToShard"):
                pass


async def test_a_stream_may_be_left(server: ScriptedServer) -> None:
    server.replies.append(
        Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n", then="silent")
    )
    async with transport(connections_max=1) as client:
        async with contextlib.aclosing(client.stream(f"{server.url}/", {"host": "h"}, b"", operation="S")) as parts:
            async for part in parts:
                if part.body == b"wiki":
                    break
        assert (await post(client, server.url)).status == 200
    assert server.connections == 2


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that signs itself: the file to trust, and the server's context."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock tests")])
    import ipaddress

    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    trusted, private = folder / "ca.pem", folder / "key.pem"
    trusted.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, private)
    return trusted, context


async def test_tls_with_a_given_authority(authority: tuple[Path, ssl.SSLContext]) -> None:
    trusted, context = authority
    async with ScriptedServer(tls=context) as server, transport(ca_bundle=str(trusted)) as client:
        server.otherwise = lambda received: Reply(received.body * 2)
        body = b"x" * LARGE
        assert (await post(client, server.url, body)).body == body * 2
        assert (await post(client, server.url, b"y")).body == b"yy"
        assert server.connections == 1


async def test_tls_is_verified(authority: tuple[Path, ssl.SSLContext]) -> None:
    async with ScriptedServer(tls=authority[1]) as server, transport() as client:
        with pytest.raises(TransportError, match=r"not trusted.*ca_bundle or AWS_CA_BUNDLE") as caught:
            await post(client, server.url)
        assert not caught.value.retryable
        assert server.requests == []


async def test_a_handshake_that_is_not_answered(server: ScriptedServer) -> None:
    """Plain HTTP there: it waits for the end of a head that never comes."""
    async with transport(connect_timeout_s=0.1) as client:
        with pytest.raises(TransportError, match=r"no connection within 0\.1 s"):
            await post(client, server.url.replace("http:", "https:"))


async def test_tls_verification_can_be_switched_off(authority: tuple[Path, ssl.SSLContext]) -> None:
    async with ScriptedServer(tls=authority[1]) as server, transport(verify=False) as client:
        assert (await post(client, server.url)).status == 200


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_bundle_that_cannot_be_loaded(tmp_path: Path, content: str | None) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content)
    async with transport(ca_bundle=str(bundle)) as client:
        with pytest.raises(OptionError, match=r"bundle\.pem.*cannot be loaded"):
            await post(client, "https://127.0.0.1:1")


# --- proxies ---


class TunnelProxy:
    """An HTTP proxy that grants CONNECT to loopback, or refuses it with ``status``."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.heads: list[str] = []

    async def __aenter__(self) -> TunnelProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        writer.write(f"HTTP/1.1 {self.status} Whatever\r\n\r\n".encode())
        if self.status == 200:
            host, _, port = head.split()[1].rpartition(":")
            onward_reader, onward_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(pipe(reader, onward_writer), pipe(onward_reader, writer), return_exceptions=True)
        writer.close()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_tls_goes_through_a_tunnel(
    authority: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, context = authority
    async with ScriptedServer(tls=context) as server, TunnelProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@{proxy.url}")
        async with transport(ca_bundle=str(trusted)) as client:
            for _ in range(2):
                assert (await post(client, server.url)).status == 200
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in head
    assert "proxy-authorization" not in server.requests[0].headers


async def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with TunnelProxy(status=407) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with transport() as client:
            with pytest.raises(TransportError, match=f"the proxy {proxy.url} answered 407 to CONNECT"):
                await post(client, "https://127.0.0.1:1")


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
