"""Measures how many records the local service returns and takes, itself on one core.

The client sends ready-made requests from another core, several at a time, and throws the answers away, so that the
server never waits for it. The program prints the share that both have of their cores beside the figures.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench._form import WARM_UP_ROUNDS, apart, cpu_of_s, judge, options, report, say, wanted
from bench._requests import KINESIS, call, request
from shardway.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.spawned import SpawnedKinesis

ROUNDS = 5
SECONDS = 2.0
CONNECTIONS = 4
SHARDS = 4
PAGE_RECORDS = 10_000
PUT_RECORDS = 500


class Connection:
    """One connection that repeats its requests and discards the answers."""

    def __init__(self, port: int, requests: list[bytes], buffer: memoryview) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = requests
        self._buffer = buffer
        self._at = 0
        self._left = 0
        self.answers = 0

    def send(self) -> None:
        self.socket.sendall(self._requests[self._at % len(self._requests)])
        self._at += 1

    def receive(self) -> bool:
        """Take what has come, and return True when an answer is whole."""
        count = self.socket.recv_into(self._buffer)
        if self._left == 0:
            head = bytes(self._buffer[: min(count, 2048)])
            end = head.index(b"\r\n\r\n") + 4
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode("latin-1"))
            at = head.index(b"Content-Length: ") + 16
            self._left = int(head[at : head.index(b"\r", at)]) + end
        self._left -= count
        if self._left == 0:
            self.answers += 1
        return self._left == 0


class Round(NamedTuple):
    """The calls per second of one round, and the shares that server and client had of their cores."""

    calls_per_s: float
    server_share: float
    client_share: float


def drive(port: int, pid: int, requests: list[list[bytes]], seconds: float) -> Round:
    """Keep a connection for each list of requests busy for ``seconds``, and return the figures."""
    buffer = memoryview(bytearray(1 << 20))
    selector = selectors.DefaultSelector()
    connections = [Connection(port, mine, buffer) for mine in requests]
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send()
    began, server_began, client_began = time.perf_counter(), cpu_of_s(pid), time.process_time()
    end = began + seconds
    while time.perf_counter() < end:
        for key, _ in selector.select(1.0):
            if key.data.receive():
                key.data.send()
    elapsed = time.perf_counter() - began
    answers = sum(connection.answers for connection in connections)
    round_ = Round(
        answers / elapsed,
        (cpu_of_s(pid) - server_began) / elapsed,
        (time.process_time() - client_began) / elapsed,
    )
    for connection in connections:
        connection.socket.close()
    return round_


def entries(count: int, size: int) -> list[dict[str, str]]:
    return [
        {"Data": base64.b64encode(os.urandom(size)).decode(), "PartitionKey": f"key-{number:06d}"}
        for number in range(count)
    ]


def put_requests(stream: str) -> list[bytes]:
    return [
        request(KINESIS, "PutRecords", {"StreamName": stream, "Records": entries(PUT_RECORDS, 100)}) for _ in range(4)
    ]


def measure_gets(service: SpawnedKinesis, port: int) -> Round:
    """Measure GetRecords of pages of 10,000 records of 100 B, from four shards."""
    service.reset()
    call(port, KINESIS, "CreateStream", {"StreamName": "bench", "ShardCount": SHARDS})
    body = put_requests("bench")[0].partition(b"\r\n\r\n")[2]
    for _ in range(SHARDS * PAGE_RECORDS * 5 // 4 // PUT_RECORDS):
        call(port, KINESIS, "PutRecords", json.loads(body))
    requests = []
    for number in range(SHARDS):
        where = {"StreamName": "bench", "ShardId": f"shardId-{number:012d}"}
        start = call(port, KINESIS, "GetShardIterator", where | {"ShardIteratorType": "TRIM_HORIZON"})
        page = {"ShardIterator": start["ShardIterator"], "Limit": PAGE_RECORDS}
        got = len(call(port, KINESIS, "GetRecords", page)["Records"])
        if got != PAGE_RECORDS:
            raise RuntimeError(f"a page has {got} records")
        requests.append([request(KINESIS, "GetRecords", page)])
    return drive(port, service.pid, requests, SECONDS)


def measure_puts(service: SpawnedKinesis, port: int) -> Round:
    """Measure PutRecords of 500 records of 100 B to four shards."""
    service.reset()
    call(port, KINESIS, "CreateStream", {"StreamName": "bench", "ShardCount": SHARDS})
    requests = [put_requests("bench") for _ in range(CONNECTIONS)]
    return drive(port, service.pid, requests, SECONDS)


def measure_small(service: SpawnedKinesis, port: int) -> Round:
    """Measure GetRecords that answers no records."""
    service.reset()
    call(port, KINESIS, "CreateStream", {"StreamName": "bench", "ShardCount": 1})
    where = {"StreamName": "bench", "ShardId": "shardId-000000000000", "ShardIteratorType": "LATEST"}
    page = {"ShardIterator": call(port, KINESIS, "GetShardIterator", where)["ShardIterator"]}
    return drive(port, service.pid, [[request(KINESIS, "GetRecords", page)]] * CONNECTIONS, SECONDS)


def start_time_s() -> float:
    """Return the seconds from the start of ``shardway local`` until it says where it listens."""
    began = time.perf_counter()
    command = [sys.executable, "-c", "from shardway.cli import main; main()", "local", "--port", "0", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        elapsed = time.perf_counter() - began
        process.terminate()
    return elapsed


GOALS = {"gets_100b": (PAGE_RECORDS, 1_000_000.0), "puts_100b": (PUT_RECORDS, 250_000.0)}


def main() -> None:
    asked = options(__doc__ or "")
    cases: dict[str, Callable[[SpawnedKinesis, int], Round]] = {
        "gets_100b": measure_gets,
        "puts_100b": measure_puts,
        "small": measure_small,
    }
    rounds: dict[str, list[Round]] = {name: [] for name in cases if name == "small" or wanted(name, asked)}
    with LocalKinesis.spawn() as service, apart(service.pid):
        port = int(service.endpoint_url.rpartition(":")[2])
        for _ in range(WARM_UP_ROUNDS + ROUNDS):
            for name, measured in rounds.items():
                measured.append(cases[name](service, port))
    results = [
        judge(
            name,
            [one.calls_per_s * records for one in rounds[name][WARM_UP_ROUNDS:]],
            unit="records/s",
            goal=goal,
            sense="at_least",
        )
        for name, (records, goal) in GOALS.items()
        if name in rounds
    ]
    report("local", results, as_json=asked.json)
    for name, measured in rounds.items():
        server, clients, calls = (
            statistics.median(getattr(one, figure) for one in measured[WARM_UP_ROUNDS:])
            for figure in ("server_share", "client_share", "calls_per_s")
        )
        say(
            f"{name}: {calls:,.0f} calls/s, the server at {server:.0%} of its core ({server / calls * 1e6:,.0f} us "
            f"a call), the client at {clients:.0%} of the other"
        )
    say(f"shardway local listens after {statistics.median(start_time_s() for _ in range(3)):.2f} s")


if __name__ == "__main__":
    main()
