"""Records of a page become Arrow rows: column by column, and with aggregates opened.

A page becomes `Rows`: Arrow arrays of what differs from row to row.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.wire_format import MAGIC
from shardway.errors import AggregateError
from shardway.model import OutsidePolicy
from shardway.spark.columns import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from shardway.aws.kinesis.shapes import WireRecord
    from shardway.core.aggregation.aggregate import Aggregate
    from shardway.spark.ranges import ShardRange, TaskOptions

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

    def warn(self, stream: str, options: TaskOptions) -> None:
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
                yield self._plain_rows(records, data)
            return
        gathered = _Columns()
        done = 0
        for index in np.flatnonzero(flagged.to_numpy(zero_copy_only=False)).tolist():
            aggregate = open_aggregate(records[index].data)
            if aggregate is None:  # it only looked like an aggregate, and is a plain record
                continue
            gathered.add_plain(records[done:index])
            done = index + 1
            outside = self._is_outside(records[index], aggregate)
            if not (outside and self._policy is OutsidePolicy.DROP):
                gathered.add_aggregate(records[index], aggregate, outside=outside)
            if len(gathered.data) >= self._rows_max or gathered.bytes >= EXPANDED_BYTES_MAX:
                yield from self._split(gathered)
                gathered = _Columns()
        gathered.add_plain(records[done:])
        yield from self._split(gathered)

    def _plain_rows(self, records: Sequence[WireRecord], data: pa.Array) -> Rows:
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

    def _is_outside(self, record: WireRecord, aggregate: Aggregate) -> bool:
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

    def _split(self, columns: _Columns) -> Iterator[Rows]:
        """Yield rows of what was gathered, in parts that are small enough for an Arrow array."""
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
