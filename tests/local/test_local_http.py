"""HTTP/1.1 on the wire: order, keep-alive, chunks, large bodies, slow readers, broken connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from shardway.local.http import PIPELINED_REQUESTS_MAX
from shardway.local.http_messages import REQUEST_HEAD_BYTES_MAX, AfterAnswer, Answer, ChunkedOut, Request
from tests.local.rawhttp import Wire, request_bytes
from tests.local.serving import BODY_BYTES_MAX, plain, serving, streamed

if TYPE_CHECKING:
    from collections.abc import Awaitable


def echo(request: Request) -> Answer:
    return plain(request.method + b" " + request.target + b" " + request.body)


def test_a_connection_is_kept_and_its_requests_are_answered_one_after_the_other() -> None:
    with serving(echo) as (port, connections), Wire(port) as wire:
        for number in range(3):
            assert wire.call(request_bytes(b"%d" % number, path="/p?q=1")).body == b"POST /p?q=1 %d" % number
        assert len(connections) == 1


def test_pipelined_requests_are_answered_in_order_even_when_the_first_takes_longest() -> None:
    release = threading.Event()

    async def slow() -> Answer:
        await asyncio.to_thread(release.wait)
        return plain(b"slow")

    def handler(request: Request) -> Answer | Awaitable[Answer]:
        return slow() if request.body == b"slow" else echo(request)

    with serving(handler) as (port, _), Wire(port) as wire:
        wire.send(request_bytes(b"slow") + b"".join(request_bytes(b"%d" % n) for n in range(5)))
        release.set()
        assert wire.reply().body == b"slow"
        assert [wire.reply().body for _ in range(5)] == [b"POST / %d" % n for n in range(5)]


def test_a_client_that_pipelines_too_much_is_not_read_until_it_is_answered() -> None:
    release, seen = threading.Event(), []

    async def held() -> Answer:
        await asyncio.to_thread(release.wait)
        return plain(b"held")

    def handler(request: Request) -> Answer | Awaitable[Answer]:
        seen.append(request.body)
        return held() if request.body == b"held" else plain(request.body)

    count = PIPELINED_REQUESTS_MAX * 4
    with serving(handler) as (port, _), Wire(port) as wire:
        wire.send(request_bytes(b"held"))
        for number in range(count):
            wire.send(request_bytes(b"%d" % number))
        release.set()
        assert wire.reply().body == b"held"
        assert [wire.reply().body for _ in range(count)] == [b"%d" % n for n in range(count)]


def test_a_client_that_pipelines_large_bodies_is_not_read_until_it_is_answered() -> None:
    release = threading.Event()

    async def held() -> Answer:
        await asyncio.to_thread(release.wait)
        return plain(b"held")

    def handler(request: Request) -> Answer | Awaitable[Answer]:
        return held() if request.body == b"held" else plain(b"%d" % len(request.body))

    with serving(handler) as (port, connections), Wire(port) as wire:
        wire.send(request_bytes(b"held"))
        sender = threading.Thread(target=wire.send, args=(request_bytes(b"x" * BODY_BYTES_MAX) * 20,))
        sender.start()
        while not (waiting := next(iter(connections), None)) or not waiting._read_paused:
            time.sleep(0.001)
        assert waiting._waiting_bytes <= 2 * BODY_BYTES_MAX
        release.set()
        assert wire.reply().body == b"held"
        assert [wire.reply().body for _ in range(20)] == [b"%d" % BODY_BYTES_MAX] * 20
        sender.join()


def test_a_chunked_request_is_put_together() -> None:
    chunks = b"4\r\nwiki\r\n6;x=1\r\npedia \r\n0\r\n\r\n"
    with serving(echo) as (port, _), Wire(port) as wire:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert wire.call(head + chunks).body == b"POST / wikipedia "
        assert wire.call(request_bytes(b"next")).body == b"POST / next"


def test_expect_100_continue_is_answered_before_the_body() -> None:
    with serving(echo) as (port, _), Wire(port) as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n")
        assert wire.reply().status == 100
        wire.send(b"body")
        assert wire.reply().body == b"POST / body"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_cap_is_refused_and_the_connection_closed(chunked: bool) -> None:
    with serving(echo) as (port, _), Wire(port) as wire:
        body = b"x" * (BODY_BYTES_MAX + 1)
        if chunked:
            head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            wire.send(head + b"%x\r\n" % len(body) + body)
        else:
            wire.send(request_bytes(body))
        assert wire.reply().status == 413


def test_a_body_at_the_cap_is_taken() -> None:
    with serving(lambda request: plain(b"%d" % len(request.body))) as (port, _), Wire(port) as wire:
        assert wire.call(request_bytes(b"x" * BODY_BYTES_MAX)).body == b"%d" % BODY_BYTES_MAX


@pytest.mark.parametrize(
    "data",
    [
        b"this is no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * (REQUEST_HEAD_BYTES_MAX + 1) + b"\r\n\r\n",
    ],
    ids=["no HTTP", "head too large"],
)
def test_what_is_no_request_gets_400_and_the_connection_is_closed(data: bytes) -> None:
    with serving(echo) as (port, _), Wire(port) as wire:
        assert wire.call(data).status == 400
        assert wire.ended()


def test_a_client_that_asks_for_it_is_disconnected_after_the_answer() -> None:
    with serving(echo) as (port, _), Wire(port) as wire:
        assert wire.call(request_bytes(b"", headers={"Connection": "close"})).status == 200
        assert wire.ended()


def test_an_upgrade_is_ignored() -> None:
    upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": ""}
    with serving(echo) as (port, _), Wire(port) as wire:
        wire.send(request_bytes(b"", method="GET", headers=upgrade) + request_bytes(b"next"))
        assert wire.reply().body == b"GET / "
        assert wire.reply().body == b"POST / next"


OFFER = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": ""}


@pytest.mark.parametrize("body", [b"some body", b"x" * BODY_BYTES_MAX], ids=["small", "at the cap"])
def test_a_request_with_a_body_that_offers_an_upgrade_keeps_its_body(body: bytes) -> None:
    """Java's own client makes such requests, as long as it is not told to speak HTTP/1.1."""
    with serving(lambda request: plain(request.body + request.headers[b"x"])) as (port, _), Wire(port) as wire:
        wire.send(request_bytes(body, headers=OFFER | {"x": "a: b"}) + request_bytes(b"next", headers={"x": "c"}))
        assert wire.reply().body == body + b"a: b"
        assert wire.reply().body == b"nextc"


def test_an_upgrade_that_is_ignored_leaves_all_else_as_it_was_asked_for() -> None:
    chunks = b"4\r\nbody\r\n0\r\n\r\n"
    head = b"POST / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: upgrade%s\r\n"
    waiting = head % b"" + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    last = head % b", close" + b"Transfer-Encoding: chunked\r\n\r\n"
    with serving(echo) as (port, _), Wire(port) as wire:
        wire.send(waiting)
        assert wire.reply().status == 100
        for piece in (b"bo", b"dy"):
            wire.send(piece)
        assert wire.reply().body == b"POST / body"
        wire.send(last + chunks)
        assert wire.reply().body == b"POST / body"
        assert wire.ended()


@pytest.mark.parametrize(
    "head", [b"CONNECT h:1 HTTP/1.1\r\nUpgrade: h2c\r\n", b"POST / HTTP/1.1\r\nUpgrade: h\r\nTransfer-Encoding: x\r\n"]
)
def test_an_offer_that_makes_no_sense_ends_its_connection_at_most(head: bytes) -> None:
    with serving(echo) as (port, _):
        with Wire(port) as wire:
            wire.call(head + b"Host: h\r\nConnection: upgrade\r\nTransfer-Encoding: chunked, y\r\n\r\n0\r\n\r\n")
        with Wire(port) as wire:
            assert wire.call(request_bytes(b"next")).body == b"POST / next"


def test_a_large_body_arrives_whole_and_a_slow_reader_holds_up_only_itself() -> None:
    large = bytes(range(256)) * 40_000

    def handler(request: Request) -> Answer:
        return plain(large if request.body == b"large" else b"small")

    with serving(handler) as (port, _), Wire(port) as slow, Wire(port) as other:
        slow.send(request_bytes(b"large") + request_bytes(b"small"))
        for _ in range(10):
            assert other.call(request_bytes(b"small")).body == b"small"
        assert slow.reply().body == large
        assert slow.reply().body == b"small"


def test_an_answer_can_end_the_connection_in_order_after_part_of_its_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
    with serving(lambda _: Answer(head, b"12345", AfterAnswer.CLOSE)) as (port, _), Wire(port) as wire:
        wire.send(request_bytes())
        with pytest.raises(EOFError, match="5 of 10"):
            wire.reply()


def test_an_answer_can_tear_the_connection_down() -> None:
    with serving(lambda _: Answer(b"", ending=AfterAnswer.RESET)) as (port, _), Wire(port) as wire:
        wire.send(request_bytes())
        with pytest.raises(ConnectionResetError):
            wire.reply()


def test_a_handler_that_fails_answers_500_and_others_are_served() -> None:
    def handler(request: Request) -> Answer:
        if request.body == b"fail":
            raise RuntimeError("on purpose")
        return echo(request)

    with serving(handler) as (port, _), Wire(port) as wire, Wire(port) as other:
        assert wire.call(request_bytes(b"fail")).status == 500
        assert other.call(request_bytes(b"fine")).status == 200


def test_a_later_answer_that_fails_is_not_taken_for_a_whole_one() -> None:
    async def fails() -> Answer:
        raise RuntimeError("on purpose")

    with serving(lambda _: fails()) as (port, _), Wire(port) as wire:
        wire.send(request_bytes())
        with pytest.raises(ConnectionResetError):
            wire.reply()


def test_a_later_answer_that_ends_cancelled_is_no_silence() -> None:
    """What it waits for was cancelled: the client must not wait for ever."""

    async def cancelled() -> Answer:
        waited_for: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waited_for.cancel()
        return await waited_for

    with serving(lambda _: cancelled()) as (port, _), Wire(port) as wire:
        wire.send(request_bytes())
        with pytest.raises((ConnectionResetError, EOFError)):
            wire.reply()


def test_a_streamed_answer_comes_in_chunks_and_the_connection_is_kept() -> None:
    async def stream(out: ChunkedOut) -> None:
        out.send(b"one")
        out.send(b"")  # would end the body
        await out.drain()
        out.send(b"three")

    def handler(request: Request) -> Answer:
        return streamed(stream) if request.body == b"stream" else echo(request)

    with serving(handler) as (port, _), Wire(port) as wire:
        assert wire.call(request_bytes(b"stream")).headers["transfer-encoding"] == "chunked"
        expected = b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"
        assert wire._file.read(len(expected)) == expected
        assert wire.call(request_bytes(b"next")).body == b"POST / next"


def test_a_stream_is_told_that_its_reader_is_slow_and_that_it_is_gone() -> None:
    full, gone = threading.Event(), threading.Event()

    async def stream(out: ChunkedOut) -> None:
        out.on_close(gone.set)
        while not out.closed:
            out.send(b"x" * 65_536)
            if out.full:
                full.set()
                await out.drain()

    with serving(lambda _: streamed(stream)) as (port, _):
        with Wire(port) as wire:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.send(request_bytes())
            assert full.wait(20)
            assert not gone.is_set()
        assert gone.wait(20)


@pytest.mark.parametrize("ending", [AfterAnswer.RESET, AfterAnswer.DISCONNECT, AfterAnswer.CLOSE])
def test_a_stream_can_be_broken_off(ending: AfterAnswer) -> None:
    async def stream(out: ChunkedOut) -> None:
        out.break_off(ending)

    with serving(lambda _: streamed(stream)) as (port, _), Wire(port) as wire:
        wire.send(request_bytes())
        if ending is not AfterAnswer.CLOSE:
            with pytest.raises(ConnectionResetError):
                wire._file.read()
        else:
            assert wire.reply().status == 200
            assert wire.ended()


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nx: ",
        b"GET / HTTP/1.1\r\nx",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n1;x=",
    ],
    ids=["URL", "headers", "value", "name", "trailer", "extension"],
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("piece_bytes", [16, 4_096, 1 << 20])
def test_a_head_without_an_end_is_refused_at_its_bound(begin: bytes, first: bool, piece_bytes: int) -> None:
    with serving(echo) as (port, _), Wire(port) as wire:
        if not first:
            wire.call(request_bytes(b"x"))
        wire.send(begin)
        sent, lines = 0, b"a: b\r\n" * (piece_bytes // 6 + 1)
        piece = lines[:piece_bytes] if begin.endswith(b"\r\n") else b"y" * piece_bytes
        with contextlib.suppress(OSError):
            while sent < 1 << 24:
                wire.send(piece)
                sent += len(piece)
            assert wire.reply().status == 400
        assert sent < 1 << 24, "the connection is closed long before"


def test_a_head_of_the_whole_bound_is_taken_in_any_pieces() -> None:
    whole = request_bytes(b"body", headers={"x": "y" * (REQUEST_HEAD_BYTES_MAX - 200)})
    with serving(echo) as (port, _), Wire(port) as wire:
        for piece_bytes in (64, 1_000, len(whole)):
            for at in range(0, len(whole), piece_bytes):
                wire.send(whole[at : at + piece_bytes])
            assert wire.reply().status == 200


def test_many_upgrades_in_one_piece_are_answered_one_after_the_other() -> None:
    one = request_bytes(b"", headers={"Connection": "upgrade", "Upgrade": "h"})
    with serving(echo) as (port, _), Wire(port) as wire:
        wire.send(one * 3_000)
        assert [wire.reply().status for _ in range(3_000)] == [200] * 3_000
