"""Measures how many conditional writes the local DynamoDB makes, itself on one core, beside moto.

The writes are those of leases: UpdateItem that raises a counter under a condition, of 1,000 leases with all that the
KCL keeps in one, in a table with the index of owners. The client sends ready-made requests from another core, and
throws the answers away. A figure is the writes for each second of CPU that the server took: it is the same when the
client, or another program on the server's core, holds the server up. Each lease has one write under way at a time, and
each write's condition holds: a counter that is not as the client expects ends the round with an error.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench._form import WARM_UP_ROUNDS, apart, cpu_of_s, judge, options, report, say, wanted
from bench._requests import DYNAMODB, call, request
from shardway.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 3
WRITES = {"ours": 2_000, "moto": 40}
"""The writes of a round, which take each some tenths of a second of CPU."""
CONNECTIONS = 8
LEASES = 1_000
TABLE = "leases"
GOAL_PER_S = 3_000.0
PEER = """
import sys
from moto.dynamodb.responses import DynamoHandler
from moto.core.request import Request
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Response


class Served(Request):
    from_wsgi_server = True


def answer(environ, start):
    request = Served(environ)
    found = DynamoHandler.dispatch(request, request.raw_url, dict(request.headers))
    status, headers, body = found if len(found) == 3 else (200, {}, found)
    return Response(response=body, status=status, headers=headers)(environ, start)


WSGIRequestHandler.protocol_version = "HTTP/1.1"
WSGIRequestHandler.log_request = lambda *_: None
server = make_server("127.0.0.1", 0, answer, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""
"""moto's DynamoDB behind the server that moto itself serves with."""


def lease(number: int) -> dict[str, Any]:
    """Return a lease as the KCL 3.x stores it."""
    return {
        "leaseKey": {"S": f"shardId-{number:012d}"},
        "leaseOwner": {"S": f"worker-{number % 20:03d}"},
        "leaseCounter": {"N": "0"},
        "checkpoint": {"S": "49590338271490256608559692538361571095921575989136588898"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "startingHashKey": {"S": str(number << 110)},
        "endingHashKey": {"S": str((number + 1 << 110) - 1)},
        "throughputKBps": {"N": "123.456789"},
    }


def renewal(number: int, counter: int) -> bytes:
    """Return a write that renews a lease: the counter goes up if it is what the worker read last."""
    return request(
        DYNAMODB,
        "UpdateItem",
        {
            "TableName": TABLE,
            "Key": {"leaseKey": {"S": f"shardId-{number:012d}"}},
            "UpdateExpression": "SET #0 = :0, #1 = :1",
            "ConditionExpression": "#0 = :2 AND attribute_not_exists(#2)",
            "ExpressionAttributeNames": {"#0": "leaseCounter", "#1": "throughputKBps", "#2": "checkpointOwner"},
            "ExpressionAttributeValues": {
                ":0": {"N": str(counter + 1)},
                ":1": {"N": "123.456789"},
                ":2": {"N": str(counter)},
            },
            "ReturnValues": "ALL_NEW",
        },
    )


class Connection:
    """One connection that renews its own leases in turn, one call after the other."""

    def __init__(self, port: int, leases: range) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = 0
        self._leases = leases
        self._next = renewal(leases[0], 0)
        self._read = b""

    def send(self) -> None:
        self.socket.sendall(self._next)
        # The next request is made while the server works.
        turn, at = divmod(self.answers + 1, len(self._leases))
        self._next = renewal(self._leases[at], turn)

    def receive(self) -> bool:
        """Take what has come, and return True when an answer is whole."""
        self._read += self.socket.recv(1 << 16)
        head, found, body = self._read.partition(b"\r\n\r\n")
        if not found:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self._read.decode("latin-1"))
        lower = head.lower()
        at = lower.index(b"content-length: ") + 16
        if len(body) < int(lower[at:].partition(b"\r")[0]):
            return False
        self._read = b""
        self.answers += 1
        return True


def fill(port: int) -> None:
    """Make the table anew, with its leases."""
    with contextlib.suppress(RuntimeError):
        call(port, DYNAMODB, "DeleteTable", {"TableName": TABLE})
    keys = [
        {"AttributeName": "leaseOwner", "KeyType": "HASH"},
        {"AttributeName": "leaseKey", "KeyType": "RANGE"},
    ]
    index = {"IndexName": "LeaseOwnerToLeaseKeyIndex", "KeySchema": keys, "Projection": {"ProjectionType": "KEYS_ONLY"}}
    table = {
        "TableName": TABLE,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": key["AttributeName"], "AttributeType": "S"} for key in keys],
        "GlobalSecondaryIndexes": [index],
    }
    call(port, DYNAMODB, "CreateTable", table)
    for first in range(0, LEASES, 25):
        puts = [{"PutRequest": {"Item": lease(number)}} for number in range(first, first + 25)]
        call(port, DYNAMODB, "BatchWriteItem", {"RequestItems": {TABLE: puts}})


class Round(NamedTuple):
    """The writes of one round for each second of the server's CPU, and for each second that passed."""

    per_cpu_s: float
    per_s: float


def drive(port: int, pid: int, writes: int) -> Round:
    """Renew leases, and return the figures."""
    fill(port)
    share = LEASES // CONNECTIONS
    connections = [Connection(port, range(at * share, (at + 1) * share)) for at in range(CONNECTIONS)]
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send()
    began, cpu_began, answers = time.perf_counter(), cpu_of_s(pid), 0
    while answers < writes:
        for key, _ in selector.select(1.0):
            if key.data.receive():
                answers += 1
                key.data.send()
    elapsed, cpu = time.perf_counter() - began, cpu_of_s(pid) - cpu_began
    for connection in connections:
        connection.socket.close()
    return Round(answers / cpu, answers / elapsed)


@contextlib.contextmanager
def moto() -> Iterator[tuple[int, int]]:
    """Serve moto's DynamoDB, and yield its port and its process."""
    with subprocess.Popen([sys.executable, "-c", PEER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


def main() -> None:
    asked = options(__doc__ or "")
    if not wanted("conditional_writes", asked):
        return
    rounds: dict[str, list[Round]] = {"ours": [], "moto": []}
    with LocalKinesis.spawn() as service, moto() as (peer_port, peer_pid):
        port = int(service.endpoint_url.rpartition(":")[2])
        for _ in range(WARM_UP_ROUNDS + ROUNDS):
            for name, at, pid in (("ours", port, service.pid), ("moto", peer_port, peer_pid)):
                with apart(pid):
                    rounds[name].append(drive(at, pid, WRITES[name]))
    ours, peer = ([one.per_cpu_s for one in measured[WARM_UP_ROUNDS:]] for measured in rounds.values())
    results = [
        judge("conditional_writes", ours, unit="writes/CPU second", goal=GOAL_PER_S, sense="at_least"),
        judge(
            "conditional_writes_beside_moto",
            ours,
            peer,
            unit="writes/CPU second",
            goal=5.0,
            sense="at_least",
            peer_name="moto",
        ),
    ]
    report("dynamodb", results, as_json=asked.json)
    for name, measured in rounds.items():
        per_s = statistics.median(one.per_s for one in measured[WARM_UP_ROUNDS:])
        per_cpu_s = statistics.median(one.per_cpu_s for one in measured[WARM_UP_ROUNDS:])
        say(f"{name}: {1e6 / per_cpu_s:,.0f} us of CPU a write; {per_s:,.0f} writes/s came through beside the client")


if __name__ == "__main__":
    main()
