"""The controls over HTTP, and the same from a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shardway.local.control import Control
from shardway.local.embedded import LocalKinesis
from shardway.local.faults import Fault
from shardway.local.http_messages import Request
from shardway.local.spawned import ControlError, SpawnedKinesis
from tests.local.botoclient import client_of
from tests.local.rawhttp import Wire, call_bytes, request_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def wire(local: LocalKinesis) -> Iterator[Wire]:
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as connection:
        yield connection


def control(wire: Wire, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    raw = b"" if body is None else msgspec.json.encode(body)
    reply = wire.call(request_bytes(raw, method=method, path=f"/_shardway/{path}", headers=headers))
    assert reply.headers["content-type"] == "application/json"
    return reply.status, reply.json()


def test_the_clock(local: LocalKinesis, wire: Wire) -> None:
    before = control(wire, "GET", "clock")[1]["now_s"]
    status, answer = control(wire, "POST", "clock", {"advance_s": 3600})
    assert status == 200
    assert answer["now_s"] - before == pytest.approx(3600, abs=60)
    assert local.clock.now() == pytest.approx(answer["now_s"], abs=60)
    assert control(wire, "POST", "clock", {"advance_s": -1}) == (
        400,
        {"error": "the service's clock does not go back"},
    )
    assert control(wire, "POST", "clock", {"advance": 1})[0] == 400


def test_the_counts(wire: Wire) -> None:
    wire.call(call_bytes("ListStreams", {}, User_Agent="shardway/1 tag/me"))
    counted = control(wire, "GET", "stats")[1]
    assert counted["operations"]["ListStreams"]["calls"] == 1
    assert counted["tags"]["me"]["ListStreams"]["calls"] == 1
    assert control(wire, "DELETE", "stats")[0] == 200
    assert control(wire, "GET", "stats")[1]["operations"] == {}


def test_the_limits(local: LocalKinesis, wire: Wire) -> None:
    assert control(wire, "GET", "limits")[1]["per_shard"] is False
    assert control(wire, "POST", "limits", {"per_shard": True})[1]["per_shard"] is True
    assert local.limits.per_shard
    assert "unknown limits shards" in control(wire, "POST", "limits", {"shards": 1})[1]["error"]
    assert control(wire, "POST", "limits", {"per_shard": "often"})[0] == 400
    assert local.limits.per_shard


def test_the_faults(local: LocalKinesis, wire: Wire) -> None:
    ordered = control(wire, "POST", "faults", {"how": "throttle", "operation": "ListStreams"})[1]
    assert ordered == {"id": 1, "hits": 0, "fault": {"how": "throttle", "operation": "ListStreams"}}
    assert wire.call(call_bytes("ListStreams", {})).status == 400
    assert control(wire, "GET", "faults")[1] == [ordered | {"hits": 1}]
    assert control(wire, "GET", "faults/1")[1]["hits"] == 1
    assert control(wire, "DELETE", "faults/1")[1]["hits"] == 1
    assert control(wire, "GET", "faults/1")[0] == 404
    assert wire.call(call_bytes("ListStreams", {})).status == 200
    control(wire, "POST", "faults", {"how": "throttle"})
    control(wire, "DELETE", "faults")
    assert not local.faults.active
    status, answer = control(wire, "POST", "faults", {"how": "delay"})
    assert status == 400
    assert "a delay needs delay_s" in answer["error"]


def test_reset_and_health(wire: Wire, local: LocalKinesis) -> None:
    wire.call(call_bytes("CreateStream", {"StreamName": "made", "ShardCount": 1}))
    health = control(wire, "GET", "health")[1]
    assert health["status"] == "ok"
    assert health["streams"] == 1
    assert health["endpoint_url"] == local.endpoint_url
    assert health["neighbours"]["moto_start_s"] is None
    assert control(wire, "POST", "reset")[0] == 200
    assert control(wire, "GET", "health")[1]["streams"] == 0


def test_what_does_not_exist_is_answered_with_what_does(wire: Wire) -> None:
    status, answer = control(wire, "GET", "records")
    assert status == 404
    assert "GET stats" in answer["error"]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://127.0.0.1:8000"}, {"Host": "rebound.example:4567"}, {"Host": "rebound.example"}],
)
def test_a_web_page_is_refused(wire: Wire, headers: dict[str, str]) -> None:
    assert control(wire, "GET", "stats", **headers)[0] == 403


def asked(server: LocalKinesis, *, peer: str, host: bytes = b"localhost:1", **more: bytes) -> bytes:
    """The status of the answer to a program that asks for the health from this address."""
    from shardway.local.answers import Answers

    headers = {b"host": host} | {name.encode(): value for name, value in more.items()}
    request = Request(b"GET", b"/_shardway/health", headers, b"", True, peer)
    return Control(server._running_server(), Answers(server.clock.now))(request).head.split()[1]


@pytest.mark.parametrize(
    ("peer", "status"), [("127.0.0.1", b"200"), ("::1", b"200"), ("10.0.0.7", b"403"), ("", b"403")]
)
def test_only_this_machine_is_answered(local: LocalKinesis, peer: str, status: bytes) -> None:
    assert asked(local, peer=peer) == status


@pytest.mark.parametrize("host", [b"172.17.0.2:4567", b"kinesis:4567", b"docker.example:32768"])
def test_programs_outside_of_a_container_are_answered_but_no_web_page(host: bytes) -> None:
    """A container's service listens on all addresses; a test, or a health check, calls it from another one."""
    with LocalKinesis(host="0.0.0.0") as everywhere:
        assert asked(everywhere, peer="172.17.0.1", host=host) == b"200"
        assert asked(everywhere, peer="172.17.0.1", host=host, origin=b"http://localhost:3000") == b"403"


# --- the service in a process of its own ----------------------------------------------------------


@pytest.fixture(scope="module")
def spawned() -> Iterator[SpawnedKinesis]:
    with LocalKinesis.spawn(streams={"orders": 1}) as service:
        yield service


def test_a_child_process_has_the_same_controls(spawned: SpawnedKinesis) -> None:
    client = client_of(spawned.endpoint_url)
    fault = spawned.faults.add(Fault(how="throttle", operation="ListStreams", count=1))
    with pytest.raises(client.exceptions.LimitExceededException):
        client.list_streams()
    assert client.list_streams()["StreamNames"] == ["orders"]
    assert fault.hits == 1
    assert spawned.stats().calls("ListStreams") == 2
    spawned.reset_stats()
    assert spawned.stats().calls("ListStreams") == 0
    before = spawned.clock.now()
    assert spawned.clock.advance(60) - before == pytest.approx(60, abs=30)
    spawned.set_limits(api=True)
    assert spawned.limits()["api"] is True
    spawned.set_limits(api=False)
    with pytest.raises(ControlError, match="unknown limits nothing"):
        spawned.set_limits(nothing=1)
    again = spawned.faults.add(Fault(how="throttle"))
    again.clear()
    spawned.faults.clear()
    client.create_stream(StreamName="made", ShardCount=1)
    spawned.reset()
    assert client.list_streams()["StreamNames"] == ["orders"]
    assert spawned.environment()["AWS_ENDPOINT_URL"] == spawned.endpoint_url
    client.close()


def test_a_child_process_can_be_kept_to_one_core() -> None:
    core = min(os.sched_getaffinity(0))
    with LocalKinesis.spawn(cpu=core) as service:
        assert os.sched_getaffinity(service.pid) == {core}


def test_a_child_process_says_what_kept_it_from_starting(spawned: SpawnedKinesis) -> None:
    port = int(spawned.endpoint_url.rpartition(":")[2])
    with pytest.raises(ControlError, match="address already in use"):
        LocalKinesis.spawn(port=port).start()
    with pytest.raises(ControlError, match="stream orders with 0 shards"):
        LocalKinesis.spawn(streams={"orders": 0}).start()


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    program = (
        "from shardway.testing import LocalKinesis\n"
        "service = LocalKinesis.spawn().start()\n"
        "print(service.pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 20
        while runs(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not runs(pid)


def runs(pid: int) -> bool:
    """False also of a process that has ended and that its new parent has not asked about yet."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # ended in between, or a system without /proc
        return not Path("/proc").exists()


# --- web pages ----------------------------------------------------------------------------------------


CALLS = [
    call_bytes("ListStreams", {}, Origin="https://evil.example"),
    call_bytes("PutRecord", {"StreamName": "orders", "Data": "eA==", "PartitionKey": "k"}, Origin="null"),
    call_bytes("ListStreams", {}, Origin="http://rebound.example:4567", Host="rebound.example:4567"),
    request_bytes(
        method="OPTIONS", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    ),
    request_bytes(b"{}", headers={"Origin": "https://evil.example", "X-Amz-Target": "DynamoDB_20120810.ListTables"}),
]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_a_foreign_page_may_call_nothing(local: LocalKinesis, call: bytes) -> None:
    """Kinesis itself, its neighbours and a browser's question whether it may: each is refused, and nothing is done."""
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as http:
        reply = http.call(call)
    assert reply.status == 403
    assert "access-control-allow-origin" not in {name.lower() for name in reply.headers}
    assert b"web pages may not call" in reply.body
    assert local.stats().operations == {}


@pytest.mark.parametrize("origins", [["http://localhost:3000"], ["*"]])
def test_a_page_that_was_named_may(origins: list[str]) -> None:
    with LocalKinesis(origins=origins) as local, Wire(int(local.endpoint_url.rpartition(":")[2])) as http:
        reply = http.call(call_bytes("ListStreams", {}, Origin="http://localhost:3000"))
        assert (reply.status, reply.json()["StreamNames"]) == (200, [])
        assert http.call(call_bytes("ListStreams", {}, Origin="https://evil.example")).status == (
            200 if origins == ["*"] else 403
        )
        assert http.call(request_bytes(method="GET", path="/_shardway/stats", headers={"Origin": "null"})).status == 403
