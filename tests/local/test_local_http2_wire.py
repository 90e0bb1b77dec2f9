"""HTTP/2 on the wire: streams side by side, windows both ways, resets, goodbyes, and what is no HTTP/2."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import h2.events
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from shardway.local.http2 import WORK_PER_STREAM_MAX, Http2Connection, headers_of
from shardway.local.http2_bodies import STREAM_WINDOW_BYTES
from shardway.local.http_messages import AfterAnswer, Answer, ChunkedOut, Request
from shardway.local.http_versions import PREFACE
from tests.local.rawh2 import ClosedError, ResetError, Wire2
from tests.local.rawhttp import TIMEOUT_S
from tests.local.serving import BODY_BYTES_MAX, plain, serving, streamed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from shardway.local.http_messages import Handler

DEFAULT_WINDOW_BYTES = 65_535


@contextlib.contextmanager
def wired(handler: Handler, window_bytes: int = DEFAULT_WINDOW_BYTES, **settings: Any) -> Iterator[tuple[Wire2, Any]]:
    """A client and the service's side of its connection. The service may fail on nothing."""
    faults: list[dict[str, Any]] = []
    with (
        serving(handler, Http2Connection, faults, **settings) as (port, connections),
        Wire2(f"http://127.0.0.1:{port}", window_bytes=window_bytes) as wire,
    ):
        yield wire, next(iter(connections))
    assert faults == []


def eventually(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What held answers wait for; it comes at the end of a test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def echo(request: Request) -> Answer:
    return plain(request.method + b" " + request.target + b" " + request.body)


def send_until_closed(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(data)


def ask(wire: Wire2, body: bytes, **headers: str) -> int:
    stream = wire.begin(wire.head(**headers))
    wire.send(stream, body)
    return stream


def by_body(**answers: Callable[[Request], Answer | Awaitable[Answer]]) -> Handler:
    """A handler for each body; what is not named is echoed."""
    return lambda request: answers.get(request.body[:20].decode("latin-1"), echo)(request)


# --- requests and answers -------------------------------------------------------------------------


def test_a_request_is_handed_over_as_over_http_1() -> None:
    seen: list[Request] = []

    def handler(request: Request) -> Answer:
        seen.append(request)
        return plain(b"")

    with wired(handler) as (wire, _):
        stream = wire.begin(wire.head("PUT", "/p?q=1", **{"x-one": "1"}))
        wire.send(stream, b"one", ends=False)
        wire.send(stream, b" two")
        assert wire.reply(stream).status == 200
    [request] = seen
    assert (request.method, request.target, request.body, request.peer) == (b"PUT", b"/p?q=1", b"one two", "127.0.0.1")
    assert request.headers == {b"host": wire._authority.encode(), b"x-one": b"1"}


def test_a_head_of_http_1_becomes_fields_without_what_is_said_of_the_connection() -> None:
    head = b"HTTP/1.1 404 Not Found\r\nX-Id: a: b \r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert headers_of(head) == [(b":status", b"404"), (b"x-id", b"a: b")]


def test_a_slow_answer_holds_up_no_other(release: threading.Event) -> None:
    async def slow(request: Request) -> Answer:
        await asyncio.to_thread(release.wait)
        return plain(b"slow")

    with wired(by_body(slow=slow)) as (wire, _):
        waiting = ask(wire, b"slow")
        assert [wire.reply(ask(wire, b"%d" % n)).body for n in range(5)] == [b"POST / %d" % n for n in range(5)]
        assert waiting not in wire.heads
        release.set()
        assert wire.reply(waiting).body == b"slow"


def test_expect_100_continue_is_answered_before_the_body() -> None:
    with wired(echo) as (wire, _):
        stream = wire.begin(wire.head(expect="100-continue"))
        wire.until(lambda: any(type(event) is h2.events.InformationalResponseReceived for event in wire.seen))
        wire.send(stream, b"body")
        assert wire.reply(stream).body == b"POST / body"


def test_a_handler_that_fails_answers_500_or_resets_its_stream_alone() -> None:
    def fails(request: Request) -> Answer:
        raise RuntimeError("on purpose")

    async def fails_later(request: Request) -> Answer:
        raise RuntimeError("on purpose")

    faults: list[dict[str, Any]] = []
    with (
        serving(by_body(fails=fails, later=fails_later), Http2Connection, faults) as (port, _),
        Wire2(f"http://127.0.0.1:{port}") as wire,
    ):
        assert wire.reply(ask(wire, b"fails")).status == 500
        with pytest.raises(ResetError, match="INTERNAL_ERROR"):
            wire.reply(ask(wire, b"later"))
        assert wire.reply(ask(wire, b"fine")).status == 200
    assert [str(fault["exception"]) for fault in faults] == ["on purpose"] * 2


def test_a_ping_is_answered() -> None:
    with wired(echo) as (wire, _):
        wire.h2.ping(b"12345678")
        wire.flush()
        wire.until(lambda: any(type(event) is h2.events.PingAckReceived for event in wire.seen))


# --- bodies and windows ---------------------------------------------------------------------------


def test_a_body_larger_than_the_windows_arrives_whole_in_both_directions() -> None:
    large = random.Random(1).randbytes(3 * STREAM_WINDOW_BYTES + 17)
    with wired(lambda request: plain(request.body), body_bytes_max=len(large)) as (wire, served):
        assert wire.reply(ask(wire, large)).body == large
        assert served._bodies.bytes == 0


def test_a_body_over_the_cap_is_refused_and_the_connection_goes_on() -> None:
    with wired(lambda request: plain(b"%d" % len(request.body))) as (wire, served):
        stream = wire.begin(wire.head())
        wire.send(stream, b"x" * (BODY_BYTES_MAX + 1), ends=False)
        assert wire.reply(stream).status == 413
        wire.until(lambda: stream in wire.resets)
        assert wire.resets[stream] == ErrorCodes.NO_ERROR
        assert wire.reply(ask(wire, b"x" * BODY_BYTES_MAX)).body == b"%d" % BODY_BYTES_MAX
        assert served._streams == {}


def test_with_much_of_unfinished_bodies_the_oldest_is_let_on_and_then_the_others() -> None:
    size = 2 * STREAM_WINDOW_BYTES
    settings = {"body_bytes_max": size, "bodies_bytes_max": STREAM_WINDOW_BYTES}
    with wired(lambda request: plain(b"%d" % len(request.body)), **settings) as (wire, served):
        oldest, other = wire.begin(wire.head()), wire.begin(wire.head())
        wire.send(other, b"x" * STREAM_WINDOW_BYTES, ends=False)
        wire.send(oldest, b"x" * STREAM_WINDOW_BYTES, ends=False)
        wire.until(lambda: wire.h2.local_flow_control_window(oldest) > 0)
        wire.h2.ping(b"12345678")
        wire.flush()
        wire.until(lambda: any(type(event) is h2.events.PingAckReceived for event in wire.seen))
        assert wire.h2.local_flow_control_window(other) <= STREAM_WINDOW_BYTES // 2
        held = served._bodies.bytes
        wire.send(oldest, b"x" * STREAM_WINDOW_BYTES)
        assert wire.reply(oldest).body == b"%d" % size
        wire.send(other, b"x" * STREAM_WINDOW_BYTES)
        assert wire.reply(other).body == b"%d" % size
    assert held == 2 * STREAM_WINDOW_BYTES


def test_large_answers_take_turns() -> None:
    size = 2_000_000
    with wired(lambda request: plain(request.body[:1] * size), window_bytes=2**24) as (wire, _):
        first, second = wire.h2.get_next_available_stream_id(), wire.h2.get_next_available_stream_id() + 2
        for stream, body in ((first, b"1"), (second, b"2")):
            wire.h2.send_headers(stream, wire.head())
            wire.h2.send_data(stream, body, end_stream=True)
        wire.flush()  # both in one piece: the first answer does not begin alone
        wire.until(lambda: wire.ended)
        assert min(len(wire.bodies[first]), len(wire.bodies[second])) > 0
        assert (wire.reply(first).body, wire.reply(second).body) == (b"1" * size, b"2" * size)


def test_a_slow_reader_of_one_stream_holds_up_only_that_stream_and_its_maker() -> None:
    made = 0

    async def endless(out: ChunkedOut) -> None:
        nonlocal made
        while not out.closed:
            out.send(b"x" * 10_000)
            made += 10_000
            if out.full:
                await out.drain()
            else:
                await asyncio.sleep(0)

    with wired(by_body(endless=lambda request: streamed(endless))) as (wire, served):
        slow = wire.begin(wire.head())
        wire.slow.add(slow)
        wire.send(slow, b"endless")
        wire.until(lambda: len(wire.bodies[slow]) == DEFAULT_WINDOW_BYTES)
        for number in range(20):
            assert wire.reply(ask(wire, b"%d" % number)).body == b"POST / %d" % number
        assert made <= DEFAULT_WINDOW_BYTES + 10_000
        wire.h2.increment_flow_control_window(100_000, slow)
        wire.flush()
        wire.until(lambda: len(wire.bodies[slow]) == DEFAULT_WINDOW_BYTES + 100_000)
        wire.reset(slow)
        eventually(lambda: not served._streams)


def test_a_larger_first_window_lets_streams_go_on() -> None:
    with wired(lambda request: plain(b"x" * 100_000)) as (wire, _):
        stream = wire.begin(wire.head())
        wire.slow.add(stream)
        wire.send(stream, b"")
        wire.until(lambda: len(wire.bodies[stream]) == DEFAULT_WINDOW_BYTES)
        wire.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100_000})
        wire.flush()
        assert len(wire.reply(stream).body) == 100_000


def test_a_client_that_reads_nothing_is_not_read_from() -> None:
    with wired(echo, unread_bytes_max=10_000) as (wire, served):
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        served.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        flood = threading.Thread(target=send_until_closed, args=(wire.socket, frame(PING, 0, b"12345678") * 1000))
        flood.start()
        eventually(lambda: served._read_paused)
        wire.socket.shutdown(socket.SHUT_RDWR)
        flood.join()
        assert served.transport.get_write_buffer_size() < 2**20


# --- streams that are given up --------------------------------------------------------------------


def test_a_stream_is_told_that_its_client_is_gone_and_the_connection_goes_on() -> None:
    gone = threading.Event()

    async def waits(out: ChunkedOut) -> None:
        left = asyncio.Event()
        out.on_close(left.set)
        out.send(b"begun")
        await left.wait()
        assert out.closed
        out.send(b"lost")
        await out.drain()
        gone.set()

    with wired(by_body(waits=lambda request: streamed(waits))) as (wire, _):
        stream = ask(wire, b"waits")
        wire.until(lambda: wire.bodies[stream] == b"begun")
        wire.reset(stream)
        assert gone.wait(TIMEOUT_S)
        assert wire.reply(ask(wire, b"next")).status == 200
        stream = ask(wire, b"waits")
        gone.clear()
        wire.until(lambda: wire.bodies[stream] == b"begun")
        wire.close()
        assert gone.wait(TIMEOUT_S)


@pytest.mark.parametrize("body", [b"now", b"later"])
def test_a_request_that_is_taken_back_at_once_is_not_answered(body: bytes) -> None:
    async def later(request: Request) -> Answer:
        await asyncio.sleep(0)
        return plain(b"")

    with wired(by_body(later=later)) as (wire, served):
        for _ in range(3):
            stream = wire.h2.get_next_available_stream_id()
            wire.h2.send_headers(stream, wire.head())
            wire.h2.send_data(stream, body, end_stream=True)
            wire.reset(stream)
        assert wire.reply(ask(wire, b"next")).status == 200
        assert served._streams == {}


def test_streams_over_the_announced_number_are_refused(release: threading.Event) -> None:
    async def held(request: Request) -> Answer:
        await asyncio.to_thread(release.wait)
        return plain(b"held")

    with wired(by_body(held=held), streams_max=2) as (wire, _):
        assert wire.h2.remote_settings.max_concurrent_streams == 2
        wire.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
        wire.h2.remote_settings.acknowledge()
        streams = [ask(wire, b"held") for _ in range(3)]
        with pytest.raises(ResetError, match="REFUSED_STREAM"):
            wire.reply(streams[2])
        release.set()
        assert [wire.reply(stream).body for stream in streams[:2]] == [b"held", b"held"]


def works_on(served: Any, count: int) -> bool:
    working: int = served._work_count
    return working == count


def test_a_client_that_takes_back_one_request_after_the_other_is_refused_while_they_are_worked_on(
    release: threading.Event,
) -> None:
    with wired(holding(release), streams_max=2) as (wire, served):
        for number in range(2 * WORK_PER_STREAM_MAX):
            stream = ask(wire, b"held")
            eventually(partial(works_on, served, number + 1))
            wire.reset(stream)
        with pytest.raises(ResetError, match="REFUSED_STREAM"):
            wire.reply(ask(wire, b"next"))
        release.set()
        eventually(lambda: served._work_count == 0)
        assert wire.reply(ask(wire, b"next")).status == 200


@pytest.mark.parametrize(
    ("ending", "code", "body"), [(AfterAnswer.CLOSE, "CANCEL", b"half"), (AfterAnswer.RESET, "INTERNAL_ERROR", b"")]
)
def test_an_answer_that_is_to_break_off_breaks_off_its_stream_alone(
    ending: AfterAnswer, code: str, body: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"
    with wired(by_body(broken=lambda request: Answer(head, b"half", ending))) as (wire, _):
        stream = ask(wire, b"broken")
        with pytest.raises(ResetError, match=code):
            wire.reply(stream)
        assert wire.bodies[stream] == body
        assert wire.reply(ask(wire, b"fine")).status == 200


@pytest.mark.parametrize(("ending", "code"), [(AfterAnswer.CLOSE, "CANCEL"), (AfterAnswer.RESET, "INTERNAL_ERROR")])
def test_a_streamed_answer_can_be_broken_off(ending: AfterAnswer, code: str) -> None:
    async def broken(out: ChunkedOut) -> None:
        out.send(b"half")
        out.break_off(ending)

    with wired(by_body(broken=lambda request: streamed(broken))) as (wire, _):
        stream = ask(wire, b"broken")
        with pytest.raises(ResetError, match=code):
            wire.reply(stream)
        assert wire.bodies[stream] == b"half"
        assert wire.reply(ask(wire, b"fine")).status == 200


# --- goodbyes -------------------------------------------------------------------------------------


def holding(release: threading.Event) -> Handler:
    async def held(request: Request) -> Answer:
        await asyncio.to_thread(release.wait)
        return plain(b"held")

    async def endless(out: ChunkedOut) -> None:
        left = asyncio.Event()
        out.on_close(left.set)
        await left.wait()

    async def disconnect(out: ChunkedOut) -> None:
        out.break_off(AfterAnswer.DISCONNECT)

    async def leave(out: ChunkedOut) -> None:
        out.send(b"one ")
        out.break_off(AfterAnswer.LEAVE)
        out.send(b"two")

    return by_body(
        held=held,
        endless=lambda request: streamed(endless),
        disconnect=lambda request: Answer(b"", ending=AfterAnswer.DISCONNECT),
        disconnect_stream=lambda request: streamed(disconnect),
        leave=lambda request: plain(b"one two", AfterAnswer.LEAVE),
        leave_stream=lambda request: streamed(leave),
    )


@pytest.mark.parametrize("kind", [b"disconnect", b"disconnect_stream"])
def test_a_torn_connection_takes_all_its_streams_along(kind: bytes, release: threading.Event) -> None:
    with wired(holding(release)) as (wire, _):
        waiting = ask(wire, b"held")
        broken = ask(wire, kind)
        with pytest.raises(ClosedError):
            wire.reply(broken)
        assert waiting not in wire.heads
        release.set()


@pytest.mark.parametrize("kind", [b"leave", b"leave_stream"])
def test_a_client_that_is_told_to_leave_gets_its_answers_and_no_further_stream(
    kind: bytes, release: threading.Event
) -> None:
    with wired(holding(release)) as (wire, _):
        waiting = ask(wire, b"held")
        last = ask(wire, kind)
        wire.until(lambda: wire.goodbye)
        assert wire.goodbye is not None
        assert (wire.goodbye.error_code, wire.goodbye.last_stream_id) == (ErrorCodes.NO_ERROR, last)
        wire.until(lambda: last in wire.ended)
        assert wire.bodies[last] == b"one two"
        with pytest.raises(ResetError, match="REFUSED_STREAM"):
            wire.reply(ask(wire, b"late"))
        release.set()
        wire.until(lambda: wire.closed)
        assert wire.bodies[waiting] == b"held"


def test_a_client_that_says_goodbye_gets_what_it_asked_for_until_it_takes_that_back(release: threading.Event) -> None:
    """The SDK for JavaScript says goodbye as soon as the head of a subscription is there, and reads its events."""
    with wired(holding(release)) as (wire, served):
        waiting, endless = ask(wire, b"held"), ask(wire, b"endless")
        wire.until(lambda: endless in wire.heads)
        wire.socket.sendall(frame(GOODBYE, 0, bytes(8)))
        eventually(lambda: served._is_leaving)
        release.set()
        assert wire.reply(waiting).body == b"held"
        assert (wire.closed, endless in wire.resets) == (False, False)
        wire.h2.reset_stream(endless, ErrorCodes.CANCEL)
        wire.flush()
        wire.until(lambda: wire.closed)


def test_what_a_client_says_before_and_behind_its_goodbye_counts() -> None:
    """The SDK for JavaScript closes the session of a request that it has just sent: all comes in one piece."""
    large = random.Random(2).randbytes(10 * DEFAULT_WINDOW_BYTES)
    with wired(echo) as (wire, _):
        stream = ask(wire, large)
        update = frame(WINDOW, stream, struct.pack(">I", DEFAULT_WINDOW_BYTES))
        wire.socket.sendall(
            frame(PING, 0, b"in front") + frame(GOODBYE, 0, bytes(8)) + update + frame(PING, 0, b"after it")
        )
        assert wire.reply(stream).body == b"POST / " + large
        wire.until(lambda: wire.closed)
        assert [event.ping_data for event in wire.seen if type(event) is h2.events.PingAckReceived] == [
            b"in front",
            b"after it",
        ]


def test_a_client_that_leaves_with_an_error_or_without_requests_is_let_go() -> None:
    for code in (ErrorCodes.NO_ERROR, ErrorCodes.INTERNAL_ERROR):
        with wired(echo) as (wire, _):
            wire.socket.sendall(frame(GOODBYE, 0, struct.pack(">II", 0, code)))
            wire.until(lambda: wire.closed)


def test_a_service_that_stops_says_so(release: threading.Event) -> None:
    with contextlib.ExitStack() as after, serving(holding(release), Http2Connection) as (port, _):
        wire = after.enter_context(Wire2(f"http://127.0.0.1:{port}"))
        waiting = ask(wire, b"held")
        wire.reply(ask(wire, b"next"))
        after.callback(lambda: wire.until(lambda: wire.closed))
        release.set()
    assert wire.goodbye is not None
    assert wire.goodbye.last_stream_id == waiting + 2


# --- what is no HTTP/2 ----------------------------------------------------------------------------

DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GOODBYE, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
ENDS, ENDS_HEADERS, PADDED = 1, 4, 8
FIELDS = b"\x82\x86\x84\x01\x01h"  # GET, http, / of the static table of RFC 7541, and the authority "h"
LARGE_FIELD = b"\x40\x01a\x7f\xb9\x16" + b"x" * 3000  # "a", of 3,000 bytes, into the dynamic table
THE_SAME_FIELD = b"\xbe"


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


OPEN = frame(HEADERS, 1, FIELDS, ENDS_HEADERS)
WHOLE = frame(HEADERS, 1, FIELDS, ENDS_HEADERS | ENDS)
GREETING = PREFACE + frame(SETTINGS)

WRONG = {
    "frame too large": GREETING + OPEN + frame(DATA, 1, bytes(16_385)),
    "data without a stream": GREETING + frame(DATA, 0, b"x"),
    "data on a stream that is not open": GREETING + frame(DATA, 5, b"x"),
    "an even stream": GREETING + frame(HEADERS, 2, FIELDS, ENDS_HEADERS),
    "no HPACK": GREETING + frame(HEADERS, 1, b"\xff\xff\xff\xff", ENDS_HEADERS),
    "no method": GREETING + frame(HEADERS, 1, FIELDS[1:], ENDS_HEADERS),
    "upper case": GREETING + frame(HEADERS, 1, FIELDS + b"\x00\x01A\x01b", ENDS_HEADERS),
    "a few bytes that become many fields": GREETING + frame(HEADERS, 1, FIELDS + LARGE_FIELD, ENDS_HEADERS)
    + frame(HEADERS, 3, FIELDS + THE_SAME_FIELD * 30, ENDS_HEADERS),
    "continuation of nothing": GREETING + frame(CONTINUATION, 1),
    "headers without an end": GREETING + frame(HEADERS, 1, FIELDS) + frame(CONTINUATION, 1) * 200,
    "a push": GREETING + OPEN + frame(PUSH, 1, struct.pack(">I", 2) + FIELDS, ENDS_HEADERS),
    "window overflow": GREETING + frame(WINDOW, 0, struct.pack(">I", 2**31 - 1)),
    "no increment": GREETING + frame(WINDOW, 0, bytes(4)),
    "wrong window setting": PREFACE + frame(SETTINGS, 0, struct.pack(">HI", 4, 2**32 - 1)),
    "wrong frame size setting": PREFACE + frame(SETTINGS, 0, struct.pack(">HI", 5, 1)),
    "reset of a stream that never was": GREETING + frame(RESET, 9, struct.pack(">I", 8)),
    "padding longer than the frame": GREETING + OPEN + frame(DATA, 1, b"\xff\x00", PADDED),
    "less than was announced": GREETING + frame(HEADERS, 1, FIELDS + b"\x0f\x0d\x019", ENDS_HEADERS)
    + frame(DATA, 1, b"x", ENDS),
}  # fmt: skip


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_breaks_the_rules_ends_its_connection_alone(data: bytes) -> None:
    faults: list[dict[str, Any]] = []
    with serving(echo, Http2Connection, faults) as (port, _), Wire2(f"http://127.0.0.1:{port}") as good:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as bad:
            bad.sendall(data)
            assert GOODBYE in frame_types(read_all(bad))
        assert good.reply(ask(good, b"fine")).status == 200
    assert faults == []


def test_data_after_the_end_is_an_error_of_its_stream_alone() -> None:
    with serving(echo, Http2Connection) as (port, _), socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as bad:
        bad.sendall(GREETING + WHOLE + frame(DATA, 1, b"x") + frame(PING, 0, b"12345678"))
        bad.shutdown(socket.SHUT_WR)
        types = frame_types(read_all(bad))
        assert {RESET, PING} < set(types)
        assert GOODBYE not in types


def test_a_client_that_speaks_something_else_is_disconnected() -> None:
    with serving(echo, Http2Connection) as (port, _), socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as bad:
        bad.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert frame_types(read_all(bad)) == [SETTINGS, WINDOW]


def read_all(connection: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            got += data
    return got


def frame_types(data: bytes) -> list[int]:
    types = []
    while len(data) >= 9:
        types.append(data[3])
        data = data[9 + int.from_bytes(data[:3]) :]
    return types


def test_no_bytes_at_all_make_the_service_fail(release: threading.Event) -> None:
    rng = random.Random(11)
    session = [
        GREETING,
        frame(HEADERS, 1, FIELDS, ENDS_HEADERS) + frame(DATA, 1, b"held", ENDS),
        frame(HEADERS, 3, FIELDS, ENDS_HEADERS | ENDS),
        frame(WINDOW, 0, struct.pack(">I", 5)) + frame(RESET, 1, struct.pack(">I", 8)),
        frame(PING, 0, b"12345678") + frame(GOODBYE, 0, bytes(8)),
    ]
    release.set()
    faults: list[dict[str, Any]] = []
    with serving(holding(release), Http2Connection, faults) as (port, connections):
        for _ in range(300):
            bad = bytearray(b"".join(session))
            for _ in range(rng.randint(1, 6)):
                bad[rng.randrange(len(PREFACE), len(bad))] = rng.randrange(256)
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
                connection.sendall(bad)
                connection.shutdown(socket.SHUT_WR)
                read_all(connection)
        eventually(lambda: not connections)
        with Wire2(f"http://127.0.0.1:{port}") as good:
            assert good.reply(ask(good, b"fine")).status == 200
    assert faults == []
