"""The properties of a MultiLangDaemon: as Java reads them, what they set, and what is said of the others."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.errors import OptionError
from shardway.kclpy.known_properties import IGNORED, READ, WITHOUT_MEANING
from shardway.kclpy.properties import KclOptions, options_of
from shardway.kclpy.properties_file import parse
from shardway.kclpy.session import OnError
from shardway.model import StartingPosition
from shardway.telemetry.cloudwatch_datums import CloudWatchChoice
from shardway.wiring import ConnectionOptions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = b", {"a": "b"}),
        ("a=b\nc:d\ne f", {"a": "b", "c": "d", "e": "f"}),
        ("  a\t:\t b  ", {"a": "b  "}),
        ("# no\n ! neither\n\n \t\na=#b", {"a": "#b"}),
        ("a = b \\\n   c\nd=e", {"a": "b c", "d": "e"}),
        ("a = b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b\\=c = d\\u00e9\\t\\q", {"a b=c": "d\u00e9\tq"}),
        ("a\r\nb=\rc:", {"a": "", "b": "", "c": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("url = https://host:4567/?a=b", {"url": "https://host:4567/?a=b"}),
        ("last = x\\", {"last": "x"}),
        ("a = b\\\n# c", {"a": "b# c"}),
        ("", {}),
    ],
)
def test_a_properties_file_is_read_as_by_java(text: str, found: dict[str, str]) -> None:
    assert parse(text) == found


def options(**properties: str) -> KclOptions:
    given = {"streamName": "words", "applicationName": "Sample", **properties}
    return options_of(given, target="module:Processor")


def test_a_stream_and_an_application_are_enough() -> None:
    found = options()
    assert (found.stream, found.application, found.worker_id, found.remarks) == ("words", "Sample", None, ())
    assert found.consumer.starting_position == StartingPosition.LATEST
    assert found.consumer.leases.failover_s == 10.0
    assert found.consumer.checkpoints.manual
    assert isinstance(found.consumer.checkpoints.cadence, Prompt)
    assert found.consumer.fan_out is not None
    assert found.consumer.leases.table is None
    assert found.consumer.leases.connection is None


def test_what_the_properties_set() -> None:
    found = options(
        streamArn="arn:aws:kinesis:us-east-2:123456789012:stream/words",
        regionName="us-east-2",
        workerId="worker-7",
        failoverTimeMillis="2000",
        maxRecords="500",
        idleTimeBetweenReadsInMillis="250",
        retrievalMode="polling",
        maxLeasesForWorker="3",
        gracefulLeaseHandoffTimeoutMillis="1500",
        shutdownGraceMillis="4000",
        timeoutInSeconds="60",
        taskBackoffTimeMillis="100",
        callProcessRecordsEvenForEmptyRecordList="true",
        logWarningForTaskAfterMillis="30000",
        tableName="leases",
        kinesisEndpoint="kinesis.example.com",
        dynamoDBEndpoint="http://localhost:8000",
    )
    assert found.stream == "arn:aws:kinesis:us-east-2:123456789012:stream/words"
    assert found.worker_id == "worker-7"
    chosen = found.consumer
    assert (chosen.leases.failover_s, chosen.times.look_interval_s, chosen.buffer.batch_records_max) == (2.0, 0.4, 500)
    assert (chosen.polling.interval_s, chosen.polling.idle_interval_s, chosen.fan_out) == (0.25, 1.0, None)
    assert (chosen.leases.leases_max, chosen.handoff.drain_deadline_s, chosen.settling.deadline_s) == (3, 1.5, 30.0)
    session = found.daemon.session
    assert (session.answer_timeout_s, session.end_again_s, session.empty_call_after_s) == (60.0, 0.1, 0.25)
    assert found.daemon.stop_s == 4.0
    assert found.connection == ConnectionOptions(region="us-east-2", endpoint_url="https://kinesis.example.com")
    assert found.consumer.leases.table == "leases"
    assert found.consumer.leases.connection == ConnectionOptions(
        region="us-east-2", endpoint_url="http://localhost:8000"
    )
    assert found.remarks == ()


def test_names_are_taken_in_any_case_and_the_command_line_goes_first() -> None:
    found = options_of(
        {"STREAMNAME": "words", "ApplicationName": "Sample", "regionname": "us-east-2"},
        target="script.py",
        shim=True,
        on_error=OnError.SKIP,
        connection=ConnectionOptions(region="eu-west-1", endpoint_url="http://127.0.0.1:4567"),
    )
    assert found.connection == ConnectionOptions(region="eu-west-1", endpoint_url="http://127.0.0.1:4567")
    assert found.consumer.leases.connection is None
    assert (found.daemon.target, found.daemon.shim, found.daemon.session.on_error) == ("script.py", True, OnError.SKIP)


def test_only_the_endpoint_of_kinesis_leaves_dynamodb_where_it_is() -> None:
    found = options(kinesisEndpoint="https://kinesis.example.com")
    assert found.consumer.leases.connection == ConnectionOptions()


@pytest.mark.parametrize("name", ["initialPositionInStreamExtended", "timestampAtInitialPositionInStream"])
def test_a_start_by_time(name: str) -> None:
    start = options(initialPositionInStream="AT_TIMESTAMP", **{name: "1636609142"}).consumer.starting_position
    assert start == StartingPosition.at_timestamp(dt.datetime(2021, 11, 11, 5, 39, 2, tzinfo=dt.UTC))


def test_a_start_at_the_oldest_record() -> None:
    assert options(initialPositionInStream="trim_horizon").consumer.starting_position == StartingPosition.TRIM_HORIZON


def test_a_fan_out_consumer_may_have_a_name() -> None:
    worker = options(**{"retrievalMode": "FANOUT", "fanoutConfig.consumerName": "mine"}).consumer
    assert worker.fan_out is not None
    assert worker.fan_out.consumer_name == "mine"


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        options_of(
            {
                "initialPositionInStream": "NEWEST",
                "failoverTimeMillis": "soon",
                "maxRecords": "0",
                "retrievalMode": "PUSH",
                "timeoutInSeconds": "nan",
            },
            target="module:Processor",
        )
    text = str(raised.value)
    assert len(raised.value.faults) == 7
    for name in ("streamName", "applicationName", "NEWEST", "'soon'", "maxRecords", "PUSH", "timeoutInSeconds"):
        assert name in text
    with pytest.raises(OptionError, match="needs initialPositionInStreamExtended"):
        options(initialPositionInStream="AT_TIMESTAMP")


def test_what_is_not_used_is_told_with_the_reason() -> None:
    remarks = options(
        executableName="sample.py",
        AWSCredentialsProvider="DefaultCredentialsProvider",
        maxActiveThreads="4",
        workerMetricsTableName="metrics",
        failoverTimeMilis="10000",
        zebra="1",
    ).remarks
    assert remarks == (
        "executableName is not used: the program is named on the command line",
        "AWSCredentialsProvider is not used: credentials are found as the AWS SDK for Python finds them",
        "failoverTimeMilis is not known, and not used: is failoverTimeMillis meant?",
        "zebra is not known, and not used",
        "without a meaning here: maxActiveThreads, workerMetricsTableName",
    )


def test_metrics_go_to_cloudwatch_as_the_kcls_properties_say() -> None:
    assert options().metrics is None, "the KCL sends all, which costs"
    assert options(metricsLevel="NONE").metrics is None
    assert options(metricsLevel="summary").metrics == CloudWatchChoice()
    given = options(metricsLevel="DETAILED", metricsEnabledDimensions="Operation, ShardId", cloudWatchEndpoint="cw:80")
    assert given.metrics == CloudWatchChoice(level="DETAILED", dimensions=("ShardId",))
    assert given.metrics_connection is not None
    assert given.metrics_connection.endpoint_url == "https://cw:80"
    every = options(metricsLevel="DETAILED", metricsEnabledDimensions="ALL").metrics
    assert every == CloudWatchChoice(level="DETAILED", dimensions=("ShardId", "WorkerIdentifier"))
    with pytest.raises(OptionError, match="metricsLevel is NONE, SUMMARY, DETAILED, not LOUD"):
        options(metricsLevel="loud")
    with pytest.raises(OptionError, match="not Zebra"):
        options(metricsLevel="SUMMARY", metricsEnabledDimensions="Zebra")


def test_each_property_is_of_one_kind() -> None:
    read = {name.lower() for name in READ}
    assert not read & WITHOUT_MEANING
    assert not IGNORED.keys() & WITHOUT_MEANING
    assert read & IGNORED.keys() == {"executablename"}


def test_the_guide_names_each_property_that_is_read() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs/guides/kclpy.md").read_text(encoding="utf-8")
    assert [name for name in READ if f"`{name}`" not in guide] == []
