"""GetShardIterator and GetRecords, without retention."""

from __future__ import annotations

import base64
import re

import pytest

from tests.local.model_kit import START_S, World, shard_id

MIB = 1024 * 1024
BOTH_OR_NONE = (
    "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and StartingSequenceNumber or "
    "(2) TRIM_HORIZON or LATEST and no StartingSequenceNumber. "
)


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    return made


def test_all_iterator_types(world: World) -> None:
    numbers = []
    for i in range(5):
        numbers.append(world.put(b"%d" % i)["SequenceNumber"])
        world.advance(1)
    assert world.read("TRIM_HORIZON") == [b"0", b"1", b"2", b"3", b"4"]
    assert world.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[2]) == [b"2", b"3", b"4"]
    assert world.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[2]) == [b"3", b"4"]
    assert world.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[4]) == []
    assert world.read("AT_TIMESTAMP", Timestamp=START_S + 2) == [b"2", b"3", b"4"]
    assert world.read("AT_TIMESTAMP", Timestamp=START_S + 2.001) == [b"3", b"4"]
    assert world.read("AT_TIMESTAMP", Timestamp=START_S - 1000) == [b"0", b"1", b"2", b"3", b"4"]
    latest = world.iterator("LATEST")
    tip = world.iterator("AT_TIMESTAMP", Timestamp=START_S + 4.5)
    world.put(b"5")
    for iterator in (latest, tip):
        (record,) = world.get(iterator)["Records"]
        assert base64.b64decode(record["Data"]) == b"5"


def test_a_number_that_no_record_carries_stands_between_two(world: World) -> None:
    shard = world.shards()[0]["SequenceNumberRange"]["StartingSequenceNumber"]
    one, two = (int(world.put(data)["SequenceNumber"]) for data in (b"1", b"2"))
    assert world.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=shard) == [b"1", b"2"]
    assert world.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=shard) == [b"1", b"2"]
    later_second = one + (1 << 36)
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert world.read(kind, StartingSequenceNumber=str(later_second)) == [b"2"]
        assert world.read(kind, StartingSequenceNumber=str(one - (1 << 36))) == [b"1", b"2"]
        assert world.read(kind, StartingSequenceNumber=str(two + (1 << 80))) == []


def test_reading_by_sequence_number_starts_where_it_says_for_every_record(world: World) -> None:
    numbers = []
    for batch in range(6):
        numbers += [r["SequenceNumber"] for r in world.put_many([(b"%d" % batch, "k")] * (batch + 1))["Records"]]
        world.advance(0.4)
    whole = [r["SequenceNumber"] for r in world.get(world.iterator())["Records"]]
    assert whole == numbers
    for place, number in enumerate(numbers):
        at = world.get(world.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=number))
        assert [r["SequenceNumber"] for r in at["Records"]] == numbers[place:]
        after = world.get(world.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number), Limit=2)
        assert [r["SequenceNumber"] for r in after["Records"]] == numbers[place + 1 : place + 3]


def test_pages_are_limited_in_records(world: World) -> None:
    for _ in range(21):
        world.put_many([(b"x", "k")] * 500)
    page = world.get(world.iterator())
    assert len(page["Records"]) == 10_000
    assert page["MillisBehindLatest"] > 0, "the clock stands still, and yet there is more"
    rest = world.get(page["NextShardIterator"])
    assert (len(rest["Records"]), rest["MillisBehindLatest"]) == (500, 0)
    assert len(world.get(world.iterator(), Limit=7)["Records"]) == 7


def test_pages_are_limited_in_bytes_of_data_and_keys(world: World) -> None:
    for _ in range(12):
        world.put(bytes(MIB - 1), "k")
    sizes: list[int] = []
    iterator = world.iterator()
    while not sizes or sizes[-1]:
        page = world.get(iterator)
        sizes.append(len(page["Records"]))
        iterator = page["NextShardIterator"]
    assert sizes == [10, 2, 0]


def test_a_record_of_ten_mebibytes_is_a_page(world: World) -> None:
    world.call("UpdateMaxRecordSize", StreamARN=world.summary()["StreamARN"], MaxRecordSizeInKiB=10_240)
    world.put(b"small")
    world.put(bytes(10 * MIB - 1))
    world.put(b"small")
    iterator = world.iterator()
    for expected in (5, 10 * MIB - 1, 5):
        page = world.get(iterator)
        (record,) = page["Records"]
        assert len(base64.b64decode(record["Data"])) == expected
        iterator = page["NextShardIterator"]


def test_millis_behind_latest_is_the_age_of_what_was_read_last(world: World) -> None:
    for _ in range(3):
        world.put()
        world.advance(10)
    first = world.get(world.iterator(), Limit=1)
    assert first["MillisBehindLatest"] == 30_000
    second = world.get(first["NextShardIterator"], Limit=1)
    assert second["MillisBehindLatest"] == 20_000
    assert world.get(second["NextShardIterator"])["MillisBehindLatest"] == 0


def test_iterators_are_never_the_same_text_and_may_be_used_twice(world: World) -> None:
    iterator = world.iterator("LATEST")
    first = world.get(iterator)
    assert first["NextShardIterator"] != iterator
    world.put(b"x")
    assert len(world.get(iterator)["Records"]) == 1
    assert len(world.get(first["NextShardIterator"])["Records"]) == 1


def test_an_iterator_lives_five_minutes(world: World) -> None:
    iterator = world.iterator()
    world.advance(300)
    following = world.get(iterator)["NextShardIterator"]
    world.advance(0.001)
    fault = world.fails("GetRecords", ShardIterator=iterator)
    assert fault.code == "ExpiredIteratorException"
    stamp = r"\w{3} \w{3} \d{2} \d{2}:\d{2}:\d{2} UTC \d{4}"
    assert re.fullmatch(
        rf"Iterator expired\. The iterator was created at time {stamp} while right now it is {stamp} "
        r"which is further in the future than the tolerated delay of 300000 milliseconds\.",
        str(fault.message),
    )
    assert world.get(following)["Records"] == []


def test_a_closed_shard_ends_after_its_last_record(world: World) -> None:
    world.put_many([(b"%d" % i, "k") for i in range(3)])
    tip = world.iterator("LATEST")
    world.split()
    page = world.get(world.iterator(), Limit=2)
    assert (len(page["Records"]), "ChildShards" in page) == (2, False)
    last = world.get(page["NextShardIterator"])
    assert len(last["Records"]) == 1
    end = world.get(last["NextShardIterator"])
    assert end["Records"] == []
    assert end["MillisBehindLatest"] == 0
    assert "NextShardIterator" not in end
    assert end["ChildShards"] == [
        {"ShardId": shard_id(i), "ParentShards": [shard_id(0)], "HashKeyRange": world.shards()[i]["HashKeyRange"]}
        for i in (1, 2)
    ]
    for iterator in (tip, world.iterator("LATEST"), world.iterator("AT_TIMESTAMP", Timestamp=START_S)):
        end = world.get(iterator)
        assert ("NextShardIterator" in end) == bool(end["Records"])


def test_a_merged_child_names_both_parents_to_both(world: World) -> None:
    world.split()
    world.merge(1, 2)
    for parent in (1, 2):
        (child,) = world.get(world.iterator(shard=parent))["ChildShards"]
        assert (child["ShardId"], child["ParentShards"]) == (shard_id(3), [shard_id(1), shard_id(2)])


def test_contradictory_starts_are_refused(world: World) -> None:
    request = {"StreamName": "s", "ShardId": "shardId-0"}
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        fault = world.fails("GetShardIterator", ShardIteratorType=kind, **request)
        assert fault.message == f"{BOTH_OR_NONE}Request specified {kind} and no StartingSequenceNumber."
    for kind in ("LATEST", "TRIM_HORIZON"):
        fault = world.fails("GetShardIterator", ShardIteratorType=kind, StartingSequenceNumber="5", **request)
        assert fault.message == f"{BOTH_OR_NONE}Request specified {kind} and also a StartingSequenceNumber."
    fault = world.fails("GetShardIterator", ShardIteratorType="AT_TIMESTAMP", **request)
    assert str(fault.message).startswith("Must specify timestampInMillis parameter for iterator of type")
    fault = world.fails("GetShardIterator", ShardIteratorType="AT_TIMESTAMP", Timestamp=START_S + 2, **request)
    assert fault.message == (
        "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
        "timestampInMillis: 1700000002250, currentTimestampInMillis: 1700000000250"
    )
    assert world.iterator("AT_TIMESTAMP", Timestamp=START_S)


def test_numbers_of_other_shards_and_streams_are_refused(world: World) -> None:
    world.create("other", 2)
    number = world.put(stream="other", ExplicitHashKey="0")["SequenceNumber"]
    request = {"StreamName": "s", "ShardIteratorType": "AT_SEQUENCE_NUMBER", "ShardId": "shardId-0"}

    def message(number: str) -> str:
        fault = world.fails("GetShardIterator", StartingSequenceNumber=number, **request)
        assert fault.code == "InvalidArgumentException"
        return str(fault.message)

    world.advance(10)
    world.create("later")
    later = world.put(stream="later")["SequenceNumber"]
    used = "used in GetShardIterator on shard shardId-000000000000 in stream s under account 000000000000 is invalid"
    assert message(later) == f"StartingSequenceNumber {later} {used} because it did not come from this stream."
    assert number, "made in the same second as the stream: it cannot be told from the stream's own"
    high = world.put(stream="other", ExplicitHashKey=str(2**128 - 1))["SequenceNumber"]
    assert message(high) == (
        "Invalid StartingSequenceNumber. It encodes shardId-000000000001, "
        "while it was used in a call to a shard with shardId-000000000000"
    )
    assert message("5").startswith("Invalid StartingSequenceNumber. It encodes shardId-000000000005")
    broken = str(int("20000000000800000000000000000000000000000000002", 16))
    assert message(broken) == f"StartingSequenceNumber {broken} {used}."
    fault = world.fails("GetShardIterator", StartingSequenceNumber="0", **request)
    assert (fault.code, fault.status) == ("InternalFailure", 500)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("2147483647", "Shard shardId-002147483647 in stream s under account 000000000000 does not exist"),
        ("shardId-5", "Shard shardId-000000000005 in stream s under account 000000000000 does not exist"),
        ("2147483648", "Could not find shard 2147483648 in stream s under account 000000000000."),
        ("ABKLFD8", "Could not find shard ABKLFD8 in stream s under account 000000000000."),
    ],
)
def test_shards_that_do_not_exist(world: World, given: str, message: str) -> None:
    fault = world.fails("GetShardIterator", StreamName="s", ShardId=given, ShardIteratorType="LATEST")
    assert (fault.code, fault.message) == ("ResourceNotFoundException", message)
    fault = world.fails("GetShardIterator", StreamName="none", ShardId=given, ShardIteratorType="LATEST")
    assert (fault.code, fault.message) == ("ResourceNotFoundException", message.replace("stream s", "stream none"))


def test_constraints_of_the_model(world: World) -> None:
    fault = world.fails("GetShardIterator", StreamName="", ShardId="", ShardIteratorType="", StartingSequenceNumber="")
    assert fault.code == "ValidationException"
    assert str(fault.message).startswith("6 validation errors detected: ")
    assert (
        "Value '' at 'shardIteratorType' failed to satisfy constraint: Member must satisfy enum value set: "
        "[AFTER_SEQUENCE_NUMBER, LATEST, AT_TIMESTAMP, AT_SEQUENCE_NUMBER, TRIM_HORIZON]"
    ) in str(fault.message)
    assert r"'startingSequenceNumber' failed" in str(fault.message)
    fault = world.fails("GetShardIterator", StreamName="s", ShardId="a/b", ShardIteratorType="LATEST")
    assert "regular expression pattern: [a-zA-Z0-9_.-]+" in str(fault.message)
    fault = world.fails("GetRecords", ShardIterator="", Limit=0)
    assert "Value '0' at 'limit'" in str(fault.message)
    fault = world.fails("GetRecords", ShardIterator="a" * 513, Limit=10_001)
    assert "less than or equal to 10000" in str(fault.message)
    assert "less than or equal to 512" in str(fault.message)
    assert world.fails("GetRecords").message == (
        "1 validation error detected: Value null at 'shardIterator' failed to satisfy constraint: "
        "Member must not be null"
    )
    fault = world.fails("GetRecords", ShardIterator="made up")
    assert (fault.code, fault.message) == ("InvalidArgumentException", "Invalid ShardIterator.")


def test_an_iterator_of_a_deleted_stream_finds_no_shard_even_if_the_name_is_used_again(world: World) -> None:
    iterator = world.iterator()
    world.call("DeleteStream", StreamName="s")
    message = "Shard shardId-000000000000 in stream s under account 000000000000 does not exist"
    assert world.fails("GetRecords", ShardIterator=iterator).message == message
    world.create()
    assert world.fails("GetRecords", ShardIterator=iterator).message == message


def test_the_arn_that_comes_with_an_iterator_must_be_its_streams(world: World) -> None:
    arn = world.summary()["StreamARN"]
    assert world.get(world.iterator(), StreamARN=arn)["Records"] == []
    fault = world.fails("GetRecords", ShardIterator=world.iterator(), StreamARN=arn + "2")
    assert fault.code == "InvalidArgumentException"


def test_dry_runs(world: World) -> None:
    iterator = world.iterator()
    assert world.fails("GetRecords", ShardIterator=iterator, DryRun=True).code == "DryRunOperationException"
    fault = world.fails("GetShardIterator", StreamName="s", ShardId="0", ShardIteratorType="LATEST", DryRun=True)
    assert fault.code == "DryRunOperationException"


def test_moved_counts_the_records_of_the_last_call(world: World) -> None:
    world.put_many([(b"x", "k")] * 30)
    world.get(world.iterator())
    assert world.model.moved == 30
    world.summary()
    assert world.model.moved == 0


def test_timestamps_count_in_whole_milliseconds(world: World) -> None:
    world.now = START_S + 0.0007
    world.put(b"x")
    world.advance(1)
    assert world.read("AT_TIMESTAMP", Timestamp=START_S + 0.0006) == [b"x"]
    assert world.read("AT_TIMESTAMP", Timestamp=START_S + 0.0009) == [b"x"]
    assert world.read("AT_TIMESTAMP", Timestamp=START_S + 0.001) == []
