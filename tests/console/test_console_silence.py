"""Clients that say nothing, or little by little, keep no visitor out of the console: over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.console.places import OF_ADDRESS_MAX, Places
from shardway.console.server import ConsoleServer
from shardway.local.tls import make_certificate
from tests.console.asking import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shardway.console.settings import ConsoleSettings
    from shardway.wiring import ConnectionOptions

DEADLINE_S = 30.0
"""Far more than a deadline of the console in these tests."""


@pytest.fixture
def serve(settings: ConsoleSettings, connection: ConnectionOptions) -> Iterator[Callable[..., ConsoleServer]]:
    """Serves a console on a free port, in a thread, until the test ends."""
    with contextlib.ExitStack() as running:

        def start(**changed: Any) -> ConsoleServer:
            found = msgspec.structs.replace(settings, port=0, **changed)
            made: list[ConsoleServer] = []
            ready = threading.Event()

            async def run() -> None:
                made.append(ConsoleServer(found, connection))
                loops.append(asyncio.get_running_loop())
                ready.set()
                await made[0].run_until_told()

            loops: list[asyncio.AbstractEventLoop] = []
            thread = threading.Thread(target=lambda: asyncio.run(run()))
            thread.start()
            ready.wait()
            running.callback(thread.join)
            running.callback(lambda: loops[0].call_soon_threadsafe(made[0].end))
            return made[0]

        yield start


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console with deadlines that a test can wait for."""
    monkeypatch.setattr("shardway.console.places.HEAD_S", 1.0)
    monkeypatch.setattr("shardway.console.places.BODY_S", 2.0)
    monkeypatch.setattr("shardway.console.security.requests.FORM_S", 1.0)


def connected(serving: ConsoleServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", serving.settings.port), timeout=DEADLINE_S)


def status_of(serving: ConsoleServer) -> int:
    """The status that a browser gets for the page with the form for the token."""
    client = http.client.HTTPConnection("127.0.0.1", serving.settings.port, timeout=DEADLINE_S)
    client.request("GET", "/sign-in")
    try:
        return client.getresponse().status
    finally:
        client.close()


def is_cut_off(client: socket.socket, byte: bytes) -> bool:
    """Whether the server has ended a connection, while the client sends a byte now and then."""
    until_s = time.monotonic() + DEADLINE_S
    client.settimeout(0.1)
    while time.monotonic() < until_s:
        try:
            client.sendall(byte)
            if client.recv(4096) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.parametrize("count", [16, 64, 600])
def test_silent_connections_keep_no_visitor_out(serve: Callable[..., ConsoleServer], count: int) -> None:
    serving = serve()
    with contextlib.ExitStack() as silent:
        for _ in range(count):
            silent.enter_context(connected(serving))
        assert status_of(serving) == 200
        assert len(serving.server_state.connections) <= OF_ADDRESS_MAX + 1


@pytest.mark.parametrize("count", [16, 200])
@pytest.mark.parametrize(
    "head",
    [
        b"G",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: ",
        b"POST /sign-in HTTP/1.1\r\nhost: %b\r\norigin: http://%b\r\ncontent-length: 1000\r\n"
        b"content-type: application/x-www-form-urlencoded\r\n\r\n",
    ],
    ids=["line", "head", "form"],
)
def test_requests_that_have_only_begun_keep_no_visitor_out(
    serve: Callable[..., ConsoleServer], head: bytes, count: int
) -> None:
    serving = serve()
    host = f"127.0.0.1:{serving.settings.port}".encode()
    with contextlib.ExitStack() as slow:
        for _ in range(count):
            slow.enter_context(connected(serving)).sendall(head.replace(b"%b", host))
        assert status_of(serving) == 200


@pytest.mark.usefixtures("hasty")
def test_a_client_that_says_nothing_or_a_byte_at_a_time_is_cut_off(serve: Callable[..., ConsoleServer]) -> None:
    serving = serve()
    host = f"127.0.0.1:{serving.settings.port}".encode()
    with connected(serving) as silent:
        assert silent.recv(1) == b""
    with connected(serving) as slow:
        assert is_cut_off(slow, b"G")
    with connected(serving) as second:
        second.sendall(b"GET /sign-in HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")
        assert second.recv(100).startswith(b"HTTP/1.1 200")
        assert is_cut_off(second, b"G"), "the second request of a connection has a deadline, too"


@pytest.mark.usefixtures("hasty")
def test_a_form_that_comes_a_byte_at_a_time_gets_an_answer_and_is_cut_off(serve: Callable[..., ConsoleServer]) -> None:
    serving = serve()
    host = f"127.0.0.1:{serving.settings.port}"
    head = (
        f"POST /sign-in HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\n"
        "content-type: application/x-www-form-urlencoded\r\ncontent-length: 1000\r\n\r\n"
    ).encode()
    with connected(serving) as silent:
        silent.sendall(head)
        answer = b"".join(iter(lambda: silent.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"the form did not come within 1 s" in answer
    with connected(serving) as slow:
        slow.sendall(head)
        assert is_cut_off(slow, b"a")


@pytest.mark.usefixtures("hasty")
def test_a_client_that_does_not_begin_tls_is_cut_off(serve: Callable[..., ConsoleServer], tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "127.0.0.1")
    serving = serve(certificate=str(certificate), key=str(key))
    with contextlib.ExitStack() as silent:
        first = silent.enter_context(connected(serving))
        for _ in range(200):
            silent.enter_context(connected(serving))
        context = ssl.create_default_context(cafile=str(certificate))
        client = http.client.HTTPSConnection("127.0.0.1", serving.settings.port, timeout=DEADLINE_S, context=context)
        client.request("GET", "/sign-in")
        assert client.getresponse().status == 200
        client.close()
        assert first.recv(1) == b""


def test_the_head_of_a_request_is_bounded_whatever_is_installed(serve: Callable[..., ConsoleServer]) -> None:
    pytest.importorskip("httptools")  # the parser that uvicorn would take by itself
    serving = serve()
    with connected(serving) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: ")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 1 << 24:
                sent += client.send(b"y" * 4096)
        assert sent < 1 << 24, "it takes no more long before this"
    assert status_of(serving) == 200


def test_a_browser_signs_in_beside_silent_connections(serve: Callable[..., ConsoleServer]) -> None:
    serving = serve()
    host = f"127.0.0.1:{serving.settings.port}"
    with contextlib.ExitStack() as silent:
        for _ in range(OF_ADDRESS_MAX):
            silent.enter_context(connected(serving))
        client = http.client.HTTPConnection(host, timeout=DEADLINE_S)
        headers = {"origin": f"http://{host}", "content-type": "application/x-www-form-urlencoded"}
        client.request("POST", "/sign-in", body=f"token={TOKEN}", headers=headers)
        assert client.getresponse().status == 303
        client.close()


# --- which connection goes ------------------------------------------------------------------------


def test_an_address_has_a_share_and_the_oldest_that_waits_goes() -> None:
    places: Places[int] = Places(connections_max=100, of_address_max=3)
    for one in range(3):
        assert places.enter(one, "10.0.0.1") is None
    places.waits(1, waits=True)
    places.waits(2, waits=True)
    assert places.enter(3, "10.0.0.1") == 1
    places.waits(3, waits=True)
    places.waits(2, waits=False)
    assert places.enter(4, "10.0.0.1") == 3
    assert places.enter(5, "10.0.0.1") == 5, "all of the others are being answered"
    assert places.enter(6, "10.0.0.2") is None
    assert len(places) == 4


def test_one_machine_is_one_address_in_ipv6_and_a_proxy_is_many() -> None:
    places: Places[str] = Places(lambda address: address == "10.0.0.9", of_address_max=2)
    given = itertools.count()
    gone = [places.enter(f"v6-{next(given)}", f"2001:db8::{n:x}") for n in range(1, 5)]
    assert [one is None for one in gone] == [True, True, False, False]
    assert places.enter("v4", "192.0.2.1") is places.enter("mapped", "::ffff:192.0.2.1") is None
    assert places.enter("third", "192.0.2.1") == "third"
    assert all(places.enter(f"proxy-{n}", "10.0.0.9") is None for n in range(20))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()) | st.integers(0, 30), max_size=60),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_places_are_never_more_than_the_bounds(
    steps: list[tuple[str, bool] | int], connections_max: int, of_address_max: int
) -> None:
    places: Places[int] = Places(connections_max=connections_max, of_address_max=of_address_max)
    of: dict[int, str] = {}
    waiting: list[int] = []
    for number, step in enumerate(steps):
        if isinstance(step, int):
            places.leave(step)
            of.pop(step, None)
            waiting = [one for one in waiting if one != step]
            continue
        address, waits = step
        gone = places.enter(number, address)
        of[number] = address
        if gone is not None:
            assert gone in waiting or gone == number, "no connection that is being answered goes for another"
            del of[gone]
            waiting = [one for one in waiting if one != gone]
        if waits and number in of:
            places.waits(number, waits=True)
            waiting.append(number)
        assert len(places) == len(of) <= connections_max
        assert all(list(of.values()).count(one) <= of_address_max for one in of.values())
