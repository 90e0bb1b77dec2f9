"""Has Spark sources to compare ours with. Both plan as ours does, so partitions are the same, and differ in `read`.

Workers import this module, so it must be on their PYTHONPATH.
"""

from __future__ import annotations

import bisect
import datetime as dt
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pyarrow as pa
from botocore.config import Config
from pyspark.sql.datasource import InputPartition

from shardway.spark.ranges import EndKind, ShardPartition
from shardway.spark.source import ShardwayDataSource, ShardwayStreamReader
from shardway.spark.task.arrow_columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from shardway.spark.ranges import ShardRange, TaskOptions

RECORDS_PATH = "SHARDWAY_BENCH_RECORDS"
"""The environment variable with the path of a pickled file. The file says what is in the streams, for the source that
reads nothing.
"""


class StreamFacts(NamedTuple):
    """The contents of a stream whose records all have data and keys of these sizes."""

    data_bytes: int
    key_bytes: int
    numbers: dict[str, list[int]]
    """The sequence numbers of each shard's records, by shard id."""


# --- boto3 and tuples -------------------------------------------------------------------------------

_clients: dict[str | None, Any] = {}


def _client(endpoint_url: str | None, region: str | None) -> Any:
    client = _clients.get(endpoint_url)
    if client is None:
        config = Config(retries={"mode": "standard", "max_attempts": 10})
        client = boto3.client("kinesis", region_name=region, endpoint_url=endpoint_url, config=config)
        _clients[endpoint_url] = client
    return client


class TuplesReader(ShardwayStreamReader):
    """Reads the same ranges with boto3, page by page, and yields tuples."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, ShardPartition)
        wire = partition.options.connection
        client = _client(wire.endpoint_url, wire.region)
        for chain in partition.chains:
            for one in chain:
                yield from _tuples(client, partition.stream.short, one)


def _tuples(client: Any, stream: str, one: ShardRange) -> Iterator[tuple[Any, ...]]:
    iterator = client.get_shard_iterator(
        StreamName=stream,
        ShardId=one.shard_id,
        ShardIteratorType="AT_SEQUENCE_NUMBER",
        StartingSequenceNumber=str(one.first_sequence_number),
    )["ShardIterator"]
    end = one.end_sequence_number or 0  # None stands for the shard's end
    while iterator:
        page = client.get_records(ShardIterator=iterator, Limit=10_000)
        for record in page["Records"]:
            number = int(record["SequenceNumber"])
            if one.end_kind is EndKind.EXCLUSIVE and number >= end:
                return
            yield (
                record["PartitionKey"],
                record["Data"],
                stream,
                one.shard_id,
                record["SequenceNumber"],
                0,
                record["ApproximateArrivalTimestamp"],
                None,
            )
            if one.end_kind is EndKind.INCLUSIVE and number >= end:
                return
        iterator = page.get("NextShardIterator")


class TuplesSource(ShardwayDataSource):
    """The source that reads with boto3 and yields tuples."""

    @classmethod
    def name(cls) -> str:
        return "boto3_tuples"

    def streamReader(self, schema: StructType) -> ShardwayStreamReader:  # noqa: N802 - Spark's name
        ours = super().streamReader(schema)
        assert isinstance(ours, ShardwayStreamReader)
        return TuplesReader(ours._options, ours._task_options)


# --- lists, nothing read ----------------------------------------------------------------------------


class CountedPartition(InputPartition):
    """The number of rows that a task of ours would yield, with what their values are made of."""

    def __init__(self, rows: int, facts: StreamFacts, options: TaskOptions, stream: str, shard_id: str) -> None:
        self.rows = rows
        self.data_bytes = facts.data_bytes
        self.key_bytes = facts.key_bytes
        self.options = options
        self.stream = stream
        self.shard_id = shard_id


class ListsReader(ShardwayStreamReader):
    """Reads nothing, and yields as many rows as ours in batches of the same size. It makes them of lists that are
    there already.
    """

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [self._counted(task) for task in super().partitions(start, end) if isinstance(task, ShardPartition)]

    def _counted(self, task: ShardPartition) -> CountedPartition:
        facts = _facts()[task.stream.short]
        rows = sum(_rows_in(one, facts.numbers[one.shard_id]) for chain in task.chains for one in chain)
        return CountedPartition(rows, facts, task.options, task.stream.short, task.chains[0][0].shard_id)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, CountedPartition)
        options = partition.options
        row_bytes = partition.data_bytes + partition.key_bytes
        size = min(options.batch_rows_max, options.batch_bytes_max // row_bytes)
        lists = _lists(partition, size)
        schema = arrow_schema(options.columns, options.columns_not_null)
        for start in range(0, partition.rows, size):
            count = min(size, partition.rows - start)
            columns = lists if count == size else {name: values[:count] for name, values in lists.items()}
            arrays = [pa.array(columns[field.name], field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


_known: dict[str, StreamFacts] = {}
_made: dict[tuple[int, int], dict[str, list[Any]]] = {}


def _facts() -> Mapping[str, StreamFacts]:
    if not _known:
        _known.update(pickle.loads(Path(os.environ[RECORDS_PATH]).read_bytes()))
    return _known


def _rows_in(one: ShardRange, numbers: list[int]) -> int:
    first = bisect.bisect_left(numbers, one.first_sequence_number)
    if one.end_kind is EndKind.SHARD_END:
        return len(numbers) - first
    end = one.end_sequence_number
    assert end is not None
    cut = bisect.bisect_left if one.end_kind is EndKind.EXCLUSIVE else bisect.bisect_right
    return cut(numbers, end) - first


def _lists(partition: CountedPartition, count: int) -> dict[str, list[Any]]:
    """Return ``count`` values like those of the stream, by column. They are made once per worker."""
    key = (partition.data_bytes, count)
    if key not in _made:
        arrived = dt.datetime.now(dt.UTC).replace(microsecond=0)
        _made[key] = {
            "partition_key": [f"key-{n:0{partition.key_bytes - 4}d}" for n in range(count)],
            "data": [os.urandom(partition.data_bytes) for _ in range(count)],
            "stream": [partition.stream] * count,
            "shard_id": [partition.shard_id] * count,
            "sequence_number": [str(10**55 + n) for n in range(count)],
            "sub_sequence_number": [0] * count,
            "approximate_arrival_timestamp": [arrived + dt.timedelta(milliseconds=n) for n in range(count)],
            "explicit_hash_key": [None] * count,
        }
    return _made[key]


class ListsSource(ShardwayDataSource):
    """The source that makes Arrow arrays of lists."""

    @classmethod
    def name(cls) -> str:
        return "arrow_lists"

    def streamReader(self, schema: StructType) -> ShardwayStreamReader:  # noqa: N802 - Spark's name
        ours = super().streamReader(schema)
        assert isinstance(ours, ShardwayStreamReader)
        return ListsReader(ours._options, ours._task_options)
