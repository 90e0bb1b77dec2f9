"""What is opened, what stays plain and why, beside Google's protobuf library as an independent reader."""

from __future__ import annotations

import base64
from hashlib import md5
from typing import TYPE_CHECKING

import pytest
from aws_kinesis_agg import deaggregator
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.aggregation import reader
from shardway.core.aggregation.aggregate import AggregateLimits, UserRecord
from shardway.core.aggregation.reader import open_aggregate, why_plain
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX, hash_key
from shardway.core.protobuf import read_tag, varint
from tests.core.aggregation.aggregate_columns import append_user_records
from tests.core.aggregation.kpl_schema import AggregatedRecord

if TYPE_CHECKING:
    from shardway.core.aggregation.aggregate import Aggregate

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)
hash_keys = st.none() | st.integers(0, HASH_KEY_MAX)
user_records = st.tuples(keys, st.binary(max_size=300), hash_keys)


def framed(message: bytes) -> bytes:
    return MAGIC + message + md5(message).digest()


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def record(index: int, data: bytes, hash_index: int | None = None) -> bytes:
    middle = b"" if hash_index is None else number_field(2, hash_index)
    return field(3, number_field(1, index) + middle + field(3, data))


def opened(data: bytes, *limits: AggregateLimits) -> Aggregate:
    aggregate = open_aggregate(data, *limits)
    assert aggregate is not None
    return aggregate


def reason_of(data: bytes, *limits: AggregateLimits) -> str:
    """Why it is plain, which it is."""
    reason = why_plain(data, *limits)
    assert reason is not None
    return reason


def protobuf_reads(data: bytes) -> list[tuple[str, int | None, bytes]] | None:
    """The user records, read by Google's library; None where a message, an index or a hash key is not in order."""
    parsed = AggregatedRecord()
    try:
        parsed.ParseFromString(data[4:-16])
    except DecodeError:
        return None
    texts = parsed.partition_key_table
    if not parsed.IsInitialized() or not parsed.records or any(isinstance(text, bytes) for text in texts):
        return None
    out = []
    for one in parsed.records:
        explicit = None
        if one.HasField("explicit_hash_key_index"):
            if one.explicit_hash_key_index >= len(parsed.explicit_hash_key_table):
                return None
            text = parsed.explicit_hash_key_table[one.explicit_hash_key_index]
            if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 64):
                return None
            explicit = int(text)
        if one.partition_key_index >= len(texts) or (explicit or 0) > HASH_KEY_MAX:
            return None
        out.append((texts[one.partition_key_index], explicit, one.data))
    return out


STRICTER = {
    "a field has a wire type that is not in use",  # groups
    "a field's tag is not in its shortest form",
}


def assert_reads_as_protobuf(data: bytes) -> None:
    expected, aggregate = protobuf_reads(data), open_aggregate(data)
    columns: tuple[list[str], list[bytes], list[str | None]] = [], [], []
    assert append_user_records(data, *columns) == (0 if aggregate is None else len(aggregate))
    if aggregate is None:
        assert columns == ([], [], [])
        reason = why_plain(data)
        assert reason
        assert expected is None or reason in STRICTER
        return
    assert why_plain(data) is None
    assert [(one.partition_key, one.explicit_hash_key, one.data) for one in aggregate] == expected
    assert list(zip(*columns, strict=True)) == [
        (key, content, None if explicit is None else str(explicit)) for key, explicit, content in expected
    ]


@given(st.lists(user_records, min_size=1, max_size=40))
def test_round_trip(records: list[tuple[str, bytes, int | None]]) -> None:
    data = encode_aggregate(records)
    aggregate = open_aggregate(data)
    assert aggregate is not None
    assert list(aggregate) == [
        UserRecord(key, explicit, content, number) for number, (key, content, explicit) in enumerate(records)
    ]
    assert_reads_as_protobuf(data)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
@pytest.mark.parametrize("size", [0, 1, 121, 122, 123, 124, 127, 128, 16_383, 16_384])
def test_round_trip_where_varints_grow(count: int, size: int) -> None:
    records = [(f"key-{number}", bytes([number % 256]) * size, None) for number in range(count)]
    assert_reads_as_protobuf(encode_aggregate(records))
    assert len(opened(encode_aggregate(records))) == count


def test_indexes_of_three_bytes() -> None:
    message = b"".join(field(1, b"%d" % number) for number in range(16_500)) + record(16_400, b"x")
    (only,) = opened(framed(message))
    assert only == UserRecord("16400", None, b"x", 0)


def test_an_index_of_three_bytes_is_not_taken_for_one_of_two() -> None:
    """Its third byte looks like the tag of the data, and the tag like a length that fits."""
    message = b"".join(field(1, b"%d" % number) for number in range(16_500)) + record(0x1A << 14, b"x" * 25)
    assert "outside its table" in reason_of(framed(message))


def test_a_length_of_three_bytes_is_not_taken_for_one_of_two() -> None:
    """Padded with zeros, and followed by as much of an unknown field as the shorter reading would need."""
    padded_data = b"\x1a\x83\x80\x00" + b"abc"
    message = field(1, b"key") + field(3, number_field(1, 0) + padded_data + field(5, b"x" * 16_380))
    (only,) = opened(framed(message))
    assert only == UserRecord("key", None, b"abc", 0)


@given(st.lists(st.tuples(keys, st.binary(max_size=50)), min_size=1, max_size=20))
def test_aws_own_reader_reads_the_same(records: list[tuple[str, bytes]]) -> None:
    envelope = {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "sequenceNumber": "1",
            "approximateArrivalTimestamp": 0,
            "partitionKey": "a",
            "data": base64.b64encode(encode_aggregate((key, data, None) for key, data in records)),
        }
    }
    theirs = [one["kinesis"] for one in deaggregator.deaggregate_records([envelope])]
    assert [(one["partitionKey"], base64.b64decode(one["data"])) for one in theirs] == records
    assert [one["subSequenceNumber"] for one in theirs] == list(range(len(records)))


# --- everything that protobuf allows, and what it does not ----------------------------------------

small = st.integers(0, 3)
unknown_fields = st.one_of(
    st.tuples(st.integers(5, 300), st.integers(0, 2**64 - 1)).map(lambda pair: number_field(*pair)),
    st.tuples(st.integers(5, 300), st.binary(max_size=5)).map(lambda pair: field(*pair)),
    st.tuples(st.integers(5, 300), st.binary(min_size=8, max_size=8)).map(
        lambda pair: varint(pair[0] << 3 | 1) + pair[1]
    ),
    st.tuples(st.integers(5, 300), st.binary(min_size=4, max_size=4)).map(
        lambda pair: varint(pair[0] << 3 | 5) + pair[1]
    ),
    st.sampled_from([b"\x0b\x0c", b"\x18\x05", b"\x0d1234", b"\x8a\x00\x01k", b"\x00\x01", b"\x02\x01x", b"\x06"]),
)
padded = st.sampled_from(
    [b"\x00", b"\x80\x00", b"\x81\x00", b"\x80\x80\x00", b"\x80" * 9 + b"\x00", b"\x80" * 10 + b"\x00"]
)
user_tags = st.sampled_from(
    [field(4, field(1, b"k")), field(4, field(1, b"k") + field(2, b"v")), field(4, b""), field(4, b"\xff")]
)
record_fields = st.one_of(
    small.map(lambda value: number_field(1, value)),
    padded.map(lambda value: b"\x08" + value),
    small.map(lambda value: number_field(2, value)),
    st.binary(max_size=20).map(lambda value: field(3, value)),
    user_tags,
    unknown_fields,
)
usual_records = st.builds(record, small, st.binary(max_size=130), st.none() | small)
hash_texts = st.sampled_from(
    [b"0", b"7", b"007", str(HASH_KEY_MAX).encode(), str(HASH_KEY_MAX + 1).encode(), b"-1", b"x", b"", b"\xff"]
)
message_fields = st.one_of(
    usual_records,
    usual_records,
    st.lists(record_fields, max_size=5).map(lambda parts: field(3, b"".join(parts))),
    st.binary(max_size=5).map(lambda value: field(1, value)),
    keys.map(lambda value: field(1, value.encode())),
    hash_texts.map(lambda value: field(2, value)),
    unknown_fields,
)


@given(st.lists(message_fields, max_size=12))
def test_messages_of_any_shape_are_read_as_protobuf_reads_them(parts: list[bytes]) -> None:
    assert_reads_as_protobuf(framed(field(1, b"k0") + field(1, b"k1") + b"".join(parts)))


@given(st.lists(user_records, min_size=1, max_size=5), st.data())
def test_damaged_messages_are_read_as_protobuf_reads_them(
    records: list[tuple[str, bytes, int | None]], data: st.DataObject
) -> None:
    message = bytearray(encode_aggregate(records)[4:-16])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(message)))
    assert_reads_as_protobuf(framed(bytes(message)))
    assert_reads_as_protobuf(framed(bytes(message[:cut])))


@given(st.binary(max_size=60))
def test_any_bytes_with_a_right_digest_are_read_as_protobuf_reads_them(message: bytes) -> None:
    if message:
        assert_reads_as_protobuf(framed(message))
    else:
        assert open_aggregate(framed(message)) is None


@given(st.binary(max_size=60))
def test_any_bytes_without_a_right_digest_are_plain(data: bytes) -> None:
    for candidate in (data, MAGIC + data):
        assert open_aggregate(candidate) is None
        assert why_plain(candidate)


# --- reasons ------------------------------------------------------------------------------------

KEY = field(1, b"key")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (KEY, "no user records"),
        (record(0, b"secret"), "partition key's index is outside"),
        (KEY + record(1, b"secret"), "partition key's index is outside"),
        (KEY + record(0, b"secret", 0), "explicit hash key's index is outside"),
        (KEY + field(2, b"x") + record(0, b"secret", 0), "not a decimal number"),
        (KEY + field(2, b"+7") + record(0, b"secret", 0), "not a decimal number"),
        (KEY + field(2, b"9" * 64) + record(0, b"secret", 0), "not a decimal number"),
        (KEY + field(2, b"9" * 9999) + record(0, b"secret", 0), "not a decimal number"),
        (field(1, b"\xff") + record(0, b"secret"), "not UTF-8"),
        (KEY + field(3, number_field(1, 0)), "cut short"),
        (field(3, number_field(1, 0)) + KEY, "lacks its key index or its data"),
        (KEY + field(3, number_field(2, 0) + field(3, b"secret")), "lacks its key index or its data"),
        (KEY + field(3, field(3, b"secret")), "lacks its key index or its data"),
        (KEY + field(3, number_field(1, 0) + field(3, b"secret") + field(4, b"")), "lacks its key"),
        (KEY + record(0, b"secret")[:-1], "beyond the end"),
        (KEY + field(3, number_field(1, 0) + b"\x1a\x05abc"), "beyond the end"),
        (KEY + b"\x1a", "cut short"),
        (KEY + b"\x2d123", "beyond the end"),
        (KEY + b"\x29" + b"1234567", "beyond the end"),
        (KEY + b"\x0b\x0c", "wire type"),
        (KEY + b"\x00\x00", "no valid number"),
        (KEY + b"\x02\x00", "no valid number"),
        (KEY + b"\x8a\x00\x00", "shortest form"),
        (KEY + b"\x28" + b"\xff" * 10 + b"\x00", "longer than 10 bytes"),
    ],
)
def test_what_cannot_be_opened_is_plain_and_the_reason_is_told(message: bytes, reason: str) -> None:
    data = framed(message)
    assert open_aggregate(data) is None
    told = reason_of(data)
    assert reason in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "magic"),
        (b"\xf3\x89\x9a", "magic"),
        (b"\xf3\x89\x9a\xc3" + b"x" * 50, "magic"),
        (MAGIC, "more than 20"),
        (framed(b""), "more than 20"),
        (framed(KEY + record(0, b"x"))[:-1], "digest"),
        (framed(KEY + record(0, b"x")) + b"\x00", "digest"),
    ],
)
def test_what_is_not_framed_as_an_aggregate_is_plain(data: bytes, reason: str) -> None:
    assert open_aggregate(data) is None
    assert reason in reason_of(data)


def test_a_bad_table_entry_that_no_record_points_at_does_no_harm() -> None:
    aggregate = opened(framed(KEY + field(2, b"x") + record(0, b"d")))
    assert list(aggregate) == [UserRecord("key", None, b"d", 0)]


def test_leading_zeros_of_a_hash_key_are_read_as_the_kcl_reads_them() -> None:
    aggregate = opened(framed(KEY + field(2, b"007") + record(0, b"d", 0)))
    assert list(aggregate) == [UserRecord("key", 7, b"d", 0)]


# --- bounds ---------------------------------------------------------------------------------------


def test_at_its_limits_an_aggregate_is_opened_and_above_them_it_is_plain() -> None:
    data = encode_aggregate([("k1", b"x", 1), ("k2", b"x", 2), ("k1", b"x", None)])
    exact = AggregateLimits(records_max=3, table_entries_max=4, bytes_max=len(data))
    assert len(opened(data, exact)) == 3
    for less in (
        exact._replace(records_max=2),
        exact._replace(table_entries_max=3),
        exact._replace(bytes_max=len(data) - 1),
    ):
        assert open_aggregate(data, less) is None
        assert append_user_records(data, [], [], [], less) == 0
        assert "limit" in reason_of(data, less)


def test_a_key_longer_than_kinesis_takes_is_no_key() -> None:
    """Ten thousand user records that all name one long key would be a multiple of the record as rows."""
    widest = "\U0001f600" * 256
    assert len(opened(encode_aggregate([(widest, b"x", None)]))) == 1
    data = framed(field(1, b"k" * 1025) + record(0, b"d") * 10_000)
    assert open_aggregate(data) is None
    assert "more than 1024 bytes" in reason_of(data)


def test_unknown_fields_count_too() -> None:
    data = framed(KEY + b"\x28\x00" * 100 + record(0, b"d"))
    assert len(opened(data)) == 1
    few = AggregateLimits(records_max=10, table_entries_max=10)
    assert "more fields" in reason_of(data, few)


ODD = b"\x28\x00"
TAG = field(4, field(1, b""))


def filled(unit: bytes) -> bytes:
    return unit * ((1024 * 1024 - 100) // len(unit))


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(KEY + field(3, record(0, b"")[2:] + filled(ODD)), id="unknown fields in a record"),
        pytest.param(KEY + field(3, record(0, b"")[2:] + filled(number_field(1, 0))), id="repeated key indexes"),
        pytest.param(KEY + field(3, record(0, b"")[2:] + filled(number_field(2, 0))), id="repeated hash indexes"),
        pytest.param(KEY + field(3, record(0, b"")[2:] + filled(field(3, b""))), id="repeated data"),
        pytest.param(KEY + field(3, record(0, b"")[2:] + filled(TAG)), id="tags in a record"),
        pytest.param(KEY + field(3, record(0, b"")[2:] + field(4, filled(field(1, b"")))), id="keys in a tag"),
        pytest.param(KEY + field(3, record(0, b"")[2:] + field(4, filled(ODD))), id="unknown fields in a tag"),
        pytest.param(KEY + filled(field(3, record(0, b"")[2:] + ODD * 20)), id="unknown fields in each record"),
        pytest.param(KEY + filled(field(3, record(0, b"")[2:] + TAG * 9)), id="tags in each record"),
        pytest.param(KEY + filled(ODD) + record(0, b""), id="unknown fields of the message"),
        pytest.param(KEY + filled(field(9, b"")) + record(0, b""), id="unknown texts of the message"),
    ],
)
def test_fields_that_no_producer_writes_are_read_up_to_a_bound(message: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is right and the record is within its bytes. Work is counted in tags that were read one by one."""
    read = 0

    def counted(data: bytes, at: int) -> tuple[int, int]:
        nonlocal read
        read += 1
        return read_tag(data, at)

    monkeypatch.setattr(reader, "read_tag", counted)
    assert "limit" in reason_of(framed(message))
    assert read <= 150_000


def test_an_aggregate_with_some_odd_fields_is_opened() -> None:
    """A producer of a later version may write a field that this reader does not know."""
    one = field(3, record(0, b"d")[2:] + ODD * 2)
    assert len(opened(framed(KEY + ODD + one * 500))) == 500


@pytest.mark.parametrize("count", [1, 127, 128, 16_383, 16_384])
@pytest.mark.parametrize("size", [0, 127, 128, 16_383, 16_384])
def test_explicit_hash_keys_of_any_index_and_data_of_any_size(count: int, size: int) -> None:
    tables = b"".join(field(1, b"%d" % one) + field(2, b"%d" % one) for one in range(count))
    filler = b"".join(record(one, b"", one) for one in range(count))
    found = opened(framed(tables + filler + record(count - 1, b"x" * size, count - 1)))
    *_, last = found
    assert (last.partition_key, last.explicit_hash_key, len(last.data)) == (str(count - 1), count - 1, size)


def test_a_trace_in_each_of_many_small_records_is_no_odd_aggregate() -> None:
    tag = field(4, field(1, b"traceparent") + field(2, b"0" * 55))
    found = opened(framed(KEY + field(3, record(0, b"")[2:] + tag) * 13_000))
    assert set(found.tags()) == {(("traceparent", "0" * 55),)}


def test_by_default_a_mebibyte_of_the_smallest_user_records_is_opened_and_ten_are_not() -> None:
    smallest = record(0, b"")
    assert len(smallest) == 6
    fits = framed(KEY + smallest * ((1024 * 1024 - 40) // 6))
    assert len(opened(fits)) == 174_756
    assert open_aggregate(framed(KEY + smallest * 1_000_000)) is None


# --- the shard's hash range -----------------------------------------------------------------------


@given(st.lists(user_records, min_size=1, max_size=20), st.integers(0, HASH_KEY_MAX), st.integers(0, HASH_KEY_MAX))
def test_outside_names_the_user_records_whose_hash_key_is_not_in_the_range(
    records: list[tuple[str, bytes, int | None]], one: int, other: int
) -> None:
    first, last = sorted((one, other))
    effective = [hash_key(key) if explicit is None else explicit for key, _, explicit in records]
    aggregate = opened(encode_aggregate(records))
    assert aggregate.outside(first, last) == [
        number for number, key in enumerate(effective) if key < first or key > last
    ]
    assert aggregate.outside(0, HASH_KEY_MAX) == []
    assert aggregate.outside(min(effective), max(effective)) == []


def test_an_explicit_hash_key_takes_the_place_of_the_keys_own() -> None:
    own = hash_key("k")
    aggregate = opened(encode_aggregate([("k", b"", 5), ("k", b"", None)]))
    assert aggregate.outside(0, 5) == [1]
    assert aggregate.outside(own, own) == [0]
    assert list(aggregate.explicit_hash_keys()) == [5, None]
    assert list(aggregate.partition_keys()) == ["k", "k"]
