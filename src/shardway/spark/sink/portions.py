"""Rows of a DataFrame become portions: columns of keys, data and labels, as a producer takes them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from shardway.errors import InvalidRecordError, ShardwayError
from shardway.spark.options.sink_options import BY_POSITION, NO_STAMPS
from shardway.spark.sink.task import SinkTask
from shardway.spark.stamps import key_labels, position_labels, seal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.spark.options.sink_columns import SinkColumns

PUT_ROWS_MAX = 1_000
PUT_BYTES = 1024 * 1024
"""Bytes of data, about, in one portion of rows for the producer; with a full buffer a task waits for the oldest one."""


class Portion(NamedTuple):
    """A portion of rows, as columns."""

    keys: list[str]
    datas: list[bytes]
    hash_keys: list[str | None] | None
    labels: list[bytes] | None


def portions_of_batch(task: SinkTask, batch: pa.RecordBatch) -> Iterator[Portion]:
    """Yield the rows of an Arrow batch, in portions."""
    step = max(1, min(PUT_ROWS_MAX, PUT_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)

        def column(place: int, part: pa.RecordBatch = part) -> list[Any]:
            values: list[Any] = part.column(place).to_pylist()
            return values

        yield _portion(task, column)


def portions_of_rows(task: SinkTask, rows: Iterator[Any]) -> Iterator[Portion]:
    """Yield Spark's rows as columns, in portions."""
    place = task.columns.data
    while some := list(islice(rows, PUT_ROWS_MAX)):
        size = sum(len(row[place]) for row in some if row[place] is not None)
        step = max(1, PUT_ROWS_MAX * PUT_BYTES // max(size, PUT_BYTES))
        for start in range(0, len(some), step):
            part = some[start : start + step]
            yield _portion(task, lambda at, part=part: [row[at] for row in part])


def _portion(task: SinkTask, column: Any) -> Portion:
    places, stamps = task.columns, task.options.stamps
    keys, datas = column(places.partition_key), column(places.data)
    _no_nulls(keys, "partition_key", "it chooses the shard: give such rows one (coalesce), or leave them out")
    _no_nulls(datas, "data", "it is what is written: give such rows some (coalesce), or leave them out")
    if set(map(type, datas)) != {bytes}:
        datas = [data.encode() if isinstance(data, str) else bytes(data) for data in datas]
    labels = None
    if stamps != NO_STAMPS:
        labels = _position_labels(places, column) if stamps == BY_POSITION else _key_labels(places, stamps, column)
        datas = seal(labels, datas)
    hash_keys = None if places.explicit_hash_key is None else column(places.explicit_hash_key)
    if hash_keys is not None and all(hash_key is None for hash_key in hash_keys):
        hash_keys = None
    return Portion(keys, datas, hash_keys, labels if stamps == BY_POSITION else None)


def _position_labels(places: SinkColumns, column: Any) -> list[bytes]:
    assert places.position is not None
    columns = [column(place) for place in places.position]
    if places.row_index is not None:
        columns.append(column(places.row_index))
    for values in columns:
        _no_nulls(values, "a column of the position", "each row must come from a record of the source")
    try:
        return position_labels(*columns)
    except (ValueError, OverflowError) as error:
        raise ShardwayError(f"stamps position: a row's position is not one of the source: {error}") from None


def _key_labels(places: SinkColumns, name: str, column: Any) -> list[bytes]:
    assert places.key is not None
    keys = column(places.key)
    _no_nulls(keys, name, "stamps names it, and a row without a key has no stamp")
    try:
        return key_labels(keys)
    except OverflowError:
        raise ShardwayError(f"column {name}: a key of more than 65,535 bytes is no stamp: take a hash of it") from None


def _no_nulls(values: list[Any], name: str, why: str) -> None:
    if None in values:
        raise InvalidRecordError(f"{name} is null in a row: {why}")
