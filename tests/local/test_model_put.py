"""PutRecord and PutRecords."""

from __future__ import annotations

import base64
import hashlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local.model import ModelError
from tests.local.model_kit import HASH_KEYS, World, b64, shard_id

MIB = 1024 * 1024
KEY_CHARS = st.characters(exclude_categories=["Cs"])


@pytest.fixture
def world() -> World:
    made = World()
    made.create(shards=3)
    return made


def test_a_record_goes_to_the_shard_of_its_keys_md5(world: World) -> None:
    ranges = [s["HashKeyRange"] for s in world.shards()]
    for key in ["a", "b", "e", "f", "\u4e2d", *map(str, range(50))]:
        hashed = int.from_bytes(hashlib.md5(key.encode()).digest(), "big")
        (home,) = [i for i, r in enumerate(ranges) if int(r["StartingHashKey"]) <= hashed <= int(r["EndingHashKey"])]
        assert world.put(key=key)["ShardId"] == shard_id(home)


def test_an_explicit_hash_key_wins_also_at_the_edges(world: World) -> None:
    for index, shard in enumerate(world.shards()):
        for end in shard["HashKeyRange"].values():
            assert world.put(ExplicitHashKey=end)["ShardId"] == shard_id(index)


def test_answers_are_in_the_order_of_the_request_and_carry_nothing_else(world: World) -> None:
    answer = world.put_many([(b"1", "a"), (b"2", "b"), (b"3", "a")])
    assert set(answer) == {"FailedRecordCount", "Records"}
    assert answer["FailedRecordCount"] == 0
    assert [set(record) for record in answer["Records"]] == [{"ShardId", "SequenceNumber"}] * 3
    assert answer["Records"][0]["ShardId"] == answer["Records"][2]["ShardId"]
    assert set(world.put()) == {"ShardId", "SequenceNumber"}


@settings(deadline=None)
@given(
    records=st.lists(
        st.tuples(st.binary(max_size=40), st.text(KEY_CHARS, min_size=1, max_size=8)),
        min_size=1,
        max_size=30,
    )
)
def test_what_is_put_is_got(records: list[tuple[bytes, str]]) -> None:
    world = World()
    world.create()
    put = world.put_many(records)["Records"]
    got = world.get(world.iterator())["Records"]
    assert [(base64.b64decode(r["Data"]), r["PartitionKey"]) for r in got] == records
    assert [r["SequenceNumber"] for r in got] == [r["SequenceNumber"] for r in put]
    assert {r["ApproximateArrivalTimestamp"] for r in got} == {1_700_000_000.25}


def test_a_stream_is_named_by_name_by_arn_or_by_both(world: World) -> None:
    arn = world.summary()["StreamARN"]
    entry = {"Data": "", "PartitionKey": "k"}
    for names in ({"StreamName": "s"}, {"StreamARN": arn}, {"StreamName": "s", "StreamARN": arn}):
        assert world.call("PutRecords", Records=[entry], **names)["FailedRecordCount"] == 0
        assert world.call("PutRecord", **entry, **names)["ShardId"]
    other = arn.replace("us-east-1", "eu-west-1")
    assert world.fails("PutRecord", **entry, StreamARN=other).code == "ResourceNotFoundException"


def test_an_unknown_stream_is_not_found(world: World) -> None:
    for operation, more in (
        ("PutRecord", {"Data": "", "PartitionKey": "k"}),
        ("PutRecords", {"Records": [{"Data": "", "PartitionKey": "k"}]}),
    ):
        fault = world.fails(operation, StreamName="none", **more)
        assert fault.code == "ResourceNotFoundException"
        assert fault.message == "Stream none under account 000000000000 not found."


@pytest.mark.parametrize(
    ("entry", "constraint"),
    [
        ({"Data": "", "PartitionKey": ""}, "length greater than or equal to 1"),
        ({"Data": "", "PartitionKey": "k" * 257}, "length less than or equal to 256"),
        ({"Data": ""}, "'records.1.member.partitionKey' failed to satisfy constraint: Member must not be null"),
        ({"PartitionKey": "k"}, "'records.1.member.data' failed to satisfy constraint: Member must not be null"),
        ({"Data": "", "PartitionKey": "k", "ExplicitHashKey": ""}, r"0|([1-9]\d{0,38})"),
        ({"Data": "", "PartitionKey": "k", "ExplicitHashKey": "007"}, r"0|([1-9]\d{0,38})"),
        ({"Data": b64(bytes(MIB + 1)), "PartitionKey": "k"}, "length less than or equal to 1048576"),
    ],
)
def test_what_breaks_the_model_is_a_validation_error(world: World, entry: dict[str, str], constraint: str) -> None:
    fault = world.fails("PutRecords", StreamName="s", Records=[entry])
    assert fault.code == "ValidationException"
    assert fault.message is not None
    assert constraint in fault.message
    assert constraint.replace("records.1.member.", "") in str(world.fails("PutRecord", StreamName="s", **entry).message)
    assert world.read() == []


@pytest.mark.parametrize("data", ["23456", "=+/=", "+/+=", "AB==", "A A=", "AAAA\n", "ä==="])
def test_what_is_not_base64_is_a_serialization_error(world: World, data: str) -> None:
    entry = {"Data": data, "PartitionKey": "k"}
    assert world.fails("PutRecords", StreamName="s", Records=[entry]).code == "SerializationException"
    assert world.fails("PutRecord", StreamName="s", **entry).code == "SerializationException"


def test_an_empty_and_a_too_long_list_are_refused(world: World) -> None:
    assert "greater than or equal to 1" in str(world.fails("PutRecords", StreamName="s", Records=[]).message)
    entry = {"Data": "", "PartitionKey": "k"}
    assert world.call("PutRecords", StreamName="s", Records=[entry] * 500)["FailedRecordCount"] == 0
    fault = world.fails("PutRecords", StreamName="s", Records=[entry] * 501)
    assert "less than or equal to 500" in str(fault.message)


def test_an_explicit_hash_key_beyond_the_space_is_refused(world: World) -> None:
    fault = world.fails("PutRecord", StreamName="s", Data="", PartitionKey="k", ExplicitHashKey=str(HASH_KEYS))
    assert fault.code == "InvalidArgumentException"
    assert fault.message == (
        f"Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. Specified value was {HASH_KEYS}"
    )


def test_data_and_key_together_are_within_the_streams_record_size(world: World) -> None:
    world.put(bytes(MIB - 1), "k")
    entry = {"Data": b64(bytes(MIB)), "PartitionKey": "k"}
    said = "failed to satisfy constraint: Member must have length less than or equal to 1048576"
    fault = world.fails("PutRecord", StreamName="s", **entry)
    assert fault.message == f"1 validation error detected: Value at 'data' {said}"
    fault = world.fails("PutRecords", StreamName="s", Records=[{"Data": "", "PartitionKey": "k"}, entry])
    assert fault.message == f"1 validation error detected: Value at 'records.2.member.data' {said}"
    world.call("UpdateMaxRecordSize", StreamARN=world.summary()["StreamARN"], MaxRecordSizeInKiB=10_240)
    world.put(bytes(10 * MIB - 1), "k")
    fault = world.fails("PutRecord", StreamName="s", Data=b64(bytes(10 * MIB + 1)), PartitionKey="k")
    assert fault.code == "ValidationException"
    assert "10485760" in str(fault.message)


def test_a_request_of_more_than_ten_mebibytes_is_refused(world: World) -> None:
    entries = [{"Data": b64(bytes(MIB - 1)), "PartitionKey": "k"}] * 10
    assert world.call("PutRecords", StreamName="s", Records=entries)["FailedRecordCount"] == 0
    fault = world.fails("PutRecords", StreamName="s", Records=[*entries, {"Data": "", "PartitionKey": "k"}])
    assert (fault.code, fault.message) == ("InvalidArgumentException", "Records size exceeds 10 MB limit")


def test_unusual_but_good_json_is_taken(world: World) -> None:
    body = json.dumps(
        {
            "StreamName": "s",
            "StreamARN": None,
            "Unknown": [1, 2],
            "DryRun": "false",
            "Records": [{"Data": "aGk=", "PartitionKey": "k", "ExplicitHashKey": None, "More": 1}],
        }
    ).encode()
    assert json.loads(world.model.handle("PutRecords", body))["FailedRecordCount"] == 0
    assert [data for shard in range(3) for data in world.read(shard=shard)] == [b"hi"]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'"x"', b"\xff", b'{"StreamName":"s\xff"}'])
def test_what_is_no_json_object_is_a_serialization_error(world: World, body: bytes) -> None:
    for operation in ("PutRecord", "PutRecords", "GetRecords", "GetShardIterator", "ListShards"):
        with pytest.raises(ModelError) as caught:
            world.model.handle(operation, body)
        assert caught.value.code == "SerializationException"


def test_escaped_slashes_in_base64_are_undone(world: World) -> None:
    world.model.handle("PutRecord", b'{"StreamName":"s","PartitionKey":"\\u0061","Data":"\\/\\/8="}')
    assert b"\xff\xff" in world.read(shard=0)


@pytest.mark.parametrize(
    ("ordering", "good"),
    [
        ("20000000000000000000000000000000000000000000002", True),
        ("20000000000000000000000000000000000000000000001", True),
        ("20000000000000000000000000000000000000800000002", True),
        ("20000000000000000000000000000000000000000000000", False),
        ("20000000000000000000000000000000000000000000003", False),
        ("20000000000800000000000000000000000000000000002", False),
        ("2ffffffffff7fffffffffffffff000000000007fffffff2", False),
        ("2" + "0" * 28 + "fffffffff" + "00000000" + "2", False),
    ],
)
def test_sequence_number_for_ordering(world: World, ordering: str, good: bool) -> None:
    number = str(int(ordering, 16))
    if good:
        assert world.put(SequenceNumberForOrdering=number)["SequenceNumber"]
        return
    fault = world.fails("PutRecord", StreamName="s", Data="", PartitionKey="k", SequenceNumberForOrdering=number)
    assert fault.message == (
        f"ExclusiveMinimumSequenceNumber {number} used in PutRecord on stream s under account 000000000000 is invalid."
    )


def test_the_number_of_the_last_record_orders_the_next(world: World) -> None:
    first = world.put()["SequenceNumber"]
    second = world.put(SequenceNumberForOrdering=first)["SequenceNumber"]
    assert int(second) > int(first)
    world.split(0, stream="s")
    third = world.put(ExplicitHashKey="0")["SequenceNumber"]
    assert world.put(ExplicitHashKey="0", SequenceNumberForOrdering=third)["SequenceNumber"] > third


def test_a_dry_run_puts_nothing_and_says_so(world: World) -> None:
    entry = {"Data": "", "PartitionKey": "k"}
    assert world.fails("PutRecord", StreamName="s", DryRun=True, **entry).code == "DryRunOperationException"
    assert world.fails("PutRecords", StreamName="s", DryRun=True, Records=[entry]).code == ("DryRunOperationException")
    assert world.fails("PutRecord", StreamName="none", DryRun=True, **entry).code == "ResourceNotFoundException"
    assert [world.read(shard=i) for i in range(3)] == [[], [], []]


def test_without_a_key_where_the_service_distributes() -> None:
    world = World()
    world.call("CreateStream", StreamName="s", RecordDistributionStrategy="AUTO")
    entries = [{"Data": b64(b"%d" % i)} for i in range(100)] + [{"Data": "", "PartitionKey": "k"}] * 20
    put = world.call("PutRecords", StreamName="s", Records=entries)
    assert len({record["ShardId"] for record in put["Records"][100:]}) > 1, "the key is ignored"
    records = [record for i in range(4) for record in world.get(world.iterator(shard=i))["Records"]]
    assert sum("PartitionKey" not in record for record in records) == 100
    assert world.call("PutRecord", StreamName="s", Data="")["ShardId"]


def test_encrypted_streams_say_so(world: World) -> None:
    world.call("StartStreamEncryption", StreamName="s", EncryptionType="KMS", KeyId="alias/aws/kinesis")
    assert world.put(key="a")["EncryptionType"] == "KMS"
    assert world.put_many([(b"", "a")])["EncryptionType"] == "KMS"
    records = world.get(world.iterator())["Records"]
    assert [record["EncryptionType"] for record in records] == ["KMS", "KMS"]
    world.call("StopStreamEncryption", StreamName="s", EncryptionType="KMS", KeyId="alias/aws/kinesis")
    assert "EncryptionType" not in world.put(key="a")


def test_one_call_is_one_change(world: World) -> None:
    world.journal.clear()
    world.put_many([(b"x", str(i)) for i in range(100)])
    assert len(world.journal) == 1
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(world.journal[0]))[0] == "put"
    assert world.model.moved == 100
