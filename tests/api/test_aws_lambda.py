"""Events as AWS Lambda sends them: aggregates are opened, failures are reported, and nothing is lost on the way."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway import OutRecord, ProducerOptions, Record, SyncProducer
from shardway.aggregates import open_aggregate, why_plain
from shardway.aws_lambda import handle_records, records_of, retry_from
from shardway.core.aggregation.writer import Aggregator
from shardway.testing import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable

ARN = "arn:aws:kinesis:us-east-2:123456789012:stream/lambda-stream"
FIRST = 49590338271490256608559692538361571095921575989136588898
DONE: dict[str, Any] = {"batchItemFailures": []}


def event_of(*datas: bytes, first: int = FIRST, **changed: Any) -> dict[str, Any]:
    """An event in the form of AWS's example: "Using Lambda to process records from Kinesis Data Streams"."""
    return {
        "Records": [
            {
                "kinesis": {
                    "kinesisSchemaVersion": "1.0",
                    "partitionKey": "1",
                    "sequenceNumber": str(first + number),
                    "data": base64.b64encode(data).decode(),
                    "approximateArrivalTimestamp": 1545084650.987,
                },
                "eventSource": "aws:kinesis",
                "eventVersion": "1.0",
                "eventID": f"shardId-000000000006:{first + number}",
                "eventName": "aws:kinesis:record",
                "invokeIdentityArn": "arn:aws:iam::123456789012:role/lambda-role",
                "awsRegion": "us-east-2",
                "eventSourceARN": ARN,
            }
            | changed
            for number, data in enumerate(datas)
        ]
    }


def aggregate_of(*records: tuple[str, bytes]) -> bytes:
    """Data as a producer writes it: one user record alone is a plain record."""
    writer = Aggregator(bytes_max=4 * 2**20)
    for key, data in records:
        assert writer.add(key, data)
    made = writer.finish()
    assert made is not None
    return made.data


def failing(*bad: bytes) -> Callable[[Record], None]:
    def handle(record: Record) -> None:
        if record.data in bad:
            raise ValueError(f"hush: {record.data!r}")

    return handle


def test_a_record_has_all_that_the_event_says() -> None:
    (record,) = records_of(event_of(b"Hello, this is a test."))
    assert record == Record(
        stream="lambda-stream",
        shard_id="shardId-000000000006",
        partition_key="1",
        data=b"Hello, this is a test.",
        sequence_number=FIRST,
        approximate_arrival_timestamp=dt.datetime(2018, 12, 17, 22, 10, 50, 987000, dt.UTC),
    )


@pytest.mark.parametrize(
    ("arn", "stream"),
    [
        (ARN, "lambda-stream"),
        (f"{ARN}/consumer/billing:1541000000", "lambda-stream"),
        ("arn:aws-cn:kinesis:cn-north-1:123456789012:stream/orders", "orders"),
    ],
)
def test_the_stream_is_that_of_the_arn_also_of_a_registered_consumer(arn: str, stream: str) -> None:
    (record,) = records_of(event_of(b"x", eventSourceARN=arn))
    assert record.stream == stream


def test_an_encrypted_stream_and_a_window_have_further_fields() -> None:
    event = event_of(b"x")
    event["Records"][0]["kinesis"]["encryptionType"] = "KMS"
    event |= {
        "window": {"start": "2020-12-09T07:04:00Z", "end": "2020-12-09T07:06:00Z"},
        "state": {"1": "282", "2": "715"},
        "shardId": "shardId-000000000006",
        "eventSourceARN": ARN,
        "isFinalInvokeForWindow": False,
        "isWindowTerminatedEarly": False,
    }
    assert [one.data for one in records_of(event)] == [b"x"]
    assert handle_records(event | {"Records": [], "isFinalInvokeForWindow": True}, failing()) == DONE


def test_the_user_records_of_an_aggregate_stand_in_its_place() -> None:
    event = event_of(b"before", aggregate_of(("a", b"one"), ("b", b"two")), b"behind")
    found = list(records_of(event))
    assert [(one.partition_key, one.data, one.aggregated) for one in found] == [
        ("1", b"before", False),
        ("a", b"one", True),
        ("b", b"two", True),
        ("1", b"behind", False),
    ]
    places = [(one.sequence_number - FIRST, one.sub_sequence_number) for one in found]
    assert places == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_an_event_is_not_changed() -> None:
    event = event_of(b"x", aggregate_of(("a", b"one")))
    before = copy.deepcopy(event)
    list(records_of(event))
    assert event == before


# --- failures -------------------------------------------------------------------------------------


def test_all_went_well() -> None:
    assert handle_records(event_of(b"a", b"b"), failing()) == DONE
    assert handle_records(event_of(b"a", b"b"), failing(), report_failures=True) == DONE


def test_a_failure_is_raised_where_the_mapping_may_not_know_reports() -> None:
    with pytest.raises(ValueError, match="hush"):
        handle_records(event_of(b"a", b"b"), failing(b"b"))


def test_a_failure_behind_the_first_record_is_reported_and_told_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = handle_records(event_of(b"a", b"b", b"c"), failing(b"b"), report_failures=True)
    assert answer == {"batchItemFailures": [{"itemIdentifier": str(FIRST + 1)}]}
    assert json.loads(json.dumps(answer)) == answer
    (line,) = [one.getMessage() for one in caplog.records if one.name == "shardway.aws_lambda"]
    assert re.fullmatch(
        rf"record {FIRST + 1} of shardId-000000000006 failed \(ValueError, at test_aws_lambda\.py:\d+.*\): "
        "Lambda sends it and those behind it again",
        line,
    )
    assert "hush" not in line


def test_a_failure_of_the_first_record_is_raised_so_that_lambda_counts_it_and_halves_the_batch() -> None:
    with pytest.raises(ValueError, match="hush"):
        handle_records(event_of(b"a", b"b"), failing(b"a"), report_failures=True)
    packed = event_of(aggregate_of(("a", b"one"), ("b", b"two")), b"behind")
    with pytest.raises(ValueError, match="hush"):
        handle_records(packed, failing(b"two"), report_failures=True)


def test_of_an_aggregate_all_user_records_come_again() -> None:
    event = event_of(b"a", aggregate_of(("a", b"one"), ("b", b"two")), b"behind")
    seen: list[bytes] = []

    def handle(record: Record) -> None:
        seen.append(record.data)
        failing(b"two")(record)

    answer = handle_records(event, handle, report_failures=True)
    assert answer == {"batchItemFailures": [{"itemIdentifier": str(FIRST + 1)}]}
    assert seen == [b"a", b"one", b"two"]


def test_a_dead_letter_lets_the_event_go_on() -> None:
    kept: list[tuple[bytes, str]] = []
    answer = handle_records(
        event_of(b"a", b"b", b"c"),
        failing(b"a", b"c"),
        report_failures=True,
        dead_letter=lambda record, error: kept.append((record.data, type(error).__name__)),
    )
    assert answer == DONE
    assert kept == [(b"a", "ValueError"), (b"c", "ValueError")]


def test_a_dead_letter_that_is_not_kept_is_a_failure_of_its_record() -> None:
    def away(record: Record, error: Exception) -> None:
        raise OSError("the queue is away")

    event = event_of(b"a", b"b")
    answer = handle_records(event, failing(b"b"), report_failures=True, dead_letter=away)
    assert answer == {"batchItemFailures": [{"itemIdentifier": str(FIRST + 1)}]}
    with pytest.raises(OSError, match="away") as raised:
        handle_records(event, failing(b"b"), dead_letter=away)
    assert isinstance(raised.value.__context__, ValueError)


async def later(*values: Any) -> None:
    """What a function that is async returns is never awaited."""


def test_an_async_function_is_refused_and_no_record_counts_as_handled() -> None:
    event = event_of(b"a", b"b")
    for report in (False, True):
        with pytest.raises(TypeError, match="handler is async, and nothing awaits it"):
            handle_records(event, later, report_failures=report)
    with pytest.raises(TypeError, match="dead_letter is async"):
        handle_records(event, failing(b"b"), report_failures=True, dead_letter=later)


def test_what_ends_the_process_is_never_caught() -> None:
    def ends(record: Record) -> None:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        handle_records(event_of(b"a", b"b"), ends, report_failures=True, dead_letter=lambda *_: None)


class Mapping:
    """An event source mapping over one shard, by AWS's page on partial batch responses: a report moves the checkpoint
    to the lowest sequence number in it; any other answer is success; an exception repeats the batch, or halves it.
    """

    def __init__(self, records: list[dict[str, Any]], *, reports: bool, batch: int, bisect: bool) -> None:
        self._records = records
        self._reports = reports
        self._batch = batch
        self._bisect = bisect

    def run(self, function: Callable[[dict[str, Any]], Any], invocations_max: int = 10_000) -> None:
        at, size = 0, self._batch
        for _ in range(invocations_max):
            if at >= len(self._records):
                return
            sent = self._records[at : at + size]
            try:
                answer = function({"Records": copy.deepcopy(sent)})
            except ValueError:
                size = max(1, len(sent) // 2) if self._bisect else size
                continue
            failures = (answer or {}).get("batchItemFailures") or [] if self._reports else []
            numbers = [one["kinesis"]["sequenceNumber"] for one in sent]
            lowest = min((numbers.index(one["itemIdentifier"]) for one in failures), default=len(sent))
            at, size = at + lowest, self._batch
        raise AssertionError("the shard stands still")


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_every_record_is_handled_in_order_whatever_fails_how_often(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))  # 0: a plain record
    reports = data.draw(st.booleans())
    names: list[list[bytes]] = []
    datas: list[bytes] = []
    for number, size in enumerate(sizes):
        users = [b"%d.%d" % (number, sub) for sub in range(max(1, size))]
        names.append(users)
        datas.append(aggregate_of(*(("k", user) for user in users)) if size else users[0])
    left = {
        name: data.draw(st.integers(0, 3)) for users in names for name in users if data.draw(st.booleans())
    }  # fmt: skip
    done: list[bytes] = []

    def handle(record: Record) -> None:
        if left.get(record.data, 0) > 0:
            left[record.data] -= 1
            raise ValueError("not yet")
        done.append(record.data)

    mapping = Mapping(
        event_of(*datas)["Records"],
        reports=reports,
        batch=data.draw(st.integers(1, 8)),
        bisect=data.draw(st.booleans()),
    )
    mapping.run(lambda event: handle_records(event, handle, report_failures=reports))
    wanted = [name for users in names for name in users]
    firsts = list(dict.fromkeys(done))
    assert firsts == wanted


# --- what is no event, or a hostile one -----------------------------------------------------------


def without(event: dict[str, Any], *path: str) -> dict[str, Any]:
    inner = event["Records"][0]
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return event


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (None, "the event has no list Records"),
        ([], "the event has no list Records"),
        ({}, "the event has no list Records"),
        ({"Records": {}}, "the event has no list Records"),
        ({"deliveryStreamArn": "arn", "records": []}, "and is one of Firehose"),
        ({"Records": [{"eventSource": "aws:sqs"}]}, "records come from aws:sqs, not from Kinesis"),
        ({"Records": [{"EventSource": "aws:sns"}]}, "records come from None, not from Kinesis"),
        ({"Records": [{"eventSource": "\x1b[2J" * 100}]}, r"come from \\x1b\[2J"),
        ({"Records": [7]}, "come from None, not from Kinesis"),
        (without(event_of(b"hush"), "kinesis"), "the event is none of Kinesis: .*`kinesis`"),
        (without(event_of(b"hush"), "kinesis", "sequenceNumber"), "none of Kinesis: .*`sequenceNumber`"),
        (without(event_of(b"hush"), "eventID"), "none of Kinesis: .*`eventID`"),
    ],
)
def test_what_is_no_event_of_kinesis_is_told_in_one_line(event: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        handle_records(event, failing())
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", "hush*"),
        ("data", 7),
        ("data", None),
        ("partitionKey", None),
        ("sequenceNumber", "-1"),
        ("sequenceNumber", "hush"),
        ("sequenceNumber", "9" * 5000),
        ("sequenceNumber", "\u0661"),
        ("approximateArrivalTimestamp", float("nan")),
        ("approximateArrivalTimestamp", float("inf")),
        ("approximateArrivalTimestamp", -1.0),
        ("approximateArrivalTimestamp", 1e300),
        ("approximateArrivalTimestamp", "yesterday"),
    ],
)
def test_a_field_that_lambda_never_sends_is_refused_before_the_first_record(field: str, value: Any) -> None:
    event = event_of(b"a", b"b")
    event["Records"][1]["kinesis"][field] = value
    seen: list[Record] = []
    with pytest.raises(ValueError, match=rf"none of Kinesis: .*\$\.Records\[1\]\.kinesis\.{field}") as refused:
        handle_records(event, seen.append, report_failures=True)
    assert seen == []
    assert "hush" not in str(refused.value)


WHOLE = aggregate_of(("a", b"one"), ("b", b"two"))
HOSTILE = [
    WHOLE[:-1],
    WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]),
    WHOLE[:4],
    WHOLE[:4] + bytes(20),
    WHOLE + b"more",
    b"\xf3\x89\x9a\xc2",
    b"\xf3\x89\x9a\xc2" + b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(16),
    b"",
]


@pytest.mark.parametrize("data", HOSTILE)
def test_a_hostile_aggregate_is_a_plain_record_which_no_other_suffers_from(data: bytes) -> None:
    found = list(records_of(event_of(b"before", data, WHOLE)))
    assert [one.data for one in found] == [b"before", data, b"one", b"two"]
    assert not found[1].aggregated
    assert open_aggregate(data) is None
    assert why_plain(data)


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300), st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_whatever_stands_in_a_record_is_delivered(data: bytes, place: int, byte: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] = byte
    for one in (data, WHOLE[:4] + data, bytes(changed)):
        found = list(records_of(event_of(one)))
        if not found[0].aggregated:
            assert [record.data for record in found] == [one]


def test_an_aggregate_of_many_small_records_takes_no_memory_ahead() -> None:
    """The records are made one by one: a function that fails at the first makes no others."""
    many = aggregate_of(*(("k", b"") for _ in range(100_000)))
    event = event_of(*[many] * 5)
    records = records_of(event)
    assert next(records).sub_sequence_number == 0
    with pytest.raises(ValueError, match="hush"):
        handle_records(event, failing(b""), report_failures=True)


def test_an_aggregate_inside_of_an_aggregate_stays_closed() -> None:
    found = list(records_of(event_of(aggregate_of(("a", WHOLE), ("b", b"x")))))
    assert [one.data for one in found] == [WHOLE, b"x"]


# --- from a stream --------------------------------------------------------------------------------


@pytest.fixture
def stream() -> tuple[Any, list[dict[str, Any]]]:
    """What a producer wrote in aggregates, as Lambda's poller reads it and makes events of it."""
    with LocalKinesis(streams={"orders": 1}) as local:
        kinesis = boto3.client(
            "kinesis",
            endpoint_url=local.endpoint_url,
            region_name=local.region,
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        from shardway import ConnectionOptions, Credentials

        with SyncProducer(
            "orders",
            region=local.region,
            endpoint_url=local.endpoint_url,
            options=ProducerOptions(aggregation=True, aggregate_bytes_max=300),
            connection=ConnectionOptions(credentials=Credentials("local", "local")),
        ) as producer:
            producer.put_many([(f"key-{number % 7}", b"%d" % number) for number in range(200)]).wait().raise_failure()
            producer.put(OutRecord(b"large" * 100, "key"))
        iterator = kinesis.get_shard_iterator(
            StreamName="orders", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        read = kinesis.get_records(ShardIterator=iterator)["Records"]
        kinesis.close()
    records = [
        {
            "kinesis": {
                "kinesisSchemaVersion": "1.0",
                "partitionKey": one["PartitionKey"],
                "sequenceNumber": one["SequenceNumber"],
                "data": base64.b64encode(one["Data"]).decode(),
                "approximateArrivalTimestamp": one["ApproximateArrivalTimestamp"].timestamp(),
            },
            "eventSource": "aws:kinesis",
            "eventID": f"shardId-000000000000:{one['SequenceNumber']}",
            "eventSourceARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
        }
        for one in read
    ]
    return read, records


def test_what_a_producer_aggregated_is_handled_whole(stream: tuple[Any, list[dict[str, Any]]]) -> None:
    read, records = stream
    assert 1 < len(read) < 200
    done: list[Record] = []
    failed: set[bytes] = set()

    def handle(record: Record) -> None:
        if record.data in (b"50", b"51", b"199") and record.data not in failed:
            failed.add(record.data)
            raise ValueError("not yet")
        done.append(record)

    mapping = Mapping(records, reports=True, batch=4, bisect=True)
    mapping.run(lambda event: handle_records(json.loads(json.dumps(event)), handle, report_failures=True))
    assert failed == {b"50", b"51", b"199"}
    places = {(one.sequence_number, one.sub_sequence_number): one for one in done}
    for key in range(7):
        own = [int(one.data) for one in places.values() if one.partition_key == f"key-{key}"]
        assert own == list(range(key, 200, 7))
    assert [one.data for one in places.values() if one.partition_key == "key"] == [b"large" * 100]


def test_a_function_that_works_in_bulk_says_from_where_to_go_on() -> None:
    records = list(records_of(event_of(b"a", b"b", b"c")))
    assert retry_from(records[1]) == {"batchItemFailures": [{"itemIdentifier": str(FIRST + 1)}]}


def test_the_first_import_brings_neither_botocore_nor_an_event_loop() -> None:
    import subprocess
    import sys

    told = "import sys, shardway.aws_lambda; print({'botocore', 'boto3', 'pyspark', 'asyncio'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
