"""Registered consumers and SubscribeToShard, with boto3; and the Java SDK's CBOR."""

from __future__ import annotations

import http.client
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import cbor2
import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contracts.contract_stream import Stream

FIRST = "shardId-000000000000"
CBOR = "application/x-amz-cbor-1.1"


@pytest.fixture
def stream(make_stream: Callable[..., Stream]) -> Stream:
    return make_stream(1)


@pytest.fixture
def consumer(stream: Stream) -> str:
    arn = stream.wait()["StreamARN"]
    made = stream.client.register_stream_consumer(StreamARN=arn, ConsumerName="reader")["Consumer"]
    deadline = time.monotonic() + 20
    status = made["ConsumerStatus"]
    while status != "ACTIVE" and time.monotonic() < deadline:
        described = stream.client.describe_stream_consumer(ConsumerARN=made["ConsumerARN"])
        status = described["ConsumerDescription"]["ConsumerStatus"]
    assert status == "ACTIVE"
    return str(made["ConsumerARN"])


@pytest.fixture
def subscribe(make_client: Callable[[], Any], consumer: str) -> Iterator[Callable[[str], Any]]:
    """Subscribes to a shard from its oldest record on, each time with a client of its own."""
    opened = []

    def start(shard: str = FIRST) -> Any:
        answer = make_client().subscribe_to_shard(
            ConsumerARN=consumer, ShardId=shard, StartingPosition={"Type": "TRIM_HORIZON"}
        )
        opened.append(answer["EventStream"])
        return answer["EventStream"]

    yield start
    for events in opened:
        events.close()


def test_a_consumer_is_listed(stream: Stream, consumer: str) -> None:
    arn = stream.wait()["StreamARN"]
    (listed,) = stream.client.list_stream_consumers(StreamARN=arn)["Consumers"]
    assert (listed["ConsumerARN"], listed["ConsumerName"]) == (consumer, "reader")


def test_a_subscription_brings_what_is_there(stream: Stream, subscribe: Callable[..., Any]) -> None:
    stream.put(b"one", b"two")
    for event in subscribe():
        content = event["SubscribeToShardEvent"]
        if content["Records"]:
            assert [record["Data"] for record in content["Records"]] == [b"one", b"two"]
            assert content["ContinuationSequenceNumber"]
            break


def test_the_event_at_a_shards_end_names_its_children(stream: Stream, subscribe: Callable[..., Any]) -> None:
    stream.client.split_shard(StreamName=stream.name, ShardToSplit=FIRST, NewStartingHashKey=str(2**127))
    stream.wait()
    children: list[str] = []
    for event in subscribe():
        children += [child["ShardId"] for child in event["SubscribeToShardEvent"].get("ChildShards") or ()]
        if children:
            break
    assert sorted(children) == ["shardId-000000000001", "shardId-000000000002"]


def test_a_second_reader_is_refused_at_first(stream: Stream, subscribe: Callable[..., Any]) -> None:
    stream.put(b"one")
    next(iter(subscribe()))
    with pytest.raises(ClientError, match="ResourceInUse"):
        subscribe()


def test_a_shard_that_does_not_exist_is_refused(subscribe: Callable[..., Any]) -> None:
    with pytest.raises(ClientError, match="ResourceNotFound"):
        subscribe("shardId-000000000009")


def cbor_call(service: str, operation: str, fields: dict[str, Any]) -> Any:
    address = urlsplit(service)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=15)
    headers = {
        "X-Amz-Target": f"Kinesis_20131202.{operation}",
        "Content-Type": CBOR,
        "X-Amz-Date": "20260101T000000Z",
        "Authorization": (
            "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/kinesis/aws4_request, "
            "SignedHeaders=host;x-amz-date, Signature=00"
        ),
    }
    connection.request("POST", "/", cbor2.dumps(fields), headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, body
    return cbor2.loads(body, semantic_decoders={1: lambda value, immutable: value}) if body else {}


def test_bytes_survive_the_java_sdks_cbor(service: str, stream: Stream) -> None:
    data = bytes(range(256))
    key = uuid.uuid4().hex
    put = cbor_call(service, "PutRecord", {"StreamName": stream.name, "Data": data, "PartitionKey": key})
    assert put["ShardId"] == FIRST
    page = cbor_call(service, "GetRecords", {"ShardIterator": stream.iterator(FIRST)})
    assert page["Records"][0]["Data"] == data
    arrival = page["Records"][0]["ApproximateArrivalTimestamp"]
    assert isinstance(arrival, int)
    assert abs(arrival / 1000 - time.time()) < 600
    assert [record["Data"] for record in stream.read(FIRST)] == [data]
