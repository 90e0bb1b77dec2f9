"""The sink as Spark runs it, and its reference page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import functions as fn
from scripts.reference_spark import renewed

from shardway.local.faults import Fault
from shardway.model import StreamName
from shardway.pipeline import deduplicate_by_stamps, open_stamps, sort_by_key
from shardway.spark.options.parsing import SINK_OPTIONS
from shardway.spark.stamps import Stamp, open_sealed
from tests.spark.querying import QUERY_TIMEOUT_S, Stream, forget_last_commit, reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "reference" / "spark-sink.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def target(stream: Stream) -> Iterator[Stream]:
    """The stream that is written to, beside the one that is read."""
    made = Stream(stream.local, StreamName("copy"))
    made.call("CreateStream", ShardCount=2)
    yield made
    made.close()


def reach(stream: Stream) -> dict[str, str]:
    return {"streamName": stream.name.short, "region": stream.local.region, "endpointUrl": stream.local.endpoint_url}


def read(spark: SparkSession, stream: Stream) -> DataFrame:
    return spark.read.format("shardway").options(**reach(stream)).load()


def save(frame: DataFrame, stream: Stream, mode: str = "append", **options: str) -> None:
    frame.write.format("shardway").options(**reach(stream), **options).mode(mode).save()


def copy(frame: DataFrame, target: Stream, checkpoint: Path, **options: str) -> None:
    """Writes all that is there, and ends."""
    writer = frame.writeStream.format("shardway").options(**reach(target), **options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
    finally:
        query.stop()


def datas(frame: DataFrame) -> list[bytes]:
    return [bytes(row.data) for row in sort_by_key(frame).collect()]


def assert_plain(error: BaseException) -> None:
    assert "Traceback (most recent call last)" not in str(error)
    assert 'File "' not in str(error)


def test_a_batch_that_runs_again_is_read_once(
    spark: SparkSession, stream: Stream, target: Stream, tmp_path: Path
) -> None:
    stream.put(500, keys=20)
    options = {"stamps": "position", "orderedByKey": "true"}
    copy(reader(spark, stream), target, tmp_path / "checkpoint", **options)
    forget_last_commit(tmp_path / "checkpoint")
    copy(reader(spark, stream), target, tmp_path / "checkpoint", aggregation="true", **options)
    copied = read(spark, target)
    assert copied.count() == 1_000
    unique = deduplicate_by_stamps(copied, window="1 hour")
    assert datas(unique) == datas(read(spark, stream))
    places = {(row.stream, row.shard_id, row.sequence_number) for row in read(spark, stream).collect()}
    stamps = {(row.stamp.stream, row.stamp.shard_id, row.stamp.sequence_number) for row in unique.collect()}
    assert stamps == places


def test_a_record_that_becomes_several_rows(
    spark: SparkSession, stream: Stream, target: Stream, tmp_path: Path
) -> None:
    stream.put(30, keys=5)
    two = fn.array(fn.col("data"), fn.concat(fn.col("data"), fn.lit(b"/2")))
    position = ["stream", "shard_id", "sequence_number", "sub_sequence_number"]
    exploded = reader(spark, stream).select("partition_key", *position, fn.posexplode(two).alias("pos", "data"))
    with pytest.raises(StreamingQueryException, match="stampIndex names an integer column") as caught:
        copy(exploded.drop("pos"), target, tmp_path / "without", stamps="position")
    assert_plain(caught.value)
    for _ in range(2):
        copy(exploded, target, tmp_path / "checkpoint", stamps="position", stampIndex="pos")
        forget_last_commit(tmp_path / "checkpoint")
    copied = read(spark, target)
    assert copied.count() == 120
    found = [bytes(row.data) for row in deduplicate_by_stamps(copied, window="1 hour").collect()]
    assert sorted(found) == sorted([*stream.written, *(data + b"/2" for data in stream.written)])


def test_a_batch_stamped_by_key(spark: SparkSession, stream: Stream) -> None:
    rows = spark.range(200).select(
        fn.concat(fn.lit("key-"), fn.col("id") % 7).alias("partition_key"),
        fn.format_string("%08d", fn.col("id")).alias("data"),
        "id",
    )
    for _ in range(2):
        save(rows, stream, stamps="id", aggregation="true")
    written = read(spark, stream)
    assert written.count() == 400
    opened = open_stamps(written).select("data", "stamp.key").collect()
    assert {(bytes(row.data), row.key) for row in opened} == {(b"%08d" % n, str(n)) for n in range(200)}
    assert deduplicate_by_stamps(written, window="1 hour").count() == 200


def test_what_is_wrong_is_told_in_one_message(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("a", "x", 1)], "partition_key STRING, data STRING, amount INT")
    good = rows.drop("amount")

    def refused(match: str, frame: DataFrame, mode: str = "append", **options: str) -> None:
        with pytest.raises(AnalysisException, match=match) as caught:
            save(frame, stream, mode, **options)
        assert_plain(caught.value)

    refused("the sink can only append to a stream", good, "overwrite")
    refused("amount: not written", rows)
    refused("there is no column stream: .* there is no column shard_id", good, stamps="position")
    refused("there is no option stampz: did you mean stamps", good, stampz="position")
    refused("startingPosition is for reading only", good, startingPosition="LATEST")
    with pytest.raises(StreamingQueryException, match="there is no column pos") as caught:
        copy(reader(spark, stream), stream, tmp_path / "checkpoint", stamps="position", stampIndex="pos")
    assert_plain(caught.value)
    with pytest.raises(AnalysisException, match="stamps is for writing only"):
        spark.read.format("shardway").options(**reach(stream), stamps="position").load().collect()


def test_rows_that_are_not_written_fail_the_write(spark: SparkSession, stream: Stream) -> None:
    rows = spark.createDataFrame([("secret-key", "secret-data")], "partition_key STRING, data STRING")
    stream.local.faults.add(Fault(how="access_denied", operation="PutRecords", tag="sink"))
    with pytest.raises(PySparkException, match="AccessDenied") as caught:
        save(rows, stream)
    assert_plain(caught.value)
    assert "secret" not in str(caught.value)
    stream.local.faults.clear()
    with pytest.raises(PySparkException, match="partition_key is null in a row") as caught:
        save(rows.withColumn("partition_key", fn.lit(None).cast("string")), stream)
    assert_plain(caught.value)
    save(rows, stream)
    assert datas(read(spark, stream)) == [b"secret-data"]


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_options_are_those_of_the_code() -> None:
    assert renewed(PAGE) == PAGE
    assert all(f"`{option.name}`" in PAGE for option in SINK_OPTIONS)


def test_the_page_says_by_what_an_envelope_is_known() -> None:
    assert "magic and version and the CRC-32 is right, the data begins at 12 + n" in PAGE
    assert PAGE.count("4d17794c") == 1, "the CRC of the example stands in the example alone"


def test_the_envelope_of_the_page_is_opened() -> None:
    example = re.search(r"```text\n(f5.*?)\n```", PAGE, re.DOTALL)
    assert example is not None
    opened = open_sealed(bytes.fromhex(example[1]))
    assert opened is not None
    assert opened.data == b'{"id": 17}'
    assert opened.stamp == Stamp("orders", "shardId-000000000003", "496804390904", 5)


def test_the_code_of_the_page_runs_and_makes_the_calls_of_the_policy(
    spark: SparkSession, stream: Stream, target: Stream, tmp_path: Path
) -> None:
    stream.put(20)
    stream.settle()
    local = stream.local
    where = f'.option("region", "{local.region}").option("endpointUrl", "{local.endpoint_url}")'
    names: dict[str, Any] = {"spark": spark, "records": reader(spark, stream), "rows": read(spark, stream)}
    for block in BLOCKS:
        here = block.replace('.option("streamName", "copy")', f'.option("streamName", "copy"){where}')
        exec(here.replace("checkpoints/copy", str(tmp_path / "checkpoint")), names)
    query = names["query"]
    try:
        while read(spark, target).count() < 40:
            query.processAllAvailable()
    finally:
        query.stop()
    names["write"](read(spark, stream), 0)
    unique = deduplicate_by_stamps(read(spark, target), window="1 hour").collect()
    assert sorted(bytes(row.data) for row in unique) == sorted(2 * stream.written)
    assert names["unique"].columns == [*names["records"].columns, "stamp"]

    called = {f"kinesis:{operation}" for operation in local.stats().tags["sink"]}
    policy = json.loads((DOCS / "iam" / "producer.json").read_text(encoding="utf-8"))
    assert called == set(policy["Statement"][0]["Action"])
