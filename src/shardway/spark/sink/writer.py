"""A task of the sink puts its rows, in their order, through a producer into the stream.

A task ends when all its rows are written, or raises. After the first row that is not written, nothing more is sent:
Spark runs the task again, and the rows that came behind that row are then written behind it.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from shardway.errors import InvalidRecordError, NotFoundError, ProducerClosedError, ShardwayError
from shardway.model import OutRecord
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.spark.sink.label_set import LabelSet
from shardway.spark.sink.portions import Portion, portions_of_batch, portions_of_rows
from shardway.spark.sink.producers import ProducerKey, abandon, hand_back, take_producer
from shardway.spark.sink.task import SinkCommit, SinkTask
from shardway.spark.sink.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.spark.options.sink_options import SinkOptions

ROW_OVERHEAD_BYTES = 256
"""Bytes that a producer counts for a record beside its data and key."""


def write_batches(task: SinkTask, batches: Iterable[pa.RecordBatch]) -> SinkCommit:
    """Write the rows of Arrow batches. Raises PutError, StalledError, and what a producer raises."""
    return _write(task, (rows for batch in batches for rows in portions_of_batch(task, batch)))


def write_rows(task: SinkTask, rows: Iterator[Any]) -> SinkCommit:
    """Write Spark's rows. Raises what ``write_batches`` raises."""
    return _write(task, portions_of_rows(task, rows))


def _write(task: SinkTask, portions: Iterator[Portion]) -> SinkCommit:
    options = task.options
    wanted = ProducerKey(
        str(options.stream), task.connection, options.aggregation, options.ordered_by_key, options.buffer_bytes_max
    )
    first = next(portions, None)
    if first is None:
        return SinkCommit(0, 0, 0, 0)
    try:
        producer = take_producer(wanted)
    except NotFoundError as error:
        where = f" in region {task.connection.region}" if task.connection.region else ""
        raise ShardwayError(
            f"there is no stream {options.stream}{where} for these credentials: check streamName, region and "
            f"endpointUrl ({error})"
        ) from error
    try:
        before = producer.metrics()
        rows = _put_all(options, producer, first, portions)
        after = producer.metrics()
    except ProducerClosedError as error:
        abandon(producer)
        raise ShardwayError(f"{options.stream}: the worker process is ending: {error}") from error
    except BaseException:
        abandon(producer)
        raise
    hand_back(wanted, producer)
    return _commit(rows, before, after)


def _put_all(options: SinkOptions, producer: SyncProducer[Any], first: Portion, rest: Iterator[Portion]) -> int:
    with closing(LabelSet()) if first.labels is not None else nullcontext() as labels:
        return _put_each(options, producer, chain([first], rest), labels)


def _put_each(
    options: SinkOptions, producer: SyncProducer[Any], portions: Iterable[Portion], labels: LabelSet | None
) -> int:
    window = Window(options, producer)
    count = 0
    for portion in portions:
        if labels is not None and portion.labels is not None and not labels.add(portion.labels):
            raise _shared_position()
        size = sum(map(len, portion.datas)) + sum(map(len, portion.keys)) + ROW_OVERHEAD_BYTES * len(portion.keys)
        window.make_room(size)
        try:
            puts = producer.put_many(_records(portion))
        except InvalidRecordError as error:
            raise InvalidRecordError(f"{options.stream}: {_place()} has a row that cannot be put: {error}") from None
        window.add(puts, size)
        count += len(portion.keys)
    window.drain()
    return count


def _records(portion: Portion) -> list[Any]:
    if portion.hash_keys is None:
        return list(zip(portion.keys, portion.datas, strict=True))
    return [
        OutRecord(data, key, None if hash_key is None else _hash_key(hash_key))
        for key, data, hash_key in zip(portion.keys, portion.datas, portion.hash_keys, strict=True)
    ]


def _hash_key(text: str) -> int:
    if not text.isdecimal():
        raise InvalidRecordError("explicit_hash_key must be a decimal number (0 to 2^128-1) or null")
    return int(text)


def _shared_position() -> ShardwayError:
    """Return the error for rows that share a stamp: a reader would remove one as a duplicate of the other."""
    return ShardwayError(
        "stamps position: two rows come from the same record of the source, and a reader would take one for a "
        "repeat of the other. Number them: stampIndex names an integer column that counts the rows of a record, "
        "the same in every run (posexplode makes one)"
    )


def _place() -> str:
    context = TaskContext.get()
    return "the write" if context is None else f"partition {context.partitionId()}"


def _commit(rows: int, before: ProducerSnapshot, after: ProducerSnapshot) -> SinkCommit:
    return SinkCommit(
        rows,
        after.records_put - before.records_put,
        after.user_bytes_put - before.user_bytes_put,
        after.duplicates_possible - before.duplicates_possible,
    )
