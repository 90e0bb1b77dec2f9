"""HTTP/2 against servers that refuse, drain, fall silent, starve and break the rules; and where it is not spoken."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import socket
import ssl
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from shardway.aws.options import ConnectionOptions
from shardway.aws.transport import StaleConnectionError
from shardway.errors import OptionError, TransportError
from tests.aws.aws_servers import Reply, ScriptedServer, ok
from tests.aws.h2_servers import Asked, H2Server, Peer
from tests.aws.http_kit import HTTP2, LARGE, TunnelProxy, post, transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from shardway.aws.http.exchange import Answer
    from shardway.aws.http.http2.connection import MultiplexedConnection
    from shardway.aws.transport import HttpTransport

WAIT_S = 40.0
"""For what happens soon; only a fault takes so long."""


@pytest.fixture
async def server() -> AsyncIterator[H2Server]:
    async with H2Server() as running:
        yield running


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


def stream(client: HttpTransport, server: H2Server, body: bytes = b"") -> AsyncGenerator[Answer, None]:
    return client.stream(f"{server.url}/", {"host": "h"}, body, operation="SubscribeToShard")


async def whole(parts: AsyncGenerator[Answer, None]) -> bytes:
    return b"".join([part.body async for part in parts])


def connections(client: HttpTransport) -> list[MultiplexedConnection]:
    return [connection for connection in client._dialer.open if connection.is_shared]


class Held:
    """Takes the requests and leaves the answers to the test."""

    def __init__(self, server: H2Server) -> None:
        self.asked: list[Asked] = []
        server.on_request = self.asked.append

    async def come(self, count: int) -> list[Asked]:
        await until(lambda: len(self.asked) >= count)
        return self.asked


# --- many at a time ---


async def test_requests_share_a_connection(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        calls = [asyncio.create_task(post(client, server.url, b"%d" % number)) for number in range(20)]
        for asked in reversed(await held.come(20)):
            asked.answer(bytes(asked.body))
        answers = await asyncio.gather(*calls)
    assert [answer.body for answer in answers] == [b"%d" % number for number in range(20)]
    assert server.connections == 1


@pytest.mark.parametrize(("streams_max", "own_max", "expected"), [(1, 100, 5), (2, 100, 3), (None, 4, 2), (100, 5, 1)])
async def test_no_more_streams_than_both_sides_allow(streams_max: int | None, own_max: int, expected: int) -> None:
    async with H2Server(streams_max=streams_max) as server, transport(**HTTP2, http2_streams_max=own_max) as client:
        held = Held(server)
        calls = [asyncio.create_task(post(client, server.url)) for _ in range(5)]
        for asked in await held.come(5):
            asked.answer()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 5
        assert server.connections == expected
        assert [peer.fault for peer in server.peers] == [None] * expected


async def test_callers_wait_where_no_further_connection_is_allowed(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2, http2_streams_max=2, connections_max=2) as client:
        calls = [asyncio.create_task(post(client, server.url)) for _ in range(9)]
        for number in range(9):
            (await held.come(number + 1))[number].answer()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 9
    assert server.connections == 2


async def test_a_caller_that_stops_waiting_keeps_no_stream_from_others(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2, http2_streams_max=1, connections_max=1) as client:
        first = asyncio.create_task(post(client, server.url))
        await held.come(1)
        impatient = [asyncio.create_task(post(client, server.url)) for _ in range(3)]
        patient = asyncio.create_task(post(client, server.url))
        await asyncio.sleep(0)
        for call in impatient:
            call.cancel()
        await asyncio.wait(impatient)
        held.asked[0].answer()
        assert (await first).status == 200
        (await held.come(2))[1].answer()
        assert (await patient).status == 200
    assert len(held.asked) == 2


async def test_the_bound_of_streams_changes_on_the_way(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2, connections_max=1) as client:
        first = asyncio.create_task(post(client, server.url))
        await held.come(1)
        server.peers[0].allow(1)
        (connection,) = connections(client)
        await until(lambda: connection.room == 0)
        later = [asyncio.create_task(post(client, server.url)) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(held.asked) == 1
        server.peers[0].allow(4)
        for asked in await held.come(4):
            asked.answer()
        assert [answer.status for answer in await asyncio.gather(first, *later)] == [200] * 4
    assert server.peers[0].fault is None


async def test_a_server_that_allows_nothing() -> None:
    async with H2Server(streams_max=0) as server, transport(**HTTP2) as client:
        with pytest.raises(TransportError, match="allows no request on a new connection") as caught:
            await post(client, server.url)
        assert not caught.value.sent
        await until(lambda: not server.peers_open)


# --- flow control ---


async def test_a_stream_that_is_not_read_holds_up_no_other(server: H2Server) -> None:
    """The slow one's window fills, as many bytes as are allowed wait for it, and the others get all of theirs."""
    held = Held(server)
    window_bytes = 128 * 1024
    async with transport(**HTTP2, http2_window_bytes=window_bytes) as client:
        slow = stream(client, server)
        reading = asyncio.create_task(anext(slow))
        (asked,) = await held.come(1)
        asked.head()
        await reading
        asked.data(b"s" * LARGE)
        left = LARGE - window_bytes
        await until(lambda: len(asked.unsent) == left)
        others = [asyncio.create_task(whole(stream(client, server, b"%d" % number))) for number in range(5)]
        for number, other in enumerate((await held.come(6))[1:]):
            other.answer(b"%d" % number * LARGE)
        assert [len(body) for body in await asyncio.gather(*others)] == [LARGE] * 5
        assert (len(asked.unsent), connections(client)[0]._open[asked.stream_id].waiting_bytes) == (left, window_bytes)
        asked.data(b"", end=True)
        assert await whole(slow) == b"s" * LARGE
    assert server.connections == 1


async def test_as_many_stalled_streams_as_allowed_leave_room_for_one(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2, http2_window_bytes=64 * 1024, http2_streams_max=40) as client:
        slow = [stream(client, server) for _ in range(39)]
        heads = [asyncio.create_task(anext(parts)) for parts in slow]
        for asked in await held.come(39):
            asked.head()
            asked.data(b"s" * 100_000)
        await asyncio.gather(*heads)
        await until(lambda: all(len(asked.unsent) == 100_000 - 65_536 for asked in held.asked))
        quick = asyncio.create_task(whole(stream(client, server)))
        (await held.come(40))[39].answer(b"q" * LARGE)
        assert await quick == b"q" * LARGE
        for parts in slow:
            await parts.aclose()
    assert server.connections == 1


async def test_bytes_that_were_not_taken_are_given_back_to_the_connection(server: H2Server) -> None:
    """Left streams take more bytes with them than the connection's window has."""
    held = Held(server)
    async with transport(**HTTP2, http2_window_bytes=64 * 1024, http2_streams_max=2) as client:
        for number in range(12):
            left = stream(client, server)
            head = asyncio.create_task(anext(left))
            asked = (await held.come(number + 1))[number]
            asked.head()
            await head
            asked.data(b"s" * 100_000)
            await until(lambda asked=asked: len(asked.unsent) == 100_000 - 65_536)  # type: ignore[misc]
            await left.aclose()
        quick = asyncio.create_task(whole(stream(client, server)))
        (await held.come(13))[12].answer(b"q" * LARGE)
        assert await quick == b"q" * LARGE
    assert server.connections == 1


async def test_a_body_waits_for_the_servers_windows_and_then_times_out() -> None:
    async with H2Server(reads_bodies=False) as server, transport(**HTTP2, read_timeout_s=0.5) as client:
        with pytest.raises(TransportError, match=r"silent for 0\.5 s"):
            await post(client, server.url, b"x" * LARGE)
        (asked,) = server.peers[0].asked.values()
        assert len(asked.body) == 65_535
        await until(lambda: asked.was_reset)
        assert (await post(client, server.url, b"")).status == 200


async def test_bodies_take_turns(server: H2Server) -> None:
    """A large body that waits for its window holds up no small one."""
    async with H2Server(reads_bodies=False) as server, transport(**HTTP2) as client:
        large = asyncio.create_task(post(client, server.url, b"x" * 60_000))
        await until(lambda: bool(server.peers))
        assert (await post(client, server.url, b"y")).status == 200
        assert (await large).status == 200
        stuck = asyncio.create_task(post(client, server.url, b"x" * 60_000))
        await until(lambda: len(server.peers[0].asked) == 3)
        assert (await post(client, server.url, b"")).status == 200
        stuck.cancel()
        await asyncio.wait([stuck])


# --- how requests fail ---


async def test_one_reset_ends_one_request(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        calls = [asyncio.create_task(post(client, server.url)) for _ in range(3)]
        first, second, third = await held.come(3)
        second.reset(ErrorCodes.INTERNAL_ERROR)
        first.answer()
        third.answer()
        one, two, three = await asyncio.gather(*calls, return_exceptions=True)
    assert not isinstance(one, BaseException)
    assert not isinstance(three, BaseException)
    assert (one.status, three.status) == (200, 200)
    assert isinstance(two, TransportError)
    assert not isinstance(two, StaleConnectionError)
    assert "broke it off (INTERNAL_ERROR)" in str(two)
    assert two.retryable
    assert two.sent
    assert server.connections == 1


async def test_a_cancelled_request_resets_its_stream_alone(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        calls = [asyncio.create_task(post(client, server.url)) for _ in range(2)]
        first, second = await held.come(2)
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        await until(lambda: first.was_reset)
        second.answer()
        assert (await calls[1]).status == 200
        assert not second.was_reset
    assert server.connections == 1


async def test_a_refused_stream_is_sent_again(server: H2Server) -> None:
    """REFUSED_STREAM: nothing was done, so that a write may be repeated, too."""
    held = Held(server)
    async with transport(**HTTP2) as client:
        call = asyncio.create_task(post(client, server.url, b"write"))
        (await held.come(1))[0].reset(ErrorCodes.REFUSED_STREAM)
        again = (await held.come(2))[1]
        assert again.body == b"write"
        again.answer()
        assert (await call).status == 200


async def test_a_server_that_refuses_always_is_not_asked_for_ever(server: H2Server) -> None:
    server.on_request = lambda asked: asked.reset(ErrorCodes.REFUSED_STREAM)
    async with transport(**HTTP2) as client:
        with pytest.raises(TransportError, match="refused the request") as caught:
            await post(client, server.url)
        assert caught.value.retryable
        assert not caught.value.sent
        with pytest.raises(TransportError, match="refused the request"):
            await whole(stream(client, server))
    assert len(server.requests) == 8


async def test_a_refusal_after_the_head_is_no_refusal(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        call = asyncio.create_task(post(client, server.url))
        (asked,) = await held.come(1)
        asked.head()
        asked.reset(ErrorCodes.REFUSED_STREAM)
        with pytest.raises(TransportError, match="REFUSED_STREAM") as caught:
            await call
        assert caught.value.sent
    assert len(held.asked) == 1


async def test_goaway_lets_what_was_begun_come_to_its_end(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        calls = [asyncio.create_task(post(client, server.url, b"%d" % number)) for number in range(3)]
        first, second, third = await held.come(3)
        server.peers[0].goaway(second.stream_id)
        again = (await held.come(4))[3]
        assert again.body == third.body
        assert again.peer is server.peers[1]
        again.answer(b"again")
        first.answer(b"one")
        second.answer(b"two")
        assert [answer.body for answer in await asyncio.gather(*calls)] == [b"one", b"two", b"again"]
        await until(lambda: server.peers[0].is_gone)
        later = asyncio.create_task(post(client, server.url))
        last = (await held.come(5))[4]
        last.answer()
        await later
    assert last.peer is server.peers[1]


async def test_goaway_in_the_middle_of_a_stream(server: H2Server) -> None:
    """First the announcement, then the last number: the subscription goes on, also in frames that came with it."""
    held = Held(server)
    async with transport(**HTTP2) as client:
        reading = asyncio.create_task(whole(stream(client, server)))
        (asked,) = await held.come(1)
        asked.head()
        asked.data(b"before ")
        server.peers[0].goaway(2**31 - 1, text=b"soon")
        asked.data(b"between ")
        server.peers[0].goaway(asked.stream_id)
        asked.data(b"after", end=True)
        assert await reading == b"before between after"
        await until(lambda: server.peers[0].is_gone)


async def test_goaway_on_a_quiet_connection(server: H2Server) -> None:
    async with transport(**HTTP2) as client:
        await post(client, server.url)
        server.peers[0].goaway(1)
        await until(lambda: server.peers[0].is_gone)
        assert (await post(client, server.url)).status == 200
    assert server.connections == 2


async def test_what_was_begun_before_a_goaway_is_not_taken_for_unseen(server: H2Server) -> None:
    """The connection ends after it: the service may have done what was asked, so nothing repeats it by itself."""
    async with transport(**HTTP2) as client:
        await post(client, server.url)
        held = Held(server)
        call = asyncio.create_task(post(client, server.url))
        (asked,) = await held.come(1)
        asked.peer.goaway(asked.stream_id, ErrorCodes.INTERNAL_ERROR)
        asked.peer.transport.close()
        with pytest.raises(TransportError, match="the connection was closed before") as caught:
            await call
        assert not isinstance(caught.value, StaleConnectionError)
        assert caught.value.sent


@pytest.mark.parametrize("size", [0, 7, 100_000])
async def test_a_goaway_that_is_none(server: H2Server, size: int) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        call = asyncio.create_task(post(client, server.url))
        await held.come(1)
        server.peers[0].transport.write(size.to_bytes(3, "big") + b"\x07\0\0\0\0\0" + bytes(size))
        with pytest.raises(TransportError, match=f"does not keep to HTTP/2 .a (GOAWAY )?frame of {size} bytes"):
            await call


async def test_http_1_1_required(server: H2Server, caplog: pytest.LogCaptureFixture) -> None:
    """The server is asked by HTTP/1.1 from then on; this one does not understand it."""
    server.on_request = lambda asked: asked.reset(ErrorCodes.HTTP_1_1_REQUIRED)
    async with transport(**HTTP2) as client:
        for _ in range(2):
            with pytest.raises(TransportError, match=r"status line|connection was closed|connection failed"):
                await post(client, server.url)
    assert len(server.requests) == 1
    assert [record.message for record in caplog.records if record.name == "shardway.aws"] == [
        f"127.0.0.1:{server.port} wants no HTTP/2 (HTTP_1_1_REQUIRED): it is asked by HTTP/1.1"
    ]


async def test_a_dead_connection_is_noticed(server: H2Server) -> None:
    """Nothing comes, not even the answer to a PING: all that waits for it fails, and the next request opens another."""
    held = Held(server)
    async with transport(**HTTP2, http2_ping_interval_s=0.05, http2_ping_timeout_s=0.1) as client:
        reading = asyncio.create_task(whole(stream(client, server)))
        call = asyncio.create_task(post(client, server.url))
        (await held.come(2))[0].head()
        server.peers[0].is_deaf = True
        for waiting in (reading, call):
            with pytest.raises(TransportError, match=r"dead: no answer to a PING within 0\.1 s") as caught:
                await waiting
            assert not isinstance(caught.value, StaleConnectionError)
        server.on_request = None
        async with asyncio.timeout(WAIT_S):
            while True:  # on a machine that stands still for a while, this one may count as dead, too
                with contextlib.suppress(TransportError):
                    assert (await post(client, server.url)).status == 200
                    break
    assert server.connections > 1


async def test_a_silent_connection_that_answers_lives(server: H2Server) -> None:
    held = Held(server)
    pings: list[bytes] = []
    async with transport(**HTTP2, http2_ping_interval_s=0.01, http2_ping_timeout_s=WAIT_S) as client:
        call = asyncio.create_task(post(client, server.url))
        (asked,) = await held.come(1)
        server.peers[0].on_ping = pings.append
        await until(lambda: len(pings) >= 3)
        asked.answer()
        assert (await call).status == 200
        count = len(pings)
        await asyncio.sleep(0.05)
        assert len(pings) <= count + 1  # a connection without requests is left alone


async def test_it_never_says_hello() -> None:
    async with H2Server(greets=False) as server, transport(**HTTP2, connect_timeout_s=0.1) as client:
        with pytest.raises(TransportError, match=r"no connection within 0\.1 s") as caught:
            await post(client, server.url)
        assert not caught.value.sent
        await until(lambda: not server.peers_open)


async def test_callers_that_waited_for_a_connection_share_its_failure() -> None:
    """They do not try one after the other."""
    async with H2Server(greets=False) as server, transport(**HTTP2, connect_timeout_s=0.3) as client:
        calls = await asyncio.gather(*[post(client, server.url) for _ in range(50)], return_exceptions=True)
        assert {str(error) for error in calls} == {f"GetRecords at {server.url}/: no connection within 0.3 s"}
        assert server.connections <= 1


@pytest.mark.parametrize(
    "told",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        (2**24 - 1).to_bytes(3, "big") + b"\0\0\0\0\0\1",  # a longer frame than we allow, by its head
        b"\0\0\4\0\0\0\0\0\1abcd",  # an answer's data before its head
        b"\0\0\5\1\4\0\0\0\1\xff\xff\xff\xff\xff",  # headers that are no HPACK
        b"\0\0\4\x08\0\0\0\0\0\0\0\0\0",  # a window that grows by nothing
        b"\0\0\4\x08\0\0\0\0\0\x7f\xff\xff\xff",  # a window that grows beyond its largest size
        b"\0\0\6\4\0\0\0\0\0\0\4\xff\xff\xff\xff",  # a window beyond its largest size, as a setting
        b"\0\0\3\4\0\0\0\0\0abc",  # settings of no length that is one
        b"\0\0\4\3\0\0\0\0\0\0\0\0\0",  # the connection itself is reset
        b"\0\0\0\x01\4\0\0\0\2",  # an answer to what was never asked
    ],
)
async def test_what_breaks_the_rules_ends_the_connection(server: H2Server, told: bytes) -> None:
    held = Held(server)
    async with transport(**HTTP2, read_timeout_s=WAIT_S) as client:
        call = asyncio.create_task(post(client, server.url))
        await held.come(1)
        server.peers[0].transport.write(told)
        with pytest.raises(TransportError, match="does not keep to HTTP/2") as caught:
            await call
        assert caught.value.sent
        assert not isinstance(caught.value, StaleConnectionError)
        server.on_request = None
        assert (await post(client, server.url)).status == 200
    assert server.connections == 2


async def test_headers_beyond_all_bounds(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        call = asyncio.create_task(post(client, server.url))
        (await held.come(1))[0].head(headers={f"x-{number}": "y" * 1000 for number in range(100)})
        with pytest.raises(TransportError, match="does not keep to HTTP/2"):
            await call


async def test_a_server_that_asks_and_does_not_listen(server: H2Server) -> None:
    """Its PINGs want answers, which it does not read: they are not collected without end."""
    held = Held(server)
    async with transport(**HTTP2) as client:
        call = asyncio.create_task(post(client, server.url))
        await held.come(1)
        peer = server.peers[0]
        peer.transport.pause_reading()
        peer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ours = connections(client)[0]._transport
        assert ours is not None
        ours.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        async with asyncio.timeout(WAIT_S):
            while not call.done():
                peer.transport.write((b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)) * 10_000)
                await asyncio.sleep(0)
        with pytest.raises(TransportError, match="does not read what it asks for"):
            await call


async def test_answers_in_scraps_with_padding(server: H2Server) -> None:
    """Padding counts against the windows, and is given back."""
    held = Held(server)
    async with transport(**HTTP2, http2_window_bytes=64 * 1024) as client:
        reading = asyncio.create_task(whole(stream(client, server)))
        (asked,) = await held.come(1)
        asked.head()
        for _ in range(2_000):
            asked.peer.h2.send_data(asked.stream_id, b"x", pad_length=200)
            asked.peer.flush()
            h2, stream_id = asked.peer.h2, asked.stream_id
            await until(lambda h2=h2, stream_id=stream_id: h2.local_flow_control_window(stream_id) > 300)  # type: ignore[misc]
        asked.data(b"", end=True)
        assert await reading == b"x" * 2_000


async def test_closing_ends_what_is_under_way(server: H2Server) -> None:
    held = Held(server)
    async with transport(**HTTP2) as client:
        call = asyncio.create_task(post(client, server.url))
        await held.come(1)
        await client.close()
        with pytest.raises(TransportError, match="the connection was closed"):
            await call
        await until(lambda: not server.peers_open)


# --- which protocol ---


async def test_what_is_sent(server: H2Server) -> None:
    """``:authority`` is the host that was signed; names are lower-case; nothing is about the connection."""
    headers = {"host": "kinesis.example.com", "X-Amz-Date": "now", "Authorization": "secret"}
    async with transport(**HTTP2) as client:
        await client.post(f"{server.url}/base", headers, b"abc", operation="PutRecords")
    (asked,) = server.peers[0].asked.values()
    assert asked.headers == {
        ":method": "POST",
        ":scheme": "http",
        ":authority": "kinesis.example.com",
        ":path": "/base",
        "user-agent": "shardway-tests",
        "x-amz-date": "now",
        "authorization": "secret",
        "content-length": "3",
    }


async def test_only_subscriptions_go_by_http2_if_so_chosen(authority: tuple[Path, ssl.SSLContext]) -> None:
    trusted, context = authority
    lines: list[str] = []

    async def http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readuntil(b"\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async with H2Server(tls=context) as server, transport(ca_bundle=str(trusted), http2="subscriptions") as client:
        assert await whole(stream(client, server)) == b"{}"
        assert len(server.requests) == 1
        assert all(connection.is_shared for connection in client._dialer.open)
    plain = await asyncio.start_server(http1, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
    async with transport(http2="subscriptions", http2_cleartext=True) as client:
        assert (await post(client, url)).body == b"{}"
    plain.close()
    await plain.wait_closed()
    assert lines == ["POST / HTTP/1.1\r\n"]


@pytest.mark.parametrize("proxied", [False, True])
async def test_a_server_without_http2_is_asked_by_http1(
    authority: tuple[Path, ssl.SSLContext],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    proxied: bool,
) -> None:
    """Told once; the connection that found it out is used."""
    trusted, context = authority
    async with TunnelProxy() as proxy, ScriptedServer(tls=context) as server:
        if proxied:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with transport(ca_bundle=str(trusted), http2="all") as client:
            for _ in range(3):
                assert (await post(client, server.url)).status == 200
        assert server.connections == 1
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"127.0.0.1:{server.port} does not choose HTTP/2: it is asked by HTTP/1.1"
    ]


async def test_without_tls_http2_is_for_those_that_ask_for_it() -> None:
    async with ScriptedServer() as server, transport(http2="all") as client:
        assert (await post(client, server.url)).status == 200
    assert server.requests[0].line == "POST / HTTP/1.1"


async def test_without_tls_a_proxy_is_asked_by_http1(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedServer() as proxy, transport(**HTTP2) as client:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert (await post(client, "http://kinesis.example.com/")).status == 200
    assert proxy.requests[0].line == "POST http://kinesis.example.com/ HTTP/1.1"


async def test_prior_knowledge_that_was_wrong() -> None:
    async with ScriptedServer() as server, transport(**HTTP2) as client:
        server.replies.append(Reply(raw=b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Length: 0\r\n\r\n"))
        with pytest.raises(TransportError, match="does not keep to HTTP/2"):
            await post(client, server.url)


async def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == "h2" or name.startswith("shardway.aws.http.http2"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h2", None)
    monkeypatch.setitem(sys.modules, "h2.config", None)
    with pytest.raises(OptionError, match=r"http2='subscriptions'.*pip install 'shardway\[http2\]'"):
        async with transport(http2="subscriptions"):
            pass
    async with ScriptedServer() as server, transport() as client:
        server.replies.append(ok())
        assert (await post(client, server.url)).status == 200


def test_a_version_of_http_that_there_is_not() -> None:
    with pytest.raises(OptionError, match=r'http2 is "off" or "subscriptions" or "all", not .yes.'):
        ConnectionOptions(http2="yes")  # type: ignore[arg-type]


async def test_nothing_is_left_behind(server: H2Server) -> None:
    """Requests for which no caller waits any more leave no exception, timer or future that is told at the end."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    held = Held(server)
    async with transport(**HTTP2) as client:
        calls = [asyncio.create_task(post(client, server.url)) for _ in range(10)]
        await held.come(10)
        server.peers[0].goaway(0, 11)
        server.peers[0].reset()
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        parts = stream(client, server)
        with contextlib.suppress(TransportError):
            server.on_request = lambda asked: asked.peer.reset()
            await anext(parts)
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_each_call_ends_and_nothing_is_done_twice(seed: int) -> None:
    """A server that answers, refuses, resets, drains and drops by chance; callers that also go away by chance."""
    chance = random.Random(seed)
    done: Counter[bytes] = Counter()
    last: dict[Peer, int] = {}
    came: dict[bytes, tuple[int, int]] = {}  # how often it may have been done at least and at most

    def act(asked: Asked) -> None:
        if asked.stream_id > last.get(asked.peer, asked.stream_id):
            return  # it was said that nothing will be done about it
        what = chance.choice(["answer"] * 6 + ["late"] * 3 + ["refuse", "refuse", "reset", "goaway", "allow", "drop"])
        body = bytes(asked.body)
        if what == "refuse":
            asked.reset(ErrorCodes.REFUSED_STREAM)
            return
        done[body] += 1
        if what == "reset":
            asked.reset(chance.choice([ErrorCodes.CANCEL, ErrorCodes.INTERNAL_ERROR]))
        elif what == "drop":
            asked.peer.reset()
        elif what == "late":
            asyncio.get_running_loop().call_later(chance.random() / 50, later, asked)
        else:
            if what == "goaway":
                # The highest number that was seen: all streams are begun as they come, and there are none above.
                last[asked.peer] = max(asked.peer.asked)
                asked.peer.goaway(last[asked.peer])
            if what == "allow":
                asked.peer.allow(chance.randint(1, 8))
            later(asked)

    def later(asked: Asked) -> None:
        if not asked.peer.is_gone:
            with contextlib.suppress(ProtocolError):  # the client has taken it back
                asked.answer(bytes(asked.body))

    async def one(client: HttpTransport, body: bytes) -> None:
        try:
            async with asyncio.timeout(chance.choice([None, None, 0.01])):
                assert (await post(client, server.url, body)).body == body
            came[body] = (1, 1)
        except TimeoutError:
            came[body] = (0, 1)
        except TransportError as error:
            came[body] = (0, int(error.sent))

    async with H2Server(streams_max=5) as server, transport(**HTTP2, connections_max=3) as client:
        server.on_request = act
        sizes = (1, 100, 30_000, 200_000)
        async with asyncio.timeout(WAIT_S):
            for turn in range(4):
                bodies = [b"%d-%d-" % (turn, number) * chance.choice(sizes) for number in range(30)]
                await asyncio.gather(*[one(client, body) for body in bodies])
        assert {body: done[body] for body, (least, most) in came.items() if not least <= done[body] <= most} == {}
        assert len(came) == 4 * 30
        assert [connection.lent for connection in connections(client)] == [0] * len(connections(client))
        assert [len(connection._open) for connection in connections(client)] == [0] * len(connections(client))
