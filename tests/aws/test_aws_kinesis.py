"""The typed client: what it sends beside what botocore sends, and what it makes of answers."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import botocore.serialize
import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.calls.retry import NEVER
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry, StreamSummary, decode_get_records, put_records_body
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.wire import Wire
from shardway.errors import OptionError, TransportError
from shardway.model import IteratorAt, ListedShard, StreamName
from tests.aws.aws_servers import ScriptedServer, ok

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

NAME = StreamName("orders")
ARN = StreamName(arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
FIRST = 49590338271490256608559692538361571095921575989136588898


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[KinesisClient]:
    settings = ConnectionOptions(region="eu-west-1", endpoint_url=server.url, credentials=Credentials("AKID", "secret"))
    async with Wire(settings) as wire:
        yield KinesisClient(wire)


def record(**fields: Any) -> dict[str, Any]:
    return {
        "SequenceNumber": str(FIRST),
        "ApproximateArrivalTimestamp": 1.700000000123e9,
        "Data": base64.b64encode(b"hello").decode(),
        "PartitionKey": "key",
    } | fields


def test_a_page_is_decoded() -> None:
    page = decode_get_records(
        json.dumps(
            {
                "Records": [record(), record(Data="", EncryptionType="KMS")],
                "NextShardIterator": "next",
                "MillisBehindLatest": 7,
                "SomethingNew": {"a": [1]},
            }
        ).encode()
    )
    first, second = page.records
    assert (first.data, first.partition_key, first.encryption_type) == (b"hello", "key", None)
    assert (first.sequence_number, first.approximate_arrival_timestamp) == (str(FIRST), 1700000000.123)
    assert (second.data, second.encryption_type) == (b"", "KMS")
    assert (page.next_shard_iterator, page.millis_behind_latest, page.child_shards) == ("next", 7, None)


def test_the_last_page_of_a_shard_names_its_children() -> None:
    children = [
        {
            "ShardId": "shardId-000000000001",
            "ParentShards": ["shardId-000000000000"],
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "170"},
        }
    ]
    page = decode_get_records(json.dumps({"Records": [], "MillisBehindLatest": 0, "ChildShards": children}).encode())
    assert page.next_shard_iterator is None
    assert page.child_shards is not None
    (child,) = page.child_shards
    assert (child.shard_id, child.parent_shards) == ("shardId-000000000001", ["shardId-000000000000"])
    assert (child.hash_key_range.starting_hash_key, child.hash_key_range.ending_hash_key) == ("0", "170")


@pytest.mark.parametrize(
    "body",
    [
        {"Records": None, "NextShardIterator": None, "MillisBehindLatest": None, "ChildShards": None},
        {"Records": [], "ChildShards": None},
        {},
    ],
)
def test_members_that_are_null_are_absent(body: dict[str, Any]) -> None:
    page = decode_get_records(json.dumps(body).encode())
    assert (page.records, page.next_shard_iterator, page.child_shards) == ([], None, None)


def test_a_record_without_a_partition_key_is_carried_through() -> None:
    for fields in ({"PartitionKey": None, "EncryptionType": None}, {}):
        plain = record(**fields)
        if not fields:
            del plain["PartitionKey"]
        (got,) = decode_get_records(json.dumps({"Records": [plain]}).encode()).records
        assert got.partition_key is None


def test_whole_seconds_and_nulls_in_one_page() -> None:
    body = {"Records": [record(ApproximateArrivalTimestamp=1700000000)], "NextShardIterator": None, "ChildShards": None}
    (got,) = decode_get_records(json.dumps(body).encode()).records
    assert got.approximate_arrival_timestamp == 1.7e9


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b'{"Records": [', b'{"Records": [{"Data": "!!"}]}', b'{"Records": 5}', b"[]", b"\xff\xfe"],
)
def test_what_is_no_page(body: bytes) -> None:
    with pytest.raises(TransportError, match=rf"GetRecords: the answer \({len(body)} bytes\) is not what") as caught:
        decode_get_records(body)
    assert caught.value.retryable


@given(st.binary(max_size=200))
def test_no_payload_is_in_an_error(payload: bytes) -> None:
    text = base64.b64encode(payload).decode()
    broken = {"Records": [record(Data=text), {"Data": text}]}
    with pytest.raises(TransportError) as caught:
        decode_get_records(json.dumps(broken).encode())
    assert len(text) < 8 or text not in str(caught.value)


PUT_RECORDS = botocore.session.get_session().get_service_model("kinesis").operation_model("PutRecords")
SERIALIZER = botocore.serialize.create_serializer("json", include_validation=False)

entries = st.lists(
    st.builds(
        PutEntry,
        data=st.binary(max_size=40),
        partition_key=st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
        explicit_hash_key=st.none() | st.integers(0, 2**128 - 1).map(str),
    ),
    max_size=5,
)


@given(entries=entries, stream=st.sampled_from([NAME, ARN]))
def test_the_body_of_put_records_is_botocores(entries: list[PutEntry], stream: StreamName) -> None:
    records = [
        {"Data": entry.data, "PartitionKey": entry.partition_key}
        | ({} if entry.explicit_hash_key is None else {"ExplicitHashKey": entry.explicit_hash_key})
        for entry in entries
    ]
    named = {"StreamARN": stream.arn} if stream.arn is not None else {"StreamName": stream.name}
    expected = SERIALIZER.serialize_to_request({**named, "Records": records}, PUT_RECORDS)
    assert json.loads(put_records_body(stream, entries)) == json.loads(expected["body"])


async def test_put_records(server: ScriptedServer, client: KinesisClient) -> None:
    server.replies.append(
        ok(
            {
                "FailedRecordCount": 1,
                "Records": [
                    {"SequenceNumber": str(FIRST), "ShardId": "shardId-000000000000", "ErrorCode": None},
                    {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slowly"},
                ],
            }
        )
    )
    answer = await client.put_records(NAME, [PutEntry(b"a", "k"), PutEntry(b"b", "k", "5")])
    assert answer.failed_record_count == 1
    first, second = answer.records
    assert (first.sequence_number, first.shard_id, first.error_code) == (str(FIRST), "shardId-000000000000", None)
    assert (second.sequence_number, second.error_code, second.error_message) == (
        None,
        "ProvisionedThroughputExceededException",
        "slowly",
    )
    assert server.requests[0].json == {
        "StreamName": "orders",
        "Records": [
            {"Data": "YQ==", "PartitionKey": "k"},
            {"Data": "Yg==", "PartitionKey": "k", "ExplicitHashKey": "5"},
        ],
    }


async def test_results_that_do_not_match_the_entries(server: ScriptedServer, client: KinesisClient) -> None:
    server.replies.append(ok({"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1", "ShardId": "s"}]}))
    with pytest.raises(TransportError, match="PutRecords to orders: 1 results came for 2 entries"):
        await client.put_records(NAME, [PutEntry(b"a", "k"), PutEntry(b"b", "k")])


@pytest.mark.parametrize(
    ("at", "sent"),
    [
        (IteratorAt.trim_horizon(), {"ShardIteratorType": "TRIM_HORIZON"}),
        (IteratorAt.latest(), {"ShardIteratorType": "LATEST"}),
        (
            IteratorAt.at_sequence(FIRST),
            {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": str(FIRST)},
        ),
        (
            IteratorAt.after_sequence(FIRST),
            {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(FIRST)},
        ),
        (IteratorAt.at_timestamp(1.5e9 + 0.25), {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": 1500000000.25}),
    ],
)
async def test_iterators(server: ScriptedServer, client: KinesisClient, at: IteratorAt, sent: dict[str, Any]) -> None:
    server.replies.append(ok({"ShardIterator": "AAA"}))
    assert await client.get_shard_iterator(NAME, "shardId-000000000003", at) == "AAA"
    assert server.requests[0].json == {"StreamName": "orders", "ShardId": "shardId-000000000003", **sent}


async def test_get_records(server: ScriptedServer, client: KinesisClient) -> None:
    server.otherwise = lambda received: ok({"Records": [record()], "NextShardIterator": "B", "MillisBehindLatest": 0})
    page = await client.get_records("A", limit=5)
    assert [got.data for got in page.records] == [b"hello"]
    raw = await client.get_records_raw("A", stream=ARN)
    assert decode_get_records(raw) == page
    await client.get_records("A", stream=NAME)
    assert [received.json for received in server.requests] == [
        {"ShardIterator": "A", "Limit": 5},
        {"ShardIterator": "A", "Limit": 10000, "StreamARN": ARN.arn},
        {"ShardIterator": "A", "Limit": 10000},
    ]


def shard(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "ShardId": f"shardId-{number:012d}",
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
        "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST)},
    } | fields


async def test_list_shards_reads_all_pages(server: ScriptedServer, client: KinesisClient) -> None:
    closed = {"StartingSequenceNumber": str(FIRST), "EndingSequenceNumber": str(FIRST + 9)}
    server.replies += [
        ok({"Shards": [shard(0, SequenceNumberRange=closed)], "NextToken": "token-1"}),
        ok({"Shards": [], "NextToken": "token-2"}),
        ok(
            {
                "Shards": [
                    shard(1, ParentShardId="shardId-000000000000", AdjacentParentShardId=None),
                    shard(2, ParentShardId="shardId-000000000000", AdjacentParentShardId="shardId-000000000009"),
                ],
                "NextToken": None,
            }
        ),
    ]
    listed = await client.list_shards(ARN, shard_filter={"Type": "AT_LATEST"})
    first = ListedShard(
        shard_id="shardId-000000000000",
        first_hash_key=0,
        last_hash_key=2**128 - 1,
        first_sequence_number=FIRST,
        last_sequence_number=FIRST + 9,
    )
    assert listed[0] == first
    assert [one.parents for one in listed] == [
        (),
        ("shardId-000000000000",),
        ("shardId-000000000000", "shardId-000000000009"),
    ]
    assert [one.closed for one in listed] == [True, False, False]
    assert [received.json for received in server.requests] == [
        {"StreamARN": ARN.arn, "ShardFilter": {"Type": "AT_LATEST"}},
        {"NextToken": "token-1"},
        {"NextToken": "token-2"},
    ]


async def test_describe_stream_summary(server: ScriptedServer, client: KinesisClient) -> None:
    summary: dict[str, Any] = {
        "StreamName": "orders",
        "StreamARN": ARN.arn,
        "StreamStatus": "ACTIVE",
        "StreamCreationTimestamp": 1.6e9,
        "RetentionPeriodHours": 24,
        "OpenShardCount": 4,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "KeyId": None,
    }
    server.replies += [
        ok({"StreamDescriptionSummary": summary}),
        ok(
            {
                "StreamDescriptionSummary": summary
                | {"RecordDistributionStrategy": "AUTO", "MaxRecordSizeInKiB": 10240, "OpenShardCount": 5}
            }
        ),
    ]
    expected = StreamSummary("orders", str(ARN.arn), "ACTIVE", 1.6e9, 24, 4)
    assert await client.describe_stream_summary(NAME) == expected
    newer = await client.describe_stream_summary(NAME)
    assert (newer.record_distribution_strategy, newer.max_record_size_kib, newer.open_shard_count) == ("AUTO", 10240, 5)


async def test_any_other_call(server: ScriptedServer, client: KinesisClient) -> None:
    server.replies += [ok({"HasMoreStreams": False, "StreamNames": ["a"], "NextToken": None})]
    server.otherwise = lambda received: ok()
    assert (await client.call("ListStreams", {"Limit": 5}))["StreamNames"] == ["a"]
    assert await client.call("CreateStream", {"StreamName": "b", "ShardCount": 2}) == {}
    assert server.requests[1].headers["x-amz-target"] == "Kinesis_20131202.CreateStream"
    assert server.requests[1].json == {"StreamName": "b", "ShardCount": 2}


ELSEWHERE = StreamName(arn="arn:aws:kinesis:us-east-2:123456789012:stream/orders")
CALLS: list[Callable[[KinesisClient, StreamName], Awaitable[Any]]] = [
    lambda client, stream: client.describe_stream_summary(stream),
    lambda client, stream: client.list_shards(stream),
    lambda client, stream: client.get_shard_iterator(stream, "s", IteratorAt.latest()),
    lambda client, stream: client.get_records("A", stream=stream),
    lambda client, stream: client.put_records(stream, []),
    lambda client, stream: client.call("SplitShard", {"StreamARN": stream.arn}, retry=NEVER),
]


@pytest.mark.parametrize("call", CALLS)
async def test_an_arn_of_another_region(
    server: ScriptedServer, client: KinesisClient, call: Callable[[KinesisClient, StreamName], Awaitable[Any]]
) -> None:
    with pytest.raises(OptionError, match="is in region us-east-2, but calls go to eu-west-1: give region us-east-2"):
        await call(client, ELSEWHERE)
    with pytest.raises(OptionError, match="'orders' is no stream ARN"):
        await call(client, StreamName(arn="orders"))
    assert server.requests == []


def test_importing_the_client_imports_no_sdk() -> None:
    code = "import sys, shardway.aws.kinesis.client, shardway.aws.wire; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'shardway.aws.kinesis.client'" in loaded
    for heavy in ("botocore", "boto3", "aiohttp", "urllib3", "pyspark"):
        assert f"'{heavy}'" not in loaded
