"""HTTP/2 as clients of the service meet it: over TLS by ALPN, and in clear by its preface."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.eventstream import EventStreamBuffer
from hyperframe.frame import GoAwayFrame, SettingsFrame

from shardway.local.embedded import LocalKinesis
from shardway.local.faults import Fault, How
from shardway.local.http_versions import PREFACE
from shardway.local.model.stream import even_ranges
from tests.local.rawh2 import ClosedError, ResetError, Wire2
from tests.local.rawhttp import TIMEOUT_S, Wire, call_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

BOTH = pytest.mark.parametrize("local", [{"tls": True}, {}], indirect=True, ids=["tls", "clear"])


@pytest.fixture
def wire(local: LocalKinesis) -> Iterator[Wire2]:
    with Wire2(local.endpoint_url, local.ca_file) as connection:
        yield connection


def consumer_of(wire: Wire2, stream: str, name: str = "reader") -> str:
    arn = wire.call("DescribeStreamSummary", {"StreamName": stream}).json()["StreamDescriptionSummary"]["StreamARN"]
    made = wire.call("RegisterStreamConsumer", {"StreamARN": arn, "ConsumerName": name})
    return str(made.json()["Consumer"]["ConsumerARN"])


def subscribe(wire: Wire2, consumer: str, shard: int = 0) -> int:
    where = {"ConsumerARN": consumer, "ShardId": f"shardId-{shard:012d}", "StartingPosition": {"Type": "TRIM_HORIZON"}}
    return wire.start("SubscribeToShard", where)


def has(wire: Wire2, stream: int, count: int) -> bool:
    return len(wire.data_of(stream)) == count


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
def test_http_1_is_spoken_to_a_client_that_speaks_it(local: LocalKinesis) -> None:
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
        assert wire.socket.selected_alpn_protocol() == "http/1.1"


def test_a_hundred_calls_at_a_time_are_all_answered(wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    data = [base64.b64encode(b"%d" % number).decode() for number in range(100)]
    streams = [wire.start("PutRecord", {"StreamName": "orders", "Data": one, "PartitionKey": "k"}) for one in data]
    numbers = [wire.reply(stream).json()["SequenceNumber"] for stream in streams]
    assert len(set(numbers)) == 100
    assert sorted(numbers, key=int) == numbers


SHARDS = 50


@pytest.mark.parametrize("local", [{"tls": True, "streams": {"orders": SHARDS}}], indirect=True)
def test_fifty_subscriptions_share_a_connection_with_calls(local: LocalKinesis, wire: Wire2) -> None:
    consumer = consumer_of(wire, "orders")
    streams = [subscribe(wire, consumer, shard) for shard in range(SHARDS)]
    for shard in range(SHARDS):
        record = {"Data": base64.b64encode(b"%d" % shard).decode(), "PartitionKey": "k"}
        middle = even_ranges(SHARDS)[shard][0] + 1
        wire.call("PutRecord", {"StreamName": "orders", "ExplicitHashKey": str(middle)} | record)
    for shard, stream in enumerate(streams):
        wire.until(partial(wire.data_of, stream))
        assert [base64.b64decode(data) for data in wire.data_of(stream)] == [b"%d" % shard]
    local.clock.advance(301)
    assert {wire.reply(stream).status for stream in streams} == {200}
    assert local.stats().records("SubscribeToShard") == SHARDS


@BOTH
def test_ten_mebibytes_go_in_and_out(local: LocalKinesis, wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    parts = [bytes([number]) * (1_048_576 - 1) for number in range(10)]
    put(wire, "orders", *parts)
    where = {"StreamName": "orders", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = wire.call("GetShardIterator", where).json()["ShardIterator"]
    records = wire.call("GetRecords", {"ShardIterator": iterator}).json()["Records"]
    assert [base64.b64decode(record["Data"]) for record in records] == parts


@pytest.mark.parametrize("local", [{"streams": {"orders": 2}}], indirect=True)
def test_a_slow_reader_of_one_subscription_holds_up_no_other(local: LocalKinesis) -> None:
    with Wire2(local.endpoint_url, window_bytes=65_535) as wire:
        consumer = consumer_of(wire, "orders")
        slow, quick = subscribe(wire, consumer, 0), subscribe(wire, consumer, 1)
        wire.slow.add(slow)
        large, first_of_second = base64.b64encode(bytes(500_000)).decode(), str(even_ranges(2)[1][0])
        for number in range(4):
            for hash_key in ("0", first_of_second):
                record = {"Data": large, "PartitionKey": "k", "ExplicitHashKey": hash_key}
                wire.call("PutRecord", {"StreamName": "orders"} | record)
            wire.until(partial(has, wire, quick, number + 1))
        assert len(wire.bodies[slow]) <= 65_535
        wire.slow.remove(slow)
        wire.h2.acknowledge_received_data(len(wire.bodies[slow]), slow)
        wire.flush()
        wire.until(lambda: len(wire.data_of(slow)) == 4)


@BOTH
def test_a_subscription_that_the_client_resets_is_let_go(local: LocalKinesis, wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    consumer = consumer_of(wire, "orders")
    put(wire, "orders", b"first")
    stream = subscribe(wire, consumer)
    wire.until(lambda: wire.data_of(stream))
    wire.reset(stream)
    local.clock.advance(6)
    again = subscribe(wire, consumer)
    wire.until(lambda: wire.data_of(again))
    assert wire.call("ListStreams", {}).status == 200


def test_a_subscription_runs_on_behind_the_goodbye_of_its_client(local: LocalKinesis, wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    consumer = consumer_of(wire, "orders")
    with Wire2(local.endpoint_url) as leaving:
        stream = subscribe(leaving, consumer)
        leaving.until(lambda: stream in leaving.heads)
        leaving.socket.sendall(GoAwayFrame(0).serialize())
        put(wire, "orders", b"later")
        leaving.until(lambda: leaving.data_of(stream))
        local.clock.advance(301)
        assert leaving.reply(stream).status == 200
        leaving.until(lambda: leaving.closed)


def test_a_stop_says_goodbye_to_subscriptions(local: LocalKinesis, wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    stream = subscribe(wire, consumer_of(wire, "orders"))
    wire.until(lambda: stream in wire.heads)
    local.stop()
    wire.until(lambda: wire.closed)
    assert wire.goodbye is not None
    assert wire.goodbye.last_stream_id == stream
    assert stream not in wire.ended


@pytest.mark.parametrize("local", [{"http2_streams_max": 7}], indirect=True)
def test_the_number_of_streams_is_a_setting(local: LocalKinesis, wire: Wire2) -> None:
    assert wire.h2.remote_settings.max_concurrent_streams == 7


KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize("local", [{"credentials": {KEY: SECRET}}], indirect=True)
def test_a_signature_over_the_host_holds_for_the_authority(local: LocalKinesis, wire: Wire2) -> None:
    headers = {"X-Amz-Target": "Kinesis_20131202.ListStreams", "Content-Type": "application/x-amz-json-1.1"}
    signed = AWSRequest("POST", local.endpoint_url + "/", headers=headers, data=b"{}")
    SigV4Auth(Credentials(KEY, SECRET), "kinesis", "us-east-1").add_auth(signed)
    fields = {name.lower(): value for name, value in signed.headers.items()}
    for body, status in ((b"{}", 200), (b'{"Limit": 1}', 400)):
        stream = wire.begin(wire.head(**fields))
        wire.send(stream, body)
        assert wire.reply(stream).status == status


@BOTH
def test_the_controls_answer_over_http_2(local: LocalKinesis, wire: Wire2) -> None:
    reply = wire.reply(wire.begin(wire.head("GET", "/_shardway/health"), ends=True))
    assert reply.json()["status"] == "ok"


# --- what a connection speaks ---------------------------------------------------------------------


def test_a_preface_may_come_in_pieces(local: LocalKinesis) -> None:
    with socket.create_connection(("127.0.0.1", local_port(local)), TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PREFACE + SettingsFrame(0).serialize():
            connection.sendall(bytes((byte,)))
        assert connection.recv(9)[3] == SettingsFrame.type


@pytest.mark.parametrize("data", [b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"PRX * HTTP/1.1\r\n\r\n"])
def test_what_only_begins_like_the_preface_gets_400(local: LocalKinesis, data: bytes) -> None:
    with Wire(local_port(local)) as wire:
        assert wire.call(data).status == 400
        assert wire.ended()


def test_connections_that_say_nothing_are_closed_at_the_stop() -> None:
    service = LocalKinesis().start()
    with Wire(local_port(service)) as wire, Wire(local_port(service)) as begun:
        begun.send(PREFACE[:5])
        wire.send(PREFACE[:1])
        deadline = time.monotonic() + TIMEOUT_S
        while len(service._running_server()._connections) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        service.stop()
        for one in (wire, begun):
            with contextlib.suppress(ConnectionResetError):
                assert one.ended()


def test_without_h2_the_service_speaks_http_1() -> None:
    program = """
import sys
sys.modules["h2"] = None
from shardway.local.embedded import LocalKinesis
import ssl, socket, urllib.request
with LocalKinesis(tls=True) as local:
    context = ssl.create_default_context(cafile=local.ca_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    port = int(local.endpoint_url.rpartition(":")[2])
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as wire:
        print(wire.selected_alpn_protocol())
    with urllib.request.urlopen(local.endpoint_url + "/_shardway/health", context=context) as reply:
        print(reply.status)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["http/1.1", "200"]


def local_port(local: LocalKinesis) -> int:
    return int(local.endpoint_url.rpartition(":")[2])


# --- ordered faults -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "code", "is_done"),
    [
        (Fault(how="reset", operation="PutRecords"), "INTERNAL_ERROR", False),
        (Fault(how="reset", operation="PutRecords", applied=True), "INTERNAL_ERROR", True),
        (Fault(how="lost_reply", operation="PutRecords"), "CANCEL", True),
        (Fault(how="truncate", operation="PutRecords"), "CANCEL", True),
    ],
    ids=["reset before", "reset after", "lost reply", "truncated"],
)
def test_a_fault_strikes_its_stream_alone(
    local: LocalKinesis, wire: Wire2, fault: Fault, code: str, is_done: bool
) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    local.faults.add(fault)
    stream = wire.start("PutRecords", {"StreamName": "orders", "Records": [{"Data": "YQ==", "PartitionKey": "k"}]})
    with pytest.raises(ResetError, match=code):
        wire.reply(stream)
    assert bool(wire.bodies[stream]) == (fault.how == "truncate")
    where = {"StreamName": "orders", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = wire.call("GetShardIterator", where).json()["ShardIterator"]
    assert len(wire.call("GetRecords", {"ShardIterator": iterator}).json()["Records"]) == is_done
    counted = local.stats().operations["PutRecords"]
    assert (counted.calls, counted.errors) == (1, 1)


@pytest.mark.parametrize(
    ("how", "code"), [("reset", "INTERNAL_ERROR"), ("lost_reply", "CANCEL"), ("truncate", "CANCEL")]
)
def test_a_subscription_breaks_between_two_events(local: LocalKinesis, wire: Wire2, how: How, code: str) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    put(wire, "orders", b"first")
    local.faults.add(Fault(how=how, operation="SubscribeToShardEvent", skip=1))
    stream = subscribe(wire, consumer_of(wire, "orders"))
    wire.until(lambda: wire.data_of(stream))
    local.clock.advance(10)  # an idle shard's event is due
    with pytest.raises(ResetError, match=code):
        wire.reply(stream)
    buffer = EventStreamBuffer()
    buffer.add_data(bytes(wire.bodies[stream]))
    assert [event.headers[":event-type"] for event in buffer] == ["initial-response", "SubscribeToShardEvent"]
    assert wire.call("ListStreams", {}).status == 200


@pytest.mark.parametrize("operation", ["ListStreams", "SubscribeToShardEvent"])
def test_a_disconnect_takes_the_subscriptions_along(local: LocalKinesis, wire: Wire2, operation: str) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    stream = subscribe(wire, consumer_of(wire, "orders"))
    wire.until(lambda: stream in wire.heads)
    local.faults.add(Fault(how="disconnect", operation=operation))
    if operation == "ListStreams":
        wire.start(operation, {})
    else:
        local.clock.advance(10)  # an idle shard's event is due
    with pytest.raises(ClosedError):
        wire.reply(stream)
    assert wire.goodbye is None


def test_a_goodbye_that_is_ordered_leaves_the_subscription_its_time(local: LocalKinesis, wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    stream = subscribe(wire, consumer_of(wire, "orders"))
    wire.until(lambda: stream in wire.heads)
    local.faults.add(Fault(how="go_away", operation="PutRecords", count=1))
    put(wire, "orders", b"first")
    assert wire.goodbye is not None
    wire.until(lambda: wire.data_of(stream))
    with Wire2(local.endpoint_url) as other:
        put(other, "orders", b"second")
    wire.until(lambda: len(wire.data_of(stream)) == 2)
    local.clock.advance(301)
    assert wire.reply(stream).status == 200
    wire.until(lambda: wire.closed)
    assert local.stats().operations["PutRecords"].errors == 0


def test_a_goodbye_between_two_events_loses_none(local: LocalKinesis, wire: Wire2) -> None:
    wire.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
    put(wire, "orders", b"first")
    local.faults.add(Fault(how="go_away", operation="SubscribeToShardEvent", count=1))
    stream = subscribe(wire, consumer_of(wire, "orders"))
    wire.until(lambda: wire.data_of(stream))
    assert wire.goodbye is not None


def test_over_http_1_both_end_the_connection(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="go_away", operation="ListStreams", count=1))
    with Wire(local_port(local)) as wire:
        assert wire.call(call_bytes("ListStreams", {})).status == 200
        assert wire.ended()
    local.faults.add(Fault(how="disconnect", operation="ListStreams", count=1))
    with Wire(local_port(local)) as wire, pytest.raises(ConnectionResetError):
        wire.call(call_bytes("ListStreams", {}))
