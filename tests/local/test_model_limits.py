"""Limits that are switched on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local.model import Limits
from shardway.local.model.limits import METERS_MAX, Meter, Meters
from tests.local.model_kit import World

MIB = 1024 * 1024
RATE = "Rate exceeded for shard shardId-000000000000 in stream s under account 000000000000."
THROTTLED = "ProvisionedThroughputExceededException"


@pytest.fixture
def world() -> World:
    made = World(limits=Limits(per_shard=True))
    made.create()
    return made


# --- writing --------------------------------------------------------------------------------------


def test_a_thousand_records_a_second_and_the_rest_fails_one_by_one(world: World) -> None:
    assert world.put_many([(b"x", "k")] * 500)["FailedRecordCount"] == 0
    assert world.put_many([(b"x", "k")] * 400)["FailedRecordCount"] == 0
    answer = world.put_many([(b"x", "k")] * 300)
    assert answer["FailedRecordCount"] == 200
    assert ["SequenceNumber" in record for record in answer["Records"]] == [True] * 100 + [False] * 200
    assert answer["Records"][-1] == {"ErrorCode": THROTTLED, "ErrorMessage": RATE}
    assert world.model.moved == 100
    fault = world.fails("PutRecord", StreamName="s", Data="", PartitionKey="k")
    assert (fault.code, fault.message) == (THROTTLED, RATE)
    world.advance(0.5)
    assert world.put_many([(b"x", "k")] * 500)["FailedRecordCount"] == 0
    assert len(world.read()) == 1_500


def test_a_mebibyte_a_second_of_data_and_keys(world: World) -> None:
    answer = world.put_many([(bytes(300_000), "key")] * 5)
    assert ["ErrorCode" in record for record in answer["Records"]] == [False, False, False, True, True]
    world.advance(1)
    assert world.put_many([(bytes(300_000), "key")] * 3)["FailedRecordCount"] == 0


def test_a_small_record_passes_where_a_large_one_does_not(world: World) -> None:
    answer = world.put_many([(bytes(900_000), "k"), (bytes(900_000), "k"), (b"x", "k")])
    assert ["ErrorCode" in record for record in answer["Records"]] == [False, True, False]


def test_a_large_record_is_let_in_and_paid_for_afterwards(world: World) -> None:
    arn = world.summary()["StreamARN"]
    world.call("UpdateMaxRecordSize", StreamARN=arn, MaxRecordSizeInKiB=10_240)
    world.put(bytes(5 * MIB))
    for _ in range(4):
        world.advance(1)
        assert world.put_many([(b"x", "k")])["FailedRecordCount"] == 1
    world.advance(0.1)
    world.put(b"x")


def test_shards_are_limited_each_by_itself() -> None:
    world = World(limits=Limits(per_shard=True))
    world.create(shards=2)
    keys = [str(i) for i in range(400)]
    for _ in range(3):
        assert world.put_many([(b"x", key) for key in keys])["FailedRecordCount"] == 0
    assert world.put_many([(b"x", "one key")] * 450)["FailedRecordCount"] > 0


# --- reading --------------------------------------------------------------------------------------


def test_five_get_records_a_second(world: World) -> None:
    iterator = world.iterator()
    for _ in range(5):
        world.get(iterator)
    fault = world.fails("GetRecords", ShardIterator=iterator)
    assert (fault.code, fault.message) == (THROTTLED, RATE)
    world.advance(0.2)
    world.get(iterator)


def test_five_iterators_a_second(world: World) -> None:
    for _ in range(5):
        world.iterator()
    fault = world.fails("GetShardIterator", StreamName="s", ShardId="0", ShardIteratorType="LATEST")
    assert (fault.code, fault.message) == (THROTTLED, RATE)
    world.advance(1)
    world.iterator()


def test_ten_mebibytes_at_once_and_then_five_seconds_of_nothing(world: World) -> None:
    world.model.limits = Limits()
    for _ in range(12):
        world.put(bytes(MIB - 1), "k")
    world.model.limits = Limits(per_shard=True)
    iterator = world.iterator()
    page = world.get(iterator)
    assert len(page["Records"]) == 10
    for _ in range(4):
        world.advance(1.2)
        assert world.fails("GetRecords", ShardIterator=page["NextShardIterator"]).code == THROTTLED
    world.advance(0.2)
    assert len(world.get(page["NextShardIterator"])["Records"]) == 2


def test_two_mebibytes_a_second_in_small_pages(world: World) -> None:
    world.model.limits = Limits()
    for _ in range(60):
        world.put(bytes(250_000))
    world.model.limits = Limits(per_shard=True)
    iterator = world.iterator()
    records = 0
    for _ in range(25):
        page = world.get(iterator, Limit=1)
        records += len(page["Records"])
        iterator = page["NextShardIterator"]
        world.advance(0.2)
    assert records == 25, "1.25 MB a second pass"


# --- the control plane ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "request_", "per_second", "said"),
    [
        ("DescribeLimits", {}, 1, "Rate exceeded for account 000000000000."),
        ("DescribeStreamSummary", {"StreamName": "s"}, 20, "Rate exceeded for account 000000000000."),
        ("DescribeStream", {"StreamName": "s"}, 10, "Rate exceeded for account 000000000000."),
        ("ListStreams", {}, 5, "Rate exceeded for account 000000000000."),
        ("ListShards", {"StreamName": "s"}, 1_000, "Rate exceeded for stream s under account 000000000000."),
    ],
)
def test_calls_per_second(operation: str, request_: dict[str, str], per_second: int, said: str) -> None:
    world = World(limits=Limits(api=True))
    world.create("s")
    world.advance(2)
    for _ in range(per_second):
        world.call(operation, **request_)
    fault = world.fails(operation, **request_)
    assert (fault.code, fault.message) == ("LimitExceededException", said)
    world.advance(1 / per_second + 0.001)
    world.call(operation, **request_)


def test_limits_are_off_unless_asked_for_and_can_be_changed() -> None:
    world = World()
    world.create()
    for _ in range(30):
        world.get(world.iterator())
    world.model.limits.per_shard = True
    world.model.limits.get_calls_per_s = 2
    iterator = world.iterator()
    for _ in range(2):
        world.get(iterator)
    assert world.fails("GetRecords", ShardIterator=iterator).code == THROTTLED


# --- the meter ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    rate=st.floats(0.5, 1_000),
    calls=st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 5_000)), min_size=1, max_size=60),
)
def test_a_meter_never_lets_more_through_than_rate_times_time_and_one_burst(
    rate: float, calls: list[tuple[float, float]]
) -> None:
    now = 100.0
    meter = Meter(rate, now)
    taken = 0.0
    for wait, amount in calls:
        now += wait
        if meter.allows(amount, now):
            assert taken + min(amount, rate) <= (now - 100.0) * rate + rate + 1e-6
            meter.take(amount, now)
            taken += amount


def test_idle_meters_are_forgotten() -> None:
    now = [0.0]
    meters = Meters(Limits(), lambda: now[0])
    for i in range(METERS_MAX):
        meters.take_if_allowed((i,), 5)
    now[0] = 10
    meters.take_if_allowed(("one more",), 5)
    assert len(meters._meters) == 1
