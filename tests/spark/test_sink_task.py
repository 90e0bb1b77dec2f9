"""A task of the sink over a real stream, as Spark runs it, without a JVM."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.errors import InvalidRecordError, PutError, ShardwayError, StalledError
from shardway.local import LocalKinesis
from shardway.local.faults import Fault
from shardway.model import IteratorAt, StreamName
from shardway.spark.options.parsing import parse_sink_options
from shardway.spark.options.sink_columns import sink_columns
from shardway.spark.sink.producers import close_producers
from shardway.spark.sink.task import SinkCommit, SinkTask
from shardway.spark.sink.writer import write_batches, write_rows
from shardway.spark.stamps import Stamp, open_sealed
from shardway.wiring import ConnectionOptions
from tests.spark.querying import Stream

TYPES = {pa.string(): StringType(), pa.binary(): BinaryType(), pa.int64(): LongType(), pa.int32(): IntegerType()}
SOURCE = {"stream": "orders", "shard_id": "shardId-000000000000", "sequence_number": "496", "sub_sequence_number": 0}


@pytest.fixture(autouse=True)
def _no_producers_left() -> Iterator[None]:
    yield
    close_producers()


def settings_of(stream: Stream, schema: pa.Schema, **options: str) -> SinkTask:
    """As the source makes them, and as a task gets them: pickled."""
    spark_schema = StructType([StructField(field.name, TYPES[field.type]) for field in schema])
    parsed = parse_sink_options({"streamName": stream.name.short, **options})
    wire = ConnectionOptions(region=stream.local.region, endpoint_url=stream.local.endpoint_url, user_agent_tag="sink")
    settings: SinkTask = pickle.loads(pickle.dumps(SinkTask(parsed, sink_columns(spark_schema, parsed), wire)))
    return settings


def write(stream: Stream, columns: dict[str, Any], *, batch_rows: int = 1_000, **options: str) -> SinkCommit:
    table = pa.table(columns)
    settings = settings_of(stream, table.schema, **options)
    return write_batches(settings, table.to_batches(max_chunksize=batch_rows))


def numbered(count: int, keys: int = 10) -> dict[str, list[Any]]:
    return {
        "partition_key": [f"key-{number % keys}" for number in range(count)],
        "data": [b"%08d" % number for number in range(count)],
    }


def read_all(stream: Stream) -> list[tuple[str, str, bytes]]:
    """(shard, key, data) in the order of each shard; aggregates opened."""
    found = []
    for shard in stream.shards():
        at = IteratorAt("TRIM_HORIZON")
        iterator: str | None = stream._loop.run(stream.client.get_shard_iterator(stream.name, shard.shard_id, at))
        while iterator is not None:
            page = stream._loop.run(stream.client.get_records(iterator, limit=10_000))
            for record in page.records:
                aggregate = open_aggregate(record.data)
                if aggregate is None:
                    found.append((shard.shard_id, record.partition_key or "", record.data))
                else:
                    found += [(shard.shard_id, user.partition_key, user.data) for user in aggregate]
            iterator = page.next_shard_iterator if page.records else None
    return found


def by_key(rows: list[tuple[str, str, bytes]]) -> dict[str, list[bytes]]:
    keys: dict[str, list[bytes]] = {}
    for _, key, data in rows:
        keys.setdefault(key, []).append(data)
    return keys


def expected(columns: dict[str, list[Any]]) -> dict[str, list[bytes]]:
    pairs = zip(columns["partition_key"], columns["data"], strict=True)
    return by_key([("", key, data) for key, data in pairs])


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["false", "true"])
def test_all_rows_are_written_when_it_returns(stream: Stream, aggregation: str) -> None:
    columns = numbered(2_500)
    commit = write(stream, columns, aggregation=aggregation, orderedByKey="true")
    assert by_key(read_all(stream)) == expected(columns)
    assert (commit.rows, commit.data_bytes, commit.duplicates_possible) == (2_500, 20_000, 0)
    assert (commit.records == 2_500) == (aggregation == "false")


def test_text_is_written_as_utf_8_and_rows_as_batches_are(stream: Stream) -> None:
    """Spark 4.0 gives streaming writers rows, with their binary values as bytearrays."""
    write(stream, {"data": ["ä", ""], "partition_key": ["a", "b"]})
    schema = pa.schema([("data", pa.binary()), ("partition_key", pa.string())])
    rows = iter([Row(data=bytearray(b"c"), partition_key="c"), Row(data=b"d", partition_key="d")])
    commit = write_rows(settings_of(stream, schema), rows)
    assert commit.rows == 2
    assert by_key(read_all(stream)) == {"a": ["ä".encode()], "b": [b""], "c": [b"c"], "d": [b"d"]}


def test_explicit_hash_keys_choose_the_shard(stream: Stream) -> None:
    columns = {**numbered(4, keys=1), "explicit_hash_key": ["0", str(HASH_KEY_MAX), "0", None]}
    write(stream, columns)
    first, second = (shard.shard_id for shard in stream.open_shards())
    places = {data: shard_id for shard_id, _, data in read_all(stream)}
    assert [places[b"%08d" % number] for number in range(3)] == [first, second, first]


def test_large_rows_and_small_ones_in_one_batch(stream: Stream) -> None:
    stream.call("UpdateMaxRecordSize", StreamARN=arn_of(stream), MaxRecordSizeInKiB=10_240)
    datas = [b"x", b"y" * 9_000_000, b"z", b"v" * 1_000_000]
    write(stream, {"partition_key": ["a"] * 4, "data": datas}, orderedByKey="true")
    assert [data for _, _, data in read_all(stream)] == datas


def test_a_task_without_rows_calls_nothing(stream: Stream) -> None:
    empty = {"partition_key": pa.array([], pa.string()), "data": pa.array([], pa.binary())}
    settings = settings_of(stream, pa.table(empty).schema)
    nothing = SinkCommit(rows=0, records=0, data_bytes=0, duplicates_possible=0)
    assert write_batches(settings, []) == write_rows(settings, iter([])) == write(stream, empty) == nothing
    assert stream.local.stats().tags.get("sink") is None


# --- stamps ----------------------------------------------------------------------------------------------------------


def test_stamps_by_position(stream: Stream) -> None:
    columns = numbered(3) | {name: [value] * 3 for name, value in SOURCE.items()}
    columns["sub_sequence_number"] = [0, 1, 2]
    write(stream, columns, stamps="position", aggregation="true")
    opened = [open_sealed(data) for _, _, data in read_all(stream)]
    assert sorted((one.data, one.stamp) for one in opened if one) == [
        (b"%08d" % number, Stamp("orders", "shardId-000000000000", "496", number)) for number in range(3)
    ]


def test_stamps_by_position_and_index(stream: Stream) -> None:
    columns = numbered(3) | {name: [value] * 3 for name, value in SOURCE.items()}
    write(stream, columns | {"pos": pa.array([0, 1, 2], pa.int32())}, stamps="position", stampIndex="pos")
    opened = [open_sealed(data) for _, _, data in read_all(stream)]
    assert sorted(one.stamp.row_index for one in opened if one and one.stamp.row_index is not None) == [0, 1, 2]


@pytest.mark.parametrize("batch_rows", [1, 10])
def test_rows_of_one_position_need_an_index(stream: Stream, batch_rows: int) -> None:
    columns = numbered(3) | {name: [value] * 3 for name, value in SOURCE.items()}
    with pytest.raises(ShardwayError, match="stampIndex names an integer column"):
        write(stream, columns, stamps="position", batch_rows=batch_rows)


@pytest.mark.parametrize("apart", [1_000, 2_000, 4_999])
def test_rows_of_one_position_far_apart_in_a_task_are_found(stream: Stream, apart: int) -> None:
    columns = numbered(5_000) | {name: [value] * 5_000 for name, value in SOURCE.items()}
    columns["sub_sequence_number"] = list(range(5_000))
    columns["sub_sequence_number"][apart] = 0
    with pytest.raises(ShardwayError, match="stampIndex names an integer column"):
        write(stream, columns, stamps="position")
    index = {"pos": pa.array([int(row == apart) for row in range(5_000)], pa.int32())}
    assert write(stream, columns | index, stamps="position", stampIndex="pos").rows == 5_000


def test_stamps_by_key(stream: Stream) -> None:
    """A key that comes twice is written twice: it is the reader that takes it for a duplicate."""
    write(stream, numbered(3) | {"order_id": [7, 8, 7]}, stamps="order_id")
    opened = [open_sealed(data) for _, _, data in read_all(stream)]
    assert sorted(one.stamp.key for one in opened if one and one.stamp.key is not None) == ["7", "7", "8"]


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["false", "true"])
def test_what_the_service_refuses_in_part_is_written_in_order(stream: Stream, aggregation: str) -> None:
    faults = stream.local.faults
    faults.add(Fault(how="partial", operation="PutRecords", tag="sink", share=0.4, count=6, seed=1))
    faults.add(Fault(how="throttle", operation="PutRecords", tag="sink", skip=2, count=2))
    columns = numbered(1_500, keys=20)
    write(stream, columns, orderedByKey="true", aggregation=aggregation)
    assert by_key(read_all(stream)) == expected(columns)


def test_a_lost_reply_is_counted(stream: Stream) -> None:
    stream.local.faults.add(Fault(how="lost_reply", operation="PutRecords", tag="sink", count=1))
    commit = write(stream, numbered(100), orderedByKey="true")
    assert commit.duplicates_possible > 0
    assert len(read_all(stream)) > 100


def test_the_task_fails_with_what_the_service_said(stream: Stream) -> None:
    stream.local.faults.add(Fault(how="access_denied", operation="PutRecords", tag="sink"))
    with pytest.raises(PutError, match="AccessDenied") as caught:
        write(stream, numbered(5_000))
    assert "key-" not in str(caught.value)
    stream.local.faults.clear()
    assert write(stream, numbered(10)).rows == 10  # the next task has a producer that works


def test_a_task_that_does_not_get_on_gives_up_and_writes_nothing_later(stream: Stream) -> None:
    stream.local.faults.add(Fault(how="throttle", operation="PutRecords", tag="sink"))
    with pytest.raises(
        StalledError, match=r"for 1 s \(writeTimeoutMs\) none .* the service said \w*(Throttl|Throughput)"
    ):
        write(stream, numbered(100), writeTimeoutMs="1000")
    stream.local.faults.clear()
    calls = stream.local.stats().calls("PutRecords", "sink")
    assert write(stream, numbered(10)).rows == 10
    assert len(read_all(stream)) == 10
    assert stream.local.stats().calls("PutRecords", "sink") > calls


def test_a_stream_that_does_not_exist(stream: Stream) -> None:
    other = Stream(stream.local, StreamName("ordres"))
    with pytest.raises(
        ShardwayError, match=f"there is no stream ordres in region {stream.local.region} for these credentials"
    ):
        write(other, numbered(10))
    other.close()


@pytest.mark.parametrize(
    ("changes", "options", "match"),
    [
        ({"partition_key": ["a", None, "b"]}, {}, "partition_key is null in a row"),
        ({"data": [b"a", None, b"b"]}, {}, "data is null in a row"),
        ({"partition_key": ["a", "", "b"]}, {}, "a row that cannot be put"),
        ({"explicit_hash_key": ["1", "x", None]}, {}, "must be a decimal number"),
        ({"id": ["1", None, "2"]}, {"stamps": "id"}, "id is null in a row"),
    ],
)
def test_rows_that_cannot_be_put(stream: Stream, changes: dict[str, Any], options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidRecordError, match=match):
        write(stream, {**numbered(3), **changes}, **options)
    assert read_all(stream) == []


# --- how much a task holds, and what it keeps ------------------------------------------------------------------------


def test_a_task_waits_when_its_buffer_is_full(stream: Stream) -> None:
    """Rows are taken from Spark no faster than they are written: never more than the buffer and a portion."""
    stream.local.faults.add(Fault(how="delay", delay_s=0.05, operation="PutRecords", tag="sink"))
    row_bytes, batch_rows, taken, ahead = 50_000, 50, 0, []
    batch = pa.record_batch(
        {"partition_key": [f"key-{number}" for number in range(batch_rows)], "data": [bytes(row_bytes)] * batch_rows},
    )

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(8):
            ahead.append(taken - stream.local.stats().records("PutRecords", "sink"))
            taken += batch_rows
            yield batch

    settings = settings_of(stream, batch.schema, bufferBytesMax="11534336")
    assert write_batches(settings, batches()).rows == 400
    assert max(ahead) * row_bytes <= 11_534_336 + batch_rows * row_bytes
    assert max(ahead) * row_bytes >= 5_000_000, "the buffer was never used"


def test_a_worker_keeps_its_producer_from_task_to_task(stream: Stream) -> None:
    for _ in range(3):
        write(stream, numbered(10))
    assert stream.local.stats().calls("ListShards", "sink") == 1
    write(stream, numbered(10), orderedByKey="true")
    assert stream.local.stats().calls("ListShards", "sink") == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_worker_makes_its_own_producer(stream: Stream) -> None:
    """Spark's workers are forks of a daemon."""
    write(stream, numbered(10))
    child = os.fork()
    if child == 0:
        try:
            done = write(stream, numbered(20)).rows == 20
        except BaseException:
            done = False
        os._exit(0 if done else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(stream, numbered(30))
    assert len(read_all(stream)) == 60


def arn_of(stream: Stream) -> str:
    arn: str = stream.call("DescribeStreamSummary")["StreamDescriptionSummary"]["StreamARN"]
    return arn


def test_the_stream_may_be_given_by_its_arn() -> None:
    with LocalKinesis(streams={"orders": 1}) as local:
        named = Stream(local, StreamName("orders"))
        arn = arn_of(named)
        table = pa.table(numbered(10))
        parsed = parse_sink_options({"streamARN": arn})
        wire = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)
        schema = StructType([StructField(field.name, TYPES[field.type]) for field in table.schema])
        assert write_batches(SinkTask(parsed, sink_columns(schema, parsed), wire), table.to_batches()).rows == 10
        assert len(read_all(named)) == 10
        named.close()
