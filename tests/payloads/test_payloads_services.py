"""What CloudWatch Logs, DMS and DynamoDB put into a stream becomes values, or is refused with a reason."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway import deserializers
from shardway.errors import PayloadError
from shardway.payloads.dms import dms_text
from shardway.payloads.dynamodb_change import DEPTH_MAX, dynamodb_text

LOGS: dict[str, Any] = {
    "messageType": "DATA_MESSAGE",
    "owner": "123456789012",
    "logGroup": "/aws/lambda/orders",
    "logStream": "2026/11/28/[1]ab",
    "subscriptionFilters": ["to-kinesis"],
    "logEvents": [
        {"id": "3953", "timestamp": 1_764_300_000_123, "message": "first"},
        {"id": "3954", "timestamp": 0, "message": "", "extractedFields": {"level": "ERROR", "code": None}},
    ],
}
DMS: dict[str, Any] = {
    "data": {"id": 7, "name": "Größe"},
    "metadata": {
        "timestamp": "2026-11-28T15:00:01.123456Z",
        "record-type": "data",
        "operation": "update",
        "partition-key-type": "schema-table",
        "schema-name": "shop",
        "table-name": "orders",
        "transaction-id": 12_884_904_641,
    },
    "before-image": {"id": 6},
}
CHANGE: dict[str, Any] = {
    "awsRegion": "eu-west-1",
    "eventID": "5b7b",
    "eventName": "MODIFY",
    "userIdentity": None,
    "recordFormat": "application/json",
    "tableName": "orders",
    "dynamodb": {
        "ApproximateCreationDateTime": 1_764_300_000_123,
        "Keys": {"id": {"S": "o-1"}},
        "NewImage": {"id": {"S": "o-1"}, "amount": {"N": "1.10"}},
        "OldImage": {"id": {"S": "o-1"}},
        "SizeBytes": 91,
    },
    "eventSource": "aws:dynamodb",
}
READERS = {
    "cloudwatch_logs": (deserializers.cloudwatch_logs(), LOGS),
    "dms": (deserializers.dms(), DMS),
    "dynamodb_change": (deserializers.dynamodb_change(), CHANGE),
}
EACH = pytest.mark.parametrize("name", READERS)


def packed(value: object) -> bytes:
    return json.dumps(value).encode()


def change_with(typed: object) -> bytes:
    return packed({**CHANGE, "dynamodb": {"Keys": {"id": {"S": "o-1"}}, "NewImage": {"a": typed}}})


def attribute(typed: object) -> Any:
    image = deserializers.dynamodb_change()(change_with(typed)).new_image
    assert image is not None
    return image["a"]


@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gzip", "plain"])
def test_log_events(pack: Any) -> None:
    found = deserializers.cloudwatch_logs()(pack(packed(LOGS)))
    assert (found.owner, found.log_group, found.log_stream) == (LOGS["owner"], LOGS["logGroup"], LOGS["logStream"])
    assert found.subscription_filters == ["to-kinesis"]
    assert not found.is_control
    first, second = found.log_events
    assert (first.id, first.message, first.extracted_fields) == ("3953", "first", None)
    assert first.timestamp == dt.datetime(2025, 11, 28, 3, 20, 0, 123_000, tzinfo=dt.UTC)
    assert second.extracted_fields == {"level": "ERROR", "code": None}


def test_a_control_message_says_that_it_is_one() -> None:
    control = {**LOGS, "messageType": "CONTROL_MESSAGE", "owner": "CloudwatchLogs", "logGroup": "", "logStream": ""}
    assert deserializers.cloudwatch_logs()(gzip.compress(packed(control))).is_control


def test_log_events_that_open_to_too_much_are_refused() -> None:
    with pytest.raises(PayloadError, match="opens to more than 100 bytes"):
        deserializers.cloudwatch_logs(opened_bytes_max=100)(gzip.compress(packed(LOGS)))


@pytest.mark.parametrize("timestamp", [-1, 2**63, 253_402_300_800_000, 1.5, "1", None])
def test_a_time_that_python_has_not_is_refused(timestamp: Any) -> None:
    wrong = {**LOGS, "logEvents": [{"id": "1", "timestamp": timestamp, "message": "secret"}]}
    with pytest.raises(PayloadError, match=r"no record of CloudWatch Logs: .*\$\.logEvents\[0\]\.timestamp"):
        deserializers.cloudwatch_logs()(packed(wrong))


def test_half_an_emoji_spoils_no_record() -> None:
    """CloudWatch cuts long lines, and a database may hold any text."""
    cut = packed({**LOGS, "logEvents": [{"id": "1", "timestamp": 1, "message": "HALF"}]})
    found = deserializers.cloudwatch_logs()(gzip.compress(cut.replace(b"HALF", rb"so \ud83d")))
    assert found.log_events[0].message == "so \ufffd"
    row = deserializers.dms()(packed(DMS).replace(b'"id": 7', rb'"\ud83d": "\ud83d\ude00 \uDE00", "price": 1.10'))
    assert row.data == {"\ufffd": "\U0001f600 \ufffd", "price": Decimal("1.10"), "name": "Größe"}
    changed = deserializers.dynamodb_change()(packed(CHANGE).replace(b'"1.10"', rb'"1.10"}, "b": {"S": "\ud83d"'))
    assert changed.new_image == {"id": "o-1", "amount": Decimal("1.10"), "b": "\ufffd"}


def test_a_row_of_dms() -> None:
    found = deserializers.dms()(packed(DMS))
    assert (found.record_type, found.operation, found.is_control) == ("data", "update", False)
    assert (found.schema_name, found.table_name, found.transaction_id) == ("shop", "orders", "12884904641")
    assert found.timestamp == dt.datetime(2026, 11, 28, 15, 0, 1, 123_456, tzinfo=dt.UTC)
    assert (found.data, found.before_image) == ({"id": 7, "name": "Größe"}, {"id": 6})
    assert found.metadata["partition-key-type"] == "schema-table"


def test_numbers_of_dms_lose_no_digit() -> None:
    data = b'{"data": {"a": 1.10, "b": 1e40, "c": 12345678901234567890123, "d": -0.0}, "metadata": {"record-type": '
    found = deserializers.dms()(data + b'"data", "operation": "insert"}}')
    assert found.data == {"a": Decimal("1.10"), "b": Decimal("1e40"), "c": 12345678901234567890123, "d": Decimal("0")}
    assert str(found.data["a"]) == "1.10"
    assert dms_text(data + b'"data", "operation": "insert"}}').data == data[9:].partition(b', "metadata"')[0].decode()


def test_a_control_record_of_dms_has_no_row() -> None:
    found = deserializers.dms()(packed({"metadata": {"record-type": "control", "operation": "create-table"}}))
    assert (found.is_control, found.data, found.before_image, found.timestamp) == (True, None, None, None)


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ({"S": ""}, ""),
        ({"N": "-12.50"}, Decimal("-12.50")),
        ({"N": "1E+125"}, Decimal("1E+125")),
        ({"N": "12345678901234567890123456789012345678"}, Decimal("12345678901234567890123456789012345678")),
        ({"B": "AP8="}, b"\x00\xff"),
        ({"BOOL": False}, False),
        ({"NULL": True}, None),
        ({"SS": ["a", "b"]}, {"a", "b"}),
        ({"NS": ["1", "1.5"]}, {Decimal(1), Decimal("1.5")}),
        ({"BS": ["AA==", "AQ=="]}, {b"\0", b"\1"}),
        ({"L": [{"N": "1"}, {"L": []}, {"M": {}}]}, [Decimal(1), [], {}]),
        ({"M": {"a.b": {"M": {"S": {"S": "S"}}}}}, {"a.b": {"S": "S"}}),
    ],
)
def test_attributes_are_plain_values(typed: Any, plain: Any) -> None:
    assert attribute(typed) == plain


@pytest.mark.parametrize(
    "typed",
    [
        *({}, {"S": 1}, {"S": None}, {"S": "a", "N": "1"}, {"s": "a"}, {"N": 1}, {"N": ""}, {"N": "NaN"}, {"N": "1_0"}),
        *({"N": "Infinity"}, {"N": "١"}, {"N": "1e99999999999999999999"}, {"N": "secret"}, {"B": "AP8"}, {"B": "Ä"}),
        *(
            {"BOOL": 1},
            {"NULL": False},
            {"NULL": None},
            {"SS": ["a", 1]},
            {"SS": "ab"},
            {"L": {}},
            {"M": []},
            {"L": [1]},
        ),
        *("a", 1, None, [], {"N": "9" * 5_000}),
    ],
)
def test_what_is_no_attribute_is_refused(typed: Any) -> None:
    with pytest.raises(PayloadError, match="an attribute is not one of DynamoDB's types") as told:
        attribute(typed)
    assert "secret" not in str(told.value)


def test_attributes_lie_so_deep_and_no_deeper() -> None:
    deep: Any = {"S": "x"}
    for _ in range(DEPTH_MAX):
        deep = {"L": [deep]}
    assert attribute(deep)
    with pytest.raises(PayloadError):
        attribute({"L": [deep]})


def test_a_change() -> None:
    found = deserializers.dynamodb_change()(packed(CHANGE))
    assert (found.event_name, found.event_id, found.table_name, found.region) == (
        "MODIFY",
        "5b7b",
        "orders",
        "eu-west-1",
    )
    assert found.created == dt.datetime(2025, 11, 28, 3, 20, 0, 123_000, tzinfo=dt.UTC)
    assert (found.keys, found.old_image, found.size_bytes) == ({"id": "o-1"}, {"id": "o-1"}, 91)
    assert not found.is_expiry


@pytest.mark.parametrize(("precision", "micros"), [("MILLISECOND", 5_000), ("MICROSECOND", 5)])
def test_the_unit_of_a_changes_time(precision: str, micros: int) -> None:
    images = {"Keys": {}, "ApproximateCreationDateTime": 5, "ApproximateCreationDateTimePrecision": precision}
    found = deserializers.dynamodb_change()(packed({**CHANGE, "dynamodb": images}))
    assert found.created == dt.datetime(1970, 1, 1, 0, 0, 0, micros, tzinfo=dt.UTC)
    assert (found.new_image, found.old_image) == (None, None)


@pytest.mark.parametrize(
    "more",
    [
        {"ApproximateCreationDateTime": 2**62},
        {"ApproximateCreationDateTime": 5, "ApproximateCreationDateTimePrecision": "SECOND"},
    ],
)
def test_a_changes_time_that_cannot_be_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(PayloadError, match="time"):
        deserializers.dynamodb_change()(packed({**CHANGE, "dynamodb": {"Keys": {}, **more}}))


def test_an_item_that_expired_says_so() -> None:
    identity = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    data = packed({**CHANGE, "eventName": "REMOVE", "userIdentity": identity})
    assert deserializers.dynamodb_change()(data).is_expiry
    assert dynamodb_text(data).is_expiry
    assert not deserializers.dynamodb_change()(packed({**CHANGE, "userIdentity": {"principalId": None}})).is_expiry


def test_a_change_as_json_keeps_numbers_and_the_order_of_sets() -> None:
    typed = {"M": {"n": {"N": "1.10"}, "b": {"B": "AP8="}, "s": {"SS": ["b", "a"]}, "z": {"NULL": True}}}
    text = dynamodb_text(change_with(typed))
    assert text.new_image == '{"a":{"n":1.10,"b":"AP8=","s":["b","a"],"z":null}}'
    assert text.keys == '{"id":"o-1"}'


@EACH
@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"null", b'"text"', b"{}", b"\xff", b"\x1f\x8b", b"{} {}", b'{"a": NaN}'),
        *(b"[" * 100_000, b'{"data":' * 100_000, b'{"data": {"a": "\xff"}, "metadata": {"record-type": 1}}'),
    ],
)
def test_what_is_no_such_record_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(PayloadError, match=r"it is (no )?"):
        READERS[name][0](data)


WRONG: tuple[object, ...] = ("secret 4111", 7.5, None, [], {})


@EACH
def test_a_field_of_another_type_is_named_and_its_value_is_not(name: str) -> None:
    """Each field of the record in turn has a wrong type, is missing, or is null."""
    read, good = READERS[name]

    def spoiled(value: Any) -> Any:
        if isinstance(value, dict):
            for key in value:
                for wrong in WRONG:
                    yield {**value, key: wrong}
                yield {other: one for other, one in value.items() if other != key}
                for inner in spoiled(value[key]):
                    yield {**value, key: inner}

    told = []
    for wrong in spoiled(good):
        try:
            read(packed(wrong))
        except PayloadError as fault:
            told.append(str(fault))
    assert len(told) > 20
    assert [one for one in told if "4111" in one] == []


NAMES = st.sampled_from(["S", "N", "L", "M", "NS", "metadata", "data", "Keys"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3),
)


@given(ANY_JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    for name, (read, good) in READERS.items():
        for field in good:
            try:
                read(packed({**good, field: value}))
            except PayloadError:
                continue
            except Exception as error:  # the name of the reader is worth more than its trace
                pytest.fail(f"{name}: {error!r}")
