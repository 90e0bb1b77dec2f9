"""Putting and getting: what every Kinesis does."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.contract_stream import Stream

FIRST = "shardId-000000000000"


def data_of(records: list[dict[str, Any]]) -> list[bytes]:
    return [record["Data"] for record in records]


def test_what_was_put_is_got_in_order(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.put(b"a", b"b")
    stream.put(b"c")
    assert data_of(stream.read(FIRST)) == [b"a", b"b", b"c"]


def test_any_bytes_and_any_key_survive(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    key = 'ключ "1" \\ \t 鍵'
    stream.put(bytes(range(256)) * 160, key=key)
    (record,) = stream.read(FIRST)
    assert record["Data"] == bytes(range(256)) * 160
    assert record["PartitionKey"] == key


def test_sequence_numbers_are_long_and_ascend(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    numbers = [entry["SequenceNumber"] for entry in stream.put(*[b"x"] * 20) + stream.put(*[b"x"] * 20)]
    assert all(re.fullmatch(r"\d{56}", number) for number in numbers)
    assert numbers == sorted(numbers, key=int)
    assert [record["SequenceNumber"] for record in stream.read(FIRST)] == numbers


def test_the_answers_of_a_put_are_in_its_order_and_name_the_shard(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(4)
    shards = stream.shards()
    keys = [f"key-{number}" for number in range(50)]
    answer = stream.client.put_records(
        StreamName=stream.name, Records=[{"Data": key.encode(), "PartitionKey": key} for key in keys]
    )
    for key, entry in zip(keys, answer["Records"], strict=True):
        hashed = int.from_bytes(hashlib.md5(key.encode()).digest(), "big")
        (home,) = (
            shard["ShardId"]
            for shard in shards
            if int(shard["HashKeyRange"]["StartingHashKey"]) <= hashed <= int(shard["HashKeyRange"]["EndingHashKey"])
        )
        assert entry["ShardId"] == home
        assert entry["SequenceNumber"]


def test_an_explicit_hash_key_decides(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(2)
    assert stream.put(b"low", hash_key=0)[0]["ShardId"] == FIRST
    assert stream.put(b"high", hash_key=2**128 - 1)[0]["ShardId"] == "shardId-000000000001"
    assert data_of(stream.read("shardId-000000000001")) == [b"high"]


def test_put_record_says_where_it_went(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    answer = stream.client.put_record(StreamName=stream.name, Data=b"one", PartitionKey="k")
    assert answer["ShardId"] == FIRST
    assert stream.read(FIRST)[0]["SequenceNumber"] == answer["SequenceNumber"]


def test_the_places_an_iterator_can_begin(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    first, second, third = (entry["SequenceNumber"] for entry in stream.put(b"1", b"2", b"3"))
    latest = stream.iterator(FIRST, "LATEST")
    assert data_of(stream.page(FIRST)["Records"]) == [b"1", b"2", b"3"]
    at = stream.page(FIRST, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=second)["Records"]
    after = stream.page(FIRST, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=second)["Records"]
    assert (data_of(at), data_of(after)) == ([b"2", b"3"], [b"3"])
    assert stream.page(FIRST, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=third)["Records"] == []
    stream.put(b"4")
    assert data_of(stream.client.get_records(ShardIterator=latest)["Records"]) == [b"4"]
    assert first < second


def test_an_iterator_can_begin_at_a_time(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.put(b"1")
    time.sleep(0.05)  # two times of arrival
    stream.put(b"2")
    arrival = stream.read(FIRST)[1]["ApproximateArrivalTimestamp"]
    assert data_of(stream.page(FIRST, "AT_TIMESTAMP", Timestamp=arrival)["Records"]) == [b"2"]


def test_a_limit_is_kept_and_the_next_iterator_goes_on(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.put(*[b"%d" % number for number in range(10)])
    iterator, found = stream.iterator(FIRST), []
    for size in (3, 3, 3, 1):
        page = stream.client.get_records(ShardIterator=iterator, Limit=3)
        assert len(page["Records"]) == size
        found += data_of(page["Records"])
        iterator = page["NextShardIterator"]
    assert found == [b"%d" % number for number in range(10)]


def test_how_far_behind_a_reader_is(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.put(b"1")
    time.sleep(0.05)  # so that the first is behind by more than 0 ms
    stream.put(b"2")
    page = stream.client.get_records(ShardIterator=stream.iterator(FIRST), Limit=1)
    assert page["MillisBehindLatest"] > 0
    page = stream.client.get_records(ShardIterator=page["NextShardIterator"])
    assert page["MillisBehindLatest"] == 0


def test_one_answer_holds_at_most_ten_megabytes(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    for _ in range(12):
        stream.put(b"x" * 1_000_000)
    page = stream.page(FIRST)
    assert 5 <= len(page["Records"]) <= 10
    assert page["MillisBehindLatest"] >= 0
    assert len(stream.read(FIRST)) == 12


def test_all_that_was_acknowledged_to_many_writers_is_there(
    make_client: Callable[[], Any], make_stream: Callable[..., Stream]
) -> None:
    stream = make_stream(4)
    acknowledged: list[str] = []

    def write(client: Any, name: str) -> None:
        for batch in range(10):
            entries = [
                {"Data": f"{name}-{batch}-{number}".encode(), "PartitionKey": f"{name}-{number}"}
                for number in range(100)
            ]
            answer = client.put_records(StreamName=stream.name, Records=entries)
            acknowledged.extend(entry["SequenceNumber"] for entry in answer["Records"])

    writers = [threading.Thread(target=write, args=(make_client(), f"w{number}")) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = [record["Data"] for shard in stream.shards() for record in stream.read(shard["ShardId"])]
    assert len(acknowledged) == 8000
    assert len(found) == len(set(found)) == 8000


def test_a_record_over_a_mebibyte_is_refused(make_stream: Callable[..., Stream]) -> None:
    stream, payload = make_stream(1), b"x" * (1024 * 1024 + 1)
    with pytest.raises(ClientError, match=r"InvalidArgument|Validation"):
        stream.client.put_record(StreamName=stream.name, Data=payload, PartitionKey="k")


def test_more_than_500_records_are_refused(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    entries = [{"Data": b"x", "PartitionKey": "k"}] * 501
    with pytest.raises(ClientError, match=r"InvalidArgument|Validation"):
        stream.client.put_records(StreamName=stream.name, Records=entries)


def test_more_than_ten_mebibytes_are_refused(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    entries = [{"Data": b"x" * 1_000_000, "PartitionKey": "k"}] * 11
    with pytest.raises(ClientError, match=r"InvalidArgument|Validation"):
        stream.client.put_records(StreamName=stream.name, Records=entries)


def test_nine_mebibytes_are_taken(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    stream.put(*[b"x" * 1_000_000] * 9)
    assert len(stream.read(FIRST)) == 9


def test_an_iterator_that_is_none_is_refused_as_a_wrong_argument(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    with pytest.raises(ClientError) as caught:
        stream.client.get_records(ShardIterator="AAAA" * 40)
    assert caught.value.response["Error"]["Code"] == "InvalidArgumentException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_limit_over_10_000_is_refused(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    with pytest.raises(ClientError, match=r"InvalidArgument|Validation"):
        stream.client.get_records(ShardIterator=stream.iterator(FIRST), Limit=10_001)


def test_a_shard_that_does_not_exist_has_no_iterator(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    with pytest.raises(stream.client.exceptions.ResourceNotFoundException):
        stream.iterator("shardId-000000000009")


def test_the_stream_can_be_named_by_its_arn(make_stream: Callable[..., Stream]) -> None:
    stream = make_stream(1)
    arn = stream.wait()["StreamARN"]
    stream.client.put_record(StreamARN=arn, Data=b"one", PartitionKey="k")
    iterator = stream.client.get_shard_iterator(StreamARN=arn, ShardId=FIRST, ShardIteratorType="TRIM_HORIZON")
    page = stream.client.get_records(StreamARN=arn, ShardIterator=iterator["ShardIterator"])
    assert data_of(page["Records"]) == [b"one"]
