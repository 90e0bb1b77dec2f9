"""Retention: what is trimmed, and what a reader sees of it."""

from __future__ import annotations

import pytest

from tests.local.model_kit import START_S, World, shard_id

HOUR = 3_600.0


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    return made


def hourly(world: World, hours: int) -> list[str]:
    """One record each hour; their sequence numbers. The clock stands an hour after the last."""
    numbers = []
    for hour in range(hours):
        numbers.append(world.put(b"%d" % hour)["SequenceNumber"])
        world.advance(HOUR)
    return numbers


def test_records_are_kept_for_the_retention_period_to_the_millisecond(world: World) -> None:
    world.put(b"old")
    world.advance(24 * HOUR)
    assert world.read() == [b"old"]
    world.advance(0.001)
    assert world.read() == []


def test_trim_horizon_and_earlier_times_begin_with_the_oldest_record(world: World) -> None:
    hourly(world, 30)
    kept = [b"%d" % hour for hour in range(6, 30)]
    assert world.read("TRIM_HORIZON") == kept
    assert world.read("AT_TIMESTAMP", Timestamp=START_S) == kept
    assert world.read("AT_TIMESTAMP", Timestamp=START_S + 6 * HOUR) == kept
    assert world.read("AT_TIMESTAMP", Timestamp=START_S + 6 * HOUR + 1) == kept[1:]


def test_an_expired_sequence_number_finds_nothing_for_ever_and_says_no_error(world: World) -> None:
    numbers = hourly(world, 30)
    assert len(world.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[6])) == 24
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        iterator = world.iterator(kind, StartingSequenceNumber=numbers[5])
        for _ in range(4):
            page = world.get(iterator)
            assert page["Records"] == []
            assert page["MillisBehindLatest"] > 24 * HOUR * 1000
            assert page["NextShardIterator"] not in ("", iterator)
            iterator = page["NextShardIterator"]
            world.advance(60)


def test_the_last_trimmed_number_is_expired_though_the_record_after_it_is_kept(world: World) -> None:
    numbers = hourly(world, 30)
    page = world.get(world.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[5]))
    assert page["Records"] == []
    assert page["MillisBehindLatest"] > 0


def test_the_starting_number_of_a_shard_expires_with_its_time(world: World) -> None:
    starting = world.shards()[0]["SequenceNumberRange"]["StartingSequenceNumber"]
    assert world.get(world.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=starting))["MillisBehindLatest"] == 0
    world.advance(25 * HOUR)
    world.put(b"new")
    page = world.get(world.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=starting))
    assert page["Records"] == []
    assert page["MillisBehindLatest"] > 24 * HOUR * 1000


def test_a_reader_at_the_tip_of_a_silent_shard_misses_nothing(world: World) -> None:
    number = world.put(b"before")["SequenceNumber"]
    iterator = world.iterator()
    for _ in range(30 * 15):
        iterator = world.get(iterator)["NextShardIterator"]
        world.advance(240)
    world.put(b"after")
    page = world.get(iterator)
    assert len(page["Records"]) == 1
    assert world.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number) == []


def test_a_reader_that_is_overtaken_goes_on_with_the_oldest_record(world: World) -> None:
    for i in range(6):
        world.put(b"%d" % i)
        world.advance(60)
    world.advance(24 * HOUR - 360)
    page = world.get(world.iterator(), Limit=1)
    world.advance(90)
    (record,) = world.get(page["NextShardIterator"], Limit=1)["Records"]
    assert record["ApproximateArrivalTimestamp"] == START_S + 120


def test_a_closed_shard_goes_when_its_closing_is_past_the_horizon(world: World) -> None:
    world.put(b"x")
    world.advance(10 * HOUR)
    world.split()
    assert world.ids() == [0, 1, 2]
    world.advance(24 * HOUR)
    assert world.ids() == [0, 1, 2]
    world.advance(0.001)
    assert world.ids() == [1, 2]
    for child in world.shards():
        assert child["ParentShardId"] == shard_id(0), "children still name a parent that is gone"
    message = "Shard shardId-000000000000 in stream s under account 000000000000 does not exist"
    assert world.fails("GetShardIterator", StreamName="s", ShardId="0", ShardIteratorType="LATEST").message == message
    described = world.call("DescribeStream", StreamName="s")["StreamDescription"]
    assert [shard["ShardId"] for shard in described["Shards"]] == [shard_id(1), shard_id(2)]


def test_a_closed_shard_with_trimmed_records_only_still_ends(world: World) -> None:
    world.put(b"x")
    world.advance(23 * HOUR)
    world.split()
    world.advance(2 * HOUR)
    end = world.get(world.iterator())
    while end["MillisBehindLatest"]:
        assert end["Records"] == []
        end = world.get(end["NextShardIterator"])
    assert len(end["ChildShards"]) == 2


def test_a_longer_retention_keeps_what_is_left_and_brings_nothing_back(world: World) -> None:
    hourly(world, 30)
    world.call("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)
    assert len(world.read()) == 24
    world.advance(20 * HOUR)
    assert len(world.read()) == 24, "50 hours after the first and 26 after the last, less than 48 after the oldest"
    world.advance(10 * HOUR)
    assert len(world.read()) == 18


def test_a_shorter_retention_trims_at_once(world: World) -> None:
    world.call("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)
    hourly(world, 40)
    assert len(world.read()) == 40
    world.call("DecreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=24)
    assert len(world.read()) == 24
    world.call("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)
    assert len(world.read()) == 24


def test_memory_follows_the_retention(world: World) -> None:
    log = world.model.state.streams["s"].shards[0].log
    for _ in range(60):
        world.put_many([(bytes(100), "k")] * 50)
        world.advance(HOUR)
        world.read()
    assert log.end == 3_000
    assert log.end - log.first == 24 * 50
    assert sum(map(len, log._texts)) < 24 * 50 * 400


@pytest.mark.parametrize(
    ("operation", "hours", "message"),
    [
        (
            "Increase",
            23,
            "Minimum allowed retention period is 24 hours. Requested retention period (23 hours) is too short.",
        ),
        (
            "Decrease",
            23,
            "Minimum allowed retention period is 24 hours. Requested retention period (23 hours) is too short.",
        ),
        (
            "Increase",
            8761,
            "Maximum allowed retention period is 8760 hours. Requested retention period (8761 hours) is too long.",
        ),
        (
            "Increase",
            25,
            "Requested retention period (25 hours) for stream s can not be shorter than existing retention period "
            "(26 hours). Use DecreaseRetentionPeriod API.",
        ),
        (
            "Decrease",
            27,
            "Requested retention period (27 hours) for stream s can not be longer than existing retention period "
            "(26 hours). Use IncreaseRetentionPeriod API.",
        ),
    ],
)
def test_what_retention_cannot_be(world: World, operation: str, hours: int, message: str) -> None:
    world.call("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=26)
    fault = world.fails(f"{operation}StreamRetentionPeriod", StreamName="s", RetentionPeriodHours=hours)
    assert (fault.code, fault.message) == ("InvalidArgumentException", message)
    world.call(f"{operation}StreamRetentionPeriod", StreamName="s", RetentionPeriodHours=26)
    assert world.summary()["RetentionPeriodHours"] == 26
