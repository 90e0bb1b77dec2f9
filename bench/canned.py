"""Serves ready-made Kinesis answers from a process of its own: it looks nothing up, stores nothing, checks nothing.

A benchmark that asks this server measures clients, so the server must be faster than all of them. GetRecords answers
the page that the iterator names: ``empty``, or ``page-<records>-<bytes>``, which is made at its first use. PutRecords
takes each entry, and names the shard that the entry falls in. ListShards and DescribeStreamSummary tell of the same
shards, of which there are four unless ``BENCH_CANNED_SHARDS`` gives another number. With ``--stalled`` the server
takes the request of PutRecords and never answers. Other operations get ``{}``. ``GET /stats`` answers the numbers of
requests and of entries that were put. The process ends with its standard input.

``python -m bench.canned`` runs it by hand.
"""

from __future__ import annotations

import base64
import email.utils
import json
import os
import random
import re
import selectors
import socket
import subprocess
import sys
import time
import urllib.request
from collections import deque
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING

import cbor2

if TYPE_CHECKING:
    from types import TracebackType

RECEIVE_BYTES = 256 * 1024
SEND_BYTES = 256 * 1024
"""The bytes of one call of send. Small calls keep the receiver busy while the next one is copied."""
BUFFER_BYTES = 16 * 1024 * 1024
"""The bytes of a connection's send buffer, which takes a whole page where the system allows it. The server has then
done its part before the client has read much.
"""
JOIN_BYTES_MAX = 64 * 1024
FIRST_SEQUENCE = 49590338271490256608559692538361571095921575989136588898
SHARDS = int(os.environ.get("BENCH_CANNED_SHARDS", "4"))
"""The number of shards. Clients that keep to each shard's limits need more of them. It is a power of two, up to 256,
so that with even hash ranges a hash key's first bits name its shard.
"""
SHARD_IDS = [f"shardId-{number:012d}" for number in range(SHARDS)]
SHARD_SHIFT = 128 - (SHARDS.bit_length() - 1)
ENTRIES_MAX = 500
KEYS_KNOWN_MAX = 100_000
"""The most partition keys whose shard is remembered."""
ENTRY = re.compile(rb'"PartitionKey": ?"([^"]*)"(?:, ?"ExplicitHashKey": ?"([0-9]+)")?')
"""The pattern that finds the keys of an entry of PutRecords, as boto3 and our client write them."""
LARGE_ENTRY_BYTES = 4096
CBOR = b"application/x-amz-cbor-1.1"


def page(records: int, data_bytes: int, seed: int = 1) -> bytes:
    """Return the body of a GetRecords answer as AWS writes it, with records of ``data_bytes`` bytes of random data."""
    rng = random.Random(seed)
    return json.dumps(
        {
            "Records": [
                {
                    "SequenceNumber": str(FIRST_SEQUENCE + 7 * index),
                    "ApproximateArrivalTimestamp": 1.7e9 + index / 1000,
                    "Data": base64.b64encode(rng.randbytes(data_bytes)).decode(),
                    "PartitionKey": f"key-{index:05d}",
                }
                for index in range(records)
            ],
            "NextShardIterator": "A" * 224,
            "MillisBehindLatest": 0,
        },
        separators=(",", ":"),
    ).encode()


def shard_description(number: int) -> dict[str, object]:
    """Return a shard as ListShards describes it."""
    size = 1 << SHARD_SHIFT
    return {
        "ShardId": SHARD_IDS[number],
        "HashKeyRange": {"StartingHashKey": str(number * size), "EndingHashKey": str((number + 1) * size - 1)},
        "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST_SEQUENCE)},
    }


def stream_description(name: str) -> dict[str, object]:
    """Return a stream as DescribeStreamSummary describes it."""
    return {
        "StreamName": name,
        "StreamARN": f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}",
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        "RetentionPeriodHours": 24,
        "StreamCreationTimestamp": 1.7e9,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
        "OpenShardCount": SHARDS,
        "ConsumerCount": 0,
    }


def shard_of(partition_key: str) -> int:
    """Return the number of the shard that a partition key falls in."""
    return md5(partition_key.encode()).digest()[0] >> (SHARD_SHIFT - 120)


class Puts:
    """Answers to PutRecords, put together from ready-made entries, of which there is one for each shard and place."""

    def __init__(self) -> None:
        self._taken = [
            [
                b'{"SequenceNumber":"%d","ShardId":"%s"}' % (FIRST_SEQUENCE + 7 * place, shard_id.encode())
                for place in range(ENTRIES_MAX)
            ]
            for shard_id in SHARD_IDS
        ]
        self._known: dict[bytes, int] = {}

    def answer(self, request: bytes) -> tuple[bytes, int]:
        """Return the body of the answer to a request in JSON, and how many entries were taken."""
        taken, known = self._taken, self._known
        entries = []
        for place, (key, hash_key) in enumerate(self._entries(request)):
            if hash_key:
                shard = int(hash_key) >> SHARD_SHIFT
            elif (shard := known.get(key, -1)) < 0:
                if len(known) >= KEYS_KNOWN_MAX:
                    known.clear()
                shard = known[key] = shard_of(json.loads(b'"%s"' % key))
            entries.append(taken[shard][place])
        return b'{"FailedRecordCount":0,"Records":[%s]}' % b",".join(entries), len(entries)

    def answer_cbor(self, request: bytes) -> tuple[bytes, int]:
        """Return the body of the answer to a request in CBOR, and how many entries were taken."""
        entries = []
        for place, entry in enumerate(cbor2.loads(request)["Records"]):
            hash_key = entry.get("ExplicitHashKey")
            shard = int(hash_key) >> SHARD_SHIFT if hash_key else shard_of(entry["PartitionKey"])
            entries.append({"SequenceNumber": str(FIRST_SEQUENCE + 7 * place), "ShardId": SHARD_IDS[shard]})
        return cbor2.dumps({"FailedRecordCount": 0, "Records": entries}), len(entries)

    def _entries(self, request: bytes) -> list[tuple[bytes, bytes]]:
        """Return (partition key, explicit hash key) of each entry. A plain search passes over large data faster than a
        pattern.
        """
        first = request.find(b'"PartitionKey"')
        if first < LARGE_ENTRY_BYTES:
            return ENTRY.findall(request)
        found = []
        while first >= 0:
            entry = ENTRY.match(request, first)
            assert entry is not None
            found.append((entry[1], entry[2] or b""))
            first = request.find(b'"PartitionKey"', entry.end())
        return found


class Answers:
    """Ready bodies of answers, by what is asked for."""

    def __init__(self, *, stalled: bool = False) -> None:
        self.requests = 0
        self.put_entries = 0
        self.stalled = stalled
        self._pages = {"empty": page(0, 0)}
        self._puts = Puts()
        self._shards = json.dumps({"Shards": [shard_description(number) for number in range(SHARDS)]}).encode()
        self._date = (0, b"")

    def body(self, target: bytes, content_type: bytes, request: bytes) -> bytes | None:
        """Return the body of the answer to one request; None where it gets no answer."""
        self.requests += 1
        if target.endswith(b"GetRecords"):
            return self._page(request)
        if target.endswith(b"PutRecords"):
            if self.stalled:
                return None
            in_cbor = content_type == CBOR
            answer, entries = self._puts.answer_cbor(request) if in_cbor else self._puts.answer(request)
            self.put_entries += entries
            return answer
        if target.endswith(b"ListShards"):
            return self._shards
        if target.endswith(b"DescribeStreamSummary"):
            return json.dumps({"StreamDescriptionSummary": stream_description(_named(request))}).encode()
        return b"{}"

    def head(self, length: int) -> bytes:
        """Return the head of an answer, with the headers that AWS sends."""
        second = int(time.time())
        if second != self._date[0]:
            self._date = (second, email.utils.formatdate(second, usegmt=True).encode())
        return b"".join(
            (
                b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: c6d2a1f0-8a1e-4f6e-9d6a-2b8e4e1b7a10\r\nDate: ",
                self._date[1],
                b"\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: ",
                str(length).encode(),
                b"\r\n\r\n",
            )
        )

    def _page(self, request: bytes) -> bytes:
        name = request.partition(b'"ShardIterator"')[2].split(b'"', 2)[1].decode()
        if name not in self._pages:
            _, records, data_bytes = name.split("-")
            self._pages[name] = page(int(records), int(data_bytes))
        return self._pages[name]


class Connection:
    """One connection, on which requests with a Content-Length come one after the other. Large answers are never
    copied.
    """

    def __init__(self, sock: socket.socket, answers: Answers) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self._socket = sock
        self._answers = answers
        self._received = bytearray()
        self._unsent: deque[memoryview] = deque()

    def turn(self) -> int:
        """Receive, answer and send what can be. Return the selector's events to wait for next, or 0 when the
        connection ends.
        """
        try:
            if self._unsent:
                return self._send()
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return selectors.EVENT_READ
        except OSError:
            return 0
        if not data:
            return 0
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end])
            length = int(_header(head, b"content-length") or 0)
            if len(self._received) < end + 4 + length:
                if b"100-continue" in head.lower():
                    self._unsent.append(memoryview(b"HTTP/1.1 100 Continue\r\n\r\n"))
                break
            request = bytes(self._received[end + 4 : end + 4 + length])
            del self._received[: end + 4 + length]
            self._answer(head, request)
        return self._send() if self._unsent else selectors.EVENT_READ

    def close(self) -> None:
        """Close the socket of a connection that has ended."""
        self._socket.close()

    def _answer(self, head: bytes, request: bytes) -> None:
        answers = self._answers
        if head.startswith(b"GET /stats"):
            body = json.dumps({"requests": answers.requests, "put_entries": answers.put_entries}).encode()
        else:
            ready = answers.body(_header(head, b"x-amz-target"), _header(head, b"content-type"), request)
            if ready is None:
                return
            body = ready
        if len(body) <= JOIN_BYTES_MAX:
            self._unsent.append(memoryview(answers.head(len(body)) + body))
        else:
            self._unsent += (memoryview(answers.head(len(body))), memoryview(body))

    def _send(self) -> int:
        while self._unsent:
            part = self._unsent[0]
            try:
                sent = self._socket.send(part[:SEND_BYTES])
            except BlockingIOError:
                return selectors.EVENT_WRITE
            except OSError:
                return 0
            if sent == len(part):
                self._unsent.popleft()
            else:
                self._unsent[0] = part[sent:]
        return selectors.EVENT_READ


def _header(head: bytes, name: bytes) -> bytes:
    start = head.lower().find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    return head[start + len(name) + 3 :].partition(b"\r\n")[0].strip()


def _named(request: bytes) -> str:
    stream = json.loads(request)
    return str(stream.get("StreamName") or stream["StreamARN"].rpartition("/")[2])


def serve(port: int, *, stalled: bool = False) -> None:
    """Listen on loopback, print the port, and serve until standard input ends."""
    answers = Answers(stalled=stalled)
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ, sys.stdin)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is sys.stdin:
                    if not os.read(sys.stdin.fileno(), 1024):
                        return
                elif key.data is None:
                    accepted, _ = listener.accept()
                    selector.register(accepted, selectors.EVENT_READ, Connection(accepted, answers))
                else:
                    events = key.data.turn()
                    if events == 0:
                        selector.unregister(key.fileobj)
                        key.data.close()
                    elif events != key.events:
                        selector.modify(key.fileobj, events, key.data)


class CannedServer:
    """The server as a child process: ``with CannedServer() as server: server.endpoint_url``."""

    def __init__(self, *, stalled: bool = False) -> None:
        self._stalled = stalled

    def __enter__(self) -> CannedServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.canned", "--port", "0", *(["--stalled"] if self._stalled else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[1],
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().decode().strip()
        if not port:
            raise RuntimeError("the canned server did not start: see its message above")
        self.endpoint_url = f"http://127.0.0.1:{port}"
        self.pid = self._process.pid
        return self

    def stats(self) -> dict[str, int]:
        """Return what the server has counted."""
        with urllib.request.urlopen(f"{self.endpoint_url}/stats") as answer:
            counted: dict[str, int] = json.load(answer)
            return counted

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Serve ready-made Kinesis answers until standard input ends.")
    parser.add_argument("--port", type=int, default=4568, help="0 takes a free one and prints it")
    parser.add_argument("--stalled", action="store_true", help="take PutRecords and never answer it")
    asked = parser.parse_args()
    serve(asked.port, stalled=asked.stalled)
