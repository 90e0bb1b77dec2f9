"""PutRecords in CBOR: written and read as other CBOR libraries do; an endpoint that does not know it gets JSON."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws import cbor
from shardway.aws.calls.retry import NEVER
from shardway.aws.kinesis.client import CBOR_DATA_BYTES_MIN, KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.errors import (
    InvalidArgumentError,
    NotFoundError,
    ServiceError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.model import IteratorAt, StreamName
from shardway.testing import LocalKinesis
from tests.aws.aws_servers import Received, Reply, ScriptedServer, fault, ok

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAME = StreamName("orders")
LARGE = PutEntry(bytes(CBOR_DATA_BYTES_MIN), "k", "5")
SMALL = PutEntry(b"a", "k")
TAKEN: dict[str, Any] = {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "7", "ShardId": "shardId-0"}]}


@pytest.fixture
async def client(server: ScriptedServer, keys: None) -> AsyncIterator[KinesisClient]:
    async with Wire(ConnectionOptions(region="us-east-1", endpoint_url=server.url), retry=NEVER) as wire:
        yield KinesisClient(wire)


def in_cbor(answer: Any, status: int = 200) -> Reply:
    return Reply(cbor2.dumps(answer), status, headers={"Content-Type": cbor.CONTENT_TYPE})


def is_cbor(received: Received) -> bool:
    return received.headers["content-type"] == cbor.CONTENT_TYPE


# --- the format -----------------------------------------------------------------------------------------

entries = st.tuples(
    st.binary(max_size=70_000), st.text(max_size=256), st.none() | st.from_regex("[0-9]{1,39}", fullmatch=True)
)


@given(st.lists(entries, max_size=4))
def test_what_is_written_is_what_another_library_reads(some: list[tuple[bytes, str, str | None]]) -> None:
    told = cbor2.loads(cbor.put_records_body({"StreamName": "orders"}, some))
    assert told["StreamName"] == "orders"
    assert [(entry["Data"], entry["PartitionKey"], entry.get("ExplicitHashKey")) for entry in told["Records"]] == some


def test_a_request_of_the_most_entries_and_one_of_the_largest_record() -> None:
    many = cbor2.loads(cbor.put_records_body({"StreamARN": "a" * 300}, [(b"", "k", None)] * 500))
    assert (len(many["Records"]), many["StreamARN"]) == (500, "a" * 300)
    large = bytes(10 * 1024 * 1024)
    assert cbor2.loads(cbor.put_records_body({}, [(large, "k", None)]))["Records"][0]["Data"] == large


plain = st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats() | st.text() | st.binary()
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(), inner, max_size=30),
    max_leaves=60,
)


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other) or one == other


@given(values, st.booleans())
def test_what_another_library_writes_is_read(value: Any, indefinite: bool) -> None:
    assert same(cbor.decode(cbor2.dumps(value, indefinite_containers=indefinite)), value)


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [
        ("f93c00", 1.0),  # the examples of RFC 8949, appendix A
        ("f97c00", math.inf),
        ("fa47c35000", 100000.0),
        ("c11a514b67b0", 1363896240),
        ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"),
        ("7f657374726561646d696e67ff", "streaming"),
        ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("f7", None),
        ("3903e7", -1000),
    ],
)
def test_examples(hexadecimal: str, value: Any) -> None:
    assert cbor.decode(bytes.fromhex(hexadecimal)) == value


@pytest.mark.parametrize(
    "hexadecimal",
    [
        "",
        "ff",
        "0000",
        "1c",
        "1f",
        "df00",
        "82",
        "8201",
        "41",
        "6161ff",
        "a101",
        "bf01ff",
        "82ff00",
        "7f4161ff",
        "61ff",
        "f8ff",
        "a18000",
        "81" * 40 + "00",
    ],
)
def test_what_is_no_cbor(hexadecimal: str) -> None:
    with pytest.raises(ValueError, match=r"^(no CBOR|CBOR is nested more than|CBOR has a simple value without)"):
        cbor.decode(bytes.fromhex(hexadecimal))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(ValueError):  # nothing else, and no endless read
        cbor.decode(body)


# --- the client -----------------------------------------------------------------------------------------


async def test_large_records_go_as_cbor_and_small_ones_as_json(server: ScriptedServer, client: KinesisClient) -> None:
    server.otherwise = lambda received: in_cbor(TAKEN) if is_cbor(received) else ok(TAKEN)
    for entry in (LARGE, SMALL, LARGE):
        answer = await client.put_records(NAME, [entry])
        assert (answer.records[0].sequence_number, answer.records[0].shard_id) == ("7", "shardId-0")
    assert [is_cbor(one) for one in server.requests] == [True, False, True]
    assert cbor2.loads(server.requests[0].body) == {
        "StreamName": "orders",
        "Records": [{"Data": LARGE.data, "PartitionKey": "k", "ExplicitHashKey": "5"}],
    }
    assert server.requests[0].headers["x-amz-target"] == "Kinesis_20131202.PutRecords"


async def test_results_of_single_entries_in_cbor(server: ScriptedServer, client: KinesisClient) -> None:
    refused = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slowly", "ShardId": None}
    server.replies.append(in_cbor({"FailedRecordCount": 1, "Records": [TAKEN["Records"][0], refused]}))
    answer = await client.put_records(NAME, [LARGE, LARGE])
    assert answer.failed_record_count == 1
    assert [(one.sequence_number, one.error_code) for one in answer.records] == [
        ("7", None),
        (None, "ProvisionedThroughputExceededException"),
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [("ProvisionedThroughputExceededException", ThrottledError), ("ResourceNotFoundException", NotFoundError)],
)
async def test_errors_in_cbor(server: ScriptedServer, client: KinesisClient, code: str, kind: type[Exception]) -> None:
    server.otherwise = lambda received: in_cbor({"__type": code, "message": "why"}, 400)
    for _ in range(2):
        with pytest.raises(kind, match=f"PutRecords: {code}: why"):
            await client.put_records(NAME, [LARGE])
    assert all(map(is_cbor, server.requests))


@pytest.mark.parametrize(
    "refusal",
    [
        fault("SerializationException"),
        fault("UnknownOperationException"),
        fault("InvalidRequest"),
        fault("MissingParameter", status=422),
        Reply(b"", 400),
        Reply(b"", 415),
    ],
)
async def test_an_endpoint_that_does_not_know_cbor_gets_json_at_once_and_from_then_on(
    server: ScriptedServer, client: KinesisClient, refusal: Reply
) -> None:
    server.otherwise = lambda received: refusal if is_cbor(received) else ok(TAKEN)
    for _ in range(2):
        assert (await client.put_records(NAME, [LARGE])).records[0].sequence_number == "7"
    assert [is_cbor(one) for one in server.requests] == [True, False, False]


@pytest.mark.parametrize("code", ["InvalidArgumentException", "SomethingNew"])
async def test_what_is_refused_in_json_too_says_nothing_of_cbor(
    server: ScriptedServer, client: KinesisClient, code: str
) -> None:
    server.replies += [fault(code), fault(code), in_cbor(TAKEN)]
    with pytest.raises(ServiceError, match=code):
        await client.put_records(NAME, [LARGE])
    await client.put_records(NAME, [LARGE])
    assert [is_cbor(one) for one in server.requests] == [True, False, True]


async def test_an_endpoint_that_hangs_up_at_cbor_gets_json(server: ScriptedServer, client: KinesisClient) -> None:
    server.otherwise = lambda received: Reply(cut=-1, then="close") if is_cbor(received) else ok(TAKEN)
    for _ in range(2):
        with pytest.raises(TransportError):
            await client.put_records(NAME, [LARGE])
    await client.put_records(NAME, [LARGE])
    assert [is_cbor(one) for one in server.requests][-2:] == [True, False]


@pytest.mark.parametrize(
    "failure", [fault("InternalFailure", status=500), Reply(b"<html>", 500), Reply(b"", 500), Reply(b"", 503)]
)
async def test_after_a_failure_whose_reason_is_not_known_json_is_tried(
    server: ScriptedServer, client: KinesisClient, failure: Reply
) -> None:
    server.otherwise = lambda received: failure if is_cbor(received) else ok(TAKEN)
    with pytest.raises(UnavailableError):  # it may be written: the caller has to know
        await client.put_records(NAME, [LARGE])
    await client.put_records(NAME, [LARGE])
    assert [is_cbor(one) for one in server.requests] == [True, False]


async def test_an_answer_that_is_not_cbor(server: ScriptedServer, client: KinesisClient) -> None:
    server.otherwise = lambda received: ok(TAKEN)
    with pytest.raises(TransportError, match=r"PutRecords to orders: the answer cannot be read as CBOR"):
        await client.put_records(NAME, [LARGE])
    await client.put_records(NAME, [LARGE])
    assert [is_cbor(one) for one in server.requests] == [True, False]


async def test_an_endpoint_that_has_understood_cbor_is_not_asked_in_json(
    server: ScriptedServer, client: KinesisClient
) -> None:
    server.replies += [in_cbor(TAKEN), fault("SerializationException"), in_cbor(TAKEN)]
    await client.put_records(NAME, [LARGE])
    with pytest.raises(InvalidArgumentError):
        await client.put_records(NAME, [LARGE])
    await client.put_records(NAME, [LARGE])
    assert all(map(is_cbor, server.requests))


async def test_cbor_can_be_switched_off(server: ScriptedServer, keys: None) -> None:
    server.otherwise = lambda received: ok(TAKEN)
    async with Wire(ConnectionOptions(region="us-east-1", endpoint_url=server.url, cbor=False), retry=NEVER) as wire:
        await KinesisClient(wire).put_records(NAME, [LARGE])
    assert json.loads(server.requests[0].body)["Records"][0]["ExplicitHashKey"] == "5"


async def test_what_is_put_as_cbor_is_in_the_stream(keys: None) -> None:
    with LocalKinesis(streams={"orders": 1}) as local:
        connection = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)
        page = await put_and_read(connection)
    assert page == [(LONG.data, "kä"), (b"", "k")]


LONG = PutEntry(bytes(range(256)) * 20, "kä")


async def put_and_read(connection: ConnectionOptions) -> list[tuple[bytes, str | None]]:
    async with Wire(connection) as wire:
        client = KinesisClient(wire)
        answer = await client.put_records(NAME, [LONG, PutEntry(b"", "k", str(2**128 - 1))])
        assert answer.failed_record_count == 0
        assert client._cbor is True
        shard = (await client.list_shards(NAME))[0]
        iterator = await client.get_shard_iterator(NAME, shard.shard_id, IteratorAt.trim_horizon())
        page = await client.get_records(iterator)
        return [(record.data, record.partition_key) for record in page.records]
