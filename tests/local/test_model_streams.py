"""Streams: making, describing, listing, deleting; and ListShards."""

from __future__ import annotations

import pytest

from shardway.local.model import Limits
from tests.local.model_kit import START_S, World, shard_id

HOUR = 3_600.0
ACCOUNT = "000000000000"


# --- CreateStream ---------------------------------------------------------------------------------


def test_a_new_stream_is_described_whole() -> None:
    world = World()
    assert world.model.handle("CreateStream", b'{"StreamName":"s","ShardCount":2}') == b""
    common = {
        "StreamName": "s",
        "StreamARN": f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/s",
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        "RetentionPeriodHours": 24,
        "StreamCreationTimestamp": int(START_S),
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
    }
    assert world.summary() == common | {"OpenShardCount": 2, "ConsumerCount": 0, "MaxRecordSizeInKiB": 1024}
    described = world.call("DescribeStream", StreamName="s")["StreamDescription"]
    assert described == common | {"Shards": world.shards(), "HasMoreShards": False}


def test_a_stream_is_creating_first_and_shows_no_shards() -> None:
    world = World(settle_s=10)
    world.create(shards=2)
    described = world.call("DescribeStream", StreamName="s")["StreamDescription"]
    assert (described["StreamStatus"], described["Shards"]) == ("CREATING", [])
    assert world.summary()["OpenShardCount"] == 0
    not_active = f"Stream s under account {ACCOUNT} not ACTIVE, instead in state CREATING"
    split = {"ShardToSplit": "shardId-0", "NewStartingHashKey": "2"}
    merge = {"ShardToMerge": "shardId-0", "AdjacentShardToMerge": "shardId-1"}
    for operation, more in (("SplitShard", split), ("MergeShards", merge)):
        fault = world.fails(operation, StreamName="s", **more)
        assert (fault.code, fault.message) == ("ResourceInUseException", not_active)
    assert world.fails("ListShards", StreamName="s").code == "ResourceInUseException"
    absent = f"Shard shardId-000000000000 in stream s under account {ACCOUNT} does not exist"
    iterator = {"ShardId": "shardId-0", "ShardIteratorType": "LATEST"}
    assert world.fails("GetShardIterator", StreamName="s", **iterator).message == absent
    entry = {"Data": "", "PartitionKey": "a"}
    missing = f"Stream s under account {ACCOUNT} not found."
    assert world.fails("PutRecord", StreamName="s", **entry).message == missing
    assert world.fails("PutRecords", StreamName="s", Records=[entry]).message == missing
    world.advance(10)
    assert world.summary()["StreamStatus"] == "ACTIVE"
    assert len(world.shards()) == 2


def test_without_shard_count_and_mode_it_is_on_demand_with_four_shards() -> None:
    world = World()
    world.call("CreateStream", StreamName="s")
    summary = world.summary()
    assert summary["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
    assert summary["OpenShardCount"] == 4
    assert summary["RecordDistributionStrategy"] == "USER_PARTITION_KEY"


def test_options_of_a_new_stream() -> None:
    world = World()
    world.create(MaxRecordSizeInKiB=2048, Tags={"team": "a"})
    assert world.summary()["MaxRecordSizeInKiB"] == 2048
    assert world.call("ListTagsForStream", StreamName="s")["Tags"] == [{"Key": "team", "Value": "a"}]
    world.call("CreateStream", StreamName="auto", RecordDistributionStrategy="AUTO")
    assert world.summary("auto")["RecordDistributionStrategy"] == "AUTO"


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        ({}, "ValidationException", "2 validation errors detected: Value null at 'streamName'"),
        ({"StreamName": ""}, "ValidationException", "greater than or equal to 1"),
        ({"StreamName": "a b"}, "ValidationException", "pattern: [a-zA-Z0-9_.-]+"),
        ({"StreamName": "a" * 129}, "ValidationException", "less than or equal to 128"),
        ({"StreamName": "n", "ShardCount": 0}, "ValidationException", "Value '0' at 'shardCount'"),
        ({"StreamName": "n", "ShardCount": 10**11}, "ValidationException", "Value '2147483647' at 'shardCount'"),
        ({"StreamName": "n", "ShardCount": "1"}, "SerializationException", "can not be converted to an Integer"),
        ({"StreamName": "s", "ShardCount": 1}, "ResourceInUseException", "already exists."),
        ({"StreamName": "n", "ShardCount": 1000}, "LimitExceededException", "Current shard count for the account: 1."),
        ({"StreamName": "n", "ShardCount": 1, "MaxRecordSizeInKiB": 1}, "ValidationException", "equal to 1024"),
        ({"StreamName": "n", "StreamModeDetails": {"StreamMode": "PROVISIONED"}}, "ValidationException", "ShardCount"),
        (
            {"StreamName": "n", "ShardCount": 1, "RecordDistributionStrategy": "AUTO"},
            "InvalidArgumentException",
            "AUTO",
        ),
        ({"StreamName": "n", "ShardCount": 1, "Tags": {"a;b": ""}}, "InvalidArgumentException", "invalid characters"),
        ({"StreamName": "n", "Tags": {str(i): "" for i in range(51)}}, "InvalidArgumentException", "50 tags"),
    ],
)
def test_what_is_no_good_stream(request_: dict[str, object], code: str, said: str) -> None:
    world = World()
    world.create()
    fault = world.fails("CreateStream", **request_)
    assert fault.code == code
    assert said in str(fault.message)
    assert world.call("ListStreams")["StreamNames"] == ["s"]


def test_only_so_many_on_demand_streams() -> None:
    world = World()
    for i in range(50):
        world.call("CreateStream", StreamName=f"s{i}")
    assert world.fails("CreateStream", StreamName="s50").code == "LimitExceededException"
    limits = world.call("DescribeLimits")
    assert limits == {
        "ShardLimit": 500,
        "OpenShardCount": 0,
        "OnDemandStreamCount": 50,
        "OnDemandStreamCountLimit": 50,
    }


def test_only_five_streams_are_made_at_once_when_the_apis_limits_hold() -> None:
    world = World(limits=Limits(api=True), settle_s=100)
    for i in range(5):
        world.advance(1)
        world.call("CreateStream", StreamName=f"s{i}", ShardCount=1)
    world.advance(1)
    assert world.fails("CreateStream", StreamName="s5", ShardCount=1).code == "LimitExceededException"
    world.advance(100)
    world.call("CreateStream", StreamName="s5", ShardCount=1)


# --- DeleteStream ---------------------------------------------------------------------------------


def test_a_deleted_stream_is_gone_with_its_data() -> None:
    world = World(settle_s=10)
    world.create()
    world.advance(10)
    world.put(b"x")
    world.call("DeleteStream", StreamName="s")
    assert world.summary()["StreamStatus"] == "DELETING"
    assert world.fails("PutRecord", StreamName="s", Data="", PartitionKey="k").code == "ResourceNotFoundException"
    assert world.fails("CreateStream", StreamName="s", ShardCount=1).code == "ResourceInUseException"
    world.advance(10)
    fault = world.fails("DescribeStreamSummary", StreamName="s")
    assert (fault.code, fault.message) == ("ResourceNotFoundException", f"Stream s under account {ACCOUNT} not found.")
    assert world.call("ListStreams")["StreamNames"] == []
    world.create()
    world.advance(10)
    assert world.read() == []


def test_a_stream_may_be_deleted_while_it_is_made() -> None:
    world = World(settle_s=10)
    world.create()
    world.call("DeleteStream", StreamName="s")
    described = world.call("DescribeStream", StreamName="s")["StreamDescription"]
    assert (described["StreamStatus"], described["Shards"]) == ("DELETING", [])


def test_a_stream_made_again_in_the_same_instant_has_another_creation_time() -> None:
    world = World()
    seen = set()
    for _ in range(3):
        world.create()
        seen.add(world.summary()["StreamCreationTimestamp"])
        number = world.put()["SequenceNumber"]
        world.call("DeleteStream", StreamName="s")
        world.create()
        seen.add(world.summary()["StreamCreationTimestamp"])
        request = {"ShardId": "0", "ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": number}
        fault = world.fails("GetShardIterator", StreamName="s", **request)
        assert str(fault.message).endswith("did not come from this stream.")
        world.call("DeleteStream", StreamName="s")
    assert len(seen) == 6


def test_streams_with_consumers_go_only_if_the_caller_says_so() -> None:
    world = World()
    arn = world.create()
    world.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="c")
    assert world.fails("DeleteStream", StreamName="s").code == "ResourceInUseException"
    world.call("DeleteStream", StreamName="s", EnforceConsumerDeletion=True)
    assert world.call("ListStreams")["StreamNames"] == []


# --- DescribeStream, ListStreams ------------------------------------------------------------------


def test_pages_of_describe_stream() -> None:
    world = World()
    world.create(shards=120)
    first = world.call("DescribeStream", StreamName="s")["StreamDescription"]
    assert (len(first["Shards"]), first["HasMoreShards"]) == (100, True)
    last = first["Shards"][-1]["ShardId"]
    second = world.call("DescribeStream", StreamName="s", ExclusiveStartShardId=last, Limit=19)["StreamDescription"]
    assert [s["ShardId"] for s in second["Shards"]] == [shard_id(i) for i in range(100, 119)]
    assert second["HasMoreShards"]


def test_pages_of_list_streams() -> None:
    world = World()
    for i in range(12):
        world.create(f"s{i:02}")
    first = world.call("ListStreams", Limit=5)
    assert first["StreamNames"] == [f"s{i:02}" for i in range(5)]
    assert first["HasMoreStreams"] is True
    assert first["StreamSummaries"][0] == {
        "StreamName": "s00",
        "StreamARN": f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/s00",
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        "StreamCreationTimestamp": int(START_S),
    }
    second = world.call("ListStreams", Limit=5, NextToken=first["NextToken"])
    assert second["StreamNames"] == [f"s{i:02}" for i in range(5, 10)]
    third = world.call("ListStreams", ExclusiveStartStreamName="s09")
    assert (third["StreamNames"], third["HasMoreStreams"]) == (["s10", "s11"], False)
    assert "NextToken" not in third
    world.advance(301)
    fault = world.fails("ListStreams", NextToken=first["NextToken"])
    assert fault.code == "ExpiredNextTokenException"


def test_names_and_arns_that_contradict_each_other() -> None:
    world = World()
    arn = world.create()
    world.create("t")
    assert world.call("DescribeStreamSummary", StreamName="s", StreamARN=arn)
    assert world.fails("DescribeStreamSummary", StreamName="t", StreamARN=arn).code == "ValidationException"
    fault = world.fails("DescribeStreamSummary", StreamARN=arn + "x")
    assert fault.message == f"Stream sx under account {ACCOUNT} not found."
    fault = world.fails("DescribeStreamSummary")
    assert "Value null at 'streamName'" in str(fault.message)


def test_unknown_operations() -> None:
    world = World()
    for name in ("DescribeEverything", "", "subscribe", "SubscribeToShard"):
        assert world.fails(name).code == "UnknownOperationException"
    assert "PutRecords" in world.model.operations


# --- ListShards -----------------------------------------------------------------------------------


@pytest.fixture
def family() -> World:
    """Shards 0, 1 at hour 0; 0 split into 2, 3 at hour 1; 3 and 1 merged into 4 at hour 2. It is hour 3."""
    world = World()
    world.create(shards=2)
    world.advance(HOUR)
    world.split(0)
    world.advance(HOUR)
    world.merge(3, 1)
    world.advance(HOUR)
    return world


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("FROM_TRIM_HORIZON", {}, [0, 1, 2, 3, 4]),
        ("AT_TRIM_HORIZON", {}, [0, 1]),
        ("AT_LATEST", {}, [2, 4]),
        ("AFTER_SHARD_ID", {"ShardId": "shardId-000000000002"}, [3, 4]),
        ("AT_TIMESTAMP", {"Timestamp": START_S - HOUR}, [0, 1]),
        ("AT_TIMESTAMP", {"Timestamp": START_S + 0.5 * HOUR}, [0, 1]),
        ("AT_TIMESTAMP", {"Timestamp": START_S + HOUR}, [0, 1, 2, 3]),
        ("AT_TIMESTAMP", {"Timestamp": START_S + 1.5 * HOUR}, [1, 2, 3]),
        ("AT_TIMESTAMP", {"Timestamp": START_S + 2.5 * HOUR}, [2, 4]),
        ("FROM_TIMESTAMP", {"Timestamp": START_S - HOUR}, [0, 1, 2, 3, 4]),
        ("FROM_TIMESTAMP", {"Timestamp": START_S + 1.5 * HOUR}, [1, 2, 3, 4]),
        ("FROM_TIMESTAMP", {"Timestamp": START_S + 2.5 * HOUR}, [2, 4]),
    ],
)
def test_shard_filters(family: World, kind: str, more: dict[str, object], expected: list[int]) -> None:
    assert family.ids(ShardFilter={"Type": kind, **more}) == expected


def test_filters_at_the_horizon_after_the_oldest_shards_have_gone(family: World) -> None:
    family.advance(22.5 * HOUR)
    assert family.ids() == [1, 2, 3, 4]
    assert family.ids(ShardFilter={"Type": "AT_TRIM_HORIZON"}) == [1, 2, 3]
    assert family.ids(ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": START_S}) == [1, 2, 3]


def test_at_trim_horizon_when_all_happened_in_one_instant() -> None:
    world = World()
    world.create()
    world.split()
    world.merge(1, 2)
    assert world.ids(ShardFilter={"Type": "AT_TRIM_HORIZON"}) == [0]
    assert world.ids(ShardFilter={"Type": "AT_LATEST"}) == [3]


@pytest.mark.parametrize(
    ("shard_filter", "code"),
    [
        ({"Type": "AFTER_SHARD_ID"}, "InvalidArgumentException"),
        ({"Type": "AT_TIMESTAMP"}, "InvalidArgumentException"),
        ({"Type": "AT_LATEST", "ShardId": "shardId-0"}, "InvalidArgumentException"),
        ({"Type": "AT_LATEST", "Timestamp": START_S}, "InvalidArgumentException"),
        ({"Type": "FROM_TIMESTAMP", "Timestamp": START_S + 1}, "InvalidArgumentException"),
        ({"Type": "AFTER_SHARD_ID", "ShardId": "x"}, "InvalidArgumentException"),
        ({"Type": "OTHER"}, "ValidationException"),
        ({}, "ValidationException"),
    ],
)
def test_filters_that_say_too_little_or_too_much(shard_filter: dict[str, object], code: str) -> None:
    world = World()
    world.create()
    assert world.fails("ListShards", StreamName="s", ShardFilter=shard_filter).code == code


def test_pages_of_list_shards() -> None:
    world = World()
    world.create(shards=25)
    request: dict[str, object] = {"StreamName": "s", "MaxResults": 10, "ExclusiveStartShardId": shard_id(1)}
    pages = []
    while True:
        page = world.call("ListShards", **request)
        pages.append([int(shard["ShardId"][-12:]) for shard in page["Shards"]])
        if "NextToken" not in page:
            break
        request = {"NextToken": page["NextToken"], "MaxResults": 10}
    assert pages == [list(range(2, 12)), list(range(12, 22)), list(range(22, 25))]


def test_a_token_carries_the_filter_and_lives_300_seconds(family: World) -> None:
    latest = {"Type": "AT_LATEST"}
    token = family.call("ListShards", StreamName="s", ShardFilter=latest, MaxResults=1)["NextToken"]
    family.advance(300)
    (shard,) = family.call("ListShards", NextToken=token)["Shards"]
    assert shard["ShardId"] == shard_id(4)
    family.advance(0.001)
    assert family.fails("ListShards", NextToken=token).code == "ExpiredNextTokenException"


def test_a_thousand_shards_at_most_on_a_page() -> None:
    world = World(shard_quota=5_000)
    world.create(shards=1_500)
    first = world.call("ListShards", StreamName="s", MaxResults=5_000)
    assert len(first["Shards"]) == 1_000
    assert len(world.call("ListShards", NextToken=first["NextToken"])["Shards"]) == 500


def test_what_goes_with_a_token_and_what_must_be_there() -> None:
    world = World()
    world.create(shards=2)
    token = world.call("ListShards", StreamName="s", MaxResults=1)["NextToken"]
    assert world.fails("ListShards").message == "Either NextToken or StreamName should be provided."
    fault = world.fails("ListShards", StreamName="s", NextToken=token)
    assert fault.message == "NextToken and StreamName cannot be provided together."
    assert world.fails("ListShards", NextToken=token, ExclusiveStartShardId="0").code == "InvalidArgumentException"
    assert world.fails("ListShards", NextToken="made up").code == "InvalidArgumentException"
    assert world.fails("ListShards", StreamName="s", ExclusiveStartShardId="x").code == "InvalidArgumentException"
    world.call("DeleteStream", StreamName="s")
    assert world.fails("ListShards", NextToken=token).code == "InvalidArgumentException"


def test_the_creation_time_tells_streams_of_one_name_apart() -> None:
    world = World()
    world.create()
    assert len(world.shards(StreamCreationTimestamp=int(START_S))) == 1
    fault = world.fails("ListShards", StreamName="s", StreamCreationTimestamp=int(START_S) - 1)
    assert fault.code == "ResourceNotFoundException"


def test_an_error_is_written_as_the_service_writes_it() -> None:
    world = World()
    fault = world.fails("ListShards", StreamName="none")
    assert fault.body() == (
        b'{"__type":"ResourceNotFoundException","message":"Stream none under account 000000000000 not found."}'
    )
    assert world.fails("ListShards", StreamName=5).body().startswith(b'{"__type":"SerializationException","Message":"')
    assert world.fails("Nothing").body() == b'{"__type":"UnknownOperationException"}'
