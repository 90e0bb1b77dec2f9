"""The embedded service as boto3 and the Java SDK's bytes meet it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import boto3
import cbor2
import pytest
from botocore.exceptions import ClientError

from shardway.local.embedded import LocalKinesis
from shardway.local.options import LocalOptions
from shardway.local.server import LocalServer
from tests.local.rawhttp import SIGNED, Wire, call_bytes, request_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = "shardId-000000000000"
CBOR = "application/x-amz-cbor-1.1"


def port_of(local: LocalKinesis) -> int:
    return int(local.endpoint_url.rpartition(":")[2])


def records_of(kinesis: Any, stream: str, shard: str = FIRST) -> list[dict[str, Any]]:
    iterator = kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON")[
        "ShardIterator"
    ]
    records: list[dict[str, Any]] = kinesis.get_records(ShardIterator=iterator)["Records"]
    return records


def test_boto3_puts_and_gets(local: LocalKinesis, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    data = bytes(range(256))
    kinesis.put_records(StreamName="orders", Records=[{"Data": data, "PartitionKey": f"k{n}"} for n in range(3)])
    found = records_of(kinesis, "orders")
    assert [record["PartitionKey"] for record in found] == ["k0", "k1", "k2"]
    assert {record["Data"] for record in found} == {data}
    assert found[0]["ApproximateArrivalTimestamp"].timestamp() == pytest.approx(local.clock.now(), abs=60)


def test_an_error_is_aws_shaped(kinesis: Any) -> None:
    with pytest.raises(ClientError, match="Stream none under account 123456789012 not found") as caught:
        kinesis.describe_stream(StreamName="none")
    answer = caught.value.response
    assert answer["Error"]["Code"] == "ResourceNotFoundException"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert answer["ResponseMetadata"]["HTTPHeaders"]["x-amzn-errortype"] == "ResourceNotFoundException"
    assert answer["ResponseMetadata"]["RequestId"]


def test_streams_of_the_settings_are_there() -> None:
    with LocalKinesis(streams={"orders": 3}, region="eu-west-1") as local, Wire(port_of(local)) as wire:
        signed = SIGNED["Authorization"].replace("us-east-1", "eu-west-1")
        call = call_bytes("DescribeStreamSummary", {"StreamName": "orders"}, Authorization=signed)
        answer = wire.call(call).json()
    summary = answer["StreamDescriptionSummary"]
    assert summary["OpenShardCount"] == 3
    assert summary["StreamARN"] == "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def test_the_date_and_the_arrival_follow_the_clock() -> None:
    still = LocalKinesis(clock_start_s=1_700_000_000.0, clock_running=False, streams={"s": 1})
    with still as local, Wire(port_of(local)) as wire:
        assert wire.call(call_bytes("ListStreams", {})).headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
        local.clock.advance(3600)
        assert wire.call(call_bytes("ListStreams", {})).headers["date"] == "Tue, 14 Nov 2023 23:13:20 GMT"
        wire.call(call_bytes("PutRecord", {"StreamName": "s", "PartitionKey": "k", "Data": "YQ=="}))
        where = {"StreamName": "s", "ShardId": FIRST, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = wire.call(call_bytes("GetShardIterator", where)).json()["ShardIterator"]
        page = wire.call(call_bytes("GetRecords", {"ShardIterator": iterator})).json()
    assert page["Records"][0]["ApproximateArrivalTimestamp"] == 1_700_003_600.0


@pytest.mark.parametrize("operation", ["NoSuchThing", "CreateQueue"])
def test_an_operation_that_is_unknown_or_lacking_is_said_so(local: LocalKinesis, operation: str) -> None:
    with Wire(port_of(local)) as wire:
        reply = wire.call(call_bytes(operation, {}))
        assert (reply.status, reply.json()) == (400, {"__type": "UnknownOperationException"})


def test_a_plain_http_client_without_a_signature_is_refused(local: LocalKinesis) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(local), timeout=20)
    headers = {"X-Amz-Target": "Kinesis_20131202.ListStreams", "Content-Type": "application/x-amz-json-1.1"}
    connection.request("POST", "/", b"{}", headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer == {
        "__type": "MissingAuthenticationTokenException",
        "message": "Missing Authentication Token",
    }
    assert local.stats().operations["refused"].errors == 1


def cbor_call(wire: Wire, operation: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """A call as the Java SDK makes it."""
    headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": CBOR} | SIGNED
    reply = wire.call(request_bytes(cbor2.dumps(fields), headers=headers))
    assert reply.headers.get("content-type") == CBOR
    if not reply.body:
        return reply.status, {}
    return reply.status, cbor2.loads(
        reply.body, semantic_decoders={1: lambda value, immutable: cbor2.CBORTag(1, value)}
    )


def test_the_java_sdks_cbor(local: LocalKinesis, kinesis: Any) -> None:
    data = bytes(range(256))
    with Wire(port_of(local)) as wire:
        assert cbor_call(wire, "CreateStream", {"StreamName": "orders", "ShardCount": 1}) == (200, {})
        entries = [{"Data": data, "PartitionKey": "k"}] * 2
        status, put = cbor_call(wire, "PutRecords", {"StreamName": "orders", "Records": entries})
        assert (status, put["FailedRecordCount"]) == (200, 0)
        before = int((local.clock.now() - 60) * 1000)
        where = {
            "StreamName": "orders",
            "ShardId": FIRST,
            "ShardIteratorType": "AT_TIMESTAMP",
            "Timestamp": cbor2.CBORTag(1, before),
        }
        iterator = cbor_call(wire, "GetShardIterator", where)[1]["ShardIterator"]
        page = cbor_call(wire, "GetRecords", {"ShardIterator": iterator})[1]
        assert [record["Data"] for record in page["Records"]] == [data, data]
        arrival = page["Records"][0]["ApproximateArrivalTimestamp"]
        assert arrival.tag == 1
        assert isinstance(arrival.value, int)
        assert arrival.value >= before
        status, error = cbor_call(wire, "DescribeStream", {"StreamName": "none"})
        assert (status, error["__type"]) == (400, "ResourceNotFoundException")
    assert [record["Data"] for record in records_of(kinesis, "orders")] == [data, data]


def test_calls_are_counted_by_operation_and_by_tag(local: LocalKinesis, boto: Callable[..., Any]) -> None:
    driver, task = boto(user_agent="tag/driver"), boto(user_agent="shardway/1 tag/task")
    driver.create_stream(StreamName="orders", ShardCount=1)
    task.put_records(StreamName="orders", Records=[{"Data": b"x", "PartitionKey": "k"}] * 5)
    task.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    assert len(records_of(task, "orders")) == 6
    with pytest.raises(ClientError):
        driver.describe_stream(StreamName="none")
    stats = local.stats()
    assert stats.records("PutRecords", "task") == 5
    assert stats.records("PutRecord") == 1
    assert stats.records("GetRecords") == 6
    assert stats.calls("GetRecords", "driver") == 0
    assert stats.tags["driver"]["DescribeStream"].errors == 1
    assert stats.tags["task"]["GetRecords"].response_bytes > 6 * 100
    local.reset_stats()
    assert local.stats().operations == {}


def test_limits_are_switched_while_it_runs(local: LocalKinesis, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    put = {"StreamName": "orders", "Records": [{"Data": b"x", "PartitionKey": "k"}] * 500}
    assert [kinesis.put_records(**put)["FailedRecordCount"] for _ in range(3)] == [0, 0, 0]
    local.set_limits(per_shard=True, put_records_per_s=100)  # a burst of 100, however long it was quiet
    assert kinesis.put_records(**put)["FailedRecordCount"] == 400
    local.set_limits(per_shard=False)
    assert kinesis.put_records(**put)["FailedRecordCount"] == 0
    with pytest.raises(ValueError, match="unknown limits per_stream"):
        local.set_limits(per_stream=True)


def test_a_reset_leaves_nothing_but_the_streams_of_the_settings() -> None:
    with LocalKinesis(streams={"kept": 1}) as local, Wire(port_of(local)) as wire:
        wire.call(call_bytes("CreateStream", {"StreamName": "made", "ShardCount": 1}))
        wire.call(call_bytes("PutRecord", {"StreamName": "kept", "PartitionKey": "k", "Data": "YQ=="}))
        local.reset()
        assert wire.call(call_bytes("ListStreams", {})).json()["StreamNames"] == ["kept"]
        assert local.stats().calls("PutRecord") == 0


def test_two_services_in_one_process_know_nothing_of_each_other() -> None:
    with LocalKinesis(streams={"a": 1}) as one, LocalKinesis(streams={"b": 1}) as other:
        for local, names in ((one, ["a"]), (other, ["b"])):
            with Wire(port_of(local)) as wire:
                assert wire.call(call_bytes("ListStreams", {})).json()["StreamNames"] == names


def test_it_says_when_the_port_is_taken_and_when_it_does_not_run() -> None:
    with LocalKinesis() as local:
        with pytest.raises(RuntimeError, match="running already"):
            local.start()
        late = LocalKinesis(port=port_of(local))
        with pytest.raises(OSError, match="address already in use"):
            late.start()
    with late, Wire(port_of(late)) as wire:
        assert wire.call(call_bytes("ListStreams", {})).status == 200
    with pytest.raises(RuntimeError, match="not running"):
        local.stats()


def test_it_can_be_started_again() -> None:
    local = LocalKinesis(streams={"s": 1})
    for _ in range(2):
        with local, Wire(port_of(local)) as wire:
            assert wire.call(call_bytes("ListStreams", {})).status == 200
    local.stop()


@pytest.mark.parametrize("rounds", range(5))
async def test_a_connection_that_is_accepted_while_it_stops_is_closed(rounds: int) -> None:
    """Between the socket that is accepted and the connection that is made, the loop goes round a few times."""
    loop = asyncio.get_running_loop()
    server = LocalServer(LocalOptions(port=0))
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setblocking(False)
        for _ in range(rounds):
            await asyncio.sleep(0)
        await server.stop()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(loop.sock_recv(client, 1), 10) == b""


def test_the_environment_leads_any_sdk_here(kinesis_endpoint: str, local_kinesis: LocalKinesis) -> None:
    assert kinesis_endpoint == local_kinesis.endpoint_url
    client = boto3.client("kinesis")
    client.create_stream(StreamName="orders", ShardCount=1)
    client.close()
    assert local_kinesis.stats().calls("CreateStream") == 1


def test_the_plugin_imports_nothing_before_it_is_used() -> None:
    program = (
        "import sys\n"
        "import shardway.testing.pytest_plugin\n"
        "print([name for name in ('asyncio', 'httptools', 'botocore', 'shardway.local') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("module", ["shardway.local", "shardway.testing"])
def test_public_names_are_there(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        loaded.Nothing  # noqa: B018


def test_without_its_extra_it_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['httptools'] = None\n"
        "try:\n"
        "    from shardway.testing import LocalKinesis\n"
        "except ModuleNotFoundError as fault:\n"
        "    print(fault)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == 'the local service needs its extra: pip install "shardway[local]"\n'
