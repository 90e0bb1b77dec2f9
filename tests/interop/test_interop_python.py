"""What we aggregate, opened by readers in Python that are not ours: Google's protobuf library with the format's
schema, and AWS's module for Lambda functions.
"""

from __future__ import annotations

import base64
from hashlib import md5
from typing import Any

import pytest
from aws_kinesis_agg import deaggregator
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.aggregation.writer import Container, encode_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX
from tests.core.aggregation.kpl_schema import AggregatedRecord
from tests.interop.aggregate_shapes import UserRecords, containers, shapes

SHAPES = shapes()

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)
user_records = st.tuples(keys, st.binary(max_size=300), st.none() | st.integers(0, HASH_KEY_MAX) | st.integers(0, 3))


def read_by_schema(data: bytes) -> UserRecords:
    """The user records of an aggregate, by Google's library."""
    message = data[len(MAGIC) : -16]
    assert data[: len(MAGIC)] == MAGIC
    assert data[-16:] == md5(message).digest()
    parsed = AggregatedRecord()
    assert parsed.ParseFromString(message) == len(message)
    assert parsed.IsInitialized()
    return [
        (
            parsed.partition_key_table[one.partition_key_index],
            one.data,
            int(parsed.explicit_hash_key_table[one.explicit_hash_key_index])
            if one.HasField("explicit_hash_key_index")
            else None,
        )
        for one in parsed.records
    ]


def read_by_aws(container: Container) -> list[dict[str, Any]]:
    """What AWS's module delivers for one Kinesis record."""
    record = {
        "Data": container.data,
        "PartitionKey": container.partition_key,
        "SequenceNumber": "1",
        "ApproximateArrivalTimestamp": 0,
    }
    return [one["kinesis"] for one in deaggregator.iter_deaggregate_records([record], data_format="Boto3")]


def as_aws_hands_them_out(records: UserRecords) -> UserRecords:
    """AWS's module takes no notice of whether a user record has a hash key: in an aggregate in which any has
    one, it gives those without the first of the table.
    """
    table = [explicit for _, _, explicit in records if explicit is not None]
    return [(key, data, table[0] if table and explicit is None else explicit) for key, data, explicit in records]


def plain_or_opened(container: Container) -> UserRecords:
    """What is in a container of one user record or more, by Google's library."""
    if container.user_records > 1:
        return read_by_schema(container.data)
    assert open_aggregate(container.data) is None
    return [(container.partition_key, container.data, None)]


def assert_aws_reads(container: Container, records: UserRecords) -> None:
    opened = read_by_aws(container)
    assert [
        (
            one["partitionKey"],
            base64.b64decode(one["data"]),
            None if one["explicitHashKey"] is None else int(one["explicitHashKey"]),
        )
        for one in opened
    ] == as_aws_hands_them_out(records)
    assert [one["subSequenceNumber"] for one in opened] == list(range(len(records)))
    assert all(one["aggregated"] for one in opened)


@pytest.mark.parametrize("name", SHAPES)
def test_an_aggregate_of_each_shape(name: str) -> None:
    records = SHAPES[name]
    data = encode_aggregate(records)
    assert read_by_schema(data) == records
    assert_aws_reads(Container(data, "a", 0, len(records)), records)


@given(st.lists(user_records, min_size=1, max_size=30))
def test_aggregates_of_any_user_records(records: UserRecords) -> None:
    data = encode_aggregate(records)
    assert read_by_schema(data) == records
    assert_aws_reads(Container(data, "a", 0, len(records)), records)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("bytes_max", [200, 51_200])
def test_containers_hold_what_was_put_in_the_order_of_putting(name: str, bytes_max: int) -> None:
    records = SHAPES[name]
    made = containers(records, bytes_max)
    opened = [plain_or_opened(container) for container in made]
    assert [record[:2] for one in opened for record in one] == [record[:2] for record in records]
    at = 0
    for container in made:
        held = records[at : at + container.user_records]
        if container.user_records > 1:
            assert_aws_reads(container, held)
        else:
            assert read_by_aws(container)[0]["data"] == held[0][1]
        at += container.user_records
