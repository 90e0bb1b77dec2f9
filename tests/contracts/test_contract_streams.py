"""Streams and shards: what every Kinesis says of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.contract_stream import Stream

FIRST = "shardId-000000000000"


def ids(shards: list[dict[str, Any]]) -> list[str]:
    return [shard["ShardId"] for shard in shards]


def shard_name(number: int) -> str:
    return f"shardId-{number:012d}"


def test_a_new_stream_is_described(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(3)
    summary = stream.wait()
    assert summary["StreamName"] == stream.name
    assert summary["StreamARN"].endswith(f":stream/{stream.name}")
    assert summary["RetentionPeriodHours"] == 24
    assert summary["OpenShardCount"] == 3
    assert summary["StreamModeDetails"] == {"StreamMode": "PROVISIONED"}


def test_its_shards_divide_the_hash_keys_as_aws_does(make_stream: Callable[..., Stream]) -> None:
    for count in (3, 4):
        shards = make_stream(count).shards()
        width = 2**128 // count
        starts = [int(shard["HashKeyRange"]["StartingHashKey"]) for shard in shards]
        ends = [int(shard["HashKeyRange"]["EndingHashKey"]) for shard in shards]
        assert starts == [width * number for number in range(count)]
        assert ends == [start - 1 for start in starts[1:]] + [2**128 - 1]


def test_an_open_shard_has_no_ending_number(make_stream: Callable[..., Stream]) -> None:
    (shard,) = make_stream(1).shards()
    assert set(shard["SequenceNumberRange"]) == {"StartingSequenceNumber"}
    assert "ParentShardId" not in shard


def test_a_stream_is_made_once(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    with pytest.raises(stream.client.exceptions.ResourceInUseException):
        stream.client.create_stream(StreamName=stream.name, ShardCount=1)


def test_what_does_not_exist_is_said_so(kinesis: Any) -> None:
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
        kinesis.describe_stream_summary(StreamName="no-such-stream")
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
        kinesis.put_record(StreamName="no-such-stream", Data=b"x", PartitionKey="k")


def test_shards_come_in_pages(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(5)
    page = stream.client.list_shards(StreamName=stream.name, MaxResults=2)
    found = ids(page["Shards"])
    assert len(found) == 2
    while "NextToken" in page:
        page = stream.client.list_shards(NextToken=page["NextToken"], MaxResults=2)
        found += ids(page["Shards"])
    assert found == [shard_name(number) for number in range(5)]


def test_retention_is_made_longer_and_shorter(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.client.increase_stream_retention_period(StreamName=stream.name, RetentionPeriodHours=48)
    assert stream.wait()["RetentionPeriodHours"] == 48
    stream.client.decrease_stream_retention_period(StreamName=stream.name, RetentionPeriodHours=24)
    assert stream.wait()["RetentionPeriodHours"] == 24


def test_tags_are_kept(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.client.add_tags_to_stream(StreamName=stream.name, Tags={"team": "data", "stage": "test"})
    stream.client.remove_tags_from_stream(StreamName=stream.name, TagKeys=["stage"])
    tags = stream.client.list_tags_for_stream(StreamName=stream.name)["Tags"]
    assert tags == [{"Key": "team", "Value": "data"}]


def test_a_deleted_stream_is_gone(make_stream: Callable[..., Stream], kinesis: Any) -> None:
    stream = make_stream(1)
    kinesis.delete_stream(StreamName=stream.name)
    deadline = time.monotonic() + 20
    while stream.name in kinesis.list_streams(Limit=1000)["StreamNames"] and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
        kinesis.describe_stream_summary(StreamName=stream.name)


# --- resharding -----------------------------------------------------------------------------------


def split(stream: Stream, shard: str = FIRST, at: int = 2**127) -> None:
    stream.client.split_shard(StreamName=stream.name, ShardToSplit=shard, NewStartingHashKey=str(at))
    stream.wait()


def merge(stream: Stream, shard: str, adjacent: str) -> None:
    stream.client.merge_shards(StreamName=stream.name, ShardToMerge=shard, AdjacentShardToMerge=adjacent)
    stream.wait()


def test_a_split_makes_two_children_of_a_closed_parent(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    split(stream)
    parent, low, high = stream.shards()
    assert parent["SequenceNumberRange"]["EndingSequenceNumber"]
    assert [shard["ParentShardId"] for shard in (low, high)] == [FIRST, FIRST]
    assert [shard["HashKeyRange"] for shard in (low, high)] == [
        {"StartingHashKey": "0", "EndingHashKey": str(2**127 - 1)},
        {"StartingHashKey": str(2**127), "EndingHashKey": str(2**128 - 1)},
    ]


def test_a_merge_makes_one_child_of_two_parents(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(2)
    merge(stream, FIRST, shard_name(1))
    child = stream.shards()[2]
    assert {child["ParentShardId"], child["AdjacentParentShardId"]} == {FIRST, shard_name(1)}
    assert child["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}


def test_a_closed_parent_is_read_to_its_end(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.put(b"before")
    split(stream)
    page = stream.page(FIRST)
    records = page["Records"]
    for _ in range(20):
        if page.get("NextShardIterator") is None:
            break
        page = stream.client.get_records(ShardIterator=page["NextShardIterator"])
        records += page["Records"]
    assert page.get("NextShardIterator") is None
    assert [record["Data"] for record in records] == [b"before"]


def test_the_end_of_a_parent_names_its_children(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.put(b"before")
    split(stream)
    page = stream.page(FIRST)
    while page.get("NextShardIterator") is not None and page["Records"]:
        page = stream.client.get_records(ShardIterator=page["NextShardIterator"])
    assert sorted(ids(page["ChildShards"])) == [shard_name(1), shard_name(2)]
    assert [child["ParentShards"] for child in page["ChildShards"]] == [[FIRST], [FIRST]]


def test_both_ends_of_a_merge_name_both_parents(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(2)
    merge(stream, FIRST, shard_name(1))
    for parent in (FIRST, shard_name(1)):
        page = stream.page(parent)
        (child,) = page["ChildShards"]
        assert child["ShardId"] == shard_name(2)
        assert sorted(child["ParentShards"]) == [FIRST, shard_name(1)]


def test_writes_go_to_the_children(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    split(stream)
    assert stream.put(b"low", hash_key=0)[0]["ShardId"] == shard_name(1)
    assert stream.put(b"high", hash_key=2**128 - 1)[0]["ShardId"] == shard_name(2)
    assert [record["Data"] for record in stream.read(shard_name(2))] == [b"high"]


def test_a_childs_numbers_are_above_its_parents(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    before = stream.put(b"before", hash_key=0)[0]["SequenceNumber"]
    split(stream)
    after = stream.put(b"after", hash_key=0)[0]["SequenceNumber"]
    assert int(after) > int(stream.shards()[0]["SequenceNumberRange"]["EndingSequenceNumber"]) > int(before)


def test_update_shard_count_reshards_evenly(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(2)
    stream.put(b"before")
    stream.client.update_shard_count(StreamName=stream.name, TargetShardCount=4, ScalingType="UNIFORM_SCALING")
    stream.wait()
    shards = {shard["ShardId"]: shard for shard in stream.shards()}
    opened = stream.open_shards()
    assert (len(shards), len(opened)) == (6, 4)
    starts = sorted(int(shards[one]["HashKeyRange"]["StartingHashKey"]) for one in opened)
    assert starts == [2**126 * number for number in range(4)]
    assert stream.put(b"after", hash_key=0)[0]["ShardId"] in opened
    assert sum(len(stream.read(one)) for one in (FIRST, shard_name(1))) == 1


def test_a_closed_shard_is_not_split_again(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    split(stream)
    with pytest.raises(stream.client.exceptions.ClientError, match=r"InvalidArgument|ResourceInUse|ResourceNotFound"):
        split(stream)


def test_shards_that_do_not_touch_are_not_merged(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(3)
    with pytest.raises(stream.client.exceptions.InvalidArgumentException):
        merge(stream, FIRST, shard_name(2))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param("AT_LATEST", [1, 2], id="AT_LATEST"),
        pytest.param("AT_TRIM_HORIZON", [0], id="AT_TRIM_HORIZON"),
        pytest.param("FROM_TRIM_HORIZON", [0, 1, 2], id="FROM_TRIM_HORIZON"),
    ],
)
def test_a_filter_picks_shards(make_stream: Callable[..., Stream], kind: str, expected: list[int]) -> None:
    stream = make_stream(1)
    split(stream)
    found = ids(stream.shards(ShardFilter={"Type": kind}))
    assert found == [shard_name(number) for number in expected]


def test_a_filter_picks_shards_after_one(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(3)
    found = ids(stream.shards(ShardFilter={"Type": "AFTER_SHARD_ID", "ShardId": FIRST}))
    assert found == [shard_name(1), shard_name(2)]
