"""The check of requests: beside the public API model, and in the service's words."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

from shardway.local.model import ModelError
from shardway.local.model.checking import check
from shardway.local.model.requests import REQUESTS, Blob, Flag, Int32, Items, Pairs, Rule, Structure, Text, Time
from tests.local.model_kit import World

SERVICE = botocore.session.Session().get_service_model("kinesis")
LEFT_OUT = ("Queue", "Channel")
"""Operations that nothing here has yet."""

REQUIRED_MORE = {
    "UpdateMaxRecordSize": {"StreamARN"},
    "PutRecord": {"PartitionKey"},
    "PutRecords.Records.member": {"PartitionKey"},
}
"""What the model leaves open and the service asks for: a partition key unless the stream distributes by itself."""
BOUNDED_MORE = {"CreateStream.ShardCount", "IncreaseStreamRetentionPeriod.RetentionPeriodHours"} | {
    "DecreaseStreamRetentionPeriod.RetentionPeriodHours"
}
"""Where the service is known to check more than its model says."""


def bare(pattern: str | None) -> str | None:
    """A pattern without anchors and the brackets around all of it: the service quotes some without."""
    if pattern is None:
        return None
    pattern = pattern.removeprefix("^").removesuffix("$")
    return pattern[1:-1] if pattern == r"(0|([1-9]\d{0,128}))" or pattern == r"(0|([1-9]\d{0,38}))" else pattern


def compare(path: str, rule: Rule, shape: Shape) -> None:
    bounds = (shape.metadata.get("min"), shape.metadata.get("max"))
    match rule:
        case Text():
            assert isinstance(shape, StringShape), path
            assert (rule.min_length, rule.max_length) == bounds, path
            assert bare(rule.pattern) == bare(shape.metadata.get("pattern")), path
            assert sorted(rule.values or ()) == sorted(shape.enum or ()), path
        case Int32():
            assert shape.type_name == "integer", path
            assert path in BOUNDED_MORE or (rule.min_value, rule.max_value) == bounds, path
        case Flag():
            assert shape.type_name == "boolean", path
        case Time():
            assert shape.type_name == "timestamp", path
        case Blob():
            assert (shape.type_name, *bounds) == ("blob", 0, 10_485_760), path
        case Items():
            assert isinstance(shape, ListShape), path
            assert (rule.min_length, rule.max_length) == bounds, path
            compare(f"{path}.member", rule.member, shape.member)
        case Pairs():
            assert isinstance(shape, MapShape), path
            assert (rule.min_length, rule.max_length) == bounds, path
            compare(f"{path}.key", rule.key, shape.key)
            compare(f"{path}.value", rule.value, shape.value)
        case Structure():
            assert isinstance(shape, StructureShape), path
            assert set(rule.rules) == set(shape.members), path
            required = set(shape.required_members) | REQUIRED_MORE.get(path, set())
            if {"StreamName", "StreamARN"} <= set(shape.members) and "StreamName" in rule.required:
                required.add("StreamName")  # unless there is an ARN
            if "StreamARN" in rule.rules and "StreamName" not in rule.rules and path == "ListStreamConsumers":
                required.add("StreamARN")
            assert set(rule.required) == required, path
            for name, member in rule.rules.items():
                compare(f"{path}.{name}", member, shape.members[name])


@pytest.mark.parametrize("operation", sorted(REQUESTS))
def test_constraints_are_those_of_the_public_model(operation: str) -> None:
    compare(operation, REQUESTS[operation], SERVICE.operation_model(operation).input_shape)


def test_every_operation_of_the_public_model_is_there_but_queues_and_channels() -> None:
    public = {name for name in SERVICE.operation_names if not any(word in name for word in LEFT_OUT)}
    assert public == set(REQUESTS)
    assert public - {"SubscribeToShard"} == World().model.operations


# --- JSON types -----------------------------------------------------------------------------------

BIG_NUMBER = "class com.amazon.coral.value.json.numbers.TruncatingBigNumber"
CONTAINERS: list[tuple[Any, str]] = [
    ([], "Start of list found where not expected"),
    ({}, "Start of structure or map found where not expected."),
]
WRONG_TYPES: dict[str, tuple[str, str, list[tuple[Any, str]]]] = {
    "String": (
        "DescribeStream",
        "StreamName",
        [
            (True, "class java.lang.Boolean can not be converted to an String"),
            (23, f"{BIG_NUMBER} can not be converted to an String"),
            (34.56, f"{BIG_NUMBER} can not be converted to an String"),
            *CONTAINERS,
        ],
    ),
    "Integer": (
        "DescribeStream",
        "Limit",
        [
            ("23", "class java.lang.String can not be converted to an Integer"),
            (True, "class java.lang.Boolean can not be converted to an Integer"),
            *CONTAINERS,
        ],
    ),
    "Boolean": (
        "DeleteStream",
        "EnforceConsumerDeletion",
        [
            ("23", "'23' can not be converted to an Boolean"),
            (23, f"{BIG_NUMBER} can not be converted to an Boolean"),
            *CONTAINERS,
        ],
    ),
    "Timestamp": (
        "GetShardIterator",
        "Timestamp",
        [
            ("23", "class java.lang.String can not be converted to milliseconds since epoch"),
            (True, "class java.lang.Boolean can not be converted to milliseconds since epoch"),
            *CONTAINERS,
        ],
    ),
    "Blob": (
        "PutRecord",
        "Data",
        [
            (True, "class java.lang.Boolean can not be converted to a Blob"),
            (23, f"{BIG_NUMBER} can not be converted to a Blob"),
            *CONTAINERS,
            (
                "23456",
                "'23456' can not be converted to a Blob: "
                "Base64 encoded length is expected a multiple of 4 bytes but found: 5",
            ),
            ("=+/=", "'=+/=' can not be converted to a Blob: Invalid Base64 character: '='"),
            ("+/+=", "'+/+=' can not be converted to a Blob: Invalid last non-pad Base64 character dectected"),
        ],
    ),
    "List": (
        "PutRecords",
        "Records",
        [
            ("23", "Expected list or null"),
            (True, "Expected list or null"),
            (23, "Expected list or null"),
            CONTAINERS[1],
        ],
    ),
    "Map": (
        "AddTagsToStream",
        "Tags",
        [("23", "Expected map or null"), (True, "Expected map or null"), (23, "Expected map or null"), CONTAINERS[0]],
    ),
    "Structure": (
        "ListShards",
        "ShardFilter",
        [("23", "Expected null"), (True, "Expected null"), (23, "Expected null"), CONTAINERS[0]],
    ),
}


@pytest.mark.parametrize("kind", sorted(WRONG_TYPES))
def test_a_wrong_json_type_is_told_in_the_parsers_words(kind: str) -> None:
    operation, member, cases = WRONG_TYPES[kind]
    world = World()
    for value, message in cases:
        fault = world.fails(operation, **{member: value})
        assert (fault.code, fault.message) == ("SerializationException", message)


def test_types_inside_lists_and_maps_are_checked_too() -> None:
    world = World()
    fault = world.fails("PutRecords", Records=[[]])
    assert fault.message == "Start of list found where not expected"
    fault = world.fails("AddTagsToStream", Tags={"a": 1})
    assert fault.message == f"{BIG_NUMBER} can not be converted to an String"
    fault = world.fails("RemoveTagsFromStream", TagKeys=[True])
    assert fault.message == "class java.lang.Boolean can not be converted to an String"


def test_numbers_are_cut_to_32_bits_and_words_mean_booleans() -> None:
    assert check("DescribeStream", {"StreamName": "s", "Limit": 5.9})["Limit"] == 5
    for word, meant in (("true", True), ("No", False), ("1", True), (False, False)):
        assert check("DeleteStream", {"StreamName": "s", "EnforceConsumerDeletion": word}) == {
            "StreamName": "s",
            "EnforceConsumerDeletion": meant,
        }
    with pytest.raises(ModelError) as caught:
        check("DescribeStream", {"StreamName": "s", "Limit": 10**15})
    assert "Value '2147483647' at 'limit'" in str(caught.value.message)


def test_null_is_absent_and_what_is_unknown_is_dropped() -> None:
    assert check("DescribeStream", {"StreamName": "s", "Limit": None, "More": {}}) == {"StreamName": "s"}


# --- constraints ----------------------------------------------------------------------------------


def test_ten_errors_at_most_are_told() -> None:
    records = [{"PartitionKey": "", "Data": ""}] * 501
    fault = World().fails("PutRecords", StreamName="", Records=records)
    message = str(fault.message)
    assert message.startswith("10 validation errors detected: Value '[com.amazonaws.kinesis.v20131202.PutRecords")
    assert "Value '' at 'records.9.member.partitionKey' failed to satisfy constraint" in message
    assert "records.10.member" not in message


def test_lengths_of_data_are_told_as_the_service_prints_buffers() -> None:
    fault = World().fails("PutRecord", StreamName="s", PartitionKey="k", Data="A" * 1_398_104)
    assert fault.message == (
        "1 validation error detected: Value 'java.nio.HeapByteBuffer[pos=0 lim=1048578 cap=1048578]' at 'data' failed "
        "to satisfy constraint: Member must have length less than or equal to 1048576"
    )


def test_a_name_is_not_needed_beside_an_arn() -> None:
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/s"
    assert check("DescribeStream", {"StreamARN": arn}) == {"StreamARN": arn}
    fault = World().fails("DescribeStream", StreamARN="s")
    assert r"Member must satisfy regular expression pattern: arn:aws.*:kinesis:.*:\d{12}:stream/\S+" in str(
        fault.message
    )
