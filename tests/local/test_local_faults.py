"""Ordered faults, as clients meet them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from botocore.exceptions import ClientError

from shardway.local.faults import Fault
from shardway.local.model.stream import even_ranges
from tests.local.rawhttp import SIGNED, Wire, call_bytes, request_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.local.embedded import LocalKinesis

ENTRIES = [{"Data": "YQ==", "PartitionKey": f"key-{number}"} for number in range(20)]
PUT = call_bytes("PutRecords", {"StreamName": "orders", "Records": ENTRIES})


@pytest.fixture
def wire(local: LocalKinesis) -> Iterator[Wire]:
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as connection:
        connection.call(call_bytes("CreateStream", {"StreamName": "orders", "ShardCount": 2}))
        yield connection


def new_wire(local: LocalKinesis) -> Wire:
    return Wire(int(local.endpoint_url.rpartition(":")[2]))


def iterator_of(wire: Wire, shard: int) -> str:
    where = {
        "StreamName": "orders",
        "ShardId": f"shardId-{shard:012d}",
        "ShardIteratorType": "TRIM_HORIZON",
    }
    return str(wire.call(call_bytes("GetShardIterator", where)).json()["ShardIterator"])


def stored(wire: Wire) -> int:
    """How many records the stream holds."""
    count = 0
    for shard in range(2):
        page = wire.call(call_bytes("GetRecords", {"ShardIterator": iterator_of(wire, shard)})).json()
        count += len(page["Records"])
    return count


@pytest.mark.parametrize(
    ("fault", "operation", "status", "code"),
    [
        (Fault(how="throttle", count=1), "GetRecords", 400, "ProvisionedThroughputExceededException"),
        (Fault(how="throttle", count=1), "ListShards", 400, "LimitExceededException"),
        (Fault(how="server_error", count=1), "GetRecords", 500, "InternalFailureException"),
        (Fault(how="access_denied", count=1), "GetRecords", 400, "AccessDeniedException"),
        (Fault(how="expired_token", count=1), "GetRecords", 400, "ExpiredTokenException"),
        (Fault(how="expired_iterator", count=1), "GetRecords", 400, "ExpiredIteratorException"),
        (
            Fault(how="error", code="KMSThrottlingException", message="slowly", status=400, count=1),
            "PutRecords",
            400,
            "KMSThrottlingException",
        ),
    ],
)
def test_a_call_is_refused_as_aws_would(
    local: LocalKinesis, wire: Wire, fault: Fault, operation: str, status: int, code: str
) -> None:
    order = local.faults.add(fault)
    reply = wire.call(call_bytes(operation, {"StreamName": "orders"}))
    assert (reply.status, reply.json()["__type"]) == (status, code)
    assert reply.headers["x-amzn-errortype"] == code
    assert reply.json()["message"]
    assert order.hits == 1
    assert wire.call(call_bytes("ListStreams", {})).status == 200
    assert local.stats().operations[operation].errors == 1


def test_the_java_sdk_gets_its_refusal_in_cbor(local: LocalKinesis, wire: Wire) -> None:
    local.faults.add(Fault(how="throttle"))
    media = "application/x-amz-cbor-1.1"
    headers = {"X-Amz-Target": "Kinesis_20131202.ListShards", "Content-Type": media} | SIGNED
    reply = wire.call(request_bytes(cbor2.dumps({"StreamName": "orders"}), headers=headers))
    assert reply.headers["content-type"] == media
    assert cbor2.loads(reply.body)["__type"] == "LimitExceededException"


@pytest.mark.parametrize(
    ("fault", "happens", "is_done"),
    [
        (Fault(how="reset", operation="PutRecords"), ConnectionResetError, False),
        (Fault(how="reset", operation="PutRecords", applied=True), ConnectionResetError, True),
        (Fault(how="lost_reply", operation="PutRecords"), EOFError, True),
        (Fault(how="truncate", operation="PutRecords"), EOFError, True),
    ],
    ids=["reset before", "reset after", "lost reply", "truncated"],
)
def test_a_connection_breaks_before_or_after_the_write(
    local: LocalKinesis, wire: Wire, fault: Fault, happens: type[Exception], is_done: bool
) -> None:
    local.faults.add(fault)
    with new_wire(local) as broken, pytest.raises(happens):
        broken.call(PUT)
    assert stored(wire) == (len(ENTRIES) if is_done else 0)
    assert local.stats().operations["PutRecords"].calls == 1
    assert local.stats().operations["PutRecords"].errors == 1


def test_a_truncated_answer_announces_more_than_comes(local: LocalKinesis, wire: Wire) -> None:
    local.faults.add(Fault(how="truncate"))
    with pytest.raises(EOFError, match=r"closed after \d+ of \d+ bytes"):
        wire.call(PUT)


def test_a_server_error_may_hide_that_the_write_was_done(local: LocalKinesis, wire: Wire) -> None:
    order = local.faults.add(Fault(how="server_error", operation="PutRecords", applied=True))
    assert wire.call(PUT).status == 500
    order.clear()
    assert stored(wire) == len(ENTRIES)


def test_a_delay_holds_up_one_connection_only(local: LocalKinesis, wire: Wire) -> None:
    local.faults.add(Fault(how="delay", operation="ListShards", delay_s=0.2, count=1))
    with new_wire(local) as other:
        began = time.monotonic()
        wire.send(call_bytes("ListShards", {"StreamName": "orders"}))
        assert other.call(call_bytes("ListStreams", {})).status == 200
        assert wire.reply().status == 200
        assert time.monotonic() - began >= 0.2


def test_a_delay_can_end_in_another_fault(local: LocalKinesis, wire: Wire) -> None:
    local.faults.add(Fault(how="lost_reply", operation="PutRecords", delay_s=0.01))
    with new_wire(local) as broken, pytest.raises(EOFError):
        broken.call(PUT)
    assert stored(wire) == len(ENTRIES)


def test_entries_of_a_write_fail_in_part(local: LocalKinesis, wire: Wire) -> None:
    order = local.faults.add(Fault(how="partial", operation="PutRecords", share=0.5, seed=1))
    answer = wire.call(PUT).json()
    entries: Any = answer["Records"]
    failed = [entry for entry in entries if "ErrorCode" in entry]
    assert answer["FailedRecordCount"] == len(failed)
    assert 0 < len(failed) < len(ENTRIES)
    assert {entry["ErrorCode"] for entry in failed} == {"ProvisionedThroughputExceededException"}
    assert {set(entry) == {"ErrorCode", "ErrorMessage"} for entry in failed} == {True}
    order.clear()
    assert stored(wire) == len(ENTRIES) - len(failed)
    assert local.stats().records("PutRecords") == len(ENTRIES) - len(failed)


def test_the_entries_that_are_stored_keep_their_place(local: LocalKinesis, wire: Wire) -> None:
    local.faults.add(Fault(how="partial", operation="PutRecords", shard="shardId-000000000001", code="InternalFailure"))
    first_of_second = even_ranges(2)[1][0]
    hashes = [0, first_of_second, 1, first_of_second + 1]
    request = [{"Data": "YQ==", "PartitionKey": "k", "ExplicitHashKey": str(one)} for one in hashes]
    answer = wire.call(call_bytes("PutRecords", {"StreamName": "orders", "Records": request})).json()
    entries: Any = answer["Records"]
    assert [entry.get("ErrorCode") for entry in entries] == [None, "InternalFailure", None, "InternalFailure"]
    assert [entry.get("ShardId") for entry in entries] == [
        "shardId-000000000000",
        None,
        "shardId-000000000000",
        None,
    ]
    assert entries[1]["ErrorMessage"] == "Internal Service Failure"
    assert stored(wire) == 2


def test_all_entries_may_fail(local: LocalKinesis, wire: Wire) -> None:
    local.faults.add(Fault(how="partial", operation="PutRecords", count=1))
    assert wire.call(PUT).json()["FailedRecordCount"] == len(ENTRIES)
    assert stored(wire) == 0


def test_a_write_that_is_wrong_as_a_whole_is_refused_as_a_whole(local: LocalKinesis, wire: Wire) -> None:
    local.faults.add(Fault(how="partial", operation="PutRecords", share=0.0))
    reply = wire.call(call_bytes("PutRecords", {"StreamName": "none", "Records": ENTRIES}))
    assert reply.json()["__type"] == "ResourceNotFoundException"
    reply = wire.call(call_bytes("PutRecords", {"StreamName": "orders", "Records": []}))
    assert reply.status == 400


def test_reads_of_one_shard_are_told_by_their_iterator(local: LocalKinesis, wire: Wire) -> None:
    iterators = [iterator_of(wire, shard) for shard in range(2)]
    local.faults.add(Fault(how="expired_iterator", stream="orders", shard="shardId-000000000001"))
    statuses = [wire.call(call_bytes("GetRecords", {"ShardIterator": iterator})).status for iterator in iterators]
    assert statuses == [200, 400]


@pytest.mark.parametrize(
    "fields",
    [
        {"StreamName": "orders", "ShardToSplit": "shardId-000000000001", "NewStartingHashKey": "1"},
        {
            "StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
            "ShardToSplit": "1",
            "NewStartingHashKey": "1",
        },
    ],
)
def test_a_shard_may_be_named_in_any_way(local: LocalKinesis, wire: Wire, fields: dict[str, str]) -> None:
    order = local.faults.add(Fault(how="throttle", stream="orders", shard="shardId-000000000001"))
    wire.call(call_bytes("SplitShard", fields))
    assert order.hits == 1


@pytest.mark.parametrize("body", [b'{"ShardIterator": "nonsense"}', b'{"StreamName": 5}', b"[1]"])
def test_calls_that_make_no_sense_are_the_models_business(local: LocalKinesis, wire: Wire, body: bytes) -> None:
    local.faults.add(Fault(how="throttle", stream="orders"))
    headers = {"X-Amz-Target": "Kinesis_20131202.GetRecords", "Content-Type": "application/x-amz-json-1.1"}
    reply = wire.call(request_bytes(body, headers=headers | SIGNED))
    assert reply.status == 400
    assert json.loads(reply.body)["__type"] != "ProvisionedThroughputExceededException"


def test_a_tag_singles_out_a_client(local: LocalKinesis, wire: Wire, boto: Callable[..., Any]) -> None:
    local.faults.add(Fault(how="throttle", tag="task"))
    boto(user_agent="tag/driver").list_streams()
    with pytest.raises(ClientError, match="LimitExceeded"):
        boto(user_agent="tag/task").list_streams()
