"""What a sink is told: every fault at once, and nothing that would be dropped in silence."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardway.errors import OptionError
from shardway.model import StreamName
from shardway.spark.columns import SCHEMA
from shardway.spark.options.parsing import SINK_OPTIONS, check_options, parse_sink_options
from shardway.spark.options.sink_columns import SinkColumns, sink_columns
from shardway.spark.options.sink_options import SinkOptions

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def parse(**given: str) -> SinkOptions:
    return parse_sink_options(given)


def faults(**given: str) -> list[str]:
    with pytest.raises(OptionError) as caught:
        parse(**given)
    return caught.value.faults


TYPES = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "BIGINT": LongType(),
    "INT": IntegerType(),
    "DOUBLE": DoubleType(),
    "TIMESTAMP": TimestampType(),
    "ARRAY": ArrayType(IntegerType()),
}


def columns(ddl: str, **given: str) -> SinkColumns:
    """``StructType.fromDDL`` would need a JVM."""
    fields = [column.split() for column in ddl.split(", ")]
    schema = StructType([StructField(name, TYPES[spark_type]) for name, spark_type in fields])
    return sink_columns(schema, parse(streamName="orders", **given))


def column_faults(ddl: str, **given: str) -> list[str]:
    with pytest.raises(OptionError) as caught:
        columns(ddl, **given)
    return caught.value.faults


def test_a_stream_name_is_enough() -> None:
    options = parse(streamName="orders")
    assert options == SinkOptions(stream_name="orders")
    assert not options.aggregation
    assert not options.ordered_by_key
    assert options.stamps == "none"


def test_an_arn_gives_the_region() -> None:
    assert parse(streamARN=ARN).connection("sink").region == "eu-west-1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "streamName (or streamARN) is required"),
        ({"stamp": "position"}, "there is no option stamp: did you mean stamps?"),
        ({"bufferBytesMax": "1000"}, "bufferBytesMax must be at least 11534336"),
        ({"bufferBytes": "20000000"}, "there is no option bufferBytes: did you mean bufferBytesMax?"),
        ({"writeTimeoutMs": "30s"}, "writeTimeoutMs must be a whole number"),
        ({"aggregation": "yes"}, "aggregation must be true or false"),
        ({"stampIndex": "pos"}, "it needs stamps position"),
        ({"stampIndex": "pos", "stamps": "order_id"}, "it needs stamps position"),
        ({"initialPosition": "latest"}, "startingPosition is for reading only"),
        ({"maxrecordspertrigger": "5"}, "maxRecordsPerTrigger is for reading only"),
        ({"roleExternalId": "x"}, "roleExternalId is given without roleArn"),
        ({"awsSecretKey": "s3cr3t"}, "awsSecretKey is not taken"),
    ],
)
def test_each_fault_is_told(given: dict[str, str], message: str) -> None:
    found = faults(**given)
    assert any(message in fault for fault in found), found
    assert "s3cr3t" not in str(found)


def test_faults_come_all_at_once() -> None:
    assert len(faults(aggregation="yes", bufferBytesMax="1", stampz="x")) == 4


def used(options: SinkOptions) -> list[object]:
    """Return what a task of the sink takes from the options."""
    return [
        options.stream, options.connection("sink"), options.aggregation, options.ordered_by_key, options.stamps,
        options.stamp_index, options.buffer_bytes_max, options.write_timeout_s,
    ]  # fmt: skip


def test_every_option_of_the_table_is_read() -> None:
    samples = {
        "streamName": "p",
        "region": "eu-west-1",
        "endpointUrl": "http://x",
        "aggregation": "true",
        "orderedByKey": "true",
        "stamps": "order_id",
        "bufferBytesMax": "20000000",
        "writeTimeoutMs": "1000",
        "roleArn": "r",
    }
    after = {
        "streamARN": ({}, ARN),
        "stampIndex": ({"streamName": "o", "stamps": "position"}, "pos"),
        **{name: ({"streamName": "o", "roleArn": "r"}, "http://x") for name in ("roleSessionName", "roleExternalId")},
        "stsEndpointUrl": ({"streamName": "o", "roleArn": "r"}, "http://x"),
    }
    assert {option.name for option in SINK_OPTIONS} == {*samples, *after}
    for name, value in samples.items():
        assert used(parse(**{"streamName": "o", name: value})) != used(parse(streamName="o")), name
    for name, (base, value) in after.items():
        if name == "streamARN":
            assert parse(streamARN=value).stream == StreamName(arn=ARN)
        else:
            assert used(parse(**base, **{name: value})) != used(parse(**base)), name


def test_options_of_a_source_and_of_a_sink_are_both_let_pass_before_the_use_is_known() -> None:
    check_options({"streamName": "o", "startingPosition": "LATEST"})
    check_options({"streamName": "o", "stamps": "position"})
    with pytest.raises(OptionError, match="startingPosition must be"):
        check_options({"streamName": "o", "startingPosition": "first"})
    with pytest.raises(OptionError, match="aggregation must be true or false"):
        check_options({"streamName": "o", "aggregation": "yes"})
    with pytest.raises(OptionError, match="required"):
        check_options({"aggregation": "true"})


# --- columns ---------------------------------------------------------------------------------------------------------


def test_the_columns_are_found_in_any_order_and_case() -> None:
    assert columns("Data STRING, partition_key STRING") == SinkColumns(1, 0)
    assert columns("explicit_hash_key STRING, partition_key STRING, data BINARY") == SinkColumns(1, 2, 0)


def test_the_columns_of_the_source_may_stay() -> None:
    assert columns(SCHEMA) == SinkColumns(0, 1, 7)
    assert columns(SCHEMA, stamps="position").position == (2, 3, 4, 5)


def test_a_key_column_and_an_index_are_found() -> None:
    assert columns("partition_key STRING, data STRING, order_id BIGINT", stamps="order_id").key == 2
    assert columns("partition_key STRING, data STRING", stamps="partition_key").key == 0
    assert columns(f"{SCHEMA}, pos INT", stamps="position", stampIndex="pos").row_index == 8


@pytest.mark.parametrize(
    ("ddl", "given", "message"),
    [
        ("key STRING, value BINARY", {}, "there is no column data"),
        ("key STRING, value BINARY", {}, "there is no column partition_key"),
        ("partition_ky STRING, data BINARY", {}, "is it partition_ky?"),
        ("partition_key STRING, data ARRAY", {}, "column data must be binary or string"),
        ("partition_key INT, data BINARY", {}, "column partition_key must be string"),
        ("partition_key STRING, data BINARY, amount INT", {}, "amount: not written"),
        ("partition_key STRING, data BINARY, data STRING", {}, "two columns have the same name"),
        ("partition_key STRING, data BINARY", {"stamps": "position"}, "there is no column shard_id"),
        ("partition_key STRING, data BINARY, id DOUBLE", {"stamps": "id"}, "column id must be string"),
        (SCHEMA, {"stamps": "position", "stampIndex": "pos"}, "there is no column pos"),
    ],
)
def test_each_fault_of_the_columns_is_told(ddl: str, given: dict[str, str], message: str) -> None:
    found = column_faults(ddl, **given)
    assert any(message in fault for fault in found), found
