"""HTTP/2 as clients of the service meet it: over TLS by ALPN, and in clear by its preface."""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING

import pytest
from rawh2 import Wire2
from rawhttp import Wire, call_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.local.embedded import LocalKinesis

BOTH = pytest.mark.parametrize("local", [{"tls": True}, {}], indirect=True, ids=["tls", "clear"])


@pytest.fixture
def wire(local: LocalKinesis) -> Iterator[Wire2]:
    with Wire2(local.endpoint_url, local.ca_file) as connection:
        yield connection


def consumer_of(wire: Wire2, stream: str, name: str = "reader") -> str:
    arn = wire.call("DescribeStreamSummary", {"StreamName": stream}).json()["StreamDescriptionSummary"]["StreamARN"]
    made = wire.call("RegisterStreamConsumer", {"StreamARN": arn, "ConsumerName": name})
    return made.json()["Consumer"]["ConsumerARN"]


def subscribe(wire: Wire2, consumer: str, shard: int = 0) -> int:
    where = {"ConsumerARN": consumer, "ShardId": f"shardId-{shard:012d}", "StartingPosition": {"Type": "TRIM_HORIZON"}}
    return wire.start("SubscribeToShard", where)


def put(wire: Wire2, stream: str, *payloads: bytes) -> None:
    records = [{"Data": base64.b64encode(payload).decode(), "PartitionKey": "k"} for payload in payloads]
    reply = wire.call("PutRecords", {"StreamName": stream, "Records": records})
    assert reply.json()["FailedRecordCount"] == 0


@BOTH
def test_calls_are_answered_as_over_http_1(local: LocalKinesis, wire: Wire2) -> None:
    if wire.tls is not None:
        assert wire.tls.selected_alpn_protocol() == "h2"
    assert wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1}).body == b""
    put(wire, "orders", b"first")
    where = {"StreamName": "orders", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = wire.call("GetShardIterator", where).json()["ShardIterator"]
    reply = wire.call("GetRecords", {"ShardIterator": iterator})
    assert [base64.b64decode(record["Data"]) for record in reply.json()["Records"]] == [b"first"]
    assert reply.headers["content-type"] == "application/x-amz-json-1.1"
    assert reply.headers["content-length"] == str(len(reply.body))
    assert "connection" not in reply.headers
    refused = wire.call("GetRecords", {"ShardIterator": "none"})
    assert (refused.status, refused.headers["x-amzn-errortype"]) == (400, "InvalidArgumentException")
    assert local.stats().calls("GetRecords") == 2


@BOTH
def test_a_subscription_runs_beside_calls(local: LocalKinesis, wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    stream = subscribe(wire, consumer_of(wire, "orders"))
    put(wire, "orders", b"first")
    wire.until(lambda: wire.data_of(stream))
    put(wire, "orders", b"later")
    wire.until(lambda: len(wire.data_of(stream)) == 2)
    assert [base64.b64decode(data) for data in wire.data_of(stream)] == [b"first", b"later"]
    assert wire.heads[stream]["content-type"] == "application/vnd.amazon.eventstream"
    local.clock.advance(301)
    assert wire.reply(stream).status == 200


@BOTH
def test_http_1_is_spoken_to_who_speaks_it(local: LocalKinesis) -> None:
    port = int(local.endpoint_url.rpartition(":")[2])
    with Wire(port) as wire:
        if local.ca_file is not None:
            context = ssl.create_default_context(cafile=local.ca_file)
            context.set_alpn_protocols(["http/1.1"])
            wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
            wire._file = wire.socket.makefile("rb")
        assert wire.call(call_bytes("ListStreams", {})).status == 200


@pytest.mark.parametrize("local", [{"tls": True, "http2": False}], indirect=True)
def test_http_2_can_be_left_out(local: LocalKinesis) -> None:
    context = ssl.create_default_context(cafile=local.ca_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
        assert wire.socket.selected_alpn_protocol() == "http/1.1"  # type: ignore[attr-defined]
