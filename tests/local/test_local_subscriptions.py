"""SubscribeToShard as boto3 reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, EventStreamError
from botocore.exceptions import ConnectionClosedError as BotoClosed
from urllib3.exceptions import ProtocolError

from shardway.local.faults import Fault
from tests.local.rawhttp import SIGNED, Wire, request_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.local.embedded import LocalKinesis

Subscribe = Callable[[Any], Any]

FIRST = "shardId-000000000000"


@pytest.fixture
def consumer(kinesis: Any) -> str:
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    made = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="reader")
    return str(made["Consumer"]["ConsumerARN"])


@pytest.fixture
def subscribe(consumer: str) -> Iterator[Subscribe]:
    """Subscribes with a client, from the oldest record on; the event streams are closed at the end."""
    opened = []

    def start(client: Any) -> Any:
        answer = client.subscribe_to_shard(
            ConsumerARN=consumer, ShardId=FIRST, StartingPosition={"Type": "TRIM_HORIZON"}
        )
        opened.append(answer["EventStream"])
        return answer["EventStream"]

    yield start
    for stream in opened:
        stream.close()


def put(kinesis: Any, *payloads: bytes) -> None:
    records = [{"Data": payload, "PartitionKey": "k"} for payload in payloads]
    kinesis.put_records(StreamName="orders", Records=records)


def next_records(events: Any) -> list[bytes]:
    """The data of the next event that has any."""
    for event in events:
        if event["SubscribeToShardEvent"]["Records"]:
            return [record["Data"] for record in event["SubscribeToShardEvent"]["Records"]]
    raise AssertionError("the subscription ended without records")


def test_records_come_as_they_are_put(
    local: LocalKinesis, kinesis: Any, boto: Callable[..., Any], subscribe: Subscribe
) -> None:
    put(kinesis, b"first", bytes(range(256)))
    events = iter(subscribe(kinesis))
    assert next_records(events) == [b"first", bytes(range(256))]
    put(boto(), b"later")
    assert next_records(events) == [b"later"]
    assert local.stats().records("SubscribeToShard") == 3


def test_an_event_can_be_carried_on_from(kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    event = next(iter(subscribe(kinesis)))["SubscribeToShardEvent"]
    assert event["ContinuationSequenceNumber"] >= event["Records"][-1]["SequenceNumber"]
    assert event["MillisBehindLatest"] == 0


def test_a_subscription_ends_after_five_minutes(local: LocalKinesis, kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    events = iter(subscribe(kinesis))
    assert next_records(events) == [b"first"]
    local.clock.advance(301)
    assert [event for event in events if event["SubscribeToShardEvent"]["Records"]] == []


def test_a_closed_shard_names_its_children_and_ends(kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    kinesis.split_shard(StreamName="orders", ShardToSplit=FIRST, NewStartingHashKey=str(2**127))
    found = [event["SubscribeToShardEvent"] for event in subscribe(kinesis)]
    assert [record["Data"] for event in found for record in event["Records"]] == [b"first"]
    assert [child["ShardId"] for child in found[-1]["ChildShards"]] == [
        "shardId-000000000001",
        "shardId-000000000002",
    ]


@pytest.mark.parametrize("local", [{"clock_running": False}], indirect=True)
def test_a_second_reader_is_refused_first_and_takes_over_later(
    local: LocalKinesis, kinesis: Any, boto: Callable[..., Any], subscribe: Subscribe
) -> None:
    put(kinesis, b"first")
    events = iter(subscribe(kinesis))
    assert next_records(events) == [b"first"]
    other = boto()
    with pytest.raises(ClientError, match="ResourceInUse"):
        subscribe(other)
    local.clock.advance(6)
    taken_over = iter(subscribe(other))
    assert next_records(taken_over) == [b"first"]
    with pytest.raises(EventStreamError, match="ResourceInUse"):
        list(events)


def test_a_reader_that_is_gone_lets_another_in(
    local: LocalKinesis, kinesis: Any, boto: Callable[..., Any], subscribe: Subscribe
) -> None:
    put(kinesis, b"first")
    events = subscribe(kinesis)
    assert next_records(iter(events)) == [b"first"]
    events.close()
    local.clock.advance(6)
    assert next_records(iter(subscribe(boto()))) == [b"first"]


def test_a_wrong_request_is_refused_before_the_stream(kinesis: Any, consumer: str) -> None:
    with pytest.raises(ClientError, match="ResourceNotFound"):
        kinesis.subscribe_to_shard(
            ConsumerARN=consumer, ShardId="shardId-000000000007", StartingPosition={"Type": "LATEST"}
        )


def test_a_slow_reader_gets_all_of_it(kinesis: Any, boto: Callable[..., Any], subscribe: Subscribe) -> None:
    events = iter(subscribe(kinesis))
    writer, payload = boto(), b"x" * 100_000
    for _ in range(20):
        put(writer, payload, payload, payload, payload, payload)
    found = 0
    while found < 100:
        found += len(next_records(events))
    assert found == 100


def test_the_connection_breaks_between_two_events(local: LocalKinesis, kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    local.faults.add(Fault(how="reset", operation="SubscribeToShardEvent", shard=FIRST, skip=1))
    events = iter(subscribe(kinesis))
    assert next_records(events) == [b"first"]
    local.clock.advance(10)  # an idle shard's event is due
    with pytest.raises((ProtocolError, BotoClosed, ConnectionError)):
        next_records(events)


def test_an_event_is_cut_off(local: LocalKinesis, kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    local.faults.add(Fault(how="truncate", operation="SubscribeToShardEvent"))
    with pytest.raises((ProtocolError, BotoClosed, ConnectionError)):
        next_records(iter(subscribe(kinesis)))


def test_an_error_comes_in_place_of_an_event(local: LocalKinesis, kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    local.faults.add(Fault(how="server_error", operation="SubscribeToShardEvent", delay_s=0.01))
    with pytest.raises(EventStreamError, match="InternalFailureException"):
        next_records(iter(subscribe(kinesis)))


def test_a_delayed_event_arrives(local: LocalKinesis, kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    order = local.faults.add(Fault(how="delay", operation="SubscribeToShardEvent", delay_s=0.01))
    assert next_records(iter(subscribe(kinesis))) == [b"first"]
    assert order.hits == 1


def test_a_lost_subscription_is_let_go(
    local: LocalKinesis, kinesis: Any, boto: Callable[..., Any], subscribe: Subscribe
) -> None:
    put(kinesis, b"first")
    local.faults.add(Fault(how="lost_reply", operation="SubscribeToShard", count=1))
    with pytest.raises(BotoClosed):
        subscribe(kinesis)
    local.clock.advance(6)
    assert next_records(iter(subscribe(boto()))) == [b"first"]


def test_a_reset_ends_it(local: LocalKinesis, kinesis: Any, subscribe: Subscribe) -> None:
    put(kinesis, b"first")
    events = iter(subscribe(kinesis))
    assert next_records(events) == [b"first"]
    local.reset()
    assert [event for event in events if event["SubscribeToShardEvent"]["Records"]] == []


def test_a_subscriber_that_speaks_cbor_gets_cbor(local: LocalKinesis, kinesis: Any, consumer: str) -> None:
    data = bytes(range(256))
    put(kinesis, data)
    media = "application/x-amz-cbor-1.1"
    fields = {"ConsumerARN": consumer, "ShardId": FIRST, "StartingPosition": {"Type": "TRIM_HORIZON"}}
    headers = {"X-Amz-Target": "Kinesis_20131202.SubscribeToShard", "Content-Type": media} | SIGNED
    frames: list[Any] = []
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        reply = wire.call(request_bytes(cbor2.dumps(fields), headers=headers))
        assert reply.headers["content-type"] == "application/vnd.amazon.eventstream"
        buffer = EventStreamBuffer()
        while len(frames) < 2:
            size = int(wire._file.readline(), 16)
            buffer.add_data(wire._file.read(size))
            wire._file.readline()
            frames += list(buffer)
    assert {frame.headers[":content-type"] for frame in frames} == {media}
    assert frames[0].headers[":event-type"] == "initial-response"
    content = cbor2.loads(frames[1].payload, semantic_decoders={1: lambda value, immutable: value})
    assert content["Records"][0]["Data"] == data
    assert isinstance(content["Records"][0]["ApproximateArrivalTimestamp"], int)
