"""Make Arrow record batches of the records of a page: with the columns of the source, and with de-aggregated rows, by
column, cut at exact bounds.

A page becomes `Rows`: Arrow arrays of what differs from row to row. `Batcher` puts slices of them together
and adds the columns that are the same for a whole shard. Where a batch ends depends on the rows alone, never on
where pages happened to end, so that every attempt yields the same batches.
"""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.wire_format import MAGIC
from shardway.errors import AggregateError, OptionError
from shardway.model import OutsidePolicy
from shardway.spark.ranges import COLUMNS, OUTSIDE, SPARK_TYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shardway.aws.kinesis import WireRecord
    from shardway.core.aggregation.aggregate import Aggregate
    from shardway.spark.ranges import ShardRange, TaskOptions


# --- columns --------------------------------------------------------------------------------------
# The columns of the source have Spark types and Arrow types; a query asks for some of them.
#
# Spark 4.2 and later compare the Arrow schema of a task's batches with their own conversion of the query's
# schema, and demand equality of names, order, types and nullability.

_TYPES = {**SPARK_TYPES, OUTSIDE: "boolean"}

MAY_BE_NULL = frozenset({"partition_key", "explicit_hash_key"})
"""Columns that a schema given by the user may not declare NOT NULL."""

_ARROW_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
}


def arrow_schema(columns: Iterable[str] = COLUMNS, not_null: Collection[str] = ()) -> pa.Schema:
    """Return the Arrow schema that Spark converts these columns to. ``not_null``: the columns declared NOT NULL."""
    return pa.schema([pa.field(name, _ARROW_TYPES[_TYPES[name]], nullable=name not in not_null) for name in columns])


def asked_columns(schema: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the (columns, those of them that are NOT NULL) that a schema (StructType) given by a user asks for.

    Raises OptionError with every fault found: an unknown, repeated or wrongly typed column, a NOT NULL that
    cannot be kept, no column at all.
    """
    faults = [] if schema.fields else ["the schema asks for no column"]
    names: list[str] = []
    for field in schema.fields:
        name, spark_type = field.name, field.dataType.simpleString()
        if name not in _TYPES:
            near = difflib.get_close_matches(name, _TYPES, n=1)
            hint = f" (did you mean {near[0]}?)" if near else f" (the columns are {', '.join(COLUMNS)})"
            faults.append(f"the source has no column {name}{hint}")
        elif spark_type != _TYPES[name]:
            faults.append(f"column {name} is of type {_TYPES[name]}, not {spark_type}")
        elif name in names:
            faults.append(f"column {name} is asked for twice")
        elif not field.nullable and name in MAY_BE_NULL:
            faults.append(f"column {name} can be null, so it cannot be declared NOT NULL")
        names.append(name)
    if faults:
        raise OptionError(faults)
    return tuple(names), tuple(field.name for field in schema.fields if not field.nullable)


# --- rows -----------------------------------------------------------------------------------------

logger = logging.getLogger("shardway.spark")

EXPANDED_BYTES_MAX = 64 * 2**20
"""Bytes of data and keys up to which user records are gathered before they become arrays."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")


class Rows:
    """Consecutive rows of one shard as Arrow arrays. A column that is missing has its default throughout."""

    __slots__ = ("arrays", "count", "offsets", "shard_id")

    def __init__(self, shard_id: str, arrays: dict[str, pa.Array], offsets: NDArray[np.int64]) -> None:
        self.shard_id = shard_id
        self.arrays = arrays
        self.offsets = offsets
        """Bytes of data and partition keys before each row, and behind the last one those of all rows."""
        self.count = len(offsets) - 1

    def fitting(self, start: int, bytes_max: int, rows_max: int) -> int:
        """Return how many rows from ``start`` have at most ``bytes_max`` bytes and ``rows_max`` rows together."""
        end = int(np.searchsorted(self.offsets, self.offsets[start] + bytes_max, side="right")) - 1
        return max(0, min(end - start, rows_max, self.count - start))

    def reaching(self, start: int, bytes_wanted: int) -> int:
        """Return how many rows from ``start`` it takes to have ``bytes_wanted`` bytes (more than 0); else all."""
        end = int(np.searchsorted(self.offsets, self.offsets[start] + bytes_wanted, side="left"))
        return min(max(end - start, 1), self.count - start)

    def bytes_of(self, start: int, count: int) -> int:
        """Return the bytes of data and keys of ``count`` rows from ``start``."""
        return int(self.offsets[start + count] - self.offsets[start])


class OutsideTally:
    """Counts user records outside their shard's hash range, over a whole task."""

    def __init__(self) -> None:
        self.aggregates = 0
        """The number of aggregates that hold such records."""
        self.user_records = 0
        """The number of user records outside."""
        self.dropped = 0
        """The number of user records that were dropped, with the whole of their aggregates."""

    def tell(self, stream: str, options: TaskOptions) -> None:
        """Warn of what lay outside: nothing of this happens in silence."""
        if self.aggregates:
            done = f"{self.dropped} user records were dropped with them" if self.dropped else "they were delivered"
            logger.warning(
                "stream %s: %d user records of %d aggregates lie outside their shards' hash ranges (written with a "
                "shard map from before a reshard); %s, because aggregatesOutsideRange is %s",
                stream, self.user_records, self.aggregates, done, options.aggregates_outside_range.value,
            )  # fmt: skip


class RowMaker:
    """Makes rows of the records of one range, and counts what lay outside the shard's hash range."""

    def __init__(self, range_: ShardRange, options: TaskOptions, tally: OutsideTally) -> None:
        self.range = range_
        self._tally = tally
        self._policy = options.aggregates_outside_range
        self._rows_max = options.batch_rows_max
        self._keys = "partition_key" in options.columns
        self._numbers = "sequence_number" in options.columns
        self._times = "approximate_arrival_timestamp" in options.columns

    def rows(self, records: Sequence[WireRecord]) -> Iterator[Rows]:
        """Yield the rows of these records, in their order; a user record of an aggregate is a row of its own.

        Raises AggregateError for a user record outside the shard's hash range if the policy is "raise".
        """
        data = pa.array([record.data for record in records], pa.binary())
        flagged = pc.starts_with(data, pattern=MAGIC)
        if not flagged.true_count:
            if records:
                yield self._plain(records, data)
            return
        gathered = _Columns()
        done = 0
        for index in np.flatnonzero(flagged.to_numpy(zero_copy_only=False)).tolist():
            aggregate = open_aggregate(records[index].data)
            if aggregate is None:  # it only looked like an aggregate, and is a plain record
                continue
            gathered.add_plain(records[done:index])
            done = index + 1
            outside = self._outside(records[index], aggregate)
            if not (outside and self._policy is OutsidePolicy.DROP):
                gathered.add_aggregate(records[index], aggregate, outside=outside)
            if len(gathered.data) >= self._rows_max or gathered.bytes >= EXPANDED_BYTES_MAX:
                yield from self._gathered(gathered)
                gathered = _Columns()
        gathered.add_plain(records[done:])
        yield from self._gathered(gathered)

    def _plain(self, records: Sequence[WireRecord], data: pa.Array) -> Rows:
        arrays = {"data": data}
        offsets = _offsets(data)
        if self._keys:
            keys = arrays["partition_key"] = pa.array([record.partition_key for record in records], pa.string())
            offsets += _offsets(keys)
        if self._numbers:
            numbers = [record.sequence_number for record in records]
            arrays["sequence_number"] = pa.array(numbers, pa.string())
        if self._times:
            times = [record.approximate_arrival_timestamp for record in records]
            arrays["approximate_arrival_timestamp"] = timestamps(times)
        return Rows(self.range.shard_id, arrays, offsets)

    def _outside(self, record: WireRecord, aggregate: Aggregate) -> bool:
        """True if a user record is outside the shard's hash range, which is counted."""
        if self.range.hash_range is None:
            return False
        outside = len(aggregate.outside(*self.range.hash_range))
        if not outside:
            return False
        if self._policy is OutsidePolicy.RAISE:
            raise AggregateError(
                f"{outside} of {len(aggregate)} user records of the aggregate at sequence number "
                f"{record.sequence_number} of {self.range.shard_id} lie outside the shard's hash range: it was "
                "written with a shard map from before a reshard. Set aggregatesOutsideRange to deliver or drop."
            )
        self._tally.aggregates += 1
        self._tally.user_records += outside
        if self._policy is OutsidePolicy.DROP:
            self._tally.dropped += len(aggregate)
        return True

    def _gathered(self, columns: _Columns) -> Iterator[Rows]:
        """Yield rows of what was gathered, in parts that an Arrow array can hold whatever is inside."""
        sizes = np.fromiter(map(len, columns.data), np.int64, len(columns.data))
        sizes += np.fromiter((len(key) if key else 0 for key in columns.partition_key), np.int64, len(sizes))
        ends = np.cumsum(sizes)
        start = 0
        while start < len(sizes):
            floor = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, floor + EXPANDED_BYTES_MAX, side="right"))
            stop = min(max(stop, start + 1), start + self._rows_max, len(sizes))
            yield self._part(columns, slice(start, stop))
            start = stop

    def _part(self, columns: _Columns, part: slice) -> Rows:
        data = pa.array(columns.data[part], pa.binary())
        arrays = {
            "data": data,
            "sub_sequence_number": pa.array(columns.sub_sequence_number[part], pa.int64()),
            "explicit_hash_key": pa.array(columns.explicit_hash_key[part], pa.string()),
            OUTSIDE: pa.array(columns.outside[part], pa.bool_()),
        }
        offsets = _offsets(data)
        if self._keys:
            keys = arrays["partition_key"] = pa.array(columns.partition_key[part], pa.string())
            offsets += _offsets(keys)
        if self._numbers:
            arrays["sequence_number"] = pa.array(columns.sequence_number[part], pa.string())
        if self._times:
            arrays["approximate_arrival_timestamp"] = timestamps(columns.arrival_s[part])
        return Rows(self.range.shard_id, arrays, offsets)


class _Columns:
    """User records and the plain records between them, by column, on their way to arrays."""

    def __init__(self) -> None:
        self.partition_key: list[str | None] = []
        self.data: list[bytes] = []
        self.sequence_number: list[str] = []
        self.sub_sequence_number: list[int] = []
        self.arrival_s: list[float] = []
        self.explicit_hash_key: list[str | None] = []
        self.outside: list[bool] = []
        self.bytes = 0
        """Bytes of the records' data, as they came."""

    def add_plain(self, records: Sequence[WireRecord]) -> None:
        count = len(records)
        self.partition_key += [record.partition_key for record in records]
        self.data += [record.data for record in records]
        self.sequence_number += [record.sequence_number for record in records]
        self.sub_sequence_number += [0] * count
        self.arrival_s += [record.approximate_arrival_timestamp for record in records]
        self.explicit_hash_key += [None] * count
        self.outside += [False] * count
        self.bytes += sum(len(record.data) for record in records)

    def add_aggregate(self, record: WireRecord, aggregate: Aggregate, *, outside: bool) -> None:
        count = len(aggregate)
        self.partition_key += aggregate.partition_keys()
        self.data += aggregate.datas
        self.sequence_number += [record.sequence_number] * count
        self.sub_sequence_number += range(count)
        self.arrival_s += [record.approximate_arrival_timestamp] * count
        self.explicit_hash_key += [None if key is None else str(key) for key in aggregate.explicit_hash_keys()]
        self.outside += [outside] * count
        self.bytes += len(record.data)


def timestamps(epoch_s: Sequence[float]) -> pa.Array:
    """Return arrival times as Spark timestamps, rounded to the millisecond, which is what the service gives."""
    millis = np.rint(np.asarray(epoch_s, np.float64) * 1000.0).astype(np.int64)
    return pa.array(millis * 1000).view(_TIMESTAMP)


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    """Return the offsets of a binary or string array that was just built (not sliced), counted from its start."""
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, np.int32, len(array) + 1).astype(np.int64)


class Batcher:
    """Puts rows together to record batches, each with at most ``batch_bytes_max`` bytes (data and keys) and
    ``batch_rows_max`` rows.

    A single row that is larger makes a batch of its own.
    """

    def __init__(self, stream: str, options: TaskOptions) -> None:
        self.schema = arrow_schema(options.columns, options.columns_not_null)
        self._bytes_max = options.batch_bytes_max
        self._rows_max = options.batch_rows_max
        self._stream = pa.scalar(stream, pa.string())
        self._pieces: list[tuple[Rows, int, int]] = []
        self._bytes = 0
        self._count = 0

    def add(self, rows: Rows, start: int, count: int) -> Iterator[pa.RecordBatch]:
        """Take ``count`` rows from ``start``; yield the batches that are full by it."""
        end = start + count
        while start < end:
            room = rows.fitting(start, self._bytes_max - self._bytes, self._rows_max - self._count)
            taken = min(room, end - start)
            if taken == 0 and self._pieces:
                yield self._batch()
                continue
            taken = max(taken, 1)
            self._pieces.append((rows, start, taken))
            self._bytes += rows.bytes_of(start, taken)
            self._count += taken
            start += taken

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left at the end, if anything."""
        if self._pieces:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        arrays = [self._column(name) for name in self.schema.names]
        self._pieces, self._bytes, self._count = [], 0, 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str) -> pa.Array:
        if name == "stream":
            return pa.repeat(self._stream, self._count)
        parts = [_slice(rows, name, start, count) for rows, start, count in self._pieces]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _slice(rows: Rows, name: str, start: int, count: int) -> pa.Array:
    array: Any = rows.arrays.get(name)
    if array is not None:
        return array.slice(start, count)
    if name == "shard_id":
        return pa.repeat(pa.scalar(rows.shard_id, pa.string()), count)
    if name == "sub_sequence_number":
        return pa.array(np.zeros(count, np.int64))
    if name == OUTSIDE:
        return pa.array(np.zeros(count, np.bool_))
    return pa.nulls(count, pa.string())
