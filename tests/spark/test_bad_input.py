"""What users get wrong, as Spark shows it: one clear message, no Python frames before it; odd records get through."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from shardway.aws.kinesis.shapes import PutEntry
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.writer import encode_aggregate
from shardway.local import LocalKinesis
from shardway.model import StreamName
from shardway.spark.source import ShardwayDataSource
from tests.spark.querying import QUERY_TIMEOUT_S, Batches, Stream, assert_exact, collect, reader, run, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

HOSTILE = Path(__file__).resolve().parents[1] / "fixtures" / "kpl" / "hostile.json"
RECORD_BYTES_MAX = 10 * 2**20


def assert_plain(error: BaseException, spark_class: str) -> None:
    """Spark's class of error first, then our words; no Python frames."""
    text = str(error)
    assert text.startswith(f"[{spark_class}]")
    assert "Traceback (most recent call last)" not in text
    assert 'File "' not in text


def fails(spark: SparkSession, stream: Stream, checkpoint: Path, match: str, **options: str) -> None:
    """The query fails with this message."""
    stopped(start(reader(spark, stream, **options), checkpoint, Batches()), match)


def stopped(query: StreamingQuery, match: str) -> str:
    """The query stops with this message; all of it."""
    with pytest.raises(StreamingQueryException, match=match) as caught:
        query.awaitTermination(QUERY_TIMEOUT_S)
    assert_plain(caught.value, "STREAM_FAILED")
    return str(caught.value)


def refused(spark: SparkSession, match: str, **options: str) -> str:
    """``load()`` refuses the options, for streams and for batches; the message."""
    for read in (spark.read, spark.readStream):
        with pytest.raises(AnalysisException, match=match) as caught:
            read.format("shardway").options(**options).load()
        assert_plain(caught.value, "PYTHON_DATA_SOURCE_ERROR")
    return str(caught.value)


def load(spark: SparkSession, stream: Stream, **options: str) -> None:
    given = {"streamName": "orders", "region": stream.local.region, "endpointUrl": stream.local.endpoint_url, **options}
    spark.read.format("shardway").options(**given).load().collect()


# --- which stream, by which role --------------------------------------------------------------------------------


def test_a_stream_that_does_not_exist(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    match = "there is no stream ordres in region us-east-1 for these credentials: check streamName, region and endpoint"
    fails(spark, stream, tmp_path / "checkpoint", match, streamName="ordres")
    frame = reader(spark, stream, streamName="ordres")
    stopped(start(frame, tmp_path / "checkpoint", Batches(), availableNow=True), match)
    with pytest.raises(AnalysisException, match=match) as caught:
        load(spark, stream, streamName="ordres")
    assert_plain(caught.value, "PYTHON_DATA_SOURCE_ERROR")


def test_no_credentials(spark: SparkSession, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spark.sparkContext.environment, "AWS_ACCESS_KEY_ID", "")
    session = spark.newSession()
    session.dataSource.register(ShardwayDataSource)  # what is registered gets that environment
    match = "CredentialsError: no AWS credentials were found. Looked at the environment"
    fails(session, stream, tmp_path / "checkpoint", match)
    with pytest.raises(AnalysisException, match=match) as caught:
        load(session, stream)
    assert_plain(caught.value, "PYTHON_DATA_SOURCE_ERROR")


def test_another_region_than_the_endpoints(spark: SparkSession, tmp_path: Path) -> None:
    known = {os.environ["AWS_ACCESS_KEY_ID"]: os.environ["AWS_SECRET_ACCESS_KEY"]}
    with LocalKinesis(streams={"orders": 1}, credentials=known) as local:
        stream = Stream(local, StreamName("orders"))
        match = "Credential should be scoped to a valid region, not 'eu-west-1'"
        fails(spark, stream, tmp_path / "checkpoint", match, region="eu-west-1")
        stream.close()


def test_a_region_that_is_none(spark: SparkSession, stream: Stream) -> None:
    refused(spark, "region must look like eu-west-1, not 'eu_west_1'", streamName="orders", region="eu_west_1")


# --- options --------------------------------------------------------------------------------------


def test_unknown_options_get_the_nearest_right_name(spark: SparkSession) -> None:
    refused(spark, "there is no option streamnam: did you mean streamName", streamNam="orders")
    refused(
        spark,
        "there is no option maxrecordspertriggers: did you mean maxRecordsPerTrigger",
        streamName="orders",
        maxRecordsPerTriggers="10",
    )


def test_options_that_contradict_each_other(spark: SparkSession) -> None:
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
    refused(spark, "streamName and streamARN contradict each other", streamName="orders", streamARN=arn)
    refused(spark, "region eu-west-1 contradicts streamARN, which is in us-east-1", streamARN=arn, region="eu-west-1")
    refused(
        spark,
        "startingTimestamp contradicts startingPosition TRIM_HORIZON",
        streamName="orders",
        startingPosition="TRIM_HORIZON",
        startingTimestamp="2026-01-01T00:00:00Z",
    )


def test_keys_are_refused_and_not_repeated(spark: SparkSession) -> None:
    message = refused(spark, "awssecretkey is not taken", streamName="orders", awsSecretKey="do-not-show-this")
    assert "do-not-show-this" not in message


def test_an_option_of_the_other_kind_of_read(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    fails(
        spark,
        stream,
        tmp_path / "checkpoint",
        "endingTimestamp is for batch reads only",
        endingTimestamp="2026-01-01T00:00:00Z",
    )
    with pytest.raises(AnalysisException, match="maxRecordsPerTrigger is for streaming reads only") as caught:
        load(spark, stream, maxRecordsPerTrigger="10")
    assert_plain(caught.value, "PYTHON_DATA_SOURCE_ERROR")


def test_a_column_that_does_not_exist(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    frame = spark.readStream.format("shardway").schema("data BINARY, shardid STRING")
    frame = frame.option("streamName", "orders").option("endpointUrl", stream.local.endpoint_url)
    query = start(frame.load(), tmp_path / "checkpoint", Batches())
    stopped(query, r"the source has no column shardid \(did you mean shard_id")


def test_the_checkpoint_directory_of_another_stream(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(10)
    run(spark, stream, tmp_path / "checkpoint")
    stream.call("CreateStream", StreamName="payments", ShardCount=1)
    match = (
        "the Spark checkpoint directory belongs to arn:aws:kinesis:us-east-1:123456789012:stream/orders, the options "
        "name arn:aws:kinesis:us-east-1:123456789012:stream/payments"
    )
    fails(spark, stream, tmp_path / "checkpoint", match, streamName="payments")


def test_pyarrow_is_missing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark itself would leave the query hanging."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n", encoding="utf-8")
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
    session = spark.newSession()
    session.dataSource.register(ShardwayDataSource)
    refused(session, r"pyarrow cannot be imported by .*install \"shardway\[spark\]\" there", streamName="orders")


# --- records --------------------------------------------------------------------------------------


def test_truncated_and_hostile_aggregates(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Each is opened or carried through as it is: none is dropped, and none stops the query."""
    cases = [base64.b64decode(case["data"]) for case in json.loads(HOSTILE.read_text(encoding="utf-8"))["cases"]]
    whole = encode_aggregate([(f"key-{number}", bytes(100), None) for number in range(20)])
    cases += [whole[:length] for length in range(1, len(whole), 97)]
    stream.put_entries([PutEntry(data, "aggregate", "0") for data in cases])
    expected = []
    for data in cases:
        opened = open_aggregate(data)
        expected += [data] if opened is None else opened.datas
    rows = run(spark, stream, tmp_path / "checkpoint").all_rows()
    assert [row.data for row in rows] == expected
    assert len({row.sequence_number for row in rows}) == len(cases)


def test_user_records_outside_their_shard_can_be_an_error(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    aggregate = encode_aggregate([("customer-secret", b"payload-secret", 2**128 - 1)])
    stream.put_entries([PutEntry(aggregate, "aggregate-secret", "0")])
    writer = reader(spark, stream, aggregatesOutsideRange="raise").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    message = stopped(query, "AggregateError: 1 of 1 user records of the aggregate at sequence number .* outside")
    assert "secret" not in message


def test_records_of_10_mib(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.call("CreateStream", StreamName="large", ShardCount=1, MaxRecordSizeInKiB=10_240)
    large = Stream(stream.local, StreamName("large"))
    payloads = [bytes([number]) * (RECORD_BYTES_MAX - len("key")) for number in (1, 2)]
    for payload in payloads:
        large.put_entries([PutEntry(b"small", "key"), PutEntry(b"small", "key")])
        large.put_entries([PutEntry(payload, "key")])
    rows = run(spark, large, tmp_path / "checkpoint").all_rows()
    large.close()
    assert [row.data for row in rows] == [b"small", b"small", payloads[0], b"small", b"small", payloads[1]]


def test_records_without_a_partition_key(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.call(
        "CreateStream",
        StreamName="keyless",
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    keyless = Stream(stream.local, StreamName("keyless"))
    for number in range(20):
        data = b"%08d" % number
        keyless.written.append(data)
        keyless.call("PutRecord", Data=base64.b64encode(data).decode())
    rows = run(spark, keyless, tmp_path / "checkpoint").all_rows()
    read = spark.read.format("shardway").option("streamName", "keyless").option("region", stream.local.region)
    batch = collect(read.option("endpointUrl", stream.local.endpoint_url).load())
    keyless.close()
    for got in (rows, batch):
        assert_exact(keyless, got)
        assert {row.partition_key for row in got} == {None}
