"""Registered consumers and SubscribeToShard."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shardway.local.model import Limits, ModelError, Subscription
from tests.local.model_kit import START_S, World, shard_id

EVENT = "SubscribeToShardEvent"
IN_USE = "Another active subscription exists for this consumer: 000000000000:s:shardId-000000000000:c"


class Fan:
    """A stream with a consumer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stream_arn = world.create()
        world.advance(world.model.stream_settle_s)
        made = world.call("RegisterStreamConsumer", StreamARN=self.stream_arn, ConsumerName="c")["Consumer"]
        world.advance(world.model.stream_settle_s)
        self.arn = made["ConsumerARN"]

    def subscribe(self, kind: str = "TRIM_HORIZON", shard: int = 0, **position: Any) -> Subscription:
        request = {"ConsumerARN": self.arn, "ShardId": shard_id(shard), "StartingPosition": {"Type": kind, **position}}
        return self.world.model.subscribe(json.dumps(request).encode())

    def refused(self, **request: Any) -> ModelError:
        with pytest.raises(ModelError) as caught:
            self.subscribe(**request)
        return caught.value


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def fan(world: World) -> Fan:
    return Fan(world)


def events(subscription: Subscription) -> list[Any]:
    """The events that are due, as JSON; nothing but events."""
    found = []
    for name, payload in subscription.poll():
        assert name == EVENT
        found.append(json.loads(payload))
    return found


def data(found: list[Any]) -> list[bytes]:
    return [base64.b64decode(record["Data"]) for event in found for record in event["Records"]]


# --- registering ----------------------------------------------------------------------------------


def test_a_consumer_is_registered_described_listed_and_deregistered(world: World, fan: Fan) -> None:
    consumer = {
        "ConsumerName": "c",
        "ConsumerARN": f"{fan.stream_arn}/consumer/c:{int(START_S)}",
        "ConsumerStatus": "ACTIVE",
        "ConsumerCreationTimestamp": int(START_S),
    }
    described = consumer | {"StreamARN": fan.stream_arn}
    for names in (
        {"ConsumerARN": fan.arn},
        {"StreamARN": fan.stream_arn, "ConsumerName": "c"},
        {"StreamARN": fan.stream_arn, "ConsumerName": "c", "ConsumerARN": fan.arn},
    ):
        assert world.call("DescribeStreamConsumer", **names)["ConsumerDescription"] == described
    assert world.call("ListStreamConsumers", StreamARN=fan.stream_arn) == {"Consumers": [consumer]}
    assert world.summary()["ConsumerCount"] == 1
    assert world.model.handle("DeregisterStreamConsumer", json.dumps({"ConsumerARN": fan.arn}).encode()) == b""
    assert world.call("ListStreamConsumers", StreamARN=fan.stream_arn) == {"Consumers": []}
    fault = world.fails("DescribeStreamConsumer", ConsumerARN=fan.arn)
    assert (fault.code, fault.message) == (
        "ResourceNotFoundException",
        f"Consumer {fan.arn}, account 000000000000 not found.",
    )


def test_a_consumer_registered_again_is_another(world: World, fan: Fan) -> None:
    request = {"StreamARN": fan.stream_arn, "ConsumerName": "c"}
    assert world.fails("RegisterStreamConsumer", **request).code == "ResourceInUseException"
    world.call("DeregisterStreamConsumer", **request)
    again = world.call("RegisterStreamConsumer", **request)["Consumer"]
    assert again["ConsumerARN"] != fan.arn
    assert world.fails("DescribeStreamConsumer", ConsumerARN=fan.arn).code == "ResourceNotFoundException"


def test_a_consumer_is_creating_first_and_deleting_last() -> None:
    world = World(settle_s=10)
    arn = world.create()
    fault = world.fails("RegisterStreamConsumer", StreamARN=arn, ConsumerName="c")
    assert fault.code == "ResourceInUseException"
    world.advance(10)
    made = world.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="c")["Consumer"]
    assert made["ConsumerStatus"] == "CREATING"
    position = {"Type": "LATEST"}
    body = {"ConsumerARN": made["ConsumerARN"], "ShardId": "shardId-0", "StartingPosition": position}
    with pytest.raises(ModelError) as caught:
        world.model.subscribe(json.dumps(body).encode())
    assert caught.value.message == (
        f"Consumer c with creation timestamp {int(START_S) + 10} under stream: s , "
        "account 000000000000 is not in ACTIVE status."
    )
    world.advance(10)
    described = world.call("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"])["ConsumerDescription"]
    assert described["ConsumerStatus"] == "ACTIVE"
    world.call("DeregisterStreamConsumer", ConsumerARN=made["ConsumerARN"])
    described = world.call("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"])["ConsumerDescription"]
    assert described["ConsumerStatus"] == "DELETING"
    assert world.fails("RegisterStreamConsumer", StreamARN=arn, ConsumerName="c").code == "ResourceInUseException"
    world.advance(10)
    assert world.call("ListStreamConsumers", StreamARN=arn)["Consumers"] == []


def test_twenty_consumers_and_five_being_made() -> None:
    world = World(settle_s=10)
    arn = world.create()
    world.advance(10)
    for i in range(20):
        if i % 5 == 0:
            world.advance(10)
        world.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName=f"c{i}")
        if i % 5 == 4 and i < 19:
            fault = world.fails("RegisterStreamConsumer", StreamARN=arn, ConsumerName="more")
            assert "5 consumers in CREATING status" in str(fault.message)
    world.advance(10)
    fault = world.fails("RegisterStreamConsumer", StreamARN=arn, ConsumerName="more")
    assert fault.code == "LimitExceededException"
    assert "the limit is 20" in str(fault.message)


def test_pages_of_consumers(world: World) -> None:
    arn = world.create()
    for i in range(7):
        world.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName=f"c{i}")
    first = world.call("ListStreamConsumers", StreamARN=arn, MaxResults=5)
    assert [c["ConsumerName"] for c in first["Consumers"]] == [f"c{i}" for i in range(5)]
    second = world.call("ListStreamConsumers", StreamARN=arn, NextToken=first["NextToken"])
    assert [c["ConsumerName"] for c in second["Consumers"]] == ["c5", "c6"]
    assert "NextToken" not in second
    other = world.create("other")
    fault = world.fails("ListStreamConsumers", StreamARN=other, NextToken=first["NextToken"])
    assert fault.code == "InvalidArgumentException"


def test_consumers_that_are_named_badly(world: World, fan: Fan) -> None:
    assert world.fails("DescribeStreamConsumer").code == "InvalidArgumentException"
    assert world.fails("DescribeStreamConsumer", StreamARN=fan.stream_arn).code == "InvalidArgumentException"
    fault = world.fails("DescribeStreamConsumer", ConsumerARN=fan.arn, ConsumerName="d")
    assert fault.code == "InvalidArgumentException"
    fault = world.fails("DescribeStreamConsumer", StreamARN=fan.stream_arn, ConsumerName="d")
    assert fault.code == "ResourceNotFoundException"
    fault = world.fails("RegisterStreamConsumer", StreamARN=fan.stream_arn, ConsumerName="a b")
    assert fault.code == "ValidationException"


# --- SubscribeToShard -----------------------------------------------------------------------------


def test_records_come_as_they_are_put(world: World, fan: Fan) -> None:
    woken: list[int] = []
    world.put(b"0")
    subscription = fan.subscribe()
    subscription.wakes(lambda: woken.append(1))
    (event,) = events(subscription)
    assert data([event]) == [b"0"]
    assert event["MillisBehindLatest"] == 0
    assert event["ContinuationSequenceNumber"] == event["Records"][-1]["SequenceNumber"]
    assert "ChildShards" not in event
    assert events(subscription) == []
    for i in range(1, 4):
        number = world.put(b"%d" % i)["SequenceNumber"]
    assert len(woken) == 3
    (event,) = events(subscription)
    assert data([event]) == [b"1", b"2", b"3"]
    assert event["ContinuationSequenceNumber"] == number


def test_all_starting_positions(world: World, fan: Fan) -> None:
    numbers = []
    for i in range(3):
        numbers.append(world.put(b"%d" % i)["SequenceNumber"])
        world.advance(1)

    def read(kind: str, **position: Any) -> list[bytes]:
        world.advance(5)
        return data(events(fan.subscribe(kind, **position)))

    assert read("TRIM_HORIZON") == [b"0", b"1", b"2"]
    assert read("LATEST") == []
    assert read("AT_SEQUENCE_NUMBER", SequenceNumber=numbers[1]) == [b"1", b"2"]
    assert read("AFTER_SEQUENCE_NUMBER", SequenceNumber=numbers[1]) == [b"2"]
    assert read("AT_TIMESTAMP", Timestamp=START_S + 1) == [b"1", b"2"]
    world.advance(5)
    assert fan.refused(kind="AT_SEQUENCE_NUMBER").code == "InvalidArgumentException"
    assert fan.refused(kind="AT_TIMESTAMP", Timestamp=world.now + 1).code == "InvalidArgumentException"
    assert fan.refused(kind="OTHER").code == "ValidationException"


def test_an_empty_event_every_five_seconds_keeps_the_place(world: World, fan: Fan) -> None:
    world.create("noise")
    subscription = fan.subscribe("LATEST")
    world.advance(4.9)
    assert events(subscription) == []
    world.advance(0.1)
    (event,) = events(subscription)
    assert (event["Records"], event["MillisBehindLatest"]) == ([], 0)
    assert events(subscription) == []
    place = event["ContinuationSequenceNumber"]
    world.put(b"later")
    world.advance(5)
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert data(events(fan.subscribe(kind, SequenceNumber=place))) == [b"later"]
        world.advance(5)


def test_the_place_of_an_empty_event_lies_behind_the_last_record(world: World, fan: Fan) -> None:
    world.put(b"before")
    subscription = fan.subscribe()
    assert data(events(subscription)) == [b"before"]
    world.advance(5)
    (event,) = events(subscription)
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert data(events(fan.subscribe(kind, SequenceNumber=event["ContinuationSequenceNumber"]))) == []
        world.advance(5)


def test_an_event_carries_a_mebibyte_but_any_one_record(world: World, fan: Fan) -> None:
    world.call("UpdateMaxRecordSize", StreamARN=fan.stream_arn, MaxRecordSizeInKiB=10_240)
    world.put(bytes(9_000_000))
    for _ in range(8):
        world.put(bytes(300_000))
    found = events(fan.subscribe())
    assert [len(event["Records"]) for event in found] == [1, 3, 3, 2]
    assert found[-1]["MillisBehindLatest"] == 0
    assert all(event["MillisBehindLatest"] > 0 for event in found[:-1])


def test_a_long_backlog_comes_in_several_polls_that_ask_for_more(world: World, fan: Fan) -> None:
    for _ in range(20):
        world.put(bytes(800_000))
    subscription = fan.subscribe()
    woken: list[int] = []
    subscription.wakes(lambda: woken.append(1))
    assert len(events(subscription)) == 8
    assert woken
    assert len(events(subscription)) == 8
    woken.clear()
    assert len(events(subscription)) == 4
    assert not woken


def test_it_ends_after_five_minutes(world: World, fan: Fan) -> None:
    subscription = fan.subscribe()
    world.advance(299.9)
    world.put(b"in time")
    assert data(events(subscription)) == [b"in time"]
    world.put(b"too late")
    world.advance(0.1)
    assert events(subscription) == []
    assert subscription.closed


def test_it_ends_with_the_shard_and_names_the_children(world: World, fan: Fan) -> None:
    world.put(b"last")
    subscription = fan.subscribe()
    woken: list[int] = []
    subscription.wakes(lambda: woken.append(1))
    world.split()
    assert woken
    record, end = events(subscription)
    assert data([record]) == [b"last"]
    assert "ContinuationSequenceNumber" not in end
    assert [child["ShardId"] for child in end["ChildShards"]] == [shard_id(1), shard_id(2)]
    assert subscription.closed
    assert events(subscription) == []


def test_within_five_seconds_a_second_call_is_refused_and_later_it_takes_over(world: World, fan: Fan) -> None:
    first = fan.subscribe()
    woken: list[int] = []
    first.wakes(lambda: woken.append(1))
    world.advance(4.999)
    fault = fan.refused()
    assert (fault.code, fault.message) == ("ResourceInUseException", IN_USE)
    world.put(b"x")
    assert data(events(first)) == [b"x"]
    world.advance(0.001)
    woken.clear()
    second = fan.subscribe()
    assert woken
    ((name, payload),) = first.poll()
    assert (name, json.loads(payload)) == ("ResourceInUseException", {"message": IN_USE})
    assert first.closed
    assert data(events(second)) == [b"x"]
    assert not second.closed


def test_a_client_that_left_must_wait_too(world: World, fan: Fan) -> None:
    fan.subscribe().close()
    assert fan.refused().code == "ResourceInUseException"
    world.advance(5)
    assert not fan.subscribe().closed


def test_other_shards_and_other_consumers_do_not_matter(world: World, fan: Fan) -> None:
    world.call("UpdateShardCount", StreamName="s", TargetShardCount=2, ScalingType="UNIFORM_SCALING")
    other = world.call("RegisterStreamConsumer", StreamARN=fan.stream_arn, ConsumerName="d")["Consumer"]
    assert not fan.subscribe(shard=1).closed
    assert not fan.subscribe(shard=2).closed
    fan.arn = other["ConsumerARN"]
    assert not fan.subscribe(shard=1).closed


def test_it_fails_when_its_stream_or_its_consumer_goes(world: World, fan: Fan) -> None:
    subscription = fan.subscribe()
    woken: list[int] = []
    subscription.wakes(lambda: woken.append(1))
    world.call("DeregisterStreamConsumer", ConsumerARN=fan.arn)
    assert woken
    ((name, _),) = subscription.poll()
    assert name == "ResourceNotFoundException"
    world.call("DeleteStream", StreamName="s")
    subscription = Fan(world).subscribe()
    subscription.wakes(lambda: woken.append(1))
    woken.clear()
    world.call("DeleteStream", StreamName="s", EnforceConsumerDeletion=True)
    assert woken
    ((name, _),) = subscription.poll()
    assert name == "ResourceNotFoundException"
    assert subscription.closed


def test_at_an_expired_number_empty_events_come_far_behind(world: World, fan: Fan) -> None:
    number = world.put(b"old")["SequenceNumber"]
    world.advance(25 * 3_600)
    world.put(b"new")
    subscription = fan.subscribe("AT_SEQUENCE_NUMBER", SequenceNumber=number)
    for _ in range(3):
        world.advance(5)
        (event,) = events(subscription)
        assert event["Records"] == []
        assert event["ContinuationSequenceNumber"] == number
        assert event["MillisBehindLatest"] > 24 * 3_600_000


def test_unknown_shards_and_consumers(world: World, fan: Fan) -> None:
    assert fan.refused(shard=7).message == (
        "Shard shardId-000000000007 in stream s under account 000000000000 does not exist"
    )
    fan.arn = f"{fan.stream_arn}/consumer/none:1"
    assert fan.refused().code == "ResourceNotFoundException"
    with pytest.raises(ModelError) as caught:
        world.model.subscribe(b"{}")
    assert str(caught.value.message).startswith("3 validation errors detected: ")


def test_a_dry_run_opens_nothing(world: World, fan: Fan) -> None:
    body = {"ConsumerARN": fan.arn, "ShardId": "0", "StartingPosition": {"Type": "LATEST"}, "DryRun": True}
    with pytest.raises(ModelError) as caught:
        world.model.subscribe(json.dumps(body).encode())
    assert caught.value.code == "DryRunOperationException"
    assert not fan.subscribe().closed


def test_nothing_is_left_of_closed_subscriptions(world: World, fan: Fan) -> None:
    shard = world.model.state.streams["s"].shards[0]
    for _ in range(20):
        fan.subscribe().close()
        world.advance(5)
    assert shard.watchers == []
    assert len(world.model.subscriptions._last_subscriptions) == 1


def test_limits_of_fan_out() -> None:
    world = World(limits=Limits(per_shard=True, put_bytes_per_s=1e9))
    fan = Fan(world)
    for _ in range(8):
        world.put(bytes(1_000_000))
    subscription = fan.subscribe()
    first = len(data(events(subscription)))
    assert first == 3, "two mebibytes at once, and a record more on credit"
    world.advance(2)
    assert 3 <= len(data(events(subscription))) <= 5


def test_one_call_a_second_for_a_consumer_and_a_shard() -> None:
    world = World(limits=Limits(api=True))
    fan = Fan(world)
    fan.subscribe()
    assert fan.refused().code == "LimitExceededException"
    world.advance(1)
    assert fan.refused().code == "ResourceInUseException"
