from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from shardway.errors import OptionError
from shardway.model import OutsidePolicy, StartingPosition, StreamName
from shardway.spark.options.caps import Caps
from shardway.spark.options.parsing import READ_OPTIONS, check_options, parse_read_options
from shardway.spark.options.read_options import ReadOptions

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def parse(streaming: bool = True, **given: str) -> ReadOptions:
    return parse_read_options(given, streaming=streaming)


def faults(streaming: bool = True, **given: str) -> list[str]:
    with pytest.raises(OptionError) as caught:
        parse(streaming, **given)
    return caught.value.faults


def test_a_stream_name_is_enough() -> None:
    options = parse(streamName="orders")
    assert options.stream == StreamName("orders")
    assert options.start == StartingPosition.LATEST
    assert options.fail_on_data_loss
    assert options.caps.none


def test_a_batch_read_begins_at_the_oldest_record() -> None:
    assert parse(False, streamName="orders").start == StartingPosition.TRIM_HORIZON


def test_names_are_taken_in_any_case_and_from_other_connectors() -> None:
    options = parse(
        STREAMNAME="orders", endpoint="http://127.0.0.1:4567/", initialPosition="earliest", REGION="eu-west-1"
    )
    assert options.endpoint_url == "http://127.0.0.1:4567"
    assert options.start == StartingPosition.TRIM_HORIZON
    assert options.region == "eu-west-1"


def test_an_arn_gives_the_region() -> None:
    options = parse(streamARN=ARN)
    assert options.stream == StreamName(arn=ARN)
    assert options.connection("task").region == "eu-west-1"


def test_all_values_are_read() -> None:
    options = parse(
        streamName="orders",
        startingTimestamp="2026-11-21T10:00:00+01:00",
        maxRecordsPerTrigger="50000",
        maxBytesPerTrigger="1000000",
        failOnDataLoss="FALSE",
        aggregatesOutsideRange="drop",
        roleArn="arn:aws:iam::1:role/x",
        roleSessionName="s",
        roleExternalId="e",
        stsEndpointUrl="https://sts",
        maxPartitions="7",
        pollIntervalMs="250",
        cutLagMs="100",
        availableNowMs="1500",
    )
    assert options.start == StartingPosition.at_timestamp(dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC))
    assert options.caps == Caps(50_000, 1_000_000)
    assert not options.fail_on_data_loss
    assert options.aggregates_outside_range is OutsidePolicy.DROP
    assert (options.role_arn, options.role_session_name, options.role_external_id) == (
        "arn:aws:iam::1:role/x",
        "s",
        "e",
    )
    assert options.sts_endpoint_url == "https://sts"
    assert options.max_partitions == 7
    assert options.poll_interval_s == 0.25
    assert options.available_now_s == 1.5
    assert options.cut_lag_ms == 100


@pytest.mark.parametrize("text", ["1763719200", "1763719200.0", "2025-11-21T10:00:00Z"])
def test_a_time_may_be_iso_or_epoch_seconds(text: str) -> None:
    assert parse(streamName="o", startingTimestamp=text).start.timestamp == dt.datetime(2025, 11, 21, 10, tzinfo=dt.UTC)


def test_an_unknown_option_gets_the_nearest_right_name() -> None:
    assert faults(streamName="orders", maxRecordPerTrigger="5") == [
        "there is no option maxRecordPerTrigger: did you mean maxRecordsPerTrigger?"
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxPartitions": "0"}, "maxPartitions must be at least 1, not 0"),
        ({"pollIntervalMs": "199"}, "pollIntervalMs must be at least 200, not 199"),
        ({"leaseIntervalMs": "1", "applicationName": "a"}, "leaseIntervalMs must be at least 100, not 1"),
    ],
)
def test_a_number_out_of_its_bounds_is_told_by_the_name_that_was_given(given: dict[str, Any], message: str) -> None:
    assert faults(streamName="o", **given) == [message]


def test_all_faults_are_told_at_once() -> None:
    told = faults(
        streamNam="x", failOnDataLoss="maybe", maxPartitions="0", startingPosition="middle", roleExternalId="e"
    )
    assert len(told) == 6
    assert "streamName (or streamARN) is required" in told


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"streamName": "o", "streamARN": ARN}, "contradict each other"),
        ({"streamARN": ARN, "region": "us-east-1"}, "region us-east-1 contradicts streamARN, which is in eu-west-1"),
        ({"streamARN": "arn:aws:s3:::bucket"}, "must look like arn:aws:kinesis"),
        ({"streamName": ARN}, "holds an ARN"),
        ({"streamName": "o", "startingPosition": "AT_TIMESTAMP"}, "needs startingTimestamp"),
        ({"streamName": "o", "startingPosition": "LATEST", "startingTimestamp": "1"}, "contradicts startingPosition"),
        ({"streamName": "o", "startingTimestamp": "2026-11-21T10:00:00"}, "needs a time zone"),
        ({"streamName": "o", "startingTimestamp": "yesterday"}, "ISO 8601"),
        ({"streamName": "o", "endingTimestamp": "1"}, "is for batch reads only"),
        ({"streamName": "o", "awsSecretKey": "s3cr3t"}, "awsSecretKey is not taken"),
        ({"streamName": " "}, "streamName is empty"),
        ({"streamName": "o", "endpointUrl": "localhost:4567"}, "must begin with http"),
        ({"streamName": "o", "maxRecordsPerTrigger": "many"}, "must be a whole number"),
        ({"streamName": "o", "region": "a", "regionName": "b"}, "is given twice"),
    ],
)
def test_each_fault_is_told(given: dict[str, Any], message: str) -> None:
    assert any(message in fault for fault in faults(**given)), faults(**given)


def test_no_secret_is_in_a_message() -> None:
    assert "s3cr3t" not in str(faults(streamName="o", awsSecretKey="s3cr3t"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingPosition": "LATEST"}, "has no rows"),
        ({"startingTimestamp": "20", "endingTimestamp": "10"}, "is before startingTimestamp"),
        ({"maxRecordsPerTrigger": "10"}, "is for streaming reads only"),
    ],
)
def test_faults_of_batch_reads(given: dict[str, str], message: str) -> None:
    assert any(message in fault for fault in faults(False, streamName="o", **given))


def test_sparks_own_options_are_let_pass() -> None:
    assert parse(streamName="o", path="x", checkpointLocation="y", queryName="z").stream == StreamName("o")


def test_what_is_wrong_both_ways_is_found_before_the_way_is_known() -> None:
    with pytest.raises(OptionError, match="required"):
        check_options({})
    check_options({"streamName": "o", "endingTimestamp": "10"})
    check_options({"streamName": "o", "maxRecordsPerTrigger": "10"})


def test_leases_are_those_of_an_application_in_a_table_of_its_name() -> None:
    leases = parse(streamName="o", applicationName="billing").leases
    assert leases is not None
    assert (leases.application, leases.table, leases.start_there) == ("billing", "billing", True)
    assert parse(streamName="o").leases is None
    assert faults(streamName="o", leaseTable="t", dynamodbEndpointUrl="http://d") == [
        "leaseTable is given without applicationName: it has no meaning alone",
        "dynamodbEndpointUrl is given without applicationName: it has no meaning alone",
    ]
    assert faults(False, streamName="o", applicationName="billing") == ["applicationName is for streaming reads only"]


def used(options: ReadOptions) -> list[object]:
    """Return what the driver and the tasks take from the options."""
    return [
        options.stream, options.connection("driver"), options.start, options.ending_timestamp, options.caps,
        options.fail_on_data_loss, options.aggregates_outside_range, options.max_partitions, options.poll_interval_s,
        options.cut_lag_ms, options.outage_s, options.available_now_s, options.leases,
    ]  # fmt: skip


def test_every_option_of_the_table_is_read() -> None:
    """An option that does nothing is not listed: each one changes what comes out."""
    samples = {
        "streamARN": ARN,
        "region": "eu-west-1",
        "endpointUrl": "http://x",
        "startingPosition": "TRIM_HORIZON",
        "startingTimestamp": "100",
        "endingTimestamp": "100",
        "maxRecordsPerTrigger": "1",
        "maxBytesPerTrigger": "1",
        "failOnDataLoss": "false",
        "aggregatesOutsideRange": "raise",
        "roleArn": "r",
        "maxPartitions": "1",
        "pollIntervalMs": "300",
        "cutLagMs": "0",
        "outageTimeoutMs": "2000",
        "availableNowMs": "0",
    }
    with_role = {"roleSessionName": "s", "roleExternalId": "e", "stsEndpointUrl": "http://sts"}
    with_leases = {
        "leaseTable": "t",
        "continueFromLeases": "false",
        "leaseIntervalMs": "200",
        "leaseFailoverMs": "200",
        "dynamodbEndpointUrl": "http://d",
    }
    all_samples = {"streamName": "p", "applicationName": "a", **samples, **with_role, **with_leases}
    assert {option.name for option in READ_OPTIONS} == set(all_samples)
    for option in READ_OPTIONS:
        base = {"streamName": "o", **({"roleArn": "r"} if option.name in with_role else {})}
        base |= {"applicationName": "b"} if option.name in with_leases else {}
        given = {**base, option.name: all_samples[option.name]}
        if option.name == "streamARN":
            del given["streamName"]
        assert used(parse(option.stream, **given)) != used(parse(option.stream, **base)), option.name
